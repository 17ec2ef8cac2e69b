"""A histogram with fixed buckets: counting a value is a search among few numbers and allocates nothing."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from mypy_extensions import i64

TIMES_US: Final = (
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
)  # fmt: skip
OCTETS: Final = (64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
NUMBERS: Final = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536)


class Histogram:
    """Counts of integer values of one unit, by bucket."""

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = list(bounds)  # upper bounds of the buckets, ascending, inclusive
        self.counts = [0] * (len(bounds) + 1)  # of each bucket alone; the last one is for values above all bounds
        self.sum: i64 = 0  # of all values

    def add(self, value: i64, count: i64 = 1) -> None:
        """Count this value, `count` times."""
        self.counts[bisect_left(self.bounds, int(value))] += int(count)
        self.sum += value * count
