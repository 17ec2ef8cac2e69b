"""Virtual time: a queue of events in order of time; the clock jumps from one to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

# November 2023, in microseconds since 1970
START_US: Final = 1_700_000_000_000_000


class ScheduledEvent:
    """A callback that is to run at `when_us`."""

    __slots__ = ("call", "when_us")

    def __init__(self, when_us: int, call: Callable[[], object]) -> None:
        self.when_us = when_us
        self.call: Callable[[], object] | None = call

    @property
    def is_due(self) -> bool:
        """Whether the event is still to happen."""
        return self.call is not None

    def cancel(self) -> None:
        """Cancel the event. No effect if it has happened."""
        self.call = None


class Clock:
    """A virtual clock. Events at the same time happen in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now_us = START_US  # microseconds since 1970
        self._heap: list[tuple[int, int, ScheduledEvent]] = []
        self._count = 0

    def later(self, delay_us: int, call: Callable[[], object]) -> ScheduledEvent:
        """Schedule a callback after a delay."""
        event = ScheduledEvent(self.now_us + max(0, delay_us), call)
        self._count += 1
        heapq.heappush(self._heap, (event.when_us, self._count, event))
        return event

    def next_us(self) -> int | None:
        """Return the time of the next event, or None."""
        while self._heap and self._heap[0][2].call is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Run the next event; return False if no event is left."""
        if self.next_us() is None:
            return False
        self.now_us, _, event = heapq.heappop(self._heap)
        call, event.call = event.call, None
        assert call is not None
        call()
        return True
