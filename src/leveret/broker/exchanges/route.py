"""Where the publishes of one exchange and routing key go, found once and kept until a binding changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.counters import Passage
from leveret.broker.queues.consumer import Consumer
from leveret.broker.queues.queue import Queue

if TYPE_CHECKING:
    from leveret.broker.exchanges.exchange import Exchange

# queues that get a message in one step, and by one record of the journal
QUEUES_MAX: Final[i64] = 4096


class Route:
    """key: exchange and routing key as two short strings, as basic.deliver carries them. exchange is None for "".

    durable: those of the queues that are in the journal; keeping: those that are there with transient messages, too.
    is_per_message: an exchange on the way looks at more than the keys, so the queues are looked up for each message; or
    the firehose is on. plain: where exchanges on the way look at hops (x-federation-upstream) and at nothing else, the
    route of messages that have not come over a link; travelled: those of messages that have, by their hops. replies:
    the requesters whose direct reply-to names are among the routing keys. keys: the routing key, then those of CC and
    BCC. lost_replies: how many of them are such names that nobody has any more. is_limited: some queue has limits, or
    there are very many.
    is_brief: what comes to some queue has no time to wait there. is_delayed: among the queues are schedules, where
    delayed exchanges hold the message. has_stream: among them are streams. is_repeatable: messages that differ in their
    bodies only may be handled as one. passes: there is one queue, which may hand what comes to a consumer at once.
    is_order: it says what becomes of stages. is_wide: there are more than QUEUES_MAX, found once for all; it
    is_per_message, so that somebody looks (spread.py). published: messages that nobody's counters have seen yet.
    """

    def __init__(self, generation: i64, key: bytes, exchange: Exchange | None, keys: list[str]) -> None:
        self.generation = generation
        self.key = key
        self.exchange = exchange
        self.keys = keys
        self.queues: list[Queue] = []
        self.durable: list[Queue] = []
        self.keeping: list[Queue] = []
        self.is_per_message = False
        self.plain: Route | None = None
        self.travelled: dict[bytes, Route] = {}
        self.is_mandatory = False
        self.is_limited = False
        self.is_brief = False
        self.is_delayed = False
        self.has_stream = False
        self.is_repeatable = False
        self.passes = False
        self.is_order = False
        self.is_wide = False
        self.replies: list[Consumer] = []
        self.lost_replies: i64 = 0
        self.published: i64 = 0

    def to(self, queues: list[Queue]) -> Route:
        """The same publish on its way to queues that are looked for once and no more."""
        route = Route(self.generation, self.key, self.exchange, self.keys)
        route.is_mandatory = self.is_mandatory
        route.set_queues(queues)
        return route

    def set_queues(self, queues: list[Queue]) -> None:
        self.queues = queues
        self.durable = [queue for queue in queues if queue.is_journalled]
        self.keeping = [queue for queue in queues if queue.keeps_all]
        self.is_limited = len(queues) > QUEUES_MAX
        self.is_brief = False
        self.is_delayed = False
        self.has_stream = False
        for queue in queues:
            if queue.limits is not None:
                self.is_limited = True
            if queue.ttl_us == 0:
                self.is_brief = True
            if queue.is_schedule:
                self.is_delayed = True
            if queue.is_stream:
                self.has_stream = True
        self.is_repeatable = len(queues) > 0 and not self.is_per_message and not self.is_limited
        self.passes = self.is_repeatable and len(queues) == 1 and not self.is_delayed and not self.has_stream

    def demand(self, is_mandatory: bool) -> None:
        """A message that reaches no queue comes back, or not."""
        self.is_mandatory = is_mandatory
        if self.plain is not None:
            self.plain.is_mandatory = is_mandatory

    def count(self, passage: Passage) -> i64:
        """Tell the counters of the exchange and of the queues what was published since the last time; so many."""
        count = self.published
        self.published = 0
        passage.publish_in += count
        passage.publish_out += count * len(self.queues)
        for queue in self.queues:
            queue.counters.publish += count
        return count

    def unlimited(self, queues: list[Queue]) -> Route:
        """The same route to those of its queues that have room, whose limits need not be asked again."""
        route = self.to(queues)
        route.is_limited = False
        return route
