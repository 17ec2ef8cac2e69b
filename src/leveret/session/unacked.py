"""Deliveries of one channel that wait for an acknowledgement, by delivery tag."""

from __future__ import annotations

from mypy_extensions import i64


class Delivery:
    """Base class of what can be outstanding, under one tag or under several consecutive ones, such as a queue entry."""

    def single(self, tag: i64) -> Delivery:
        """The part that is outstanding under this one of its tags."""
        return self

    def thinned(self) -> tuple[i64, i64]:
        """Note that one of its tags was settled.

        Returns its first tag and the number of its tags if so few are left that each should be kept alone from now on,
        else (0, 0).
        """
        return 0, 0


class Unacked:
    """A list by tag with holes: tag `base` is at index 0, settled tags are None.

    A delivery with several tags is at each of them. Holes at the front are skipped at once and cut off when they are
    half of the list, so both single and cumulative acknowledgements cost O(1) on average.
    """

    def __init__(self) -> None:
        self._entries: list[Delivery | None] = []
        self._base: i64 = 1
        self._first: i64 = 0
        self.count: i64 = 0  # how many are outstanding, including those that a transaction holds

    def add(self, tag: i64, delivery: Delivery) -> None:
        """Add a delivery; tags grow, but not always by one (automatic acknowledgement uses them too)."""
        self._make_room(tag)
        self._entries.append(delivery)
        self.count += 1

    def add_batch(self, tag: i64, delivery: Delivery, count: i64) -> None:
        """Add a delivery with `count` consecutive tags, of which this one is the first."""
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
        """The tag of the oldest delivery, or 0."""
        return self._base + self._first if self._entries else 0

    def tagged(self, most: i64) -> list[tuple[int, Delivery]]:
        """The oldest deliveries with their tags, without removing them; at most `most`, 0 = all."""
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
        """Remove this tag; returns what was delivered with it (and maybe others), None if it is unknown or settled."""
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
        """Keep alone those of these `count` tags that are not settled."""
        entries = self._entries
        index = max(tag - self._base, self._first)
        stop = tag - self._base + count
        while index < stop:
            delivery = entries[index]
            if delivery is not None:
                entries[index] = delivery.single(self._base + index)
            index += 1

    def take_next(self, tag: i64) -> tuple[Delivery | None, i64, i64]:
        """Remove the oldest delivery, with all its consecutive tags up to and including this one (0: all).

        Returns it with its first tag and their number, or None. After the last one, call `compact`.
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
        """Remove and return the oldest deliveries up to and including this tag (0: all), at most `most`, each alone."""
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
        """All deliveries, each alone, oldest first, without removing them."""
        return [delivery for _, delivery in self.tagged(0)]

    def hold(self, tag: i64, multiple: bool) -> list[tuple[int, Delivery]]:
        """Remove a delivery, or all up to and including this tag (0: all), for a transaction; they still count.

        Returns each alone with its own tag, the oldest first.
        """
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
        """Put back everything that `hold` returned since the last `restore`."""
        held += self.hold(0, True)
        held.sort()  # no tag occurs twice
        self.count = 0
        for tag, delivery in held:
            self.add(tag, delivery)

    def compact(self) -> None:
        """Cut off settled tags at the front."""
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
