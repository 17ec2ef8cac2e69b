"""Converts header tables to Arrow maps of typed values, most of them vectorized over all rows.

A table is plain if no name occurs twice and no value is a table or an array: the first fields of all plain tables are
cut out at once, then the second ones, and so on. The few other tables are decoded one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from leveret.broker.terms import type_of
from leveret.lake.octets import Flags, Numbers, Octets, bounds, cut, number, text, view
from leveret.wire.errors import ProtocolError
from leveret.wire.header_text import header_text
from leveret.wire.table import decode_value, split_table

HEADER_TYPE: Final = pa.struct(
    [("type", pa.string()), ("text", pa.string()), ("integer", pa.int64()), ("number", pa.float64())]
)
HEADERS_TYPE: Final = pa.map_(pa.string(), HEADER_TYPE)
HeaderRow = tuple[str, str | None, int | None, float | None]

_FIELDS_MAX: Final = 64
"""A table with more fields is decoded alone: a vectorized step costs the same for one table as for thousands."""
_LONG: Final = -1
_SMALL: Final = 32


def _sizes() -> Numbers:
    """Return by type letter the size of a value with its letter; _LONG: a 32-bit length follows; 0: not plain."""
    sizes = np.zeros(256, np.int64)
    for size, letters in ((_LONG, b"Sx"), (1, b"V"), (2, b"bBt"), (3, b"su"), (5, b"Iif"), (6, b"D"), (9, b"lLdT")):
        sizes[list(letters)] = size
    return sizes


_SIZES: Final = _sizes()


@dataclass(slots=True)
class _Fields:
    """Fields of plain tables, ordered by table and position.

    table is the row; name, value and stop are the positions where the name and the value (with its letter) begin, and
    where the value ends.
    """

    table: Numbers
    name: Numbers
    value: Numbers
    stop: Numbers

    def only(self, those: Flags | Numbers) -> _Fields:
        return _Fields(self.table[those], self.name[those], self.value[those], self.stop[those])


def read_headers(tables: pa.BinaryArray) -> pa.MapArray:
    """Convert encoded tables to maps. If a name occurs twice, the last field is used.

    A table is null if it is malformed inside, which brokers do not check.
    """
    octets, is_plain = view(tables.buffers()[2]), np.ones(len(tables), np.bool_)
    fields = _plain_fields(octets, tables, is_plain)
    plain, others = np.flatnonzero(is_plain), np.flatnonzero(~is_plain)
    found = _maps(tables.buffers()[2], octets, fields, np.bincount(fields.table, minlength=len(tables))[plain])
    if not len(others):
        return found
    one_by_one = _read_each(tables.take(pa.array(others)).to_pylist())
    order = np.argsort(np.concatenate([plain, others]))
    return pa.concat_arrays([found, one_by_one]).take(pa.array(order))


def _plain_fields(octets: Octets, tables: pa.BinaryArray, is_plain: Flags) -> _Fields:
    """Return the fields of the plain tables, and set is_plain of all other tables to False."""
    starts, ends = bounds(tables)
    at = starts + 4
    left = np.flatnonzero(at < ends)
    found = []
    for _ in range(_FIELDS_MAX):
        name, end = at[left], ends[left]
        value = name + 1 + octets[name]
        is_good = value < end
        size = _SIZES[octets[np.where(is_good, value, 0)]]
        is_long = is_good & (size == _LONG) & (value + 5 <= end)
        size = np.where(is_long, 5 + number(octets, np.where(is_long, value + 1, 0), 4), size)
        stop = value + size
        is_good &= (size > 0) & (stop <= end)
        is_plain[left[~is_good]] = False
        fields = _Fields(left, name + 1, value, stop).only(is_good)
        found.append(fields)
        at[fields.table] = fields.stop
        left = fields.table[fields.stop < ends[fields.table]]
        if not len(left):
            break
    is_plain[left] = False
    parts = [np.concatenate([getattr(each, part) for each in found]) for part in ("table", "name", "value", "stop")]
    fields = _Fields(*parts)
    fields = fields.only(np.argsort(fields.table, kind="stable"))
    fields = fields.only(is_plain[fields.table])
    is_plain[_with_a_name_twice(tables.buffers()[2], fields)] = False
    return fields.only(is_plain[fields.table])


def _with_a_name_twice(data: pa.Buffer, fields: _Fields) -> Numbers:
    """Return the tables in which a name occurs twice."""
    codes = text(cut(data, fields.name, fields.value)).dictionary_encode()
    if not len(codes):
        return fields.table
    pairs: Numbers = np.sort(fields.table * len(codes.dictionary) + codes.indices.to_numpy())
    again: Numbers = pairs[1:][pairs[1:] == pairs[:-1]]
    return again // len(codes.dictionary)


def _maps(data: pa.Buffer, octets: Octets, fields: _Fields, counts: Numbers) -> pa.MapArray:
    """Return the maps of plain tables; counts are their numbers of fields."""
    is_text = octets[fields.value] == ord("S")
    others = cut(data, fields.value, fields.stop, ~is_text).dictionary_encode()
    known = _items([_of_value(each) for each in others.dictionary.to_pylist()]).take(others.indices)
    texts = text(cut(data, np.where(is_text, fields.value + 5, fields.stop), fields.stop, is_text))
    kinds = pa.array(["longstr"]).take(pa.array(np.zeros(len(is_text), np.int64), mask=~is_text))
    kind, said, integer, near = known.flatten()
    items = pa.StructArray.from_arrays(
        [kinds.fill_null(kind), texts.fill_null(said), integer, near], fields=list(HEADER_TYPE)
    )
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(ends), text(cut(data, fields.name, fields.value)), items)


def _items(rows: list[HeaderRow]) -> pa.StructArray:
    columns = zip(*rows, strict=True) if rows else [()] * len(HEADER_TYPE)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, HEADER_TYPE, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(HEADER_TYPE))


def _read_each(tables: list[bytes]) -> pa.MapArray:
    names: list[str] = []
    rows: list[HeaderRow] = []
    starts: list[int | None] = []
    for table in tables:
        starts.append(len(names))
        try:
            entries = {name.decode("utf-8", "replace"): _of_value(encoded) for name, encoded in split_table(table)}
        except ProtocolError:
            starts[-1] = None  # a null map in Arrow
            continue
        names += entries
        rows += entries.values()
    return pa.MapArray.from_arrays(
        pa.array([*starts, len(names)], pa.int32()), pa.array(names, pa.string()), _items(rows)
    )


def _of_value(encoded: bytes) -> HeaderRow:
    """Decode a value with its letter. Small values are cached, since they repeat often."""
    return _of_small_value(encoded) if len(encoded) <= _SMALL else _decoded(encoded)


def _decoded(encoded: bytes) -> HeaderRow:
    value = decode_value(encoded, 0, len(encoded), 0)[0]
    if isinstance(value, datetime):
        integer: int | None = int(value.timestamp())
    else:
        integer = int(value) if isinstance(value, int) else None
    near = float(value) if isinstance(value, (int, float, Decimal)) else None
    shown = header_text(value)
    said = None if shown is None else shown.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return type_of(encoded), said, integer, near


_of_small_value = lru_cache(4096)(_decoded)
