"""NServiceBus.RabbitMQ's routing topologies: how a message gets from the delivery exchange to its destination."""

from __future__ import annotations

from enum import Enum

from leveret.delay.layout import Layout
from leveret.delay.topology import ExchangeBinding, QueueBinding


class RoutingTopology(Enum):
    """A routing topology.

    Attributes:
        CONVENTIONAL: Each endpoint has a fanout exchange of its name, to which its queue is bound.
        DIRECT: Each endpoint has a queue only.
    """

    CONVENTIONAL = "conventional"
    DIRECT = "direct"

    def destination_binding(self, layout: Layout, address: str) -> ExchangeBinding | QueueBinding:
        """Return the binding by which the endpoint with this address receives its delayed messages."""
        if self is RoutingTopology.DIRECT:
            return layout.destination_binding(address)
        return ExchangeBinding(address, layout.delivery_exchange, f"#.{address}")


CONVENTIONAL = RoutingTopology.CONVENTIONAL
DIRECT = RoutingTopology.DIRECT
