"""What endpoints declare and where they publish, in NServiceBus.RabbitMQ's two routing topologies."""

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
"""Where the direct topology publishes events; it belongs to the broker and needs no declaration."""

PSEUDO_QUEUES: Final = "amq.rabbitmq.reply-to."
"""Direct reply-to has neither exchange nor queue: only the default exchange knows such addresses."""

QueueType = Literal["", "classic", "quorum"]


@dataclass(frozen=True)
class Topology:
    """routing: CONVENTIONAL (an exchange for each endpoint and each type of event) or DIRECT (the default exchange and
    amq.topic); layout: the delay levels; queue_type: of the endpoints' own queues, "" = the broker's default.
    """

    routing: RoutingTopology = CONVENTIONAL
    layout: Layout = NSERVICEBUS
    queue_type: QueueType = ""

    @property
    def is_conventional(self) -> bool:
        return self.routing is CONVENTIONAL

    def address(self, destination: str) -> tuple[str, str]:
        """Exchange and routing key for a message to this endpoint."""
        if self.is_conventional and not destination.startswith(PSEUDO_QUEUES):
            return destination, ""
        return "", destination

    def event(self, names: tuple[str, ...]) -> tuple[str, str]:
        """Exchange and routing key for an event of these types."""
        return (types.exchange_name(names[0]), "") if self.is_conventional else (EVENTS, types.routing_key(names))

    async def declare_queue(self, channel: Channel, name: str) -> None:
        """The durable queue of an address."""
        arguments: dict[str, Value] = {"x-queue-type": self.queue_type} if self.queue_type else {}
        await channel.declare_queue(name, durable=True, arguments=arguments)

    async def declare_exchange(self, channel: Channel, name: str) -> None:
        """The exchange in front of a queue, where the topology has one."""
        if self.is_conventional:
            await channel.declare_exchange(name, kind="fanout", durable=True)
            await channel.bind_queue(name, name)

    async def declare_private(self, channel: Channel, name: str) -> None:
        """An address that goes when its connection does: for replies to this process."""
        await channel.declare_queue(name, durable=False, exclusive=True, auto_delete=True)
        if self.is_conventional:
            await channel.declare_exchange(name, kind="fanout", durable=False, auto_delete=True)
            await channel.bind_queue(name, name)

    async def declare_delays(self, channel: Channel, name: str) -> None:
        """The delay levels, and the binding by which this address receives what is due."""
        await self.layout.declare(channel)
        await delays.declare(channel, [self.routing.destination_binding(self.layout, name)])

    async def declare_event(self, channel: Channel, names: tuple[str, ...]) -> None:
        """An exchange for each type; what arrives at the special one flows on to the general ones."""
        if not self.is_conventional:
            return
        exchanges = [types.exchange_name(name) for name in names]
        for exchange in exchanges:
            await channel.declare_exchange(exchange, kind="fanout", durable=True)
        for special, general in pairwise(exchanges):
            await channel.bind_exchange(general, special)

    async def subscribe(self, channel: Channel, names: tuple[str, ...], subscriber: str) -> None:
        """Let the subscriber's queue receive events of a type, and of those that descend from it."""
        await self.declare_event(channel, names)
        if self.is_conventional:
            await channel.bind_exchange(subscriber, types.exchange_name(names[0]))
        else:
            await channel.bind_queue(subscriber, EVENTS, f"{types.routing_key(names)}.#")

    async def unsubscribe(self, channel: Channel, names: tuple[str, ...], subscriber: str) -> None:
        """Undo :meth:`subscribe`; without effect where there is no subscription."""
        await self.declare_event(channel, names)
        if self.is_conventional:
            await channel.unbind_exchange(subscriber, types.exchange_name(names[0]))
        else:
            await channel.unbind_queue(subscriber, EVENTS, f"{types.routing_key(names)}.#")
