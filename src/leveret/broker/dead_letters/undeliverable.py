"""Undeliverable dead letters: they reached no queue, and stay in the queue in which they died until they have a route.

Queues with x-dead-letter-strategy=at-least-once keep them, and the levels of a delay layout (levels.py), where a
delayed message may be due before there is a consumer's queue. They are not ready, but count for length limits. They are
in message lists of their own, one for each reason and destination: the route is looked up once for a whole list, and no
list waits for another. A message moves to its list by one journal record; there it goes to pages as any message that
waits for long, and is restored after a restart. undeliverable_retry.py delivers it. RabbitMQ keeps such messages in
memory and tries 32 of a queue, and the others wait for those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from mypy_extensions import i64

from leveret.broker.delayed.levels import address, levels_of
from leveret.broker.messages.carbon_copies import CarbonCopies, blind_keys, split_key
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.limits import body_octets
from leveret.broker.queues.message_list import MessageList
from leveret.broker.storage.page import Page
from leveret.wire.errors import ProtocolError

if TYPE_CHECKING:
    from leveret.broker.queues.queue import Queue

# The index of an undeliverable message list: this bit, then the reason, then a number of the destination, 0 for a mixed
# list.
UNDELIVERABLE: Final[i64] = 1 << 30
REASONS: Final = ("expired", "rejected", "maxlen", "delivery_limit")
_REASON_SHIFT: Final[i64] = 24
_NUMBER_MASK: Final[i64] = (1 << 24) - 1
# lists that one queue may have; messages for other destinations then share a mixed list for each reason
LISTS_MAX: Final = 1024


class UndeliverableList(MessageList):
    """Dead letters with the same reason and destination; an entry's expires_us is when it died."""

    def __init__(self, undeliverable: Undeliverable, index: i64) -> None:
        super().__init__(undeliverable.queue, index)
        self.undeliverable = undeliverable
        self.reason = reason_of(index)
        self.is_mixed = index & _NUMBER_MASK == 0  # its messages may have different destinations
        self.is_going = False  # undeliverable_retry.py is emptying it
        self.is_tried_singly = False  # the failure of a message says nothing about the next one
        self.left: i64 = 0  # messages that are still to be tried in this round
        self._sample = b""
        self._reached: dict[int, list[Queue]] = {}  # of messages that some queues have taken and others refused

    def enqueue(
        self, content: bytes, key: bytes, id: i64, expires_us: i64, redelivered: bool = False, returns: i64 = 0
    ) -> None:
        self.keep(content, key, id, expires_us, [])

    def keep(self, content: bytes, key: bytes, id: i64, died_us: i64, reached: list[Queue]) -> None:
        """Append a message; reached: the queues that have it already."""
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
        """Remove the oldest message, as returned by ready.peek()."""
        self._reached.pop(_name(entry), None)
        self.ready.drop()
        self.undeliverable.change(-1, -body_octets(entry.content))

    def reached(self, entry: Entry) -> list[Queue]:
        """Return the queues that have this message, while others refuse it."""
        return self._reached.get(_name(entry), [])

    def note(self, entry: Entry, reached: list[Queue]) -> None:
        """Remember the queues that have this message. After a restart they get it once more."""
        if reached:
            self._reached[_name(entry)] = reached

    def sample(self) -> bytes:
        """Return a message's key, the oldest one's if it is in memory; b"" if none is available. No page is kept."""
        front = self.ready.front(1)
        if not front:
            return b""
        item = front[0]
        if isinstance(item, Page):
            if not self._sample:
                self._sample = self._first_key(item)
            return self._sample
        return item.buffer.key if isinstance(item, MessageBatch) else item.key

    def _first_key(self, page: Page) -> bytes:
        data = self.queue.vhost.log.read_page(int(page.segment), int(page.offset), int(page.size))
        for item in page.load(data) if data is not None else []:
            return item.buffer.key if isinstance(item, MessageBatch) else item.key
        return b""


class Undeliverable:
    """The undeliverable messages of one queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.message_lists: dict[int, UndeliverableList] = {}  # by index
        self.octets: i64 = 0  # of the bodies, approximate for pages of earlier runs of the broker
        self.sought: i64 = 0  # messages that are still to be looked up (slow_dead_letters.py)

    def count(self) -> i64:
        """Return the number of messages."""
        count: i64 = 0
        for message_list in self.message_lists.values():
            count += message_list.ready.count()
        return count

    def change(self, count: i64, octets: i64) -> None:
        """Add to the number of messages and their octets, both negative for messages that leave."""
        self.octets += octets
        self.queue.fill()
        limits = self.queue.limits
        if limits is not None:
            limits.aside += count
            limits.octets_aside += octets

    def recount(self) -> None:
        """Update the limits' figures after new limits, or messages lost with their pages."""
        count = self.count()
        if count == 0:
            self.octets = 0
        limits = self.queue.limits
        if limits is not None:
            limits.aside = count
            limits.octets_aside = self.octets

    def list_at(self, index: i64) -> UndeliverableList:
        """Return the message list with this index, created if necessary."""
        found = self.message_lists.get(int(index))
        if found is None:
            found = self.message_lists[int(index)] = UndeliverableList(self, index)
            self.queue.vhost.undeliverable_retry.queues[self.queue.name] = self.queue
        return found

    def list_for(self, entry: Entry, reason: str) -> UndeliverableList:
        """Return the message list for a dead letter."""
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
        """Return the mixed list for this reason."""
        return self.list_at(UNDELIVERABLE | i64(REASONS.index(reason)) << _REASON_SHIFT)

    def mixed(self) -> list[UndeliverableList]:
        """Return the mixed lists that have messages."""
        return [each for each in self.message_lists.values() if each.is_mixed and each.ready.count() > 0]

    def destination(self, key: bytes) -> str:
        """Return what determines the route of a message with this key from here, "" if all have the same."""
        if self.queue.dead_letter_key is not None or not key:
            return ""
        routing_key = split_key(key)[1]
        found = address(routing_key, levels_of(self.queue))
        return found[1] if found is not None else routing_key

    def tidy(self) -> None:
        """Remove message lists without messages, unless a page still has one."""
        lists = self.message_lists.items()
        self.message_lists = {index: each for index, each in lists if each.ready.count() or each.pages}
        self.recount()


def reason_of(index: i64) -> str:
    """Return the reason for which the messages in the list with this index died, "" for a list of ready messages."""
    return REASONS[int((index & (UNDELIVERABLE - 1)) >> _REASON_SHIFT)] if index >= UNDELIVERABLE else ""


def _name(entry: Entry) -> int:
    return int(entry.id) if entry.id != 0 else -int(entry.position)


def _has_copies(entry: Entry) -> bool:
    """Whether it has further routing keys (CC or BCC)."""
    if blind_keys(entry.key):
        return True
    try:
        return len(CarbonCopies(entry.content).cc) > 0
    except ProtocolError:
        return True
