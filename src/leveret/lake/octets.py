"""Octets in the page of a buffer as Arrow columns, cut out and read for all rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Octets = np.ndarray[Any, np.dtype[np.uint8]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def view(data: bytes | pa.Buffer) -> Octets:
    """The octets as numbers; nothing is copied."""
    return np.frombuffer(data, np.uint8)


def number(octets: Octets, at: Numbers, width: int) -> Numbers:
    """The big-endian numbers of `width` octets that stand at these places."""
    value = octets[at].astype(np.int64)
    for index in range(1, width):
        value = value << 8 | octets[at + index]
    return value


def bounds(column: pa.BinaryArray) -> tuple[Numbers, Numbers]:
    """Where the octets of each row begin and end in the column's data."""
    places = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return places[:-1].astype(np.int64), places[1:].astype(np.int64)


def cut(data: bytes | pa.Buffer, starts: Numbers, stops: Numbers, is_there: Flags | None = None) -> pa.BinaryArray:
    """The pieces `starts:stops` of less than 2 GiB of data, which come in order; null where is_there says no.

    Seen as a column, the data are pieces and what stands between them; Arrow takes every other one, without a step of
    Python for each.
    """
    rows = len(starts)
    bounds = np.zeros(2 * rows + 1, np.int32)
    bounds[1::2] = starts
    bounds[2::2] = stops
    source = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    whole = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(bounds), source])
    wanted = np.arange(1, 2 * rows, 2, dtype=np.int32)
    return whole.take(pa.array(wanted, mask=None if is_there is None else ~is_there))


def text(column: pa.BinaryArray) -> pa.StringArray:
    """Octets as text; what is no UTF-8 is replaced, since nobody could read the column otherwise."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        values = [None if each is None else each.decode("utf-8", "replace") for each in column.to_pylist()]
        return pa.array(values, pa.string())
