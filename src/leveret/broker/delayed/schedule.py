"""What a delayed exchange holds, until it is due.

Messages stand in message lists by the time when they are due: a message list has a slice of time, whose width grows
with the delay, so a few hundred message lists reach from a second to ten years. There they wait as in any queue, on
disk when they are many. When the first message of a message list comes near, the message list is looked through: what
is near goes to a heap in memory, what is further away to message lists with narrower slices, until the last narrow one
is wholly near. A message so moves once for each factor of 32 in its delay. Where the messages of a message list came in
the order in which they are due, as with one delay for all, only those at its head are looked at, and nothing moves
twice.

A message that is due is routed as if it were published then, and leaves the schedule by the journal record with which
it arrives in its queues. All that is done in one turn is bounded; what is left rings again at once.
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
from leveret.broker.messages.run import Stretch
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

# the narrowest slice, about a second, and into how many slices a delay is cut, as powers of two
NARROWEST: Final[i64] = 20
SLICES: Final[i64] = 5
# what is due within two seconds is near; message lists are looked through when they have something due within one, and
# those that are wide and in no order sooner, since it takes a while: by this part of their width, as a power of two
NEAR_US: Final[i64] = 1 << 21
LOOK_US: Final[i64] = 1 << 20
EARLIER: Final[i64] = 2
_NUMBER_BITS: Final[i64] = 24  # of a slice's number in a message list's index
# of what may be done in one turn: messages taken from message lists, messages routed
TURN_MESSAGES: Final[i64] = 1000
# more than this is not taken into memory before some of it has gone on
HEAP_OCTETS_MAX: Final[i64] = 16 << 20
EMPTY_LISTS: Final[i64] = 64  # how many may be empty before they are removed
ENTRY_OCTETS: Final[i64] = 400  # what a message in the heap takes besides its content, roughly
# while the log waits for the disk with more than this, nothing is moved, and how soon that is looked at again
LOG_OCTETS_MAX: Final[i64] = 2 << 20
LOG_PAUSE_US: Final[i64] = 1000


def slice_of(due_us: i64, now_us: i64) -> i64:
    """The index of the message list for what is due then."""
    delay = due_us - now_us
    width = NARROWEST
    while delay >> width >= 1 << SLICES:
        width += 1
    return (width - NARROWEST) << _NUMBER_BITS | due_us >> width & ((1 << _NUMBER_BITS) - 1)


class Slice(MessageList):
    """earliest_us: nothing on it is due before, 0 = it is empty. is_sorted: what arrived later is due later."""

    def __init__(self, schedule: Schedule, index: i64) -> None:
        super().__init__(schedule, index)
        self.schedule = schedule
        self.earliest_us: i64 = 0
        self.is_sorted = True
        self._last_us: i64 = 0
        self._earlier_us: i64 = (1 << (NARROWEST + (index >> _NUMBER_BITS))) >> EARLIER

    def opens_us(self) -> i64:
        """When it must be looked through at the latest."""
        return self.earliest_us - LOOK_US - (0 if self.is_sorted else self._earlier_us)

    def enqueue(
        self, content: bytes, key: bytes, id: i64, expires_us: i64, redelivered: bool = False, returns: i64 = 0
    ) -> None:
        self._expect(expires_us)
        super().enqueue(content, key, id, expires_us, redelivered, returns)

    def enqueue_stretch(self, stretch: Stretch, id: i64, expires_us: i64, redelivered: bool = False) -> None:
        self._expect(expires_us)
        super().enqueue_stretch(stretch, id, expires_us, redelivered)

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
        """Take the message at the head; None if it is not to be had, for the page that it was in can't be read."""
        ready = self.ready
        entry = ready.peek()
        if entry is not None:
            ready.drop()
        if ready.count() == 0:
            self.earliest_us = 0
        elif self.is_sorted and not ready.is_loaded():
            # of a page only the earliest time is known: once it is read, all of it is taken
            self.earliest_us = ready.expires_us()
        return entry


class Schedule(Queue):
    """No queue to clients: nothing can be bound to it, consume from it or see its name, which is the exchange's.

    look_us: when the message lists must be looked through, 0 = they are empty.
    """

    def __init__(self, vhost: VHost, exchange: Exchange) -> None:
        super().__init__(vhost, exchange.name, exchange.durable, False, {})
        self.is_schedule = True
        self.exchange = exchange
        self.message_lists = []
        self.look_us: i64 = 0
        self._slices: dict[int, Slice] = {}
        self._lists_max: i64 = EMPTY_LISTS
        self._near: list[tuple[int, int, Entry]] = []  # a heap by due time, then by arrival in it
        self._near_octets: i64 = 0
        self._pushed = 0
        self._scan = HeaderScan()
        self._last_route: Route | None = None
        self._seeker = Seeker(vhost.share)
        self._sought: Entry | None = None  # whose lookup is not finished

    # -- what is held --------------------------------------------------------------------------------------------------

    def hold(self, content: bytes, key: bytes, now_us: i64, moved: Entry | None) -> bool:
        """Keep a message until it is due; True if the journal does so, whatever its delivery mode.

        moved: the journalled dead letter that becomes this message, to leave its queue by the same record.
        """
        return self.put(content, key, now_us + delay_us_of(content), now_us, moved)

    def put(self, content: bytes, key: bytes, due_us: i64, now_us: i64, moved: Entry | None) -> bool:
        """The same until a given time."""
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
        """A message list is needed while a message is in it, or in one of its pages."""
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
        """Those in no message list any more, because they are due soon, in any order."""
        return [entry for _, _, entry in self._near]

    def withdraw_near(self, gone: set[int]) -> None:
        """Take out those of them whose id() is among these."""
        self._near = [each for each in self._near if id(each[2]) not in gone]
        heapify(self._near)
        self._near_octets = 0
        for _, _, entry in self._near:
            self._near_octets += len(entry.content) + ENTRY_OCTETS

    def forget(self) -> None:
        """The exchange is deleted, and what it held is gone: no circle of references must stay."""
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
        # is_touched until the end: what is put in other message lists must not bring this queue back within the turn
        self._look(now_us)
        self._release(now_us)
        self._set_alarm(now_us)
        self.is_touched = False

    def _look(self, now_us: i64) -> None:
        """Take what is near from the message lists."""
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
        """Route what is due. Where a lookup takes several turns, what stands behind waits for it."""
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
        if self.alarm_us == 0 or when_us < self.alarm_us:
            self.alarm_us = when_us
            self.vhost.timers.add(when_us, self)

    # -- what is due ---------------------------------------------------------------------------------------------------

    def _way(self, entry: Entry, content: bytes) -> Route:
        """A message is due: it goes where the exchange's bindings of this moment lead it. Unfinished."""
        if self._sought is not None and self._sought is not entry:
            self._seeker.clear()  # that one is gone, or this one was due before
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
            # what was on disk stays there whatever its delivery mode: else a crash could bring it a second time
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
    # narrow ones first: what they have came from wide ones, and was published before what is still there
    return int(found.index >> _NUMBER_BITS), int(found.earliest_us)


def accept(
    vhost: VHost, route: Route, content: bytes, persistent: bool, ttl_us: i64, now_us: i64, moved: Entry | None
) -> i64:
    """VHost.accept for a route with schedules on it: they hold the message, the queues get it at once."""
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
        # it has left its queue, whatever becomes of it in these
        vhost.accept(route.to(queues), content, persistent, ttl_us, now_us)
        return JOURNALLED
    others = vhost.accept(route.to(queues), content, persistent, ttl_us, now_us, moved)
    return standing if others == HANDLED else others
