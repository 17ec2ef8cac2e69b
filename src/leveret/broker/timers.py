"""What falls due: one alarm per queue at a time, in a heap."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

if TYPE_CHECKING:
    from leveret.broker.queues.queue import Queue


# fewer alarms of deleted queues are not worth looking for
DELETED_MIN: Final = 256


class Timers:
    """Alarms by time in microseconds. Outdated ones stay in the heap and are ignored by the queue when they ring."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Queue]] = []
        self._count = 0
        self._deleted = 0  # queues that were, since their alarms were taken out

    def add(self, when_us: i64, queue: Queue) -> None:
        self._count += 1
        heapq.heappush(self._heap, (int(when_us), self._count, queue))

    def forget_deleted(self) -> None:
        """A queue was deleted. Clients make many that have a day to expire and go at once: they must not stay here."""
        self._deleted += 1
        if self._deleted >= DELETED_MIN and 2 * self._deleted > len(self._heap):
            self._heap = [alarm for alarm in self._heap if not alarm[2].is_deleted]
            heapq.heapify(self._heap)
            self._deleted = 0

    def next_us(self) -> int:
        """When the first alarm rings; 0 = there is none."""
        return self._heap[0][0] if self._heap else 0

    def due(self, now_us: i64) -> Queue | None:
        """Take out the first alarm that is due, or None."""
        if self._heap and self._heap[0][0] <= now_us:
            return heapq.heappop(self._heap)[2]
        return None
