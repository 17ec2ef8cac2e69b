"""A histogram of times, with buckets at most 1.6 % wide: precise enough for percentiles, and of bounded size."""

from __future__ import annotations

from collections import Counter
from typing import Final

BITS: Final = 6
PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


class LatencyHistogram:
    """A histogram of microseconds. Negative values (messages that came too early) are counted as 0, and in `early`."""

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()
        self.max_us = 0
        self.early = 0
        self.early_us_max = 0

    def add(self, us: int, times: int = 1) -> None:
        """Add a time that was seen `times` times."""
        if us < 0:
            self.early += times
            self.early_us_max = max(self.early_us_max, -us)
            us = 0
        shift = max(0, us.bit_length() - BITS)
        self.buckets[us >> shift << shift] += times
        self.max_us = max(self.max_us, us)

    def merge(self, other: LatencyHistogram) -> None:
        """Add the counts of another histogram."""
        self.buckets.update(other.buckets)
        self.max_us = max(self.max_us, other.max_us)
        self.early += other.early
        self.early_us_max = max(self.early_us_max, other.early_us_max)

    def figures(self) -> dict[str, float]:
        """Return percentiles and the maximum in microseconds; empty without data."""
        total = sum(self.buckets.values())
        if not total:
            return {}
        found: dict[str, float] = {}
        ordered = sorted(self.buckets.items())
        for name, share in PERCENTILES.items():
            seen = 0
            for us, times in ordered:
                seen += times
                if seen >= share * total:
                    found[name] = us
                    break
        found["max"] = self.max_us
        return found
