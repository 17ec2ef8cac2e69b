"""Publisher confirms of one channel: which tags wait, and the fewest frames that answer them.

Journal batches become durable in order, one at a time, so three numbers are enough: all tags up to `answered` have
their ack; the tag `cut` is the last one that waits for the batch that is now being synced; the tag `durable_last` is
the last one that waits for any sync. Tags that wait for nothing while others do (transient messages) are acked singly,
so that `multiple` never covers a tag that is still pending, and no tag is named by two acks.
"""

from __future__ import annotations

from librt.strings import BytesWriter, write_i16_be, write_i64_be
from mypy_extensions import i16, i64

from leveret.wire.grammar import BASIC_ACK
from leveret.wire.method import method_frame


class Confirms:
    """Numbering starts at 1 with the first publish after confirm.select."""

    def __init__(self) -> None:
        self.published: i64 = 0
        self.answered: i64 = 0
        self.durable_last: i64 = 0
        self.cut: i64 = 0
        self.early: list[i64] = []

    def transient(self, count: i64) -> None:
        """Messages were handled that wait for no sync."""
        tag = self.published
        self.published = tag + count
        if self.durable_last > self.answered:
            while tag < self.published:
                tag += 1
                self.early.append(tag)

    def durable(self, count: i64) -> None:
        """Messages were handled whose records are in the batch under construction."""
        self.published += count
        self.durable_last = self.published

    def flush(self, out: BytesWriter, channel: i64) -> bool:
        """Write the acks that wait for nothing; True if there were any."""
        if self.durable_last > self.answered:
            if not self.early:
                return False
            for tag in self.early:
                write_ack(out, channel, tag, False)
            self.early.clear()
            return True
        if self.published == self.answered:
            return False
        write_ack(out, channel, self.published, self.published > self.answered + 1)
        self.answered = self.published
        return True

    def close_batch(self) -> None:
        """The batch under construction goes to the disk now."""
        self.cut = self.durable_last

    def synced(self, out: BytesWriter, channel: i64) -> None:
        """The batch is on disk: one cumulative ack for all that waited for it."""
        if self.cut > self.answered:
            write_ack(out, channel, self.cut, self.cut > self.answered + 1)
            self.answered = self.cut
        if self.durable_last == self.answered and not self.early:
            # what was published behind it waited for nothing and has its acks
            self.answered = self.published


def write_ack(out: BytesWriter, channel: i64, tag: i64, multiple: bool) -> None:
    """One basic.ack frame, written without a detour (the general codec would cost more than the publish)."""
    out.append(1)
    write_i16_be(out, i16(channel))
    out.write(_ACK_HEAD)
    write_i64_be(out, tag)
    out.append(1 if multiple else 0)
    out.append(0xCE)


_ACK_HEAD = method_frame(0, BASIC_ACK)[3:11]
