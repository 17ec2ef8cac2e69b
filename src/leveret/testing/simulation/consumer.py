"""A client that consumes with acknowledgements and records its deliveries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import ChannelCore
from leveret.client.protocol.model import Delivery, DeliverySink
from leveret.testing.simulation.client import Client
from leveret.testing.simulation.network import Network, SimulatedHost
from leveret.wire.table import Value


@dataclass(frozen=True)
class Received:
    """A delivery. `hops` are the brokers that it was forwarded by, the last one first (from x-received-from)."""

    id: str
    key: str
    redelivered: bool
    hops: tuple[str, ...]
    headers: dict[str, Value]
    body: bytes


class Consumer(Client):
    """A consumer.

    Attributes:
        deliveries: All its deliveries, in order.
        late_acks: How many acknowledgements came when their connection was lost: those messages come again.
    """

    def __init__(
        self, network: Network, host: SimulatedHost, broker: str, queue: str, prefetch: int, work_ms: int
    ) -> None:
        self.queue = queue
        self.deliveries: list[Received] = []
        self.late_acks = 0
        self._prefetch = prefetch
        self._work_us = work_ms * 1000
        super().__init__(network, host, broker)

    def copies(self) -> Counter[str]:
        """Return how many copies of each message were delivered, at least.

        A delivery marked as redelivered may repeat an earlier one, and counts only if no other delivery of the message
        does.

        A second copy is not always a link's fault: a message that is delivered before it is synced, and lost in a power
        cut, must be sent again. To tell real duplicates, count in a queue that is read only at the end.
        """
        fresh = Counter(each.id for each in self.deliveries if not each.redelivered)
        fresh.update({each.id for each in self.deliveries} - fresh.keys())
        return fresh

    def on_open(self, channel: ChannelCore[int]) -> None:
        self.ask(channel, requests.qos(self._prefetch, shared=False))
        channel.consume(DeliverySink("simulation", self._deliver, lambda error: None), self.queue, False, False, None)

    def _deliver(self, delivery: Delivery) -> None:
        properties = delivery.properties
        headers = properties.headers or {}
        header = headers.get("x-received-from")
        entries = header if isinstance(header, list) else []
        hops = tuple(str(each["cluster-name"]) for each in entries if isinstance(each, dict))
        id = properties.message_id or ""
        self.deliveries.append(Received(id, delivery.routing_key, delivery.redelivered, hops, headers, delivery.body))
        self.network.trace.note(self.name, "received", id, int(delivery.redelivered))

        self.clock.later(self._work_us, lambda: self._acknowledge(delivery.delivery_tag))

    def _acknowledge(self, delivery_tag: int) -> None:
        channel = self.channel
        if channel is not None and channel.is_open:
            self.late_acks += not channel.ack(delivery_tag, False)
            self.flush()
