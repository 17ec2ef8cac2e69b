"""Content headers as columns: each distinct header is decoded once, and only for the requested properties."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.wire.errors import ProtocolError
from leveret.wire.header_text import header_text
from leveret.wire.properties import PROPERTIES, property_spans
from leveret.wire.table import decode_value, malformed

TIMESTAMP_S_MAX: Final = 253_402_300_799
"""The last second of the year 9999, the limit of timestamps in Spark and Python."""

OFFSET_HEADER: Final = b"x-stream-offset"
"""A header that brokers add to deliveries from a stream."""

HEAD_SIZE: Final = 12
"""Octets of class, weight and body size, which precede the properties in a content header."""

_SHORT, _TABLE, _OCTET, _LONG = range(4)
_KINDS: Final = {"shortstr": _SHORT, "table": _TABLE, "octet": _OCTET, "longlong": _LONG}
_KIND_OF: Final = dict(PROPERTIES)
_LENGTH_SIZES: Final = {"shortstr": 1, "table": 4, "octet": 0, "longlong": 0}
_FLAGS_SIZE: Final = 2
ALIKE_MIN: Final = 128
"""Headers of one size that are cut together: for fewer, the calls of Arrow cost more than they save."""

_LONG_STRING: Final = ord("S")
_uint32: Final[Callable[..., tuple[int]]] = struct.Struct(">I").unpack_from


def property_arrays(
    properties: pa.Array, fields: Collection[pa.Field], *, hides_offset: bool = False
) -> list[pa.Array]:
    """Decode encoded properties (binary) into an array per field; each field is named like a property.

    ``hides_offset`` leaves x-stream-offset out of the headers. Raises ``ProtocolError`` (502) for malformed properties.
    """
    distinct = properties.dictionary_encode()
    columns = _split(distinct.dictionary, [field.name for field in fields])
    is_repeated = len(distinct.dictionary) < len(distinct)
    arrays = []
    for field in fields:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(len(properties), field.type))
            continue
        array = _maps(values, hides_offset) if field.name == "headers" else _array(values, field)
        arrays.append(array.take(distinct.indices) if is_repeated else array)
    return arrays


def text_array(values: Sequence[bytes | None] | pa.Array) -> pa.Array:
    """Return octets as text. Invalid UTF-8 is replaced, since Arrow and Spark accept nothing else."""
    array = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        mended = [None if value is None else value.decode("utf-8", "replace") for value in array.to_pylist()]
        return pa.array(mended, pa.string())


def _array(values: pa.BinaryArray, field: pa.Field) -> pa.Array:
    if field.type == pa.string():
        return text_array(values)
    coded = values.dictionary_encode()
    numbers: list[int | None] = [int.from_bytes(octets, "big") for octets in coded.dictionary.to_pylist()]
    if pa.types.is_timestamp(field.type):
        micros = [None if one is None or one > TIMESTAMP_S_MAX else one * 1_000_000 for one in numbers]
        return pa.array(micros, pa.int64()).cast(field.type).take(coded.indices)
    return pa.array(numbers, field.type).take(coded.indices)


def _split(headers: pa.BinaryArray, wanted: Collection[str]) -> dict[str, pa.BinaryArray]:
    """Return the wanted properties by name, one value per header: octets, without the length of a short string. Those
    that no header has are left out.

    Many headers of one size mostly have properties of the same sizes, and are cut by Arrow; others one by one.
    """
    sizes = pc.binary_length(headers)
    places: list[pa.Array] = []
    parts: list[dict[str, pa.BinaryArray]] = []
    others: list[pa.Array] = []
    for size in sizes.unique().to_pylist():
        found = pc.indices_nonzero(pc.equal(sizes, size))
        cut = _cut_alike(headers.take(found), wanted) if len(found) >= ALIKE_MIN else None
        if cut is None:
            others.append(found)
        else:
            places.append(found)
            parts.append(cut)
    if others:
        places.append(pa.concat_arrays(others))
        parts.append(_cut_each(headers.take(places[-1]).to_pylist(), wanted))
    columns = {}
    order = pc.array_sort_indices(pa.concat_arrays(places)) if places else None
    for name in {name: None for part in parts for name in part}:
        values = [part.get(name, pa.nulls(len(place), pa.binary())) for part, place in zip(parts, places, strict=True)]
        columns[name] = pa.concat_arrays(values).take(order)
    return columns


def _cut_alike(headers: pa.BinaryArray, wanted: Collection[str]) -> dict[str, pa.BinaryArray] | None:
    """Split headers of one size by the layout of the first; None if another one has another layout."""
    first = headers[0].as_py()
    if len(first) < _FLAGS_SIZE or first[1] & 3:
        return None  # malformed
    spans = [(name, at - HEAD_SIZE, stop - HEAD_SIZE) for name, at, stop in property_spans(bytes(HEAD_SIZE) + first)]
    # the layout: the flags, and the length of each value that has one
    for start, size in [(0, _FLAGS_SIZE), *((at, _LENGTH_SIZES[_KIND_OF[name]]) for name, at, _ in spans)]:
        if not pc.all(pc.equal(pc.binary_slice(headers, start, start + size), first[start : start + size])).as_py():
            return None
    return {
        name: pc.binary_slice(headers, at + (_KIND_OF[name] == "shortstr"), stop)
        for name, at, stop in spans
        if name in wanted
    }


def _cut_each(headers: list[bytes], wanted: Collection[str]) -> dict[str, pa.BinaryArray]:
    """Split headers of any layouts, one by one."""
    columns: dict[str, list[bytes | None]] = {}
    plans: dict[int, list[tuple[int, list[bytes | None] | None]]] = {}
    try:
        for row, header in enumerate(headers):
            flags = header[0] << 8 | header[1]
            plan = plans.get(flags)
            if plan is None:
                plan = plans[flags] = _plan(flags, wanted, columns, len(headers))
            at = 2
            for kind, column in plan:
                start = at
                if kind == _SHORT:
                    start = at + 1
                    at = start + header[at]
                elif kind == _OCTET:
                    at += 1
                elif kind == _TABLE:
                    at += 4 + _uint32(header, at)[0]
                else:
                    at += 8
                if column is not None:
                    column[row] = header[start:at]
            if at != len(header):
                raise malformed("content header with inconsistent properties")
    except (IndexError, struct.error):
        raise malformed("property is missing") from None
    return {name: pa.array(values, pa.binary()) for name, values in columns.items()}


def _plan(
    flags: int, wanted: Collection[str], columns: dict[str, list[bytes | None]], rows: int
) -> list[tuple[int, list[bytes | None] | None]]:
    """Return the layout of a header with these flags: each property's kind, and the column for its value."""
    if flags & 3:
        raise malformed("content header with flags that class basic does not have")
    plan: list[tuple[int, list[bytes | None] | None]] = []
    for place, (name, kind) in enumerate(PROPERTIES):
        if flags >> 15 - place & 1:
            column = columns.setdefault(name, [None] * rows) if name in wanted else None
            plan.append((_KINDS[kind], column))
    return plan


