"""Commands for delayed messages: list them, or cancel or reschedule all that match, or none, in case of an error.

Matching messages are searched in slices. The change is made in one turn and written in one batch. It applies to what
matches at that moment: messages delivered during the search are excluded, messages that arrived are included.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar, Final

from leveret.broker.delayed import withdrawal
from leveret.broker.delayed.due_times import DueTimes
from leveret.broker.delayed.holder import Holder, holders
from leveret.broker.delayed.pending import Count, Earliest, Pending, PendingTotals
from leveret.broker.delayed.retiming import Impossible, Retiming
from leveret.broker.delayed.search import Cut, Search
from leveret.broker.delayed.wanted import DelayedFilter, message_id_of
from leveret.broker.messages.entry import Entry
from leveret.control.delayed import DelayedSelection, broker_us, check_access, check_time, checked_ids, span_us
from leveret.control.listing import Listing
from leveret.control.node import BrokerNode
from leveret.control.refusal import CONFLICT, Refused, bad_request
from leveret.control.sliced import Sliced, Steps
from leveret.control.validation.checks import vhost_named
from leveret.control.views.delayed import level_view, message_view, pending_view, wall_ms
from leveret.control.views.view import View

LIMIT_MAX: Final = 10_000
"""Single messages in one answer."""
EDGES_MAX: Final = 1000
"""Edges of time intervals in one histogram."""
RETIMED_MAX: Final = 100_000
RETIMED_OCTETS_MAX: Final = 64 << 20
"""Messages, and their octets, rescheduled at once: each is written again, while other messages wait."""


class ListDelayed(Listing):
    """List pending messages with a row for each destination of each layout; the name is the destination."""

    layout: str | None = None  # filters as in list_delayed_messages
    destination: str | None = None
    due_after_ms: int | None = None
    due_before_ms: int | None = None

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        start_us, end_us = span_us(node, self.due_after_ms, self.due_before_ms)
        wanted = DelayedFilter(self.layout, self.destination, None, start_us, end_us)
        totals = PendingTotals()
        yield from Search(self.hosts(node), wanted, totals, False).steps()
        return totals.rows()

    def name_of(self, item: Pending) -> str:
        return item.destination

    def view(self, node: BrokerNode, item: Pending) -> View | None:
        return pending_view(node, item)


class ListDelayLevels(Listing):
    """List the level queues, from the highest level down, and the delayed exchanges; the name is that of the layout."""

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        found: list[Holder] = []
        for vhost in self.hosts(node):
            found += holders(vhost)
            yield
        return found

    def name_of(self, item: Holder) -> str:
        return item.layout

    def view(self, node: BrokerNode, item: Holder) -> View | None:
        return None if item.queue.is_deleted else level_view(item)


class ListDelayedMessages(DelayedSelection):
    """List single messages, up to `limit`, in the order in which they are due."""

    changes: ClassVar[bool] = False
    limit: int = 100

    def run(self, node: BrokerNode) -> object:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise bad_request(f"limit must be from 1 to {LIMIT_MAX}, not {self.limit}")
        search = Search([vhost_named(node, self.vhost)], self.wanted(node), earliest := Earliest(self.limit), False)
        return Sliced(self._steps(node, search, earliest))

    def _steps(self, node: BrokerNode, search: Search, earliest: Earliest) -> Steps[object]:
        yield from search.steps()
        return iter([message_view(node, single) for single in earliest.singles()])


class CountDelayed(DelayedSelection):
    """Count the messages that are due in each time interval.

    The intervals end at edges_ms, ascending, or edges_in_ms from now. `counts` has one number more: messages before the
    first edge come first, those at the last edge or later come last. Undeliverable messages are counted separately.
    """

    changes: ClassVar[bool] = False
    edges_ms: list[int] | None = None
    edges_in_ms: list[int] | None = None

    def run(self, node: BrokerNode) -> object:
        now_ms = wall_ms(node, node.host.now_us()) or 0
        edges_ms = self._edges_ms(now_ms)
        vhost, wanted = vhost_named(node, self.vhost), self.wanted(node)
        found = DueTimes([broker_us(node, edge_ms) for edge_ms in edges_ms])
        return Sliced(self._steps(node, Search([vhost], wanted, found, False), found, now_ms, edges_ms))

    def _edges_ms(self, now_ms: int) -> list[int]:
        if (self.edges_ms is None) == (self.edges_in_ms is None):
            raise bad_request("give either edges_ms (times) or edges_in_ms (durations from now)")
        edges_ms = [now_ms + in_ms for in_ms in self.edges_in_ms] if self.edges_in_ms is not None else self.edges_ms
        if not edges_ms or len(edges_ms) > EDGES_MAX:
            raise bad_request(f"the number of edges must be from 1 to {EDGES_MAX}, not {len(edges_ms or ())}")
        if any(later <= earlier for earlier, later in pairwise(edges_ms)):
            raise bad_request("edges must be in ascending order")
        return edges_ms

    def _steps(
        self, node: BrokerNode, search: Search, found: DueTimes, now_ms: int, edges_ms: list[int]
    ) -> Steps[object]:
        yield from search.steps()
        return {
            "now_ms": now_ms,
            "edges_ms": edges_ms,
            "counts": found.counts,
            "messages": sum(found.counts),
            "parked": int(found.undeliverable),
            "next_due_ms": wall_ms(node, int(found.next_us)),
            "last_due_ms": wall_ms(node, int(found.last_us)),
        }


class Change(DelayedSelection):
    """A change of delayed messages."""

    all: bool = False  # must be set to select every delayed message
    dry_run: bool = False  # only count the messages
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> object:
        if self.is_anything() and not self.all:
            raise bad_request("no messages selected: give filters, or select all")
        if self.is_anything() is False and self.all:
            raise bad_request("give either filters or all messages, not both")
        vhost = vhost_named(node, self.vhost)
        return Sliced(self._steps(node, Search([vhost], self.wanted(node), Count(), True)))

    def _steps(self, node: BrokerNode, search: Search) -> Steps[object]:
        yield from search.steps()
        vhost = vhost_named(node, self.vhost)  # it may have been deleted
        answer = self.change(node, search, search.cuts())
        vhost.tally.count_publishes()
        return answer

    def change(self, node: BrokerNode, search: Search, cuts: list[Cut]) -> View:
        """Make the change; no time passes meanwhile."""
        raise NotImplementedError

    def answer(self, cuts: list[Cut], search: Search) -> View:
        """Return how many messages match, and which of the requested ids were found."""
        answer: View = {"message_count": _count(cuts)}
        if self.ids() is not None:
            found = {message_id_of(entry.content) for cut in cuts for entry in search.entries(cut)}
            answer["message_ids"] = sorted(each for each in found if each is not None)
        return answer


class CancelDelayed(Change):
    """Cancel the delivery of messages; answers how many, and which of message_ids were found."""

    def change(self, node: BrokerNode, search: Search, cuts: list[Cut]) -> View:
        check_access(node, self.vhost, self.user, cuts, ())
        answer = self.answer(cuts, search)
        if not self.dry_run:
            withdrawal.cancel(node.broker.log, cuts)
        return answer


class RetimeDelayed(Change):
    """Reschedule messages to at_ms, or to in_ms from now; past times mean at once.

    Delivery may be up to one unit of the layout later. Answers how many messages match, and when the last of them is
    due: due_ms, None = no messages.

    Instead, `times` gives the time (at_ms) for each message id; other messages do not match. The answer tells which ids
    were found, as with message_ids.
    """

    at_ms: int | None = None
    in_ms: int | None = None
    times: dict[str, int] | None = None

    def run(self, node: BrokerNode) -> object:
        if [self.at_ms, self.in_ms, self.times].count(None) != 2:
            raise bad_request("give exactly one of at_ms (a time), in_ms (a duration from now) and times (a time "
                              "for each id)")
        if self.times is not None and self.message_ids is not None:
            raise bad_request("times already names the message ids: omit other filters")
        for time_ms in (self.at_ms, self.in_ms, *(self.times or {}).values()):
            if time_ms is not None:
                check_time(time_ms)
        return Change.run(self, node)

    def ids(self) -> set[str] | None:
        return Change.ids(self) if self.times is None else checked_ids(self.times)

    def change(self, node: BrokerNode, search: Search, cuts: list[Cut]) -> View:
        vhost, now_us = node.broker.vhosts[self.vhost], node.host.now_us()
        count = _count(cuts)
        if count > RETIMED_MAX:
            raise Refused(CONFLICT, f"{count} messages match; at most {RETIMED_MAX} can be rescheduled at once: use "
                                    "more filters")
        retiming = Retiming(vhost, holders(vhost), now_us)
        moves = self._moves(node, now_us, _entries(search, cuts))
        due_us, entrances = _possible(retiming, moves)
        check_access(node, self.vhost, self.user, cuts, entrances)
        answer = self.answer(cuts, search)
        if not self.dry_run:
            for holder, entry, at_us in moves:
                retiming.aim(at_us)
                retiming.move(holder, entry)
            for cut in cuts:
                withdrawal.take_out(node.broker.log, cut)
        return answer | {"due_ms": wall_ms(node, due_us)}

    def _moves(
        self, node: BrokerNode, now_us: int, entries: list[tuple[Holder, Entry]]
    ) -> list[tuple[Holder, Entry, int]]:
        """Return the time for each message."""
        if self.times is None:
            at_us = broker_us(node, self.at_ms) if self.at_ms is not None else now_us + (self.in_ms or 0) * 1000
            return [(holder, entry, at_us) for holder, entry in entries]
        times = {message_id: broker_us(node, at_ms) for message_id, at_ms in self.times.items()}
        return [(holder, entry, times[message_id_of(entry.content) or ""]) for holder, entry in entries]


def _count(cuts: list[Cut]) -> int:
    return sum(int(cut.count) for cut in cuts)


def _possible(retiming: Retiming, moves: list[tuple[Holder, Entry, int]]) -> tuple[int, set[str]]:
    """Return when the last message will be due, and which exchanges a client would need to publish to.

    Raises Refused if a message can't be rescheduled to its time.
    """
    due_us, names = 0, set[str]()
    try:
        for holder, at_us in {(holder, at_us) for holder, _, at_us in moves}:
            retiming.aim(at_us)
            due_us = max(due_us, int(retiming.due_us(holder)))
            queue = retiming.entrance(holder)
            if queue is not None:
                names.add(queue.name)
    except Impossible as error:
        raise Refused(CONFLICT, str(error)) from None
    return due_us, names


def _entries(search: Search, cuts: list[Cut]) -> list[tuple[Holder, Entry]]:
    """Return the messages to reschedule, in the order in which they were due. Raises Refused if they are too large."""
    found: list[tuple[Holder, Entry]] = []
    octets = 0
    for cut in cuts:
        for entry in search.entries(cut):
            octets += len(entry.content)
            found.append((cut.part.holder, entry))
        if octets > RETIMED_OCTETS_MAX:
            most = RETIMED_OCTETS_MAX
            raise Refused(CONFLICT, f"the matching messages have more than {most} bytes, too many to reschedule at "
                                    "once: use more filters")
    found.sort(key=_due)
    return found


def _due(each: tuple[Holder, Entry]) -> tuple[int, int]:
    holder, entry = each
    return int(holder.due_us(entry.key, entry.expires_us)), int(entry.position)
