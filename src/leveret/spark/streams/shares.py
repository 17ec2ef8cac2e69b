"""How much of each partition a micro-batch takes where it may not take all."""

from __future__ import annotations

from collections.abc import Mapping


def shares(lags: Mapping[str, int], limit: int) -> dict[str, int]:
    """Rows for each stream, at most ``limit`` together: as its lag is to all lags, so that all catch up together.

    The smaller ones come first and are rounded up, so none of them waits for ever for a whole row.
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
    """So many rows of all streams together have about ``limit`` octets; one at least, or nothing would ever come."""
    octets = sum(lag * octets_per_row[stream] for stream, lag in lags.items())
    rows = sum(lags.values())
    return rows if octets <= limit else max(1, rows * limit // octets)
