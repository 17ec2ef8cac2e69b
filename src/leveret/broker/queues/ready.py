"""The ready messages of a message list, in order.

No other module knows how they are stored. New messages are appended, singly or as runs, to a list whose consumed front
is cut off when it is half of the list. A part of that list may have been moved to disk; a page then stands in its
place, and is read back when it gets to the head. Requeued messages, which are always older than the head, come before
it, sorted by position (requeued.py). A message that is withdrawn from the middle leaves None, so that the others keep
their indices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.messages.returned import Returned
from leveret.broker.queues.requeued import Requeued
from leveret.broker.storage.page import Page

if TYPE_CHECKING:
    from leveret.broker.storage.log import Log

# approximate memory of an item besides its content
ITEM_OCTETS: Final[i64] = 150
# contents of at least this size are counted once, however many queues hold them; for smaller ones that costs too much
SHARED_OCTETS_MIN: Final[i64] = 16384


class Ready:
    """The ready messages of one message list. append, peek, drop and requeue are O(1) for the usual patterns."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._items: list[Entry | MessageBatch | Page | None] = []
        self._head: i64 = 0
        self._base: i64 = 0  # how many items were cut off before _items[0]
        self._loaded: list[Entry | MessageBatch] = []  # the page that was at the head, newest first
        self._requeued = Requeued()
        self._first: Entry | None = None  # the entry that peek() made of the run at the head
        self._count: i64 = 0
        self._large: i64 = 0  # items whose content is counted once for all queues
        # memory of the items that can be moved to disk, approximate; Log.ready_octets is the sum of all lists
        self.octets: i64 = 0

    def count(self) -> i64:
        return self._count

    def append(self, entry: Entry) -> None:
        self._items.append(entry)
        self._count += 1
        self._weigh(_octets(entry))
        if len(entry.content) >= SHARED_OCTETS_MIN:
            self._hold(entry.content, len(entry.content))

    def append_batch(self, run: MessageBatch) -> None:
        self._items.append(run)
        self._count += run.buffer.count - run.taken
        octets = _octets(run)
        self._weigh(octets)
        if octets >= SHARED_OCTETS_MIN + ITEM_OCTETS:
            self._hold(run.buffer, octets - ITEM_OCTETS)

    def append_page(self, page: Page) -> None:
        self._items.append(page)
        self._count += page.count

    def peek(self, may_wait: bool = False) -> Entry | None:
        """Return the oldest message without removing it. With may_wait, None also while its large page is read."""
        if self._requeued.blocks:
            return self._requeued.oldest()
        item = self._item(may_wait)
        if isinstance(item, MessageBatch):
            if self._first is None:
                self._first = item.entry(item.taken)
            return self._first
        return item

    def head(self) -> Entry | MessageBatch | None:
        """Return the oldest message, or the run that begins with it; None also if its page is being read."""
        return self._requeued.oldest() if self._requeued.blocks else self._item(True)

    def expires_us(self) -> i64:
        """Return when the oldest message expires, 0 = never. No page is read for this, so it may be too early."""
        if self._requeued.blocks:
            return self._requeued.oldest().expires_us
        if self._loaded:
            return self._loaded[-1].expires_us
        if self._head == len(self._items):
            return 0
        item = self._items[self._head]
        return item.expires_us if item is not None else 0

    def head_id(self) -> i64:
        """Return the journal's id of the oldest message, 0 = none. No page is read for this, so it may be too small."""
        if self._loaded:
            return _first_id(self._loaded[-1])
        return _first_id(self._items[self._head]) if self._head < len(self._items) else 0

    def drop(self) -> None:
        """Remove the message that peek() returned."""
        self._count -= 1
        if self._requeued.blocks:
            self._requeued.drop()
            return
        item = self._item()
        if isinstance(item, MessageBatch):
            self._first = None
            item.taken += 1
            if item.taken < item.buffer.count:
                return
        self._drop_item()

    def run(self) -> MessageBatch | None:
        """Return the run whose first remaining message is the oldest message, None if that belongs to no run."""
        if self._requeued.blocks:
            return None
        item = self._item()
        return item if isinstance(item, MessageBatch) else None

    def drop_batch(self, run: MessageBatch, count: i64) -> None:
        """Remove the next `count` messages of the run that run() returned."""
        self._count -= count
        self._first = None
        run.taken += count
        if run.taken == run.buffer.count:
            self._drop_item()

    def is_loaded(self) -> bool:
        """Whether the head is part of a page that was read back."""
        return len(self._loaded) > 0

    def _item(self, may_wait: bool = False) -> Entry | MessageBatch | None:
        """Return the item at the head, reading its page. With may_wait, None if the page is read on another thread."""
        if self._loaded:
            return self._loaded[-1]
        while self._head < len(self._items):
            item = self._items[self._head]
            if not isinstance(item, Page):
                return item
            if may_wait and self._log.must_wait(item):
                return None
            self._advance()
            self._loaded = self._log.load(item)
            self._loaded.reverse()
            for loaded in self._loaded:
                self._count += loaded.buffer.count if isinstance(loaded, MessageBatch) else 1
            self._count -= item.count  # fewer are loaded if the page could not be read
            if self._loaded:
                return self._loaded[-1]
        return None

    def _drop_item(self) -> None:
        if self._loaded:
            self._loaded.pop()
        else:
            self._advance()

    def _advance(self) -> None:
        items = self._items
        head = self._head
        self._let_go(items[head])
        items[head] = None
        head += 1
        size: i64 = len(items)
        while head < size and items[head] is None:
            head += 1
        if head == size or (head > 4096 and head * 2 > size):
            del items[:head]
            self._base += head
            head = 0
        self._head = head

    def requeue(self, entry: Entry) -> None:
        """Put an entry back in its original place."""
        self._requeued.add(entry)
        self._count += 1

    def requeue_all(self, entries: list[Entry]) -> None:
        """Put several entries back in their original places; fastest if the oldest comes first."""
        self._count += len(entries)
        self._requeued.add_all(entries)

    def clear(self) -> list[Entry | MessageBatch | Page | None]:
        """Remove all messages and return the items as they were stored, including holes.

        There may be very many: copying them would take longer than everything else here.
        """
        items = self._items
        index = self._head
        while self._large > 0:
            item = items[index]
            if item is not None and _octets(item) >= SHARED_OCTETS_MIN:
                self._let_go(item)
            index += 1
        self._base += len(items)
        if self._requeued.blocks or self._loaded:
            items = [*self.items()]
        self._items = []
        self._requeued.blocks.clear()
        self._loaded.clear()
        self._first = None
        self._head = 0
        self._count = 0
        self._weigh(-self.octets)
        return items

    def _weigh(self, octets: i64) -> None:
        self.octets += octets
        self._log.ready_octets += octets

    def _hold(self, content: object, octets: i64) -> None:
        """Count one more message list that holds this large content, whose size was added before."""
        self._large += 1
        held = self._log.held
        count = held.get(id(content), 0)
        held[id(content)] = count + 1
        if count > 0:
            self._log.ready_octets -= octets

    def _let_go(self, item: Entry | MessageBatch | Page | None) -> None:
        """Subtract the memory of an item that was removed or moved to disk."""
        octets = _octets(item)
        self._weigh(-octets)
        if octets < SHARED_OCTETS_MIN:
            return
        content: object = None
        if isinstance(item, MessageBatch):
            octets -= ITEM_OCTETS
            content = item.buffer
        elif isinstance(item, Entry):
            octets = len(item.content)
            content = item.content
        if octets < SHARED_OCTETS_MIN:
            return
        self._large -= 1
        held = self._log.held
        count = held.pop(id(content), 1) - 1
        if count > 0:
            held[id(content)] = count
            self._log.ready_octets += octets  # other message lists still hold it

    def withdraw(self, gone: set[int]) -> None:
        """Remove the items whose id() is in `gone`, wherever they are; pages must be empty."""
        self._first = None
        self._requeued.keep(lambda entry: not self._is_gone(entry, gone))
        self._loaded = [item for item in self._loaded if not self._is_gone(item, gone)]
        index = self._head
        while index < len(self._items):
            item = self._items[index]
            if item is not None and self._is_gone(item, gone):
                if index == self._head:
                    self._advance()
                    index = self._head  # the list may have been cut
                    continue
                self._let_go(item)
                self._items[index] = None
            index += 1

    def _is_gone(self, item: Entry | MessageBatch | Page, gone: set[int]) -> bool:
        if id(item) not in gone:
            return False
        if isinstance(item, MessageBatch):
            self._count -= item.buffer.count - item.taken
        elif isinstance(item, Entry):
            self._count -= 1
        return True

    def shorten(self, page: Page, count: i64) -> None:
        """Subtract `count` messages that have left a waiting page."""
        page.count -= count
        self._count -= count

    def waiting_pages(self) -> list[Page]:
        """Return the pages that stand in place of their messages, in order."""
        return [item for item in self._items[self._head :] if isinstance(item, Page)]

    def in_memory(self) -> list[Entry]:
        """Return all messages that are not on disk only, oldest first, without removing them."""
        found = self.returned()
        for item in [*reversed(self._loaded), *self._items[self._head :]]:
            if isinstance(item, MessageBatch):
                index = item.taken
                while index < item.buffer.count:
                    found.append(item.entry(index))
                    index += 1
            elif isinstance(item, Entry):
                found.append(item)
        return found

    def front(self, most: i64) -> list[Entry | MessageBatch | Page]:
        """Return about `most` of the oldest items, as stored, without removing them."""
        found: list[Entry | MessageBatch | Page] = []
        found.extend(self._requeued.front(most))
        found.extend(self._loaded[-most:])
        for item in self._items[self._head : self._head + most]:
            if item is not None:
                found.append(item)
        return found

    def items(self) -> list[Entry | MessageBatch | Page]:
        """Return all items as stored, oldest first, without removing them."""
        found: list[Entry | MessageBatch | Page] = []
        found.extend(self.returned())
        found.extend(reversed(self._loaded))
        for item in self._items[self._head :]:
            if item is not None:
                found.append(item)
        return found

    def came_back(self) -> list[Returned]:
        """Return the messages in memory that carry a delivery count, in any order."""
        items = [*self._requeued.newest_first(), *self._loaded, *self._items[self._head :]]
        return [item for item in items if isinstance(item, Returned)]

    # -- for the pager -------------------------------------------------------------------------------------------------

    def returned(self) -> list[Entry]:
        """Return the requeued messages, oldest first."""
        return self._requeued.newest_first()[::-1]

    def span(self) -> tuple[int, int]:
        """Return the indices of the first item and after the last; they change when pages replace items."""
        return int(self._base + self._head), int(self._base + len(self._items))

    def before_id(self, id: i64) -> int:
        """Return the index after the last item at the front whose journal id is less than this."""
        index = self._head
        while index < len(self._items):
            item = self._items[index]
            if isinstance(item, Page) or item is None or item.id < id:
                index += 1
            else:
                break
        return int(self._base + index)

    def behind(self, octets: i64) -> int:
        """Return the index of the first item with which the items up to it take more than `octets`."""
        index = self._head
        while index < len(self._items):
            octets -= _octets(self._items[index])
            if octets < 0:
                break
            index += 1
        return int(self._base + index)

    def tail(self, floor: i64, stop: i64, octets: i64) -> tuple[list[Entry | MessageBatch], int, int]:
        """Return adjacent items in memory between the indices `floor` and `stop`, up to `octets`, from the end.

        They come with the indices of the first and after the last; both are `floor` or less if there are no such items.
        """
        items = self._items
        lowest = max(floor - self._base, self._head)
        end = stop - self._base
        while end > lowest and (items[end - 1] is None or isinstance(items[end - 1], Page)):
            end -= 1
        found: list[Entry | MessageBatch] = []
        index = end
        while index > lowest and octets > 0:
            item = items[index - 1]
            if item is None or isinstance(item, Page) or _is_paged(item):
                break
            found.append(item)
            octets -= _octets(item)
            index -= 1
        found.reverse()
        return found, int(index + self._base), int(end + self._base)

    def replace(self, page: Page) -> bool:
        """Put a page in place of its items; False, without a change, if some of them have been removed."""
        start = page.start - self._base
        stop = page.stop - self._base
        count: i64 = 0
        items = self._items[max(start, self._head) : stop]
        for item in items:
            if isinstance(item, MessageBatch):
                count += item.buffer.count - item.taken
            elif isinstance(item, Entry):
                count += 1
        # fewer: transient messages were withdrawn meanwhile, which the page still contains
        if start < self._head or count != page.count or count == 0:
            return False
        for item in items:
            self._let_go(item)
        self._items[start:stop] = [page]
        self._first = None
        return True


def _is_paged(item: Entry | MessageBatch) -> bool:
    """Whether it was read back from disk and is still in memory; then so is everything before it."""
    id = item.id
    if isinstance(item, MessageBatch) and id != 0:
        id += item.taken
    return id != 0 and id < item.message_list.paged_below and item.message_list.page_of(id) is not None


def _first_id(item: Entry | MessageBatch | Page | None) -> i64:
    if isinstance(item, MessageBatch):
        return item.id + item.taken if item.id != 0 else 0
    if isinstance(item, Page):
        return item.first_id
    return item.id if item is not None else 0


def _octets(item: Entry | MessageBatch | Page | None) -> i64:
    if isinstance(item, Entry):
        return item.octets() + ITEM_OCTETS
    if isinstance(item, MessageBatch):
        # not the length of its data, which compaction for another queue may shorten (BatchBuffer.compact)
        return item.buffer.count * item.buffer.size + ITEM_OCTETS
    return 0
