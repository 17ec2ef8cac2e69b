"""Lookups of queues that take several turns, for a message whose route leads past very many bindings or exchanges.

Large contents that came in pieces are joined in the same way.

A lookup pauses after routing.WORK_MAX bindings (Share), so that other connections get their turn. What the publisher
sent after the message waits, and so do messages behind a delayed one, events of the firehose, and dead letters
(slow_dead_letters.py). If bindings change meanwhile, the result is as if the message had been published before or after
the change, and such a route is not cached.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.matcher import STEP
from leveret.broker.exchanges import routing
from leveret.broker.queues.queue import Queue
from leveret.session.assembly import Assembly
from leveret.session.connection import Unfinished

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.exchanges.binding import Binding
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.exchanges.spread import Spread
    from leveret.broker.vhost import VHost


# For dead letters and delayed messages: lookups with less work than this are done at once, however many long ones are
# pending; a turn has so few of them that all together are fast enough.
LEAST: Final[i64] = 256


# how many queues may get dead letters that go to several queues in one turn; further dead letters wait
ARRIVALS_MAX: Final[i64] = 8192


class Share:
    """How many bindings lookups may examine in one turn."""

    def __init__(self, least: i64) -> None:
        self.least = least  # what each lookup may examine, however much the others have used
        self.left: i64 = routing.WORK_MAX  # for lookups that begin in this turn
        self.more: i64 = routing.WORK_MAX  # for lookups that continue
        self.arrivals: i64 = ARRIVALS_MAX

    def renew(self) -> None:
        """Begin a new turn."""
        self.left = routing.WORK_MAX
        self.more = routing.WORK_MAX
        self.arrivals = ARRIVALS_MAX


class Lookup:
    """The search for the queues of one message from one exchange on, partly done."""

    def __init__(
        self,
        seeker: Seeker,
        vhost: VHost,
        start: Exchange,
        envelope: Envelope,
        found: dict[str, Queue],
        waits: list[Queue],
        bindings: list[Binding],
        seen: set[str],
        todo: list[Exchange],
    ) -> None:
        self._seeker = seeker
        self._start = start
        self._envelope = envelope
        self._generation = vhost.generation
        self._vhost = vhost
        self._found = found  # queues, by name
        self._waits = waits  # schedules in which the message waits
        self._seen = seen  # names of exchanges that it has reached
        self._todo = todo  # reached exchanges that have not been looked at
        self._exchange = start  # the one that is being looked at
        self._trial: Iterator[None] | None = None
        self._bindings = bindings  # matched bindings
        self._at: i64 = 0  # index of the first binding that has not been followed

    def go_on(self) -> bool:
        """Do as much as the share of this turn allows; return True if all queues are found."""
        share = self._seeker.share
        left = max(share.more, share.least)
        share.more -= left
        is_over = False
        while left > 0 and not is_over:
            if self._trial is not None:
                if next(self._trial, self) is None:
                    left -= STEP
                else:
                    self._trial = None
                    routing.fall_back(self._vhost, self._exchange, self._bindings, self._seen, self._todo)
            elif self._at < len(self._bindings):
                part = self._bindings[self._at : self._at + STEP]
                self._at += STEP
                left -= STEP
                routing.follow(part, self._found, self._seen, self._todo)
            elif self._todo:
                left -= routing.EXCHANGE_WORK
                self._visit(self._todo.pop())
            else:
                is_over = True
        share.more += left
        return is_over

    def _visit(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._bindings = []
        self._at = 0
        if routing.stays(self._vhost, exchange, self._envelope, self._waits):
            return
        if exchange.matcher.weight(self._envelope) > STEP:
            self._trial = exchange.matcher.trial(self._envelope, self._bindings)
        else:
            self._bindings = exchange.matcher.match(self._envelope)
            if exchange.history is not None and exchange.history.news is not None:
                self._vhost.log.declared(exchange.history.news.record(self._vhost.name, exchange.name))
                self._seeker.batch = self._vhost.log.batch
            routing.fall_back(self._vhost, exchange, self._bindings, self._seen, self._todo)

    @property
    def is_stale(self) -> bool:
        """Whether bindings have changed since it began."""
        return self._generation != self._vhost.generation

    def is_of(self, start: Exchange, envelope: Envelope) -> bool:
        """Return whether it is the lookup of such a message from this exchange; without content, the keys decide."""
        own = self._envelope
        return self._start is start and own.keys == envelope.keys and len(own.content) == len(envelope.content)

    def forget(self) -> None:
        """Undo what exchanges have kept of a message that goes no further."""
        for matcher in self._envelope.seen_by or []:
            matcher.forget(self._envelope)

    @property
    def is_duplicate(self) -> bool:
        """Whether a deduplication exchange has not routed the message."""
        return self._envelope.is_duplicate

    def queues(self) -> list[Queue]:
        """Return the queues and schedules that were found and still exist."""
        return [queue for queue in [*self._found.values(), *self._waits] if not queue.is_deleted]


class Seeker:
    """A publish that takes several turns, until it is done; or another message whose lookup does."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.channel: BrokerChannel | None = None  # channel, method and content of the publish
        self.method = b""
        self.content = b""
        self.is_stale = False  # bindings have changed since one of its lookups began
        self.batch = -1  # journal batch in which a recent-history exchange has recorded the message; -1 = none
        self._lookups: list[Lookup] = []
        self.spread: Spread | None = None  # set when the queues are found, and some have the message
        self._assembly: Assembly | None = None  # set while the content is being joined

    @property
    def is_idle(self) -> bool:
        """Whether no lookup is under way."""
        return not self._lookups

    def wait(self, channel: BrokerChannel, method: bytes, content: bytes) -> None:
        """Store a publish that is to be tried again in another turn."""
        self.channel = channel
        self.method = method
        self.content = content

    def join(self, channel: BrokerChannel, assembly: Assembly) -> None:
        """Store a publish that is to be tried again once its content is joined."""
        self.wait(channel, assembly.method, b"")
        self._assembly = assembly

    def begin(
        self,
        vhost: VHost,
        start: Exchange,
        envelope: Envelope,
        found: dict[str, Queue],
        waits: list[Queue],
        bindings: list[Binding],
        seen: set[str],
        todo: list[Exchange],
    ) -> None:
        """Start a lookup that takes several turns (see Lookup). Raises Unfinished, always."""
        self._lookups.append(Lookup(self, vhost, start, envelope, found, waits, bindings, seen, todo))
        raise Unfinished

    def go_on(self) -> bool:
        """Do a part of the work; return True if it is over and the publish is to be tried again."""
        if self._assembly is not None:
            content = self._assembly.join()
            if content is None:
                return False
            self.content = content
            self._assembly = None
            return True
        if self.spread is not None:
            return self.spread.go_on()
        return self.is_idle or self._lookups[-1].go_on()

    def found(self, exchange: Exchange, envelope: Envelope) -> list[Queue] | None:
        """Return the queues that a lookup found; None if no such lookup was made."""
        for lookup in self._lookups:
            if lookup.is_of(exchange, envelope):
                self.is_stale = self.is_stale or lookup.is_stale
                envelope.is_duplicate = lookup.is_duplicate
                return lookup.queues()
        return None

    def give_up(self) -> None:
        """Forget the message before it reaches its queues; exchanges do not count it as seen."""
        for lookup in self._lookups:
            lookup.forget()
        self.clear()

    def clear(self) -> None:
        """Forget the publish: it is done."""
        self.channel = None
        self.method = self.content = b""
        self.is_stale = False
        self._assembly = None
        self.spread = None
        self._lookups.clear()
