"""Where the publishes of one exchange and routing key go, found once and kept until a binding changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.consumer import Consumer
from leveret.broker.queue import Queue

if TYPE_CHECKING:
    from leveret.broker.exchange import Exchange


class Route:
    """key: exchange and routing key as two short strings, as basic.deliver carries them. exchange is None for "".

    durable: those of the queues that are in the journal. by_headers: a headers exchange is on the way, so the queues
    are looked up for each message. reply: the requester whose direct reply-to name the routing key is.
    """

    def __init__(self, generation: i64, key: bytes, exchange: Exchange | None, routing_key: str) -> None:
        self.generation = generation
        self.key = key
        self.exchange = exchange
        self.routing_key = routing_key
        self.queues: list[Queue] = []
        self.durable: list[Queue] = []
        self.by_headers = False
        self.is_mandatory = False
        self.reply: Consumer | None = None

    def to(self, queues: list[Queue]) -> Route:
        """The same publish on its way to queues that are looked for once and no more."""
        route = Route(self.generation, self.key, self.exchange, self.routing_key)
        route.is_mandatory = self.is_mandatory
        route.set_queues(queues)
        return route

    def set_queues(self, queues: list[Queue]) -> None:
        self.queues = queues
        self.durable = [queue for queue in queues if queue.is_journalled]
