"""Unacknowledged messages of a run that one consumer has, as one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.session.unacked import Delivery

if TYPE_CHECKING:
    from leveret.broker.messages.message_batch import MessageBatch
    from leveret.broker.queues.consumer import Consumer

# The last unacknowledged messages of a longer batch are copied, so that they do not keep all of it in memory.
THIN_OCTETS_MIN: Final[i64] = 16384
THIN_SHARE: Final[i64] = 8


class BatchDelivery(Delivery):
    """`count` messages of a run from index `first` on, with delivery tags from `tag` on."""

    def __init__(self, run: MessageBatch, first: i64, count: i64, consumer: Consumer, tag: i64) -> None:
        self.run = run
        self.consumer = consumer
        self._tag = tag
        self._count = count
        self._shift = first - tag
        self._settled: i64 = 0  # how many, one by one
        self._thin_at: i64 = count - count // THIN_SHARE if len(run.buffer.data) > THIN_OCTETS_MIN else 0

    def single(self, tag: i64) -> Delivery:
        entry = self.run.entry(tag + self._shift)
        entry.consumer = self.consumer
        return entry

    def thinned(self) -> tuple[i64, i64]:
        self._settled += 1
        if self._settled != self._thin_at:
            return 0, 0
        return self._tag, self._count

    def id(self, tag: i64) -> i64:
        """Return the journal's id of the message with this tag, 0 = not journalled."""
        run = self.run
        return run.id + tag + self._shift if run.id != 0 else 0
