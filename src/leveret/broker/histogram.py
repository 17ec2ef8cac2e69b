"""A histogram with fixed buckets: to count a value costs a look-up among few numbers, and keeps no memory of it."""

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
    """counts: of each bucket alone, how many values are not above its bound; the last one: above all bounds.

    bounds: ascending; sum: of all values, which are whole numbers of the same unit.
    """

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = list(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum: i64 = 0

    def add(self, value: i64, count: i64 = 1) -> None:
        """Count this value so many times."""
        self.counts[bisect_left(self.bounds, int(value))] += int(count)
        self.sum += value * count
