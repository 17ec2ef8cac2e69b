"""The messages of a message list that wait for delivery, in order.

The one place that knows how they are kept. New ones come, alone or as runs, to the tail of a list whose consumed front
is cut off when it is half of the list. A stretch of that list may have been moved to disk: a page then stands in its
place, and is read back when it gets to the head. Requeued ones, which are always older than the head, stand before it,
sorted by their place (requeued.py). What is withdrawn from the middle of the list leaves a hole, so that the others
keep their indices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.messages.entry import Entry
from leveret.broker.messages.returned import Returned
from leveret.broker.messages.run import Run
from leveret.broker.queues.requeued import Requeued
from leveret.broker.storage.page import Page

if TYPE_CHECKING:
    from leveret.broker.storage.log import Log

# what an item takes in memory besides its content, roughly
ITEM_OCTETS: Final[i64] = 150
# what is this large is counted once, however many queues hold it; to look whether they do would not pay for less
SHARED_OCTETS_MIN: Final[i64] = 16384


class Ready:
    """A message list's waiting messages. append, peek, drop and requeue are O(1) for the usual patterns.

    octets: memory that those which could be moved to disk take, roughly; the log has the sum of all message lists, so
    that nobody need add it up. In that sum a large content that several queues hold counts once, as it is in memory
    once.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._items: list[Entry | Run | Page | None] = []
        self._head: i64 = 0
        self._base: i64 = 0  # how many items were cut off before _items[0]
        self._loaded: list[Entry | Run] = []  # the page that was at the head, newest first
        self._requeued = Requeued()
        self._first: Entry | None = None  # what peek() made of the run at the head
        self._count: i64 = 0
        self._large: i64 = 0  # how many items have a content that is counted once
        self.octets: i64 = 0

    def count(self) -> i64:
        return self._count

    def append(self, entry: Entry) -> None:
        self._items.append(entry)
        self._count += 1
        self._weigh(_octets(entry))
        if len(entry.content) >= SHARED_OCTETS_MIN:
            self._hold(entry.content, len(entry.content))

    def append_run(self, run: Run) -> None:
        self._items.append(run)
        self._count += run.stretch.count - run.taken
        octets = _octets(run)
        self._weigh(octets)
        if octets >= SHARED_OCTETS_MIN + ITEM_OCTETS:
            self._hold(run.stretch, octets - ITEM_OCTETS)

    def append_page(self, page: Page) -> None:
        self._items.append(page)
        self._count += page.count

    def peek(self, may_wait: bool = False) -> Entry | None:
        """The oldest message, left where it is. may_wait: None also if it is so large that it has to be waited for."""
        if self._requeued.blocks:
            return self._requeued.oldest()
        item = self._item(may_wait)
        if isinstance(item, Run):
            if self._first is None:
                self._first = item.entry(item.taken)
            return self._first
        return item

    def head(self) -> Entry | Run | None:
        """The oldest message, or the run whose first remaining message it is, left where it is; None also if it is so
        large that it has to be waited for."""
        return self._requeued.oldest() if self._requeued.blocks else self._item(True)

    def expires_us(self) -> i64:
        """When the time of the oldest message ends, 0 = never; no page is read for it, so it may be an earlier time."""
        if self._requeued.blocks:
            return self._requeued.oldest().expires_us
        if self._loaded:
            return self._loaded[-1].expires_us
        if self._head == len(self._items):
            return 0
        item = self._items[self._head]
        return item.expires_us if item is not None else 0

    def head_id(self) -> i64:
        """The journal's number of the oldest message, 0 = there is none; no page is read for it, so it may be less."""
        if self._loaded:
            return _first_id(self._loaded[-1])
        return _first_id(self._items[self._head]) if self._head < len(self._items) else 0

    def drop(self) -> None:
        """Take out the message that peek() showed."""
        self._count -= 1
        if self._requeued.blocks:
            self._requeued.drop()
            return
        item = self._item()
        if isinstance(item, Run):
            self._first = None
            item.taken += 1
            if item.taken < item.stretch.count:
                return
        self._drop_item()

    def run(self) -> Run | None:
        """The run whose first remaining message is the oldest one, if it belongs to any."""
        if self._requeued.blocks:
            return None
        item = self._item()
        return item if isinstance(item, Run) else None

    def drop_run(self, run: Run, count: i64) -> None:
        """Take out so many of what is left of what run() showed."""
        self._count -= count
        self._first = None
        run.taken += count
        if run.taken == run.stretch.count:
            self._drop_item()

    def is_loaded(self) -> bool:
        """Whether the head is part of a page that was read back."""
        return len(self._loaded) > 0

    def _item(self, may_wait: bool = False) -> Entry | Run | None:
        """What is at the head; a page is read back. may_wait: None if that is done on another thread."""
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
                self._count += loaded.stretch.count if isinstance(loaded, Run) else 1
            self._count -= item.count  # less than was thought, if the page could not be read
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
        """The same for some, the oldest first if possible."""
        self._count += len(entries)
        self._requeued.add_all(entries)

    def clear(self) -> list[Entry | Run | Page | None]:
        """Remove all messages; returns the items as they were kept, holes included: they may be very many, and to copy
        them would take longer than all else."""
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
        """One more message list holds a large content of this size, which was counted in."""
        self._large += 1
        held = self._log.held
        count = held.get(id(content), 0)
        held[id(content)] = count + 1
        if count > 0:
            self._log.ready_octets -= octets

    def _let_go(self, item: Entry | Run | Page | None) -> None:
        """An item goes, from memory or to the disk."""
        octets = _octets(item)
        self._weigh(-octets)
        if octets < SHARED_OCTETS_MIN:
            return
        content: object = None
        if isinstance(item, Run):
            octets -= ITEM_OCTETS
            content = item.stretch
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
            self._log.ready_octets += octets  # others hold it still

    def withdraw(self, gone: set[int]) -> None:
        """Take out the items whose id() is among these, wherever they are; pages must be empty."""
        self._first = None
        self._requeued.keep(lambda entry: not self._is_gone(entry, gone))
        self._loaded = [item for item in self._loaded if not self._is_gone(item, gone)]
        index = self._head
        while index < len(self._items):
            item = self._items[index]
            if item is not None and self._is_gone(item, gone):
                if index == self._head:
                    self._advance()
                    index = self._head  # the items may have been moved to the front
                    continue
                self._let_go(item)
                self._items[index] = None
            index += 1

    def _is_gone(self, item: Entry | Run | Page, gone: set[int]) -> bool:
        if id(item) not in gone:
            return False
        if isinstance(item, Run):
            self._count -= item.stretch.count - item.taken
        elif isinstance(item, Entry):
            self._count -= 1
        return True

    def shorten(self, page: Page, count: i64) -> None:
        """`count` messages of a waiting page are gone."""
        page.count -= count
        self._count -= count

    def waiting_pages(self) -> list[Page]:
        """Those that stand in place of their messages, in order."""
        return [item for item in self._items[self._head :] if isinstance(item, Page)]

    def in_memory(self) -> list[Entry]:
        """All messages that are not on disk only, oldest first, left where they are."""
        found = self.returned()
        for item in [*reversed(self._loaded), *self._items[self._head :]]:
            if isinstance(item, Run):
                index = item.taken
                while index < item.stretch.count:
                    found.append(item.entry(index))
                    index += 1
            elif isinstance(item, Entry):
                found.append(item)
        return found

    def front(self, most: i64) -> list[Entry | Run | Page]:
        """The oldest items, about so many, as they are kept, left where they are."""
        found: list[Entry | Run | Page] = []
        found.extend(self._requeued.front(most))
        found.extend(self._loaded[-most:])
        for item in self._items[self._head : self._head + most]:
            if item is not None:
                found.append(item)
        return found

    def items(self) -> list[Entry | Run | Page]:
        """All items as they are kept, oldest first, left where they are."""
        found: list[Entry | Run | Page] = []
        found.extend(self.returned())
        found.extend(reversed(self._loaded))
        for item in self._items[self._head :]:
            if item is not None:
                found.append(item)
        return found

    def came_back(self) -> list[Returned]:
        """Those in memory that are told how often they came back, in any order."""
        items = [*self._requeued.newest_first(), *self._loaded, *self._items[self._head :]]
        return [item for item in items if isinstance(item, Returned)]

    # -- for the pager -------------------------------------------------------------------------------------------------

    def returned(self) -> list[Entry]:
        """The requeued messages, oldest first."""
        return self._requeued.newest_first()[::-1]

    def span(self) -> tuple[int, int]:
        """Indices of the first item and behind the last; an item keeps its index until pages take others' places."""
        return int(self._base + self._head), int(self._base + len(self._items))

    def before_id(self, id: i64) -> int:
        """The index behind the last item in front whose journal number is less than this."""
        index = self._head
        while index < len(self._items):
            item = self._items[index]
            if isinstance(item, Page) or item is None or item.id < id:
                index += 1
            else:
                break
        return int(self._base + index)

    def behind(self, octets: i64) -> int:
        """The index of the first item with which they would be more octets than this, a large one at the head too."""
        index = self._head
        while index < len(self._items):
            octets -= _octets(self._items[index])
            if octets < 0:
                break
            index += 1
        return int(self._base + index)

    def tail(self, floor: i64, stop: i64, octets: i64) -> tuple[list[Entry | Run], int, int]:
        """Items in memory before index `stop` and not before `floor`, next to each other, until they have `octets`.

        Returns them with the indices of the first and behind the last; both are `floor` or less if there are none.
        """
        items = self._items
        lowest = max(floor - self._base, self._head)
        end = stop - self._base
        while end > lowest and (items[end - 1] is None or isinstance(items[end - 1], Page)):
            end -= 1
        found: list[Entry | Run] = []
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
        """Put a page in place of its items, unless some of them are gone; True if it stands there now."""
        start = page.start - self._base
        stop = page.stop - self._base
        count: i64 = 0
        items = self._items[max(start, self._head) : stop]
        for item in items:
            if isinstance(item, Run):
                count += item.stretch.count - item.taken
            elif isinstance(item, Entry):
                count += 1
        # fewer: transient messages were withdrawn meanwhile, and the page does not know
        if start < self._head or count != page.count or count == 0:
            return False
        for item in items:
            self._let_go(item)
        self._items[start:stop] = [page]
        self._first = None
        return True


def _is_paged(item: Entry | Run) -> bool:
    """Whether it is on disk and stayed in memory since it was at the head; then so is everything before it."""
    id = item.id
    if isinstance(item, Run) and id != 0:
        id += item.taken
    return id != 0 and id < item.message_list.paged_below and item.message_list.page_of(id) is not None


def _first_id(item: Entry | Run | Page | None) -> i64:
    if isinstance(item, Run):
        return item.id + item.taken if item.id != 0 else 0
    if isinstance(item, Page):
        return item.first_id
    return item.id if item is not None else 0


def _octets(item: Entry | Run | Page | None) -> i64:
    if isinstance(item, Entry):
        return item.octets() + ITEM_OCTETS
    if isinstance(item, Run):
        # not the length of its data: another queue's sake may make that shorter (Stretch.compact)
        return item.stretch.count * item.stretch.size + ITEM_OCTETS
    return 0
