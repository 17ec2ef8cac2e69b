"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0


class Backoff:
    """Waits that double from ``first_s`` up to ``longest_s``, each shortened by up to half at random, so that a hundred
    endpoints do not come back to a restarted broker at the same instant.
    """

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0

    def next_s(self) -> float:
        """The wait after one more failure."""
        wait_s: float = min(self._first_s * 2 ** min(self._failures, 32), self._longest_s)
        self._failures += 1
        return wait_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It worked."""
        self._failures = 0
