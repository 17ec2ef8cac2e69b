"""The messages under way over a link: which publish belongs to which delivery, and which may be acknowledged."""

from __future__ import annotations

from collections import deque
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i64_be
from mypy_extensions import i16, i64

ACK: Final[i64] = 0x50
NACK: Final[i64] = 0x78
_REQUEUE: Final = 2


class Window:
    """Deliveries in the order of their tags, and their publishes, which are numbered from 1.

    Every publish before `_first` is settled. While no delivery was dropped, the tag of each publish is its number; each
    drop moves the tags on, so only changes of the distance are kept: (publish, its tag minus its number). Confirms out
    of order are remembered until those before them come. A refused publish holds up the acknowledgements behind it
    until `requeue`.
    """

    def __init__(self, channel: i64) -> None:
        self._channel = channel  # of the upstream
        self.published: i64 = 0
        self.read: i64 = 0  # the last tag
        self._acked: i64 = 0  # all tags up to this one are acknowledged or dropped
        self._first: i64 = 1
        self._distances: deque[tuple[i64, i64]] = deque()
        self._distance: i64 = 0  # the last one
        self._early: set[int] = set()
        self._refused: set[int] = set()
        self._nacks = BytesWriter()
        self._nacked: set[int] = set()  # tags behind `_acked` that the upstream no longer knows

    def unacknowledged(self) -> i64:
        """About how many deliveries the upstream has got no answer for."""
        return self.read - self._acked

    def has_refused(self) -> bool:
        """Whether `requeue` has anything to do."""
        return len(self._refused) > 0

    def publish(self, tag: i64) -> i64:
        """Note that a delivery is published; returns the number of the publish."""
        self.read = tag
        number = self.published + 1
        self.published = number
        if tag - number != self._distance:
            if self._first == number:
                self._distances.clear()
            self._distance = tag - number
            self._distances.append((number, self._distance))
        return number

    def drop(self, tag: i64) -> None:
        """Note that a delivery goes no further, and can be acknowledged."""
        self.read = tag

    def reject(self, tag: i64) -> None:
        """Reject a delivery that can never go further, so that the upstream dead-letters it."""
        self.read = tag
        self._nack(tag, 0)

    def settle(self, number: i64, multiple: bool, is_accepted: bool) -> None:
        """Note that the broker has accepted or refused a publish; multiple: and all unanswered ones before it."""
        if number < self._first or number > self.published:
            return
        if not is_accepted:
            self._refuse(number, multiple)
        elif not multiple and number != self._first:
            self._early.add(int(number))
        elif not self._refused:
            self._pass(number)
        else:
            self._accept(number, multiple)

    def condemn(self, number: i64) -> None:
        """Reject a publish that no broker would ever accept, so that the upstream dead-letters it."""
        if self._first <= number <= self.published:
            self._nack(self._tag(number), 0)
            self._early.add(int(number))
            self._follow()

    def _pass(self, number: i64) -> None:
        """Note that all publishes up to this one are settled."""
        early = self._early
        if early:
            while self._first <= number:
                early.discard(int(self._first))
                self._first += 1
            self._follow()
        self._first = max(self._first, number + 1)

    def _accept(self, number: i64, multiple: bool) -> None:
        """Accept publishes while refused ones before them wait for `requeue`."""
        first = self._first if multiple else number
        while first <= number:
            if first not in self._refused:
                self._early.add(int(first))
            first += 1
        self._follow()

    def _refuse(self, number: i64, multiple: bool) -> None:
        first = self._first if multiple else number
        while first <= number:
            if first not in self._early:
                self._refused.add(int(first))
            first += 1

    def _follow(self) -> None:
        """Advance `_first` over publishes that were settled early."""
        while self._first in self._early:
            self._early.discard(int(self._first))
            self._first += 1

    def requeue(self) -> None:
        """Requeue refused messages on the upstream, which delivers them again."""
        for number in sorted(self._refused):
            self._nack(self._tag(number), _REQUEUE)
            self._early.add(number)
        self._refused.clear()
        self._follow()

    def take(self) -> bytes:
        """The frames for the upstream's channel, as few as possible."""
        out = self._nacks
        done = self._tag(self._first) - 1 if self._first <= self.published else self.read
        if done > self._acked:
            self._ack(out, done)
            self._acked = done
        data = out.getvalue()
        if data:
            out.truncate(0)
        return data

    def _tag(self, number: i64) -> i64:
        """The tag of the delivery that was published under this number, which is not before `_first`."""
        distances = self._distances
        while len(distances) > 1 and distances[1][0] <= self._first:
            distances.popleft()
        distance: i64 = 0
        for start, each in distances:
            if start > number:
                break
            distance = each
        return number + distance

    def _ack(self, out: BytesWriter, tag: i64) -> None:
        """Acknowledge all up to this tag. The frame must not name a settled tag: an unknown tag is an error."""
        nacked = self._nacked
        last = tag
        if nacked:
            while last in nacked:
                last -= 1
            self._nacked = {each for each in nacked if each > tag}
        if last > self._acked:
            self._write(out, ACK, last, 1 if last > self._acked + 1 else 0)

    def _nack(self, tag: i64, flags: i64) -> None:
        self._nacked.add(int(tag))
        self._write(self._nacks, NACK, tag, flags)

    def _write(self, out: BytesWriter, method: i64, tag: i64, flags: i64) -> None:
        out.append(1)
        write_i16_be(out, i16(self._channel))
        out.write(b"\x00\x00\x00\x0d\x00\x3c\x00")
        out.append(int(method))
        write_i64_be(out, tag)
        out.append(int(flags))
        out.append(0xCE)
