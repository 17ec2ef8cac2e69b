"""The clock of a timeout manager: it may make a message late, never early."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("leveret.timeouts")

_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # CLOCK_BOOTTIME exists on Linux only

STEP_TOLD_US: Final = 60_000_000
"""How far the wall clock may be ahead of the elapsed time before that is logged."""


def wall_us() -> int:
    """Return microseconds since 1970 by the wall clock, which can be set."""
    return time.time_ns() // 1000


def elapsed_us() -> int:
    """Return microseconds of a clock that cannot be set, and that runs on while the machine is suspended."""
    return time.clock_gettime_ns(_ELAPSED) // 1000


class Clock:
    """The wall clock, but never ahead of its reading at the start plus the time elapsed since.

    A step forward may be a mistake, and would make messages early; it takes effect when the program starts again. A
    step back takes effect at once. The sources are parameters for tests.
    """

    def __init__(self, wall: Callable[[], int] = wall_us, elapsed: Callable[[], int] = elapsed_us) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._offset_us = wall() - elapsed()
        self._is_told = False

    def now_us(self) -> int:
        """Return microseconds since 1970; log once if the wall clock was set ahead."""
        wall, most = self._wall(), self._offset_us + self._elapsed()
        if wall - most >= STEP_TOLD_US and not self._is_told:
            self._is_told = True
            seconds = (wall - most) // 1_000_000
            logger.warning(
                "the clock jumped %d s ahead; timeouts keep using the old time: restart to accept the new one", seconds
            )
        return min(wall, most)
