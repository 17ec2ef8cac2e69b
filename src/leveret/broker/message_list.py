"""A message list: messages of a queue that are kept in the order of their arrival, in memory and in pages.

Most queues have one. A priority queue has one for each priority that was ever used. The journal knows a message list by
its number, and that is all it knows of the reason why a queue has several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.entry import Entry
from leveret.broker.limits import body_octets
from leveret.broker.page import Page
from leveret.broker.ready import Ready
from leveret.broker.returned import Returned
from leveret.broker.run import Run, Stretch

if TYPE_CHECKING:
    from leveret.broker.queue import Queue

# a message list's number: that of its queue in the lower bits, its own index above them
INDEX_SHIFT: Final[i64] = 32
QUEUE_MASK: Final[i64] = (1 << 32) - 1


class MessageList:
    """index: which one of its queue; 0 is there from the beginning."""

    def __init__(self, queue: Queue, index: i64) -> None:
        self.queue = queue
        self.index = index
        self.ready = Ready(queue.vhost.log)
        # pages with journalled messages, by id; they never overlap; every id below paged_below may be in one
        self.pages: list[Page] = []
        self.paged_below: i64 = 0
        self.is_leaving = False  # its queue is gone, and its pages stay until all messages in them are settled
        self._position: i64 = 0

    @property
    def number(self) -> i64:
        """In the journal."""
        return self.index << INDEX_SHIFT | self.queue.number

    def enqueue(
        self, content: bytes, key: bytes, id: i64, expires_us: i64, redelivered: bool = False, returns: i64 = 0
    ) -> None:
        """Take a message at the tail, which came back `returns` times; it is delivered at the end of the turn."""
        entry = Entry(self, content, key, id, expires_us, 0)
        entry.redelivered = redelivered
        if returns != 0:
            entry = Returned(entry, content, returns)
        self.put(entry)

    def put(self, entry: Entry) -> None:
        """Take an entry of this message list, which has no place on it yet, at the tail."""
        self._position += 1
        entry.position = self._position
        self.ready.append(entry)
        queue = self.queue
        if queue.limits is not None:
            queue.limits.octets += body_octets(entry.content)
        if not queue.is_touched:
            queue.touch()

    def enqueue_stretch(self, stretch: Stretch, id: i64, expires_us: i64, redelivered: bool = False) -> None:
        """Take alike messages at the tail; id: the journal's number of the first."""
        run = Run(self, stretch, id, expires_us, self._position + 1)
        run.redelivered = redelivered
        self.ready.append_run(run)
        self._position += stretch.count
        queue = self.queue
        if queue.limits is not None:
            queue.limits.octets += stretch.count * body_octets(stretch.data)
        if not queue.is_touched:
            queue.touch()

    def enqueue_page(self, page: Page) -> None:
        """Take messages that are on disk at the tail, after a restart."""
        page.position = self._position + 1
        self._position += page.count
        page.is_waiting = True
        self.ready.append_page(page)
        queue = self.queue
        if queue.limits is not None and queue.limits.octets_max >= 0:
            queue.limits.octets += queue.vhost.log.body_octets(page)  # the only queues that read theirs at a start
        if not queue.is_touched:
            queue.touch()  # its messages may expire

    def body_octets(self) -> i64:
        """Size of the bodies of all its messages; pages are read for it."""
        octets: i64 = 0
        for entry in self.ready.in_memory():
            octets += body_octets(entry.content)
        for page in self.ready.waiting_pages():
            octets += self.queue.vhost.log.body_octets(page)
        return octets

    def add_page(self, page: Page) -> None:
        """From here on the ids of the page are looked for in it."""
        index: i64 = len(self.pages)
        while index > 0 and self.pages[index - 1].first_id > page.first_id:
            index -= 1
        self.pages.insert(index, page)
        self.paged_below = max(self.paged_below, page.last_id + 1)

    def remove_page(self, page: Page) -> None:
        """They are not looked for in it any more; it may be one in which none ever were."""
        index = self.page_index(page.first_id)
        if index < len(self.pages) and self.pages[index] is page:
            del self.pages[index]

    def page_of(self, id: i64) -> Page | None:
        """The page that has this message."""
        index = self.page_index(id)
        if index < len(self.pages) and self.pages[index].first_id <= id:
            return self.pages[index]
        return None

    def page_index(self, id: i64) -> i64:
        """Where the first page stands that ends with this id or a later one."""
        low: i64 = 0
        high: i64 = len(self.pages)
        while low < high:
            middle = (low + high) // 2
            if self.pages[middle].last_id < id:
                low = middle + 1
            else:
                high = middle
        return low
