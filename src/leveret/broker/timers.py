"""Timers, in a heap by time: queues, and other parts of a virtual host that continue in a later turn."""

from __future__ import annotations

import heapq
from typing import Final

from mypy_extensions import i64

# fewer timers of deleted queues are not worth a search
DELETED_MIN: Final = 256


class Timer:
    """What has a timer. Subclasses say what happens when it fires."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.timer_us: i64 = 0  # when it fires, 0 = not set
        self.is_deleted = False  # it does not fire any more

    def wake(self, when_us: i64) -> None:
        """Set the timer to this time, unless it fires earlier; then it is set anew when it fires."""
        if self.timer_us == 0 or when_us < self.timer_us:
            self.timer_us = when_us
            self.timers.add(when_us, self)

    def fire(self, until_us: i64, most: i64, now_us: i64) -> i64:
        """Do what is due by `until_us`, up to `most` steps; return the number of steps, at least one."""
        raise NotImplementedError


class Timers:
    """Timers by time in microseconds. Outdated ones stay in the heap; what has them ignores them when they fire."""

    def __init__(self) -> None:
        self.now_us: i64 = 0  # the time of the present turn
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._deleted = 0  # queues deleted since timers of deleted queues were last removed

    def add(self, when_us: i64, timer: Timer) -> None:
        self._count += 1
        heapq.heappush(self._heap, (int(when_us), self._count, timer))

    def forget_deleted(self) -> None:
        """Count a deleted queue, and remove the timers of such queues when they are many.

        Clients may make many queues that expire after a day and delete them at once; their timers must not accumulate.
        """
        self._deleted += 1
        if self._deleted >= DELETED_MIN and 2 * self._deleted > len(self._heap):
            self._heap = [each for each in self._heap if not each[2].is_deleted]
            heapq.heapify(self._heap)
            self._deleted = 0

    def next_us(self) -> int:
        """Return when the first timer fires, 0 = none."""
        return self._heap[0][0] if self._heap else 0

    def due(self, now_us: i64) -> Timer | None:
        """Remove the first timer if it is due, and return it; else None."""
        if self._heap and self._heap[0][0] <= now_us:
            return heapq.heappop(self._heap)[2]
        return None
