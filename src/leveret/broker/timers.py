"""The timers of queues, in a heap."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

if TYPE_CHECKING:
    from leveret.broker.queues.queue import Queue


# fewer timers of deleted queues are not worth a search
DELETED_MIN: Final = 256


class Timers:
    """Timers by time in microseconds. Outdated ones stay in the heap; the queue ignores them when they fire."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Queue]] = []
        self._count = 0
        self._deleted = 0  # queues deleted since timers of deleted queues were last removed

    def add(self, when_us: i64, queue: Queue) -> None:
        self._count += 1
        heapq.heappush(self._heap, (int(when_us), self._count, queue))

    def forget_deleted(self) -> None:
        """Count a deleted queue, and remove the timers of such queues when they are many.

        Clients may make many queues that expire after a day and delete them at once; their timers must not accumulate.
        """
        self._deleted += 1
        if self._deleted >= DELETED_MIN and 2 * self._deleted > len(self._heap):
            self._heap = [alarm for alarm in self._heap if not alarm[2].is_deleted]
            heapq.heapify(self._heap)
            self._deleted = 0

    def next_us(self) -> int:
        """Return when the first timer fires, 0 = none."""
        return self._heap[0][0] if self._heap else 0

    def due(self, now_us: i64) -> Queue | None:
        """Remove the first timer if it is due, and return its queue; else None."""
        if self._heap and self._heap[0][0] <= now_us:
            return heapq.heappop(self._heap)[2]
        return None
