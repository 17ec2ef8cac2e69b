"""The one timer of the loop for all that is due in the broker (broker/timers.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Wakeup:
    """ring: called when it is time. due_us: for when it is set, in the broker's time; 0 = it is not set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_us: Callable[[], int], ring: Callable[[], None]) -> None:
        self.due_us = 0
        self._loop = loop
        self._now_us = now_us
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_us: int) -> None:
        """Ring then, and not when it was set for before."""
        if self._handle is not None:
            self._handle.cancel()
        self.due_us = due_us
        self._handle = self._loop.call_later(max(0, due_us - self._now_us()) / 1e6, self.ring)

    def ring(self) -> None:
        """It is time."""
        self.due_us = 0
        self._handle = None
        self._ring()
