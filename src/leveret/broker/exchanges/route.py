"""Where publishes with one exchange and routing key go, cached until a binding changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.counters import Passage
from leveret.broker.queues.consumer import Consumer
from leveret.broker.queues.queue import Queue

if TYPE_CHECKING:
    from leveret.broker.exchanges.exchange import Exchange

# queues that get a message in one step, and by one journal record
QUEUES_MAX: Final[i64] = 4096


class Route:
    """The queues for one exchange and routing key."""

    def __init__(self, generation: i64, key: bytes, exchange: Exchange | None, keys: list[str]) -> None:
        self.generation = generation
        self.key = key  # exchange and routing key as two short strings, as in basic.deliver
        self.exchange = exchange  # None for the default exchange
        self.keys = keys  # the routing key, then those of CC and BCC
        self.queues: list[Queue] = []
        self.durable: list[Queue] = []  # queues that journal persistent messages
        self.keeping: list[Queue] = []  # queues that journal transient messages, too
        self.is_per_message = False  # queues depend on more than the keys, or the firehose is on: look up each message
        # if exchanges look at hops only (x-federation-upstream): for messages without hops
        self.plain: Route | None = None
        self.travelled: dict[bytes, Route] = {}  # likewise, for messages with these encoded hops
        self.is_mandatory = False
        self.is_limited = False  # a queue has limits or takes no duplicates, or there are more than QUEUES_MAX queues
        self.has_keys = False  # a queue takes no duplicates
        self.is_brief = False  # a queue has a TTL of 0
        self.is_delayed = False  # `queues` contains schedules, in which delayed exchanges hold the message
        self.has_stream = False  # `queues` contains streams
        self.is_repeatable = False  # messages that differ in their bodies only may be handled as one
        self.passes = False  # there is one queue, which may pass messages directly to a consumer
        self.is_order = False  # its messages control stages or publisher references
        # over QUEUES_MAX queues, found once; also is_per_message, so that this is checked (spread.py)
        self.is_wide = False
        self.replies: list[Consumer] = []  # requesters whose direct reply-to names are among the keys
        self.lost_replies: i64 = 0  # number of keys that are direct reply-to names without a requester
        self.published: i64 = 0  # messages that no counter includes yet

    def to(self, queues: list[Queue]) -> Route:
        """Return a route of the same publish to other queues, for a single use."""
        route = Route(self.generation, self.key, self.exchange, self.keys)
        route.is_mandatory = self.is_mandatory
        route.set_queues(queues)
        return route

    def set_queues(self, queues: list[Queue]) -> None:
        self.queues = queues
        self.durable = [queue for queue in queues if queue.is_journalled]
        self.keeping = [queue for queue in queues if queue.keeps_all]
        self.is_limited = len(queues) > QUEUES_MAX
        self.has_keys = False
        self.is_brief = False
        self.is_delayed = False
        self.has_stream = False
        for queue in queues:
            if queue.limits is not None:
                self.is_limited = True
                if queue.limits.keys is not None:
                    self.has_keys = True
            if queue.ttl_us == 0:
                self.is_brief = True
            if queue.is_schedule:
                self.is_delayed = True
            if queue.is_stream:
                self.has_stream = True
        self.is_repeatable = len(queues) > 0 and not self.is_per_message and not self.is_limited
        self.passes = self.is_repeatable and len(queues) == 1 and not self.is_delayed and not self.has_stream

    def demand(self, is_mandatory: bool) -> None:
        """Set whether a message that reaches no queue is returned."""
        self.is_mandatory = is_mandatory
        if self.plain is not None:
            self.plain.is_mandatory = is_mandatory

    def count(self, passage: Passage) -> i64:
        """Add the publishes since the last call to the counters of exchange and queues; return their number."""
        count = self.published
        self.published = 0
        passage.publish_in += count
        passage.publish_out += count * len(self.queues)
        for queue in self.queues:
            queue.counters.publish += count
        return count

    def unlimited(self, queues: list[Queue]) -> Route:
        """Return a route to those of its queues that have room, whose limits are not checked again."""
        route = self.to(queues)
        route.is_limited = False
        return route
