"""Rows with a time or a delay, one column at a time: their entrance into the delay levels, and their headers.

This fast path is for the common case: every row has a time, or every row a delay, and none was delayed before.
"""

from __future__ import annotations

import struct
import sys
from array import array
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.delay import Layout
from leveret.delay.instant import as_header
from leveret.delay.layout import ROUTING_KEY_BYTES_MAX
from leveret.delay.message import DELIVER_AT, TIME_SENT, received
from leveret.spark.rows.frames import Piece, encoded
from leveret.spark.sink.columns import Columns
from leveret.wire.properties import Properties
from leveret.wire.table import encode_short, encode_value

EPOCH: Final = datetime.fromtimestamp(0, UTC)
MICROSECOND: Final = timedelta(microseconds=1)
DIGITS: Final = 7
"""Binary digits of a routing key that are looked up at a time."""


def timed(columns: Columns, waits: pa.RecordBatch, layout: Layout, now: datetime) -> Columns | None:
    """Return the columns of messages that wait in the levels until ``at`` or for ``delay``, as :meth:`Layout.message`
    makes them at ``now``.

    ``waits`` comes from :func:`leveret.spark.sink.columns.delays`; the resulting ``headers`` are encoded. Returns None
    if rows must be made one by one, which also finds out what is wrong with a row.
    """
    units = _units(waits, layout, now)
    destinations = columns["routing_key"]
    headers = columns.get("headers")
    if units is None or not _are_destinations(destinations, layout) or "expiration" in columns:
        return None
    assert headers is None or isinstance(headers, pa.Array)
    if pc.max(units).as_py() > layout.units_max or not _are_new(headers, layout):
        return None
    entrances = pa.array([layout.entrance((1 << bits) >> 1) for bits in range(layout.levels + 1)], pa.string())
    found = columns | {
        "exchange": entrances.take(_bit_lengths(units)),
        "routing_key": pc.binary_join_element_wise(*_digits(units, layout.levels), destinations, ""),
    }
    if layout.delay_header:
        found["headers"] = _headers(headers, units, layout, now)
    return found


def _units(waits: pa.RecordBatch, layout: Layout, now: datetime) -> pa.Int64Array | None:
    """Return how many units each row waits; None if not all rows have a time, or not all have a valid delay."""
    at = _alone(waits, "at", ("delay", "exchange"))
    if at is not None:
        waits_us = pc.max_element_wise(pc.subtract(at.cast(pa.int64()), (now - EPOCH) // MICROSECOND), 0)
        unit_us = layout.unit_ms * 1000
        return pc.divide(pc.add(waits_us, unit_us - 1), unit_us)
    delay = _alone(waits, "delay", ("at", "exchange"))
    if delay is None:
        return None
    coded = delay.dictionary_encode()
    try:
        known = [layout.units(float(each)) for each in coded.dictionary.to_pylist()]
    except ValueError:
        return None
    return pa.array(known, pa.int64()).take(coded.indices)


def _alone(waits: pa.RecordBatch, name: str, others: tuple[str, ...]) -> pa.Array | None:
    """Return the column if all rows have it and no row has one of the others, else None."""
    names = waits.schema.names
    if name not in names or waits.column(name).null_count:
        return None
    if any(other in names and waits.column(other).null_count < waits.num_rows for other in others):
        return None
    return waits.column(name)


def _are_new(headers: pa.MapArray | None, layout: Layout) -> bool:
    """Whether no row has a header that a delay sets or leaves behind."""
    if headers is None:
        return True
    begin, end = headers.offsets[0].as_py(), headers.offsets[-1].as_py()
    names = dict.fromkeys(headers.keys.slice(begin, end - begin).unique().to_pylist())
    is_taken = not names.keys().isdisjoint({TIME_SENT, DELIVER_AT, layout.delay_header})
    return not is_taken and received(Properties(headers=names)).headers == names


def _are_destinations(destinations: pa.Array | str | int, layout: Layout) -> bool:
    """Whether all routing keys are non-empty and leave room for the digits."""
    if not isinstance(destinations, pa.Array):
        destinations = pa.array([str(destinations)])
    sizes = pc.min_max(pc.binary_length(destinations.cast(pa.binary()))).as_py()
    most = ROUTING_KEY_BYTES_MAX - 2 * layout.levels
    return not destinations.null_count and sizes["min"] > 0 and sizes["max"] <= most


def _bit_lengths(units: pa.Int64Array) -> pa.Int64Array:
    """Return the number of binary digits of each number, 0 for 0."""
    digits = pc.add(pc.floor(pc.log2(pc.max_element_wise(units, 1))), 1).cast(pa.int64())
    return pc.if_else(pc.equal(units, 0), 0, digits)


def _digits(units: pa.Int64Array, levels: int) -> list[pa.StringArray]:
    """Return the pieces of the routing keys with the numbers' digits, each followed by a dot, the highest first."""
    pieces = []
    for low in range((levels - 1) // DIGITS * DIGITS, -1, -DIGITS):
        count = min(DIGITS, levels - low)
        texts = pa.array(["".join(f"{digit}." for digit in format(each, f"0{count}b")) for each in range(1 << count)])
        pieces.append(texts.take(pc.bit_wise_and(pc.shift_right(units, low), (1 << count) - 1)))
    return pieces


def _headers(headers: pa.MapArray | None, units: pa.Int64Array, layout: Layout, now: datetime) -> pa.BinaryArray:
    """Return the encoded header tables: time sent, the rows' own headers, time of delivery, delay."""
    due_us = pc.add(pc.multiply(units, layout.unit_ms * 1000), (now - EPOCH) // MICROSECOND)
    due = pc.binary_replace_slice(due_us.cast(pa.timestamp("us")).cast(pa.string()), 19, 20, ":").cast(pa.binary())
    own: Piece = b""
    if headers is not None:
        table = encoded("headers", "table", headers)
        own = pc.binary_slice(table, 4, pc.max(pc.binary_length(table)).as_py())  # without the size in front
    tables = pc.binary_join_element_wise(
        *(encode_short(TIME_SENT) + encode_value(as_header(now)), own),
        *(encode_short(DELIVER_AT) + b"S" + struct.pack(">I", len(as_header(now))), due, b" Z"),
        *(encode_short(layout.delay_header) + b"I", _big_endian(units), b""),
    )
    return pc.binary_join_element_wise(_big_endian(pc.binary_length(tables)), tables, b"")


def _big_endian(numbers: pa.Array) -> pa.BinaryArray:
    """Return the numbers as four octets each."""
    swapped = array("i", numbers.cast(pa.int32()).to_pylist())
    if sys.byteorder == "little":
        swapped.byteswap()
    return pa.Array.from_buffers(pa.binary(4), len(numbers), [None, pa.py_buffer(swapped)]).cast(pa.binary())
