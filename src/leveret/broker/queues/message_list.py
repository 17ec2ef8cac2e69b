"""A message list: messages of a queue in the order of their arrival, in memory and in pages.

Most queues have one; a priority queue has one for each priority that was used. The journal knows message lists by their
numbers, not why a queue has several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import BatchBuffer, MessageBatch
from leveret.broker.messages.returned import Returned
from leveret.broker.queues.limits import body_octets
from leveret.broker.queues.ready import Ready
from leveret.broker.storage.page import Page

if TYPE_CHECKING:
    from leveret.broker.queues.queue import Queue

# the number of a message list: its queue's number in the lower bits, its index above
INDEX_SHIFT: Final[i64] = 32
QUEUE_MASK: Final[i64] = (1 << 32) - 1


class MessageList:
    """The messages of a queue, or of one priority of it."""

    def __init__(self, queue: Queue, index: i64) -> None:
        self.queue = queue
        self.index = index  # among the queue's lists; 0 exists from the beginning
        self.ready = Ready(queue.vhost.log)
        # pages with journalled messages, by id, without overlap; an id below paged_below may be in one of them
        self.pages: list[Page] = []
        self.paged_below: i64 = 0
        self.is_leaving = False  # its queue was deleted, and its pages stay until all messages in them are settled
        self._position: i64 = 0

    @property
    def number(self) -> i64:
        """Its number in the journal."""
        return self.index << INDEX_SHIFT | self.queue.number

    def enqueue(
        self, content: bytes, key: bytes, id: i64, expires_us: i64, redelivered: bool = False, returns: i64 = 0
    ) -> None:
        """Add a message at the tail, to be delivered at the end of the turn. returns: its delivery count."""
        entry = Entry(self, content, key, id, expires_us, 0)
        entry.redelivered = redelivered
        if returns != 0:
            entry = Returned(entry, content, returns)
        self.put(entry)

    def put(self, entry: Entry) -> None:
        """Add an entry of this message list, which has no position yet, at the tail."""
        self._position += 1
        entry.position = self._position
        self.ready.append(entry)
        queue = self.queue
        if queue.limits is not None:
            queue.limits.octets += body_octets(entry.content)
            if queue.limits.keys is not None:
                queue.limits.keys.enter(entry)
        if not queue.is_touched:
            queue.touch()

    def enqueue_batch(self, buffer: BatchBuffer, id: i64, expires_us: i64, redelivered: bool = False) -> None:
        """Add a batch of messages at the tail. id: of the first, in the journal."""
        run = MessageBatch(self, buffer, id, expires_us, self._position + 1)
        run.redelivered = redelivered
        self.ready.append_batch(run)
        self._position += buffer.count
        queue = self.queue
        if queue.limits is not None:
            queue.limits.octets += buffer.count * body_octets(buffer.data)
            if queue.limits.keys is not None:
                queue.limits.keys.enter_item(run)
        if not queue.is_touched:
            queue.touch()

    def enqueue_page(self, page: Page) -> None:
        """Add a page of messages on disk at the tail, after a restart."""
        page.position = self._position + 1
        self._position += page.count
        page.is_waiting = True
        self.ready.append_page(page)
        queue = self.queue
        if queue.limits is not None and queue.limits.octets_max >= 0:
            # only queues with x-max-length-bytes or x-message-deduplication read their pages at a start
            queue.limits.octets += queue.vhost.log.body_octets(page)
        if queue.limits is not None and queue.limits.keys is not None:
            for item in queue.vhost.log.items_of(page):
                queue.limits.keys.enter_item(item)
        if not queue.is_touched:
            queue.touch()  # its messages may expire

    def body_octets(self) -> i64:
        """Return the size of the bodies of all its messages; reads pages."""
        octets: i64 = 0
        for entry in self.ready.in_memory():
            octets += body_octets(entry.content)
        for page in self.ready.waiting_pages():
            octets += self.queue.vhost.log.body_octets(page)
        return octets

    def add_page(self, page: Page) -> None:
        """Add a page to those in which ids are looked up."""
        index: i64 = len(self.pages)
        while index > 0 and self.pages[index - 1].first_id > page.first_id:
            index -= 1
        self.pages.insert(index, page)
        self.paged_below = max(self.paged_below, page.last_id + 1)

    def remove_page(self, page: Page) -> None:
        """Remove a page from those in which ids are looked up; it need not be one of them."""
        index = self.page_index(page.first_id)
        if index < len(self.pages) and self.pages[index] is page:
            del self.pages[index]

    def page_of(self, id: i64) -> Page | None:
        """Return the page with this message, None if it is in no page."""
        index = self.page_index(id)
        if index < len(self.pages) and self.pages[index].first_id <= id:
            return self.pages[index]
        return None

    def page_index(self, id: i64) -> i64:
        """Return the index of the first page whose last id is not below this one."""
        low: i64 = 0
        high: i64 = len(self.pages)
        while low < high:
            middle = (low + high) // 2
            if self.pages[middle].last_id < id:
                low = middle + 1
            else:
                high = middle
        return low
