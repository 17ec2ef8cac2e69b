"""How a message gets from the delivery exchange to its destination (NServiceBus.RabbitMQ's routing topologies)."""

from __future__ import annotations

from enum import Enum

from leveret.delay.layout import Layout
from leveret.delay.topology import ExchangeBinding, QueueBinding


class RoutingTopology(Enum):
    """CONVENTIONAL: an endpoint has a fanout exchange of its name, bound to its queue; DIRECT: it has a queue only."""

    CONVENTIONAL = "conventional"
    DIRECT = "direct"

    def destination_binding(self, layout: Layout, address: str) -> ExchangeBinding | QueueBinding:
        """What lets the endpoint with this address receive the delayed messages that are meant for it."""
        if self is RoutingTopology.DIRECT:
            return layout.destination_binding(address)
        return ExchangeBinding(address, layout.delivery_exchange, f"#.{address}")


CONVENTIONAL = RoutingTopology.CONVENTIONAL
DIRECT = RoutingTopology.DIRECT
