"""When delayed messages are due: how many in each of several intervals."""

from __future__ import annotations

from bisect import bisect_right

from mypy_extensions import i64

from leveret.broker.delayed.holder import HeldPart
from leveret.broker.delayed.search import Visitor
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch


class DueTimes(Visitor):
    """Counts delayed messages by intervals of their due times. edges_us: where the intervals meet, ascending."""

    def __init__(self, edges_us: list[int]) -> None:
        self.counts = [0] * (len(edges_us) + 1)  # before the first edge, between the edges, from the last edge on
        self.undeliverable: i64 = 0  # due, but without a route; not in the other numbers
        self.next_us: i64 = 0  # next_us, last_us: when the first and the last of the others are due, 0 = none
        self.last_us: i64 = 0
        self._edges_us = edges_us

    def see(self, part: HeldPart, item: Entry | MessageBatch, count: i64) -> None:
        if part.is_undeliverable:
            self.undeliverable += count
            return
        due_us = part.holder.due_us(item.buffer.key if isinstance(item, MessageBatch) else item.key, item.expires_us)
        self.counts[bisect_right(self._edges_us, int(due_us))] += int(count)
        if self.next_us == 0 or due_us < self.next_us:
            self.next_us = due_us
        self.last_us = max(self.last_us, due_us)
