"""Dead letters that reached no queue, kept in the one in which they died until there is a way for them.

So do queues with x-dead-letter-strategy=at-least-once, and the levels of a delay layout (levels.py): a delayed message
that is due when nobody is there stays. They are not ready, and take room. They stand in message lists of their own, one
for each reason and destination: whether there is a way is asked once for all of a message list, and none waits for
another's. A message moves to its message list by one journal record; there it goes to pages as all that waits for long,
and is found again after a restart. undeliverable_retry.py gives it back. RabbitMQ keeps it in memory, tries 32 of a
queue, and those behind them wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from mypy_extensions import i64

from leveret.broker.delayed.levels import address, levels_of
from leveret.broker.messages.carbon_copies import CarbonCopies, blind_keys, split_key
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.run import Run
from leveret.broker.queues.limits import body_octets
from leveret.broker.queues.message_list import MessageList
from leveret.broker.storage.page import Page
from leveret.wire.errors import ProtocolError

if TYPE_CHECKING:
    from leveret.broker.queues.queue import Queue

# An undeliverable message list's index: this bit, then the reason, then a number that the destination has; that of
# mixed ones is 0.
UNDELIVERABLE: Final[i64] = 1 << 30
REASONS: Final = ("expired", "rejected", "maxlen", "delivery_limit")
_REASON_SHIFT: Final[i64] = 24
_NUMBER_MASK: Final[i64] = (1 << 24) - 1
# how many lists one queue may have; messages for other destinations then share one for each reason
LISTS_MAX: Final = 1024


class UndeliverableList(MessageList):
    """Dead letters that died for one reason and go one way; an entry's expires_us is when it died.

    is_mixed: each message may have a destination of its own. The rest belongs to a round of undeliverable_retry.py.
    is_going: it is being emptied; is_tried_singly: a message that fails says nothing about the next one; left: how many
    are still to be tried.
    """

    def __init__(self, undeliverable: Undeliverable, index: i64) -> None:
        super().__init__(undeliverable.queue, index)
        self.undeliverable = undeliverable
        self.reason = reason_of(index)
        self.is_mixed = index & _NUMBER_MASK == 0
        self.is_going = False
        self.is_tried_singly = False
        self.left: i64 = 0
        self._sample = b""
        self._reached: dict[int, list[Queue]] = {}  # of those that some queues have, and others refused

    def enqueue(
        self, content: bytes, key: bytes, id: i64, expires_us: i64, redelivered: bool = False, returns: i64 = 0
    ) -> None:
        self.keep(content, key, id, expires_us, [])

    def keep(self, content: bytes, key: bytes, id: i64, died_us: i64, reached: list[Queue]) -> None:
        """Take a message at the tail; reached: the queues that have it already."""
        if self.ready.count() == 0:
            self._sample = key
        self._position += 1
        entry = Entry(self, content, key, id, died_us, self._position)
        self.ready.append(entry)
        self.note(entry, reached)
        self.undeliverable.change(1, body_octets(content))

    def enqueue_page(self, page: Page) -> None:
        page.position = self._position + 1
        self._position += page.count
        page.is_waiting = True
        self.ready.append_page(page)
        limits = self.queue.limits
        is_exact = limits is not None and limits.octets_max >= 0
        self.undeliverable.change(page.count, self.queue.vhost.log.body_octets(page) if is_exact else page.size)

    def drop(self, entry: Entry) -> None:
        """Take out the oldest one, as ready.peek() showed it."""
        self._reached.pop(_name(entry), None)
        self.ready.drop()
        self.undeliverable.change(-1, -body_octets(entry.content))

    def reached(self, entry: Entry) -> list[Queue]:
        """The queues that have it, while others refuse it."""
        return self._reached.get(_name(entry), [])

    def note(self, entry: Entry, reached: list[Queue]) -> None:
        """Remember the queues that have it; not over a restart, after which they get it once more."""
        if reached:
            self._reached[_name(entry)] = reached

    def sample(self) -> bytes:
        """The key of one of them, of the oldest if it is in memory; b"" if it can't be had. No page is kept for it."""
        front = self.ready.front(1)
        if not front:
            return b""
        item = front[0]
        if isinstance(item, Page):
            if not self._sample:
                self._sample = self._first_key(item)
            return self._sample
        return item.stretch.key if isinstance(item, Run) else item.key

    def _first_key(self, page: Page) -> bytes:
        data = self.queue.vhost.log.read_page(int(page.segment), int(page.offset), int(page.size))
        for item in page.load(data) if data is not None else []:
            return item.stretch.key if isinstance(item, Run) else item.key
        return b""


