"""Publisher confirms of one channel: which tags are open, and the fewest frames that answer them.

Neighbouring tags in the same state are kept as one stretch. Everything up to `answered` has its answer; behind it comes
a list of closed stretches, and the last one, which grows with each publish. A frame with `multiple` is written only for
tags directly behind `answered`, so it never covers a tag that is open or was answered differently. What can be answered
while an older tag waits for the disk gets a frame of its own (RabbitMQ's rabbit_channel does the same).
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i64_be
from mypy_extensions import i16, i64

from leveret.wire.grammar import BASIC_ACK, BASIC_NACK
from leveret.wire.method import method_frame

# states of a stretch: answered, ready to be answered, or waiting for the disk
ACKED: Final[i64] = 0
NACKED: Final[i64] = 1
HANDLED: Final[i64] = 2  # to be acked
REFUSED: Final[i64] = 3  # to be nacked
JOURNALLED: Final[i64] = 4  # its record is in the batch under construction
SYNCING: Final[i64] = 5  # its record is in the batch that is being synced


class Confirms:
    """The confirms of one channel. Numbering starts at 1 with the first publish after confirm.select."""

    def __init__(self) -> None:
        self.published: i64 = 0
        self.answered: i64 = 0
        self._refused: i64 = 0  # how many were answered with basic.nack
        self._last: i64 = ACKED  # state of the stretch that ends at `published`
        self._before: list[tuple[i64, i64]] = []  # (last tag, state) of the stretches before that one
        self._fresh: i64 = 0  # from this index on stretches may be ready
        # what was answered since this list was taken: ACKED or NACKED, first and last tag; None = not recorded
        self.told: list[tuple[i64, i64, i64]] | None = None

    def confirmed(self) -> i64:
        """How many publishes were answered with basic.ack."""
        return self.answered - self._refused

    def add(self, count: i64, standing: i64) -> None:
        """Note that messages were published. standing: HANDLED, REFUSED or JOURNALLED."""
        if standing != self._last:
            if self.published > self.answered:
                self._before.append((self.published, self._last))
            self._last = standing
        self.published += count

    def close_batch(self) -> None:
        """Note that the batch under construction goes to the disk now."""
        self._restate(JOURNALLED, SYNCING)

    def synced(self, out: BytesWriter, channel: i64) -> None:
        """Answer everything that waited for the batch, which is on disk now."""
        self._restate(SYNCING, HANDLED)
        self._fresh = 0
        self.flush(out, channel)

    def _restate(self, old: i64, new: i64) -> None:
        for index, (tag, standing) in enumerate(self._before):
            if standing == old:
                self._before[index] = (tag, new)
        if self._last == old:
            self._last = new

    def flush(self, out: BytesWriter, channel: i64) -> bool:
        """Write the answers that wait for nothing; returns whether there were any."""
        before = self._before
        if self._fresh == len(before) and (self._last < HANDLED or self._last > REFUSED):
            return False
        if self.published > self.answered:
            before.append((self.published, self._last))
        size = len(out)
        done = self._answer_front(out, channel)
        del before[:done]
        if before:
            self._answer_singly(out, channel, max(self._fresh - done, 0))
            self._last = before.pop()[1]
        else:
            self._last = ACKED
        self._fresh = len(before)
        return len(out) > size

    def _answer_front(self, out: BytesWriter, channel: i64) -> i64:
        """Answer cumulatively up to the first tag that waits for the disk; returns how many stretches were answered."""
        done: i64 = 0
        word = ACKED
        first: i64 = 0  # the first and the last tag that the next frame covers
        last: i64 = 0
        for tag, standing in self._before:
            if standing > REFUSED:
                break
            answer = standing & 1
            if answer != word and last != 0:
                write_answer(out, channel, word, last, last > first)
                self._note(word, first, last)
                last = 0
            word = answer
            if answer == NACKED:
                self._refused += tag - self.answered
            if standing >= HANDLED:
                first = first if last != 0 else self.answered + 1
                last = tag
            self.answered = tag
            done += 1
        if last != 0:
            write_answer(out, channel, word, last, last > first)
            self._note(word, first, last)
        return done

    def _answer_singly(self, out: BytesWriter, channel: i64, index: i64) -> None:
        before = self._before
        while index < len(before):
            stop, standing = before[index]
            if HANDLED <= standing <= REFUSED:
                tag = before[index - 1][0] if index > 0 else self.answered
                while tag < stop:
                    tag += 1
                    write_answer(out, channel, standing & 1, tag, False)
                    self._note(standing & 1, tag, tag)
                before[index] = (stop, standing & 1)
            index += 1

    def _note(self, word: i64, first: i64, last: i64) -> None:
        if self.told is not None:
            self.told.append((word, first, last))


def write_answer(out: BytesWriter, channel: i64, word: i64, tag: i64, multiple: bool) -> None:
    """Write one basic.ack or basic.nack frame directly (the general codec would cost more than the publish).

    word: ACKED or NACKED. RabbitMQ sets the requeue bit of its nacks, which means nothing to a publisher.
    """
    out.append(1)
    write_i16_be(out, i16(channel))
    out.write(_NACK_HEAD if word == NACKED else _ACK_HEAD)
    write_i64_be(out, tag)
    out.append((1 if multiple else 0) | (2 if word == NACKED else 0))
    out.append(0xCE)


_ACK_HEAD = method_frame(0, BASIC_ACK)[3:11]
_NACK_HEAD = method_frame(0, BASIC_NACK)[3:11]
