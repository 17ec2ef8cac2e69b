"""When messages are due: so many in a second, or as they were spaced, or all at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

Clock = Callable[[], float]
DueTime = Callable[[int], "int | None"]
"""When the message with this number was there first, in µs since 1970; None: nobody knows. It never goes back."""

STALL_S: Final = 1.0
"""Of a schedule that nobody followed, at most so much is made up for: a stall does not end in a flood."""


class Schedule:
    """Says how far messages are due. The clock begins with the first question, wherever that is.

    rate: messages in a second; speed: how many times as fast as they were spaced. At most one of them; without any,
    all are due. times: needed for a speed.
    """

    def __init__(
        self,
        rate: float | None = None,
        speed: float | None = None,
        times: DueTime | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._rate = rate
        self._speed = speed
        self._times = times
        self._clock = clock
        self._asked_s: float | None = None
        self._credit = 0.0
        self._reached_us = 0.0

    def due(self, start: int, end: int) -> int:
        """The number behind the last message that is due, of those from ``start`` to ``end`` (exclusive).

        Who asks sends them: they are not due again.
        """
        if self._rate is None and self._speed is None:
            return end
        now_s = self._clock()
        if self._asked_s is None:
            self._begin(start, end)
        passed_s = 0.0 if self._asked_s is None else min(now_s - self._asked_s, STALL_S)
        self._asked_s = now_s
        return self._by_rate(start, end, passed_s) if self._rate is not None else self._by_time(start, end, passed_s)

    def _begin(self, start: int, end: int) -> None:
        """A message that was not sent when the last run ended has to wait as long as it ever had to."""
        if self._times is not None and start < end:
            self._reached_us = float(self._times(max(0, start - 1)) or 0) or float(self._times(start) or 0)

    def _by_rate(self, start: int, end: int, passed_s: float) -> int:
        assert self._rate is not None
        self._credit = min(self._credit + passed_s * self._rate, max(1.0, STALL_S * self._rate))
        count = min(int(self._credit), end - start)
        self._credit -= count
        return start + count

    def _by_time(self, start: int, end: int, passed_s: float) -> int:
        assert self._speed is not None
        assert self._times is not None
        goal_us = self._reached_us + passed_s * self._speed * 1e6
        at = start
        while at < end and (self._times(at) or 0) <= goal_us:
            at += 1
        # what does not fit into this micro-batch holds up the clock
        if at == end > start:
            goal_us = min(goal_us, float(self._times(end - 1) or 0))
        self._reached_us = max(self._reached_us, goal_us)
        return at
