"""Rows with a time or a delay, one column at a time: their entrance into the delay levels, and their headers.

This fast path is for the common case: every row has a time, or every row a delay, and all rows have the same headers.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.delay import Layout
from leveret.delay.instant import as_header
from leveret.delay.layout import ROUTING_KEY_BYTES_MAX
from leveret.delay.message import DELIVER_AT, TIME_SENT, received
from leveret.spark.sink.columns import Columns
from leveret.wire.properties import Properties
from leveret.wire.table import encode_short, encode_value

EPOCH: Final = datetime.fromtimestamp(0, UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def timed(columns: Columns, waits: pa.RecordBatch, layout: Layout, now: datetime) -> Columns | None:
    """Return the columns of messages that wait in the levels until ``at`` or for ``delay``, as :meth:`Layout.message`
    makes them at ``now``.

    ``waits`` comes from :func:`leveret.spark.sink.columns.delays`; the resulting ``headers`` are encoded. Returns None
    if rows must be made one by one, which also finds out what is wrong with a row.
    """
    units = _units(waits, layout, now)
    destinations = columns["routing_key"]
    headers = _same(columns.get("headers"))
    if units is None or headers is None or not _are_destinations(destinations, layout) or "expiration" in columns:
        return None
    if max(units) > layout.units_max or not headers.keys().isdisjoint({TIME_SENT, DELIVER_AT, layout.delay_header}):
        return None
    entrances = [layout.entrance((1 << bits) >> 1) for bits in range(layout.levels + 1)]
    digits = pa.array([".".join(format(each, f"0{layout.levels}b")) + "." for each in units], pa.string())
    found = columns | {
        "exchange": pa.array([entrances[each.bit_length()] for each in units], pa.string()),
        "routing_key": pc.binary_join_element_wise(digits, destinations, ""),
    }
    if layout.delay_header:
        found["headers"] = pa.array(_told(headers, units, layout, now), pa.binary())
    return found


def _units(waits: pa.RecordBatch, layout: Layout, now: datetime) -> list[int] | None:
    """Return how many units each row waits; None if not all rows have a time, or not all have a valid delay."""
    at = _alone(waits, "at", ("delay", "exchange"))
    if at is not None:
        waits_us = pc.subtract(at.cast(pa.int64()), (now - EPOCH) // MICROSECOND)
        unit_us = layout.unit_ms * 1000
        return [-(-wait // unit_us) if wait > 0 else 0 for wait in waits_us.to_pylist()]
    delay = _alone(waits, "delay", ("at", "exchange"))
    if delay is None:
        return None
    coded = delay.dictionary_encode()
    try:
        known = [layout.units(float(each)) for each in coded.dictionary.to_pylist()]
    except ValueError:
        return None
    return [known[index] for index in coded.indices.to_pylist()]


def _alone(waits: pa.RecordBatch, name: str, others: tuple[str, ...]) -> pa.Array | None:
    """Return the column if all rows have it and no row has one of the others, else None."""
    names = waits.schema.names
    if name not in names or waits.column(name).null_count:
        return None
    if any(other in names and waits.column(other).null_count < waits.num_rows for other in others):
        return None
    return waits.column(name)


def _same(headers: pa.Array | str | int | None) -> dict[str, str | None] | None:
    """Return the headers that all rows share; None if they differ or have traces of an earlier delay."""
    if headers is None:
        return {}
    assert isinstance(headers, pa.Array)
    first = headers[0].as_py() or []
    if headers.null_count or any(row != first for row in headers.to_pylist()):
        return None
    found = dict(first)
    return found if received(Properties(headers=found)).headers == found else None


def _are_destinations(destinations: pa.Array | str | int, layout: Layout) -> bool:
    """Whether all routing keys are non-empty and leave room for the digits."""
    if not isinstance(destinations, pa.Array):
        destinations = pa.array([str(destinations)])
    sizes = pc.min_max(pc.binary_length(destinations.cast(pa.binary()))).as_py()
    most = ROUTING_KEY_BYTES_MAX - 2 * layout.levels
    return not destinations.null_count and sizes["min"] > 0 and sizes["max"] <= most


def _told(headers: dict[str, str | None], units: list[int], layout: Layout, now: datetime) -> list[bytes]:
    """Return the header tables: time sent, the rows' own headers, time of delivery, delay."""
    shared = encode_short(TIME_SENT) + encode_value(as_header(now))
    for name, value in headers.items():
        shared += encode_short(name) + encode_value(value)
    shared += encode_short(DELIVER_AT)
    mid = encode_short(layout.delay_header)
    unit = timedelta(milliseconds=layout.unit_ms)
    tables = []
    for each in units:
        table = shared + encode_value(as_header(now + each * unit)) + mid + encode_value(each)
        tables.append(struct.pack(">I", len(table)) + table)
    return tables
