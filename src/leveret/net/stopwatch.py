"""How long something has been the case, in all."""

from __future__ import annotations


class Stopwatch:
    """times: how often it began."""

    def __init__(self) -> None:
        self.times = 0
        self._total_us = 0
        self._since_us = -1

    def set(self, is_on: bool, now_us: int) -> None:
        """From now on it is, or is not, the case; nothing happens if it was known."""
        if is_on and self._since_us < 0:
            self._since_us = now_us
            self.times += 1
        elif not is_on and self._since_us >= 0:
            self._total_us += now_us - self._since_us
            self._since_us = -1

    def lasts_us(self, now_us: int) -> int:
        """How long it has been the case without a break, 0 = it is not."""
        return now_us - self._since_us if self._since_us >= 0 else 0

    def total_us(self, now_us: int) -> int:
        """Until now."""
        return self._total_us + (now_us - self._since_us if self._since_us >= 0 else 0)
