"""The messages of a queue that wait for delivery, in order.

The one place that knows how they are kept: new ones, alone or as runs, at the tail of a list whose consumed front is
cut off when it is half of the list; requeued ones, which are always older than the head, in a small stack sorted by
their place.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.entry import Entry
from leveret.broker.run import Run


class Ready:
    """A queue's waiting messages. append, peek, drop and requeue are O(1) for the usual patterns."""

    def __init__(self) -> None:
        self._items: list[Entry | Run | None] = []
        self._head: i64 = 0
        self._returned: list[Entry] = []
        self._first: Entry | None = None  # what peek() made of the run at the head
        self._count: i64 = 0

    def count(self) -> i64:
        return self._count

    def append(self, entry: Entry) -> None:
        self._items.append(entry)
        self._count += 1

    def append_run(self, run: Run) -> None:
        self._items.append(run)
        self._count += run.stretch.count

    def peek(self) -> Entry | None:
        """The oldest message, left where it is."""
        if self._returned:
            return self._returned[-1]
        if self._head == len(self._items):
            return None
        item = self._items[self._head]
        if isinstance(item, Run):
            if self._first is None:
                self._first = item.entry(item.taken)
            return self._first
        return item

    def drop(self) -> None:
        """Take out the message that peek() showed."""
        self._count -= 1
        if self._returned:
            self._returned.pop()
            return
        item = self._items[self._head]
        if isinstance(item, Run):
            self._first = None
            item.taken += 1
            if item.taken < item.stretch.count:
                return
        self._advance()

    def run(self) -> Run | None:
        """The run whose first remaining message is the oldest one, if it belongs to any."""
        if self._returned or self._head == len(self._items):
            return None
        item = self._items[self._head]
        return item if isinstance(item, Run) else None

    def drop_run(self, run: Run) -> None:
        """Take out all that is left of what run() showed."""
        self._count -= run.stretch.count - run.taken
        self._first = None
        self._advance()

    def _advance(self) -> None:
        items = self._items
        head = self._head
        items[head] = None
        head += 1
        size: i64 = len(items)
        if head == size:
            items.clear()
            head = 0
        elif head > 4096 and head * 2 > size:
            del items[:head]
            head = 0
        self._head = head

    def requeue(self, entry: Entry) -> None:
        """Put an entry back in its original place. Give many of them newest first."""
        returned = self._returned
        index: i64 = len(returned)
        while index > 0 and returned[index - 1].position < entry.position:
            index -= 1
        returned.insert(index, entry)
        self._count += 1

    def take_all(self) -> list[Entry]:
        """Remove and return all messages, oldest first."""
        taken = self.all()
        self._returned.clear()
        self._items.clear()
        self._first = None
        self._head = 0
        self._count = 0
        return taken

    def all(self) -> list[Entry]:
        """All messages, oldest first, left where they are."""
        found = list(reversed(self._returned))
        for item in self._items[self._head :]:
            if isinstance(item, Run):
                index = item.taken
                while index < item.stretch.count:
                    found.append(item.entry(index))
                    index += 1
            elif item is not None:
                found.append(item)
        return found
