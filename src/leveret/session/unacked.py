"""Deliveries of one channel that wait for an acknowledgement, by delivery tag."""

from __future__ import annotations

from mypy_extensions import i64


class Delivery:
    """Base of what can be outstanding, under one tag or under several that follow each other; the broker's queue entry
    is one."""

    def single(self, tag: i64) -> Delivery:
        """What is outstanding under this one of its tags."""
        return self

    def thinned(self) -> tuple[i64, i64]:
        """One of its tags was settled. Returns its first tag and their number, if so few are left that each of them
        should stand alone from now on; 0, 0 otherwise."""
        return 0, 0


class Unacked:
    """A list by tag with holes: tag `base` stands at index 0, settled ones are None.

    What has several tags stands at each of them. Holes at the front are skipped at once and cut off when they are half
    of the list, so both single and cumulative acknowledgements cost O(1) on average. count: how many are outstanding,
    those that a transaction holds included.
    """

    def __init__(self) -> None:
        self._entries: list[Delivery | None] = []
        self._base: i64 = 1
        self._first: i64 = 0
        self.count: i64 = 0

    def add(self, tag: i64, delivery: Delivery) -> None:
        """Remember a delivery; tags grow, but not by one only (automatic acknowledgement uses them too)."""
        self._make_room(tag)
        self._entries.append(delivery)
        self.count += 1

    def add_run(self, tag: i64, delivery: Delivery, count: i64) -> None:
        """Remember a delivery with so many tags, of which this one is the first."""
        self._make_room(tag)
        self._entries.extend([delivery] * int(count))
        self.count += count

    def _make_room(self, tag: i64) -> None:
        entries = self._entries
        if not entries:
            self._base = tag
            self._first = 0
        else:
            gap = tag - self._base - len(entries)
            while gap > 0:
                entries.append(None)
                gap -= 1

    def has(self, tag: i64) -> bool:
        """Whether a delivery with this tag is outstanding."""
        index = tag - self._base
        return self._first <= index < len(self._entries) and self._entries[index] is not None

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
                tag = self._base + index
                found.append((int(tag), delivery.single(tag)))
            index += 1
        return found

    def take(self, tag: i64) -> Delivery | None:
        """Forget this tag. Returns what was delivered with it (and maybe others); None if it is unknown or settled."""
        index = tag - self._base
        entries = self._entries
        if index < self._first or index >= len(entries):
            return None
        delivery = entries[index]
        if delivery is None:
            return None
        entries[index] = None
        self.count -= 1
        first, tags = delivery.thinned()
        if tags != 0:
            self._separate(first, tags)
        self.compact()
        return delivery

    def _separate(self, tag: i64, count: i64) -> None:
        """Let those of so many tags that are not settled stand alone."""
        entries = self._entries
        index = max(tag - self._base, self._first)
        stop = tag - self._base + count
        while index < stop:
            delivery = entries[index]
            if delivery is not None:
                entries[index] = delivery.single(self._base + index)
            index += 1

    def take_next(self, tag: i64) -> tuple[Delivery | None, i64, i64]:
        """Remove the oldest delivery, with all its tags that follow each other up to and including this one (0: all).

        Returns it with its first tag and their number; None if there is none. After the last one, call `compact`.
        """
        entries = self._entries
        stop: i64 = len(entries)
        if tag != 0 and tag - self._base + 1 < stop:
            stop = tag - self._base + 1
        first = self._first
        while first < stop and entries[first] is None:
            first += 1
        if first >= stop:
            return None, 0, 0
        delivery = entries[first]
        index = first
        while index < stop and entries[index] is delivery:
            entries[index] = None
            index += 1
        self._first = index
        self.count -= index - first
        return delivery, self._base + first, index - first

    def take_some(self, tag: i64, most: i64) -> list[Delivery]:
        """Remove and return the oldest deliveries up to and including this tag (0: all), `most` of them at most, each
        alone."""
        entries = self._entries
        stop: i64 = len(entries)
        if tag != 0:
            stop = min(stop, tag - self._base + 1)
        index = self._first
        taken: list[Delivery] = []
        while index < stop and len(taken) < most:
            delivery = entries[index]
            if delivery is not None:
                taken.append(delivery.single(self._base + index))
                entries[index] = None
            index += 1
        self.count -= len(taken)
        self.compact()
        return taken

    def all(self) -> list[Delivery]:
        """All deliveries, each on its own, oldest first, left where they are."""
        return [delivery for _, delivery in self.tagged(0)]

    def hold(self, tag: i64, multiple: bool) -> list[tuple[int, Delivery]]:
        """Remove and return a delivery, or all up to and including this tag (0: all), each alone with its own tag, the
        oldest first. For a transaction: what is taken still counts as outstanding."""
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
                tag = self._base + index
                held.append((int(tag), delivery.single(tag)))
                entries[index] = None
            index += 1
        self.compact()
        return held

    def restore(self, held: list[tuple[int, Delivery]]) -> None:
        """Take back what `hold` gave out since it was last called, all of it."""
        held += self.hold(0, True)
        held.sort()  # no tag is there twice
        self.count = 0
        for tag, delivery in held:
            self.add(tag, delivery)

    def compact(self) -> None:
        """Cut off what is settled at the front."""
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
