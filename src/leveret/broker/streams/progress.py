"""How far a named consumer has acknowledged its deliveries, in their order."""

from __future__ import annotations

from mypy_extensions import i64


class AckProgress:
    """Tracks the acknowledgements of one consumer."""

    def __init__(self) -> None:
        self.reached: i64 = -1  # the offset after the last message up to which all deliveries are acknowledged
        self._first: i64 = 0  # the oldest unacknowledged message
        self._end: i64 = 0  # of the range of offsets that contains it
        self._behind: list[tuple[int, int]] = []  # the ranges after it, first and end, from _at on
        self._at: i64 = 0
        self._early: set[int] = set()  # acknowledged before an older message

    def delivered(self, offset: i64, count: i64) -> None:
        """Handle the delivery of `count` messages from this offset on."""
        if self._first == self._end:
            self._first = offset
            self._end = offset + count
        elif offset == self._end and self._at == len(self._behind):
            self._end += count
        else:
            self._behind.append((int(offset), int(offset + count)))

    def acknowledged(self, offset: i64) -> bool:
        """Handle an acknowledgement; True if `reached` has grown."""
        if offset != self._first:
            self._early.add(int(offset))
            return False
        self._pass()
        while self._early and self._first < self._end and int(self._first) in self._early:
            self._early.remove(int(self._first))
            self._pass()
        return True

    def _pass(self) -> None:
        self._first += 1
        self.reached = self._first
        if self._first < self._end or self._at >= len(self._behind):
            return
        first, end = self._behind[self._at]
        self._first = first
        self._end = end
        self._at += 1
        if self._at > 256 and 2 * self._at > len(self._behind):
            del self._behind[: self._at]
            self._at = 0
