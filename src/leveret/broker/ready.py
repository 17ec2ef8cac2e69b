"""The messages of a queue that wait for delivery, in order.

The one place that knows how they are kept: new ones at the tail of a list whose consumed front is cut off when it is
half of the list; requeued ones, which are always older than the head, in a small stack sorted by their place.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.entry import Entry


class Ready:
    """A queue's waiting entries. append, peek, pop and requeue are O(1) for the usual patterns."""

    def __init__(self) -> None:
        self._entries: list[Entry | None] = []
        self._head: i64 = 0
        self._returned: list[Entry] = []

    def count(self) -> i64:
        return len(self._entries) - self._head + len(self._returned)

    def append(self, entry: Entry) -> None:
        self._entries.append(entry)

    def peek(self) -> Entry | None:
        """The oldest entry, left where it is."""
        if self._returned:
            return self._returned[-1]
        if self._head < len(self._entries):
            return self._entries[self._head]
        return None

    def drop(self) -> None:
        """Take out the entry that peek() showed."""
        if self._returned:
            self._returned.pop()
            return
        entries = self._entries
        head = self._head
        entries[head] = None
        head += 1
        size: i64 = len(entries)
        if head == size:
            entries.clear()
            head = 0
        elif head > 4096 and head * 2 > size:
            del entries[:head]
            head = 0
        self._head = head

    def requeue(self, entry: Entry) -> None:
        """Put an entry back in its original place. Give many of them newest first."""
        returned = self._returned
        index: i64 = len(returned)
        while index > 0 and returned[index - 1].position < entry.position:
            index -= 1
        returned.insert(index, entry)

    def take_all(self) -> list[Entry]:
        """Remove and return all entries, oldest first."""
        taken = list(reversed(self._returned))
        for entry in self._entries[self._head :]:
            if entry is not None:
                taken.append(entry)
        self._returned.clear()
        self._entries.clear()
        self._head = 0
        return taken

    def all(self) -> list[Entry]:
        """All entries, oldest first, left where they are."""
        found = list(reversed(self._returned))
        for entry in self._entries[self._head :]:
            if entry is not None:
                found.append(entry)
        return found
