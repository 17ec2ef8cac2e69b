"""Cuts byte strings and numbers out of a buffer, for all rows at once, as Arrow columns and NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Octets = np.ndarray[Any, np.dtype[np.uint8]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def view(data: bytes | pa.Buffer) -> Octets:
    """Return the bytes as an array of numbers, without a copy."""
    return np.frombuffer(data, np.uint8)


def number(octets: Octets, at: Numbers, width: int) -> Numbers:
    """Return the big-endian numbers of `width` bytes at these positions."""
    value = octets[at].astype(np.int64)
    for index in range(1, width):
        value = value << 8 | octets[at + index]
    return value


def bounds(column: pa.BinaryArray) -> tuple[Numbers, Numbers]:
    """Return where the value of each row begins and ends in the column's data."""
    places = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return places[:-1].astype(np.int64), places[1:].astype(np.int64)


def cut(data: bytes | pa.Buffer, starts: Numbers, stops: Numbers, is_there: Flags | None = None) -> pa.BinaryArray:
    """Return the slices `starts:stops` of less than 2 GiB of data, in ascending order; null where is_there is False.

    The data are viewed as a column of the slices and the gaps between them, of which Arrow takes every other item,
    without a Python step per row.
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
    """Decode a column as UTF-8. Invalid bytes are replaced; otherwise the column could not be read at all."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        values = [None if each is None else each.decode("utf-8", "replace") for each in column.to_pylist()]
        return pa.array(values, pa.string())
