"""Measures how long a condition has held in total."""

from __future__ import annotations


class Stopwatch:
    """The total time that a condition has held."""

    def __init__(self) -> None:
        self.times = 0  # how often it has begun to hold
        self._total_us = 0
        self._since_us = -1

    def set(self, is_on: bool, now_us: int) -> None:
        """Note whether the condition holds from now on; no effect if that has not changed."""
        if is_on and self._since_us < 0:
            self._since_us = now_us
            self.times += 1
        elif not is_on and self._since_us >= 0:
            self._total_us += now_us - self._since_us
            self._since_us = -1

    def lasts_us(self, now_us: int) -> int:
        """How long the condition has held without a break, 0 if it does not hold."""
        return now_us - self._since_us if self._since_us >= 0 else 0

    def total_us(self, now_us: int) -> int:
        """How long the condition has held until now."""
        return self._total_us + (now_us - self._since_us if self._since_us >= 0 else 0)
