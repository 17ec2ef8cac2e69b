"""A message whose way leads past very many bindings or exchanges: its queues are found in several turns.

So is a huge content put together that came in pieces.

Others have their turn after routing.WORK_MAX bindings (Share). What the publisher says behind it waits, as do messages
behind a delayed one, events of the firehose, and dead letters (slow_dead_letters.py). If bindings come or go meanwhile,
it is as if it had been published before or after that; a route that was found so is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker import routing
from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.matcher import STEP
from leveret.broker.queue import Queue
from leveret.session.assembly import Assembly
from leveret.session.connection import Unfinished

if TYPE_CHECKING:
    from leveret.broker.binding import Binding
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.exchange import Exchange
    from leveret.broker.spread import Spread
    from leveret.broker.vhost import VHost


# Of dead letters and delayed messages: so short lookups are done at once, however many long ones there are, and are so
# few in a turn that all of them together are short enough.
LEAST: Final[i64] = 256


# in how many queues dead letters that go to several may arrive in one turn; the next one waits
ARRIVALS_MAX: Final[i64] = 8192


class Share:
    """How many bindings lookups may examine in one turn.

    left: for lookups that begin in this turn; more: for those that continue. arrivals: see ARRIVALS_MAX.

    least: the number that each lookup may examine, however many the others have used.
    """

    def __init__(self, least: i64) -> None:
        self.least = least
        self.left: i64 = routing.WORK_MAX
        self.more: i64 = routing.WORK_MAX
        self.arrivals: i64 = ARRIVALS_MAX

    def renew(self) -> None:
        """The next turn begins."""
        self.left = routing.WORK_MAX
        self.more = routing.WORK_MAX
        self.arrivals = ARRIVALS_MAX


class Lookup:
    """One way of a message from an exchange to its queues, of which a part is done.

    found, waits: the queues, and the schedules where it waits; bindings: that take it, and are to be followed; seen:
    names of exchanges that it has come to; todo: those where it has not been looked at.
    """

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
        self._found = found
        self._waits = waits
        self._seen = seen
        self._todo = todo
        self._exchange = start  # that is being looked at
        self._trial: Iterator[None] | None = None
        self._bindings = bindings
        self._at: i64 = 0  # the first binding that has not been followed

    def go_on(self) -> bool:
        """Do what a turn may; True if all queues are found."""
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
        """Bindings have changed since it began."""
        return self._generation != self._vhost.generation

    def is_of(self, start: Exchange, envelope: Envelope) -> bool:
        """Whether it is the way from this exchange of a message like this; without content, of all with these keys."""
        own = self._envelope
        return self._start is start and own.keys == envelope.keys and len(own.content) == len(envelope.content)

    def queues(self) -> list[Queue]:
        """What was found and is still there."""
        return [queue for queue in [*self._found.values(), *self._waits] if not queue.is_deleted]


class Seeker:
    """What a peer's publish has needed several turns for, until it is done; or another message that finds its way.

    channel, method, content: of this publish. share: what it may do in a turn. is_stale: bindings have changed since
    one of its lookups began. batch: of the journal, in which a history has noted the message; -1 = none has.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        self.channel: BrokerChannel | None = None
        self.method = b""
        self.content = b""
        self.is_stale = False
        self.batch = -1
        self._lookups: list[Lookup] = []
        self.spread: Spread | None = None  # the publish has found its queues, and some have it
        self._assembly: Assembly | None = None  # of whose content a part is put together

    @property
    def is_idle(self) -> bool:
        """Nothing takes several turns."""
        return not self._lookups

    def wait(self, channel: BrokerChannel, method: bytes, content: bytes) -> None:
        """This publish is to be tried again in another turn."""
        self.channel = channel
        self.method = method
        self.content = content

    def join(self, channel: BrokerChannel, assembly: Assembly) -> None:
        """The same, once its content is put together."""
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
        """This takes several turns: see Lookup. Unfinished."""
        self._lookups.append(Lookup(self, vhost, start, envelope, found, waits, bindings, seen, todo))
        raise Unfinished

    def go_on(self) -> bool:
        """Do a part of what takes several turns; True if it is over, and the publish is to be tried again."""
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
        """The queues that a finished lookup found; None if no such lookup was made."""
        for lookup in self._lookups:
            if lookup.is_of(exchange, envelope):
                self.is_stale = self.is_stale or lookup.is_stale
                return lookup.queues()
        return None

    def clear(self) -> None:
        """The publish is done, or given up."""
        self.channel = None
        self.method = self.content = b""
        self.is_stale = False
        self._assembly = None
        self.spread = None
        self._lookups.clear()
