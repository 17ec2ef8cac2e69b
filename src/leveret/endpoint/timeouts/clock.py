"""The time of a timeout manager: it may make a message late, never early."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("leveret.timeouts")

_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the former is Linux's

STEP_TOLD_US: Final = 60_000_000
"""A wall clock this far ahead of the time that has passed is worth a line in the log."""


def wall_us() -> int:
    """Microseconds since 1970 by the wall clock, which people and programs may set."""
    return time.time_ns() // 1000


def elapsed_us() -> int:
    """Microseconds by a clock that nobody sets, and that goes on while the machine is suspended."""
    return time.clock_gettime_ns(_ELAPSED) // 1000


class Clock:
    """The wall clock, but never ahead of its reading at the start plus the time that has passed since.

    A step forward may be somebody's mistake, and would make messages early; it is believed when the program starts
    again. A step back is followed at once. Its sources are parameters, for tests.
    """

    def __init__(self, wall: Callable[[], int] = wall_us, elapsed: Callable[[], int] = elapsed_us) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._offset_us = wall() - elapsed()
        self._is_told = False

    def now_us(self) -> int:
        """Microseconds since 1970."""
        wall, most = self._wall(), self._offset_us + self._elapsed()
        if wall - most >= STEP_TOLD_US and not self._is_told:
            self._is_told = True
            seconds = (wall - most) // 1_000_000
            logger.warning(
                "the clock jumped %d s ahead; timeouts keep using the old time: restart to accept the new one", seconds
            )
        return min(wall, most)
