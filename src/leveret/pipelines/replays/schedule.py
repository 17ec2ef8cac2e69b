"""The times at which messages are due: at a rate, in their original spacing, or at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

Clock = Callable[[], float]
DueTime = Callable[[int], "int | None"]
"""Returns when the message with this number first appeared, in µs since 1970, None if unknown; it never decreases."""

STALL_S: Final = 1.0
"""Seconds of a schedule that are made up for at most: a stall does not end in a burst."""


class ReplaySchedule:
    """Tells which messages are due. The clock starts with the first call.

    Args:
        rate: messages per second.
        speed: multiple of the original speed. Without rate and speed all messages are due.
        times: times of the messages; required with ``speed``.
        clock: a monotonic clock in seconds.
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
        """Return the number after the last due message of those from ``start`` to before ``end``.

        The caller sends them: they are not due again.
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
        """Start at the last message sent, so that the next one waits for the whole original interval."""
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
        # the clock waits at the last message of a full micro-batch
        if at == end > start:
            goal_us = min(goal_us, float(self._times(end - 1) or 0))
        self._reached_us = max(self._reached_us, goal_us)
        return at