def _maps(tables: pa.BinaryArray, hides_offset: bool) -> pa.Array:
    """Return encoded tables as map<string,string>; each distinct table is decoded once."""
    distinct = tables.dictionary_encode()
    names: list[bytes] = []
    texts: list[bytes | None] = []
    offsets: list[int | None] = []
    for table in distinct.dictionary.to_pylist():
        entries = _entries(table)
        is_hidden = hides_offset and entries.pop(OFFSET_HEADER, _NOTHING) is not _NOTHING
        offsets.append(None if is_hidden and not entries else len(names))
        names += entries
        texts += entries.values()
    offsets.append(len(names))
    maps = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), text_array(names), text_array(texts))
    return maps.take(distinct.indices)


_NOTHING: Final = b"nothing"


def _entries(table: bytes) -> dict[bytes, bytes | None]:
    """Return the entries of an encoded table, names and values as UTF-8; ``ProtocolError`` (502) if it is malformed."""
    entries: dict[bytes, bytes | None] = {}
    at, end = 4, len(table)
    try:
        while at < end:
            start = at + 1
            at = start + table[at]
            name = table[start:at]
            if table[at] == _LONG_STRING:
                start = at + 5
                at = start + _uint32(table, at + 1)[0]
                entries[name] = table[start:at]
            else:
                value, at = decode_value(table, at, end, 0)
                text = header_text(value)
                entries[name] = None if text is None else text.encode("utf-8", "surrogateescape")
    except (IndexError, struct.error):
        raise malformed("field is missing") from None
    if at != end:
        raise ProtocolError(502, "field value extends beyond its table")
    return entries
