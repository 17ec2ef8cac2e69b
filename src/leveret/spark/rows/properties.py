"""Content headers as columns: each distinct header is decoded once, and only for the requested properties."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import pyarrow as pa

from leveret.wire.errors import ProtocolError
from leveret.wire.header_text import header_text
from leveret.wire.properties import PROPERTIES
from leveret.wire.table import decode_value, malformed

TIMESTAMP_S_MAX: Final = 253_402_300_799
"""The last second of the year 9999, the limit of timestamps in Spark and Python."""

OFFSET_HEADER: Final = b"x-stream-offset"
"""A header that brokers add to deliveries from a stream."""

HEAD_SIZE: Final = 12
"""Octets of class, weight and body size, which precede the properties in a content header."""

_SHORT, _TABLE, _OCTET, _LONG = range(4)
_KINDS: Final = {"shortstr": _SHORT, "table": _TABLE, "octet": _OCTET, "longlong": _LONG}
_LONG_STRING: Final = ord("S")
_uint32: Final[Callable[..., tuple[int]]] = struct.Struct(">I").unpack_from


def property_arrays(
    properties: pa.Array, fields: Collection[pa.Field], *, hides_offset: bool = False
) -> list[pa.Array]:
    """Decode encoded properties (binary) into an array per field; each field is named like a property.

    ``hides_offset`` leaves x-stream-offset out of the headers. Raises ``ProtocolError`` (502) for malformed properties.
    """
    distinct = properties.dictionary_encode()
    columns = _split(distinct.dictionary.to_pylist(), [field.name for field in fields])
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


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    if field.type == pa.string():
        return text_array(values)
    if pa.types.is_timestamp(field.type):
        micros = [None if one is None or one > TIMESTAMP_S_MAX else one * 1_000_000 for one in values]
        return pa.array(micros, pa.int64()).cast(field.type)
    return pa.array(values, field.type)


def _split(headers: list[bytes], wanted: Collection[str]) -> dict[str, list[Any]]:
    """Return the wanted properties by name, one value per header (octets for strings and tables); absent ones are left
    out."""
    columns: dict[str, list[Any]] = {}
    plans: dict[int, list[tuple[int, list[Any] | None]]] = {}
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
                    if kind == _OCTET:
                        column[row] = header[start]
                    elif kind == _LONG:
                        column[row] = int.from_bytes(header[start:at], "big")
                    else:
                        column[row] = header[start:at]
            if at != len(header):
                raise malformed("content header with inconsistent properties")
    except (IndexError, struct.error):
        raise malformed("property is missing") from None
    return columns


def _plan(
    flags: int, wanted: Collection[str], columns: dict[str, list[Any]], rows: int
) -> list[tuple[int, list[Any] | None]]:
    """Return the layout of a header with these flags: each property's kind, and the column for its value."""
    if flags & 3:
        raise malformed("content header with flags that class basic does not have")
    plan: list[tuple[int, list[Any] | None]] = []
    for place, (name, kind) in enumerate(PROPERTIES):
        if flags >> 15 - place & 1:
            column = columns.setdefault(name, [None] * rows) if name in wanted else None
            plan.append((_KINDS[kind], column))
    return plan


def _maps(tables: list[bytes | None], hides_offset: bool) -> pa.Array:
    """Return encoded tables as map<string,string>; each distinct table is decoded once."""
    distinct = pa.array(tables, pa.binary()).dictionary_encode()
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
