"""Waiting times before retries."""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0


class Backoff:
    """Exponential backoff from ``first_s`` to ``longest_s``, each wait shortened by up to half at random.

    The randomness keeps many endpoints from reconnecting to a restarted broker at the same instant.
    """

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0

    def next_s(self) -> float:
        """Count a failure and return the seconds to wait."""
        wait_s: float = min(self._first_s * 2 ** min(self._failures, 32), self._longest_s)
        self._failures += 1
        return wait_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start again from the first wait, after a success."""
        self._failures = 0
