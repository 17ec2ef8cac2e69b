"""Virtual time: what is still to happen, in order, and nothing happens in between."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

# November 2023; the broker keeps times as microseconds since 1970
START_US: Final = 1_700_000_000_000_000


class Event:
    """Something that is to happen at `when_us`."""

    __slots__ = ("call", "when_us")

    def __init__(self, when_us: int, call: Callable[[], object]) -> None:
        self.when_us = when_us
        self.call: Callable[[], object] | None = call

    @property
    def is_due(self) -> bool:
        """It is still to come."""
        return self.call is not None

    def cancel(self) -> None:
        """It shall not happen. Without effect when it has."""
        self.call = None


class Clock:
    """now_us: virtual microseconds since 1970. What is to happen at the same instant does so in the order of asking."""

    def __init__(self) -> None:
        self.now_us = START_US
        self._heap: list[tuple[int, int, Event]] = []
        self._count = 0

    def later(self, delay_us: int, call: Callable[[], object]) -> Event:
        """Call back after a delay."""
        event = Event(self.now_us + max(0, delay_us), call)
        self._count += 1
        heapq.heappush(self._heap, (event.when_us, self._count, event))
        return event

    def next_us(self) -> int | None:
        """When something happens next; None = never."""
        while self._heap and self._heap[0][2].call is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        if self.next_us() is None:
            return False
        self.now_us, _, event = heapq.heappop(self._heap)
        call, event.call = event.call, None
        assert call is not None
        call()
        return True
