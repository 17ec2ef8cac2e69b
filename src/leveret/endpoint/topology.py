"""The queues, exchanges and bindings of endpoints, in the two routing topologies of NServiceBus.RabbitMQ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from leveret.client import Channel
from leveret.delay import CONVENTIONAL, NSERVICEBUS, Layout, RoutingTopology
from leveret.delay import topology as delays
from leveret.endpoint import types
from leveret.wire.table import Value

EVENTS: Final = "amq.topic"
"""The exchange for events in the direct topology; it is predeclared by the broker."""

PSEUDO_QUEUES: Final = "amq.rabbitmq.reply-to."
"""Prefix of direct reply-to addresses, which only the default exchange routes: they have no exchange or queue."""

QueueType = Literal["", "classic", "quorum"]


@dataclass(frozen=True)
class Topology:
    """A routing topology.

    Attributes:
        routing: CONVENTIONAL (one exchange per endpoint and per type of event) or DIRECT (default exchange, amq.topic).
        layout: Layout of the delay levels.
        queue_type: Type of the endpoints' queues; "" = the broker's default.
    """

    routing: RoutingTopology = CONVENTIONAL
    layout: Layout = NSERVICEBUS
    queue_type: QueueType = ""

    @property
    def is_conventional(self) -> bool:
        """Whether the routing topology is CONVENTIONAL."""
        return self.routing is CONVENTIONAL

    def address(self, destination: str) -> tuple[str, str]:
        """Return exchange and routing key of a message to this endpoint."""
        if self.is_conventional and not destination.startswith(PSEUDO_QUEUES):
            return destination, ""
        return "", destination

    def event(self, names: tuple[str, ...]) -> tuple[str, str]:
        """Return exchange and routing key of an event of these types."""
        return (types.exchange_name(names[0]), "") if self.is_conventional else (EVENTS, types.routing_key(names))

    async def declare_queue(self, channel: Channel, name: str) -> None:
        """Declare the durable queue of an address."""
        arguments: dict[str, Value] = {"x-queue-type": self.queue_type} if self.queue_type else {}
        await channel.declare_queue(name, durable=True, arguments=arguments)

    async def declare_exchange(self, channel: Channel, name: str) -> None:
        """Declare the exchange of a queue, if the topology has one, and bind the queue to it."""
        if self.is_conventional:
            await channel.declare_exchange(name, kind="fanout", durable=True)
            await channel.bind_queue(name, name)

    async def declare_private(self, channel: Channel, name: str) -> None:
        """Declare a temporary address, for replies to this process; it is deleted with the connection."""
        await channel.declare_queue(name, durable=False, exclusive=True, auto_delete=True)
        if self.is_conventional:
            await channel.declare_exchange(name, kind="fanout", durable=False, auto_delete=True)
            await channel.bind_queue(name, name)

    async def declare_delays(self, channel: Channel, name: str) -> None:
        """Declare the delay levels, and the binding by which this address receives messages that are due."""
        await self.layout.declare(channel)
        await delays.declare(channel, [self.routing.destination_binding(self.layout, name)])

    async def declare_event(self, channel: Channel, names: tuple[str, ...]) -> None:
        """Declare an exchange per type, and bind each parent type's exchange to that of the derived type."""
        if not self.is_conventional:
            return
        exchanges = [types.exchange_name(name) for name in names]
        for exchange in exchanges:
            await channel.declare_exchange(exchange, kind="fanout", durable=True)
        for special, general in pairwise(exchanges):
            await channel.bind_exchange(general, special)

    async def subscribe(self, channel: Channel, names: tuple[str, ...], subscriber: str) -> None:
        """Subscribe an endpoint to events of a type and of its derived types."""
        await self.declare_event(channel, names)
        if self.is_conventional:
            await channel.bind_exchange(subscriber, types.exchange_name(names[0]))
        else:
            await channel.bind_queue(subscriber, EVENTS, f"{types.routing_key(names)}.#")

    async def unsubscribe(self, channel: Channel, names: tuple[str, ...], subscriber: str) -> None:
        """Undo :meth:`subscribe`. No effect if there is no subscription."""
        await self.declare_event(channel, names)
        if self.is_conventional:
            await channel.unbind_exchange(subscriber, types.exchange_name(names[0]))
        else:
            await channel.unbind_queue(subscriber, EVENTS, f"{types.routing_key(names)}.#")
