"""Deliveries of one channel that wait for an acknowledgement, by delivery tag."""

from __future__ import annotations

from mypy_extensions import i64


class Delivery:
    """Base of what can be outstanding; the broker's queue entry is one."""


class Unacked:
    """A list by tag with holes: tag `base` stands at index 0, settled ones are None.

    Holes at the front are skipped at once and cut off when they are half of the list, so both single and cumulative
    acknowledgements cost O(1) on average. count: how many are outstanding, those that a transaction holds included.
    """

    def __init__(self) -> None:
        self._entries: list[Delivery | None] = []
        self._base: i64 = 1
        self._first: i64 = 0
        self.count: i64 = 0

    def add(self, tag: i64, delivery: Delivery) -> None:
        """Remember a delivery; tags grow, but not by one only (automatic acknowledgement uses them too)."""
        entries = self._entries
        if not entries:
            self._base = tag
            self._first = 0
        else:
            gap = tag - self._base - len(entries)
            while gap > 0:
                entries.append(None)
                gap -= 1
        entries.append(delivery)
        self.count += 1

    def get(self, tag: i64) -> Delivery | None:
        """The delivery with this tag, or None if it is unknown or was settled."""
        index = tag - self._base
        if index < self._first or index >= len(self._entries):
            return None
        return self._entries[index]

    def first_tag(self) -> i64:
        """The tag of the oldest delivery, 0 = there is none."""
        return self._base + self._first if self._entries else 0

    def tagged(self, most: i64) -> list[tuple[int, Delivery]]:
        """The oldest deliveries with their tags, left where they are; `most` of them, 0 = all."""
        found: list[tuple[int, Delivery]] = []
        index = self._first
        while index < len(self._entries) and (most == 0 or len(found) < most):
            delivery = self._entries[index]
            if delivery is not None:
                found.append((int(self._base + index), delivery))
            index += 1
        return found

    def remove(self, tag: i64) -> None:
        """Forget one delivery that get() knows."""
        self._entries[tag - self._base] = None
        self.count -= 1
        self._compact()

    def take_until(self, tag: i64) -> list[Delivery]:
        """Remove and return all deliveries up to and including this tag, oldest first; 0 means all of them."""
        entries = self._entries
        stop: i64 = len(entries)
        if tag != 0 and tag - self._base + 1 < stop:
            stop = tag - self._base + 1
        taken: list[Delivery] = []
        index = self._first
        while index < stop:
            delivery = entries[index]
            if delivery is not None:
                taken.append(delivery)
                entries[index] = None
            index += 1
        self.count -= len(taken)
        self._compact()
        return taken

    def all(self) -> list[Delivery]:
        """All deliveries, oldest first, left where they are."""
        return [delivery for delivery in self._entries[self._first :] if delivery is not None]

    def hold(self, tag: i64, multiple: bool) -> list[tuple[int, Delivery]]:
        """Like remove and take_until, with tags, for a transaction: what is taken still counts as outstanding."""
        entries = self._entries
        stop: i64 = len(entries)
        index = self._first
        if tag != 0 or not multiple:
            stop = min(stop, tag - self._base + 1)
            if not multiple:
                index = stop - 1
        held: list[tuple[int, Delivery]] = []
        while index < stop:
            delivery = entries[index]
            if delivery is not None:
                held.append((int(self._base + index), delivery))
                entries[index] = None
            index += 1
        self._compact()
        return held

    def restore(self, held: list[tuple[int, Delivery]]) -> None:
        """Take back what `hold` gave out since it was last called, all of it."""
        held += self.hold(0, True)
        held.sort()  # no tag is there twice
        self.count = 0
        for tag, delivery in held:
            self.add(tag, delivery)

    def _compact(self) -> None:
        entries = self._entries
        size: i64 = len(entries)
        first = self._first
        while first < size and entries[first] is None:
            first += 1
        if first == size:
            entries.clear()
            first = 0
        elif first > 1024 and first * 2 > size:
            del entries[:first]
            self._base += first
            first = 0
        self._first = first
