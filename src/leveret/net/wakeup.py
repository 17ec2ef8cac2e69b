"""The loop's timer for everything that is due in the broker (broker/timers.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.net.event_loop import EventLoop

if TYPE_CHECKING:
    from leveret.federation.environment import ScheduledCall


class Wakeup:
    """One timer of the loop, which calls `ring` at a time of the broker's clock."""

    def __init__(self, loop: EventLoop, now_us: Callable[[], int], ring: Callable[[], None]) -> None:
        self.due_us = 0  # when it will fire, in the broker's time; 0 = it is not set
        self._loop = loop
        self._now_us = now_us
        self._ring = ring
        self._handle: ScheduledCall | None = None

    def set(self, due_us: int) -> None:
        """Fire at this time, and not at an earlier setting's."""
        if self._handle is not None:
            self._handle.cancel()
        self.due_us = due_us
        self._handle = self._loop.call_later(max(0, due_us - self._now_us()) / 1e6, self.ring)

    def ring(self) -> None:
        """Fire now."""
        self.due_us = 0
        self._handle = None
        self._ring()
