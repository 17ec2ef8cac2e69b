"""The schedule of a delayed exchange: it holds messages until they are due.

The messages are in message lists by due time: each list covers a slice of time, whose width grows with the delay, so a
few hundred lists cover a second to ten years. They wait there as in any queue, on disk if there are many. When the
first message of a list is almost due, the list is looked through: messages that are almost due go to a heap in memory,
others to lists with narrower slices, until the narrowest one is taken as a whole. A message so moves once for each
factor of 32 in its delay. If the messages of a list arrived in the order of their due times, as with a single delay for
all, only those at its head are examined, and nothing moves twice.

A due message is routed as if it were published then, and leaves the schedule by the journal record with which it
arrives in its queues. The work of one turn is bounded; the rest is done in the next ones.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.delayed.delay import delay_us_of, released
from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.lookup import Seeker
from leveret.broker.exchanges.route import Route
from leveret.broker.messages import carbon_copies
from leveret.broker.messages.contents import HEADER_AT
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import BatchBuffer
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.page import Page
from leveret.session.confirms import HANDLED, JOURNALLED
from leveret.session.connection import Unfinished
from leveret.wire.errors import quoted
from leveret.wire.scan import HeaderScan

if TYPE_CHECKING:
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.vhost import VHost

# powers of two: the width of the narrowest slice in µs, about a second, and how many slices a delay is cut into
NARROWEST: Final[i64] = 20
SLICES: Final[i64] = 5
# messages due within NEAR_US go to the heap; lists are looked through when a message is due within LOOK_US, and those
# that are wide and unsorted sooner, since it takes a while: by this part of their width, as a power of two
NEAR_US: Final[i64] = 1 << 21
LOOK_US: Final[i64] = 1 << 20
EARLIER: Final[i64] = 2
_NUMBER_BITS: Final[i64] = 24  # of a slice's number in a message list's index
# per turn: messages taken from message lists, messages routed
TURN_MESSAGES: Final[i64] = 1000
# the heap takes no more messages at this size
HEAP_OCTETS_MAX: Final[i64] = 16 << 20
EMPTY_LISTS: Final[i64] = 64  # lists that may be empty before they are removed
ENTRY_OCTETS: Final[i64] = 400  # approximate memory of a message in the heap besides its content
# while more than this waits to be written to the journal, nothing is moved; and how soon that is checked again
LOG_OCTETS_MAX: Final[i64] = 2 << 20
LOG_PAUSE_US: Final[i64] = 1000


def slice_of(due_us: i64, now_us: i64) -> i64:
    """Return the index of the message list for messages that are due then."""
    delay = due_us - now_us
    width = NARROWEST
    while delay >> width >= 1 << SLICES:
        width += 1
    return (width - NARROWEST) << _NUMBER_BITS | due_us >> width & ((1 << _NUMBER_BITS) - 1)


class Slice(MessageList):
    """The messages that are due in one slice of time."""

    def __init__(self, schedule: Schedule, index: i64) -> None:
        super().__init__(schedule, index)
        self.schedule = schedule
        self.earliest_us: i64 = 0  # no message is due before, 0 = it is empty
        self.is_sorted = True  # messages arrived in the order of their due times
        self._last_us: i64 = 0
        self._earlier_us: i64 = (1 << (NARROWEST + (index >> _NUMBER_BITS))) >> EARLIER

    def opens_us(self) -> i64:
        """Return when it must be looked through at the latest."""
        return self.earliest_us - LOOK_US - (0 if self.is_sorted else self._earlier_us)

    def enqueue(
        self, content: bytes, key: bytes, id: i64, expires_us: i64, redelivered: bool = False, returns: i64 = 0
    ) -> None:
        self._expect(expires_us)
        super().enqueue(content, key, id, expires_us, redelivered, returns)

    def enqueue_batch(self, buffer: BatchBuffer, id: i64, expires_us: i64, redelivered: bool = False) -> None:
        self._expect(expires_us)
        super().enqueue_batch(buffer, id, expires_us, redelivered)

    def enqueue_page(self, page: Page) -> None:
        self._expect(page.expires_us)
        super().enqueue_page(page)

    def _expect(self, due_us: i64) -> None:
        if self.ready.count() == 0:
            self.earliest_us = due_us
            self.is_sorted = True
        elif due_us < self._last_us:
            self.is_sorted = False
            self.earliest_us = min(self.earliest_us, due_us)
        self._last_us = due_us
        schedule = self.schedule
        opens_us = self.opens_us()
        if schedule.look_us == 0 or opens_us < schedule.look_us:
            schedule.look_us = opens_us

    def take(self) -> Entry | None:
        """Remove and return the message at the head; None if its page cannot be read."""
        ready = self.ready
        entry = ready.peek()
        if entry is not None:
            ready.drop()
        if ready.count() == 0:
            self.earliest_us = 0
        elif self.is_sorted and not ready.is_loaded():
            # of a page only the earliest time is known; once it is read, all its messages are taken
            self.earliest_us = ready.expires_us()
        return entry


class Schedule(Queue):
    """The schedule of a delayed exchange, whose name it has. Clients can neither see it nor bind to it or consume."""

    def __init__(self, vhost: VHost, exchange: Exchange) -> None:
        super().__init__(vhost, exchange.name, exchange.durable, False, {})
        self.is_schedule = True
        self.exchange = exchange
        self.message_lists = []
        self.look_us: i64 = 0  # when the message lists must be looked through, 0 = they are empty
        self._slices: dict[int, Slice] = {}
        self._lists_max: i64 = EMPTY_LISTS
        self._near: list[tuple[int, int, Entry]] = []  # a heap by due time, then by order of insertion
        self._near_octets: i64 = 0
        self._pushed = 0
        self._scan = HeaderScan()
        self._last_route: Route | None = None
        self._seeker = Seeker(vhost.share)
        self._sought: Entry | None = None  # the message whose lookup is not finished

    # -- messages ------------------------------------------------------------------------------------------------------

    def hold(self, content: bytes, key: bytes, now_us: i64, moved: Entry | None) -> bool:
        """Hold a message for its x-delay; True if the journal has it, which does not depend on its delivery mode.

        moved: the journalled dead letter that becomes this message; the same record removes it from its queue.
        """
        return self.put(content, key, now_us + delay_us_of(content), now_us, moved)

    def put(self, content: bytes, key: bytes, due_us: i64, now_us: i64, moved: Entry | None) -> bool:
        """Hold a message until a given time, like hold()."""
        message_list = self.list_at(slice_of(due_us, now_us))
        id = self._journal(message_list, content, key, due_us, moved)
        if due_us > now_us + LOOK_US or not self._has_room():
            message_list.enqueue(content, key, id, due_us)
        else:
            self._push(Entry(message_list, content, key, id, due_us, 0))
            if not self.is_touched:
                self.touch()
        return self.is_journalled

    def _journal(self, message_list: MessageList, content: bytes, key: bytes, due_us: i64, moved: Entry | None) -> i64:
        if not self.is_journalled:
            return 0
        return self.vhost.log.message(content, key, message_list, due_us, moved)

    def _push(self, entry: Entry) -> None:
        self._pushed += 1
        self._near_octets += len(entry.content) + ENTRY_OCTETS
        heappush(self._near, (int(entry.expires_us), self._pushed, entry))

    def list_at(self, index: i64) -> MessageList:
        found = self._slices.get(int(index))
        if found is None:
            if len(self.message_lists) > self._lists_max and not self.vhost.log.is_replaying:
                self._forget_empty_lists()
            found = self._slices[int(index)] = Slice(self, index)
            self.message_lists.append(found)
        return found

    def _forget_empty_lists(self) -> None:
        """Remove message lists without messages, unless a page still has one."""
        self.message_lists = [each for each in self.message_lists if each.ready.count() != 0 or each.pages]
        self._slices = {int(each.index): self._slices[int(each.index)] for each in self.message_lists}
        self._lists_max = 2 * len(self.message_lists) + EMPTY_LISTS

    def count(self) -> i64:
        count: i64 = len(self._near)
        for message_list in self.message_lists:
            count += message_list.ready.count()
        return count

    def in_memory(self) -> list[Entry]:
        return self.near() + super().in_memory()

    def near(self) -> list[Entry]:
        """Return the messages in the heap, in any order."""
        return [entry for _, _, entry in self._near]

    def withdraw_near(self, gone: set[int]) -> None:
        """Remove those messages from the heap whose id() is in `gone`."""
        self._near = [each for each in self._near if id(each[2]) not in gone]
        heapify(self._near)
        self._near_octets = 0
        for _, _, entry in self._near:
            self._near_octets += len(entry.content) + ENTRY_OCTETS

    def forget(self) -> None:
        """Break reference cycles when the exchange is deleted."""
        self._near.clear()
        self._slices.clear()
        self._last_route = None
        self._sought = None
        self._seeker.clear()
        self.exchange.schedule = None

    def what(self) -> str:
        return f"exchange {quoted(self.name)} in vhost {quoted(self.vhost.name)}"

    # -- time ----------------------------------------------------------------------------------------------------------

    def dispatch(self, now_us: i64) -> None:
        # is_touched stays set until the end, so that moves between message lists do not bring this queue back within
        # the turn
        self._look(now_us)
        self._release(now_us)
        self._set_alarm(now_us)
        self.is_touched = False

    def _look(self, now_us: i64) -> None:
        """Take messages that are almost due from the message lists."""
        if self.look_us == 0 or self.look_us > now_us:
            return
        soon_us = now_us + NEAR_US - LOOK_US
        slices = [found for found in self._slices.values() if found.earliest_us != 0 and found.opens_us() <= soon_us]
        slices.sort(key=_urgency)
        left = TURN_MESSAGES
        for found in slices:
            while left > 0 and self._has_room() and found.earliest_us != 0 and found.opens_us() <= soon_us:
                left -= 1
                entry = found.take()
                if entry is not None:
                    self._sort_in(found, entry, now_us)
        self.look_us = 0
        for found in self._slices.values():
            look_us = found.opens_us()
            if found.earliest_us != 0 and (self.look_us == 0 or look_us < self.look_us):
                self.look_us = look_us

    def _sort_in(self, found: Slice, entry: Entry, now_us: i64) -> None:
        due_us = entry.expires_us
        index = slice_of(due_us, now_us)
        if index == found.index or due_us <= now_us + NEAR_US:
            self._push(entry)
        else:
            message_list = self.list_at(index)
            id = self._journal(message_list, entry.content, entry.key, due_us, entry if entry.id != 0 else None)
            message_list.enqueue(entry.content, entry.key, id, due_us)

    def _has_room(self) -> bool:
        return self._near_octets < HEAP_OCTETS_MAX and self.vhost.log.size() < LOG_OCTETS_MAX

    def _release(self, now_us: i64) -> None:
        """Route the due messages. If a lookup takes several turns, the messages behind it wait."""
        near = self._near
        if not self._seeker.go_on():
            return
        left = TURN_MESSAGES
        while near and left > 0 and near[0][0] <= now_us and self.vhost.log.size() < LOG_OCTETS_MAX:
            left -= 1
            entry = near[0][2]
            content = released(entry.content)
            try:
                route = self._way(entry, content)
            except Unfinished:
                break
            heappop(near)
            self._near_octets -= len(entry.content) + ENTRY_OCTETS
            self.vhost.log.measures.late_us.add(max(now_us - entry.expires_us, 0))
            self._send(entry, content, route, now_us)

    def _set_alarm(self, now_us: i64) -> None:
        when_us: i64 = 0
        if self._near:
            when_us = self._near[0][0]
        if self.look_us != 0 and (when_us == 0 or self.look_us < when_us) and self._near_octets < HEAP_OCTETS_MAX:
            when_us = self.look_us
        if when_us == 0:
            return
        if when_us <= now_us:
            when_us = now_us + (LOG_PAUSE_US if self.vhost.log.size() >= LOG_OCTETS_MAX else 1)
        self.wake(when_us)

    # -- due messages --------------------------------------------------------------------------------------------------

    def _way(self, entry: Entry, content: bytes) -> Route:
        """Route a due message by the exchange's present bindings. Raises Unfinished if that takes several turns."""
        if self._sought is not None and self._sought is not entry:
            self._seeker.give_up()  # that message is gone, or this one is due earlier
        self._sought = None
        self._scan.scan(content, HEADER_AT, HEADER_AT + i64(read_i32_be(content, 3)))
        try:
            route = self._route(entry.key, content)
        except Unfinished:
            self._sought = entry
            raise
        if not self._seeker.is_idle:
            self._seeker.clear()
        return route

    def _send(self, entry: Entry, content: bytes, route: Route, now_us: i64) -> None:
        scan = self._scan
        standing = HANDLED
        if route.queues:
            ttl_us: i64 = -1
            if scan.expiration_at != 0:  # checked when it was published
                at = scan.expiration_at
                ttl_us = int(content[at + 1 : at + 1 + content[at]]) * 1000
            # a message from disk stays on disk whatever its delivery mode: else a crash could duplicate it
            persistent = scan.delivery_mode == 2 or entry.id != 0
            moved = entry if entry.id != 0 else None
            standing = self.vhost.accept(route, content, persistent, ttl_us, now_us, moved)
        else:
            self.vhost.discard(self, "delayed message without a route")
        if entry.id != 0 and standing != JOURNALLED:
            self.vhost.log.settle(entry.message_list, entry.id)

    def _route(self, key: bytes, content: bytes) -> Route:
        at = self._scan.headers_at
        has_copies = at != 0 and carbon_copies.may_have(content, at)
        route = self._last_route
        if route is None or route.generation != self.vhost.generation or route.key != key or has_copies:
            keys = [carbon_copies.split_key(key)[1], *carbon_copies.blind_keys(key)]
            if has_copies:
                keys += carbon_copies.CarbonCopies(content).cc
            route = routing.onward(self.vhost, self.exchange, key, keys, self._seeker)
            self._last_route = None if has_copies else route
        if route.is_per_message:
            envelope = Envelope(route.keys, key, content)
            route.set_queues(routing.targets(self.vhost, self.exchange, envelope, self._seeker))
        return route


def _urgency(found: Slice) -> tuple[int, int]:
    # narrow slices first: their messages came from wide ones, and were published before those that are still there
    return int(found.index >> _NUMBER_BITS), int(found.earliest_us)


def accept(
    vhost: VHost, route: Route, content: bytes, persistent: bool, ttl_us: i64, now_us: i64, moved: Entry | None
) -> i64:
    """Do VHost.accept for a route with schedules, which hold the message; queues get it at once."""
    standing = HANDLED
    queues: list[Queue] = []
    for queue in route.queues:
        if isinstance(queue, Schedule):
            if queue.hold(content, route.key, now_us, moved if standing == HANDLED else None):
                standing = JOURNALLED
        else:
            queues.append(queue)
    if not queues:
        return standing
    if moved is not None and standing == JOURNALLED:
        # it has left its queue, whether these queues take it or not
        vhost.accept(route.to(queues), content, persistent, ttl_us, now_us)
        return JOURNALLED
    others = vhost.accept(route.to(queues), content, persistent, ttl_us, now_us, moved)
    return standing if others == HANDLED else others
