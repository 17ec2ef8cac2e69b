"""The share of each partition in a limited micro-batch."""

from __future__ import annotations

from collections.abc import Mapping


def shares(lags: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide ``limit`` rows among streams in proportion to their lags, so that all catch up together.

    Smaller lags come first and are rounded up, so that none of them waits for a whole row for ever.
    """
    found = {}
    rows_left, lag_left = limit, sum(lags.values())
    for stream in sorted(lags, key=lambda each: lags[each]):
        lag = lags[stream]
        rows = min(lag, rows_left, -(-rows_left * lag // lag_left)) if lag else 0
        found[stream] = rows
        rows_left -= rows
        lag_left -= lag
    return found


def rows_of_octets(lags: Mapping[str, int], octets_per_row: Mapping[str, int], limit: int) -> int:
    """Return how many rows of all streams have about ``limit`` octets; at least one, so that the query makes
    progress."""
    octets = sum(lag * octets_per_row[stream] for stream, lag in lags.items())
    rows = sum(lags.values())
    return rows if octets <= limit else max(1, rows * limit // octets)