class Undeliverable:
    """What one queue keeps. message_lists: by index; octets: of the bodies, roughly for pages of an earlier run;
    sought: how many are still to be looked up (slow_dead_letters.py)."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.message_lists: dict[int, UndeliverableList] = {}
        self.octets: i64 = 0
        self.sought: i64 = 0

    def count(self) -> i64:
        """How many messages."""
        count: i64 = 0
        for message_list in self.message_lists.values():
            count += message_list.ready.count()
        return count

    def change(self, count: i64, octets: i64) -> None:
        """So many messages came, or went if there are less than none."""
        self.octets += octets
        self.queue.fill()
        limits = self.queue.limits
        if limits is not None:
            limits.aside += count
            limits.octets_aside += octets

    def recount(self) -> None:
        """After something else than change(): the queue has other limits, or messages were lost with their pages."""
        count = self.count()
        if count == 0:
            self.octets = 0
        limits = self.queue.limits
        if limits is not None:
            limits.aside = count
            limits.octets_aside = self.octets

    def list_at(self, index: i64) -> UndeliverableList:
        """The message list with this index, made if need be."""
        found = self.message_lists.get(int(index))
        if found is None:
            found = self.message_lists[int(index)] = UndeliverableList(self, index)
            self.queue.vhost.undeliverable_retry.queues[self.queue.name] = self.queue
        return found

    def list_for(self, entry: Entry, reason: str) -> UndeliverableList:
        """Where a dead letter belongs."""
        base = UNDELIVERABLE | i64(REASONS.index(reason)) << _REASON_SHIFT
        destination = self.destination(entry.key)
        if _has_copies(entry):
            return self.list_at(base)
        number = i64(crc32(destination.encode("utf-8", "surrogateescape"))) & _NUMBER_MASK
        index = base | max(number, 1)
        found = self.message_lists.get(int(index))
        if found is None:
            return self.list_at(index if len(self.message_lists) < LISTS_MAX else base)
        is_alike = found.ready.count() == 0 or self.destination(found.sample()) == destination
        return found if is_alike else self.list_at(base)

    def mixed_for(self, reason: str) -> UndeliverableList:
        """Where those stand that each may go a way of its own."""
        return self.list_at(UNDELIVERABLE | i64(REASONS.index(reason)) << _REASON_SHIFT)

    def mixed(self) -> list[UndeliverableList]:
        """These message lists, as far as there is something in them."""
        return [each for each in self.message_lists.values() if each.is_mixed and each.ready.count() > 0]

    def destination(self, key: bytes) -> str:
        """What decides where a message with this key goes from here: "" if all go the same way."""
        if self.queue.dead_letter_key is not None or not key:
            return ""
        routing_key = split_key(key)[1]
        found = address(routing_key, levels_of(self.queue))
        return found[1] if found is not None else routing_key

    def tidy(self) -> None:
        """Let go of message lists that are empty, with no message in a page either."""
        lists = self.message_lists.items()
        self.message_lists = {index: each for index, each in lists if each.ready.count() or each.pages}
        self.recount()


def reason_of(index: i64) -> str:
    """Why what stands in the message list with this index died, "" if that is none for undeliverable messages."""
    return REASONS[int((index & (UNDELIVERABLE - 1)) >> _REASON_SHIFT)] if index >= UNDELIVERABLE else ""


def _name(entry: Entry) -> int:
    return int(entry.id) if entry.id != 0 else -int(entry.position)


def _has_copies(entry: Entry) -> bool:
    """Whether it has other routing keys besides its own."""
    if blind_keys(entry.key):
        return True
    try:
        return len(CarbonCopies(entry.content).cc) > 0
    except ProtocolError:
        return True
