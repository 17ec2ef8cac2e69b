"""Avro bodies as columns: one datum each, bare or in single-object encoding (Avro 1.12, "Binary Encoding").

The decoder is leveret's own, so that executors need no Avro library. The schema is the writer's; every body is checked
to its last octet, since bare data carry no schema.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from leveret.wire.body_schema import Column, Schema

Read = Callable[[bytes, int], tuple[Any, int]]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ONE: Final = date(1970, 1, 1).toordinal()
_EXACT: Final = Context(prec=1000)
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_PRIMITIVE: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_CRC_EMPTY: Final = 0xC15D213AA4D7A795


class AvroBodies:
    """Decodes bodies that are records of one schema."""

    def __init__(self, schema: Schema, types: list[pa.DataType]) -> None:
        given = json.loads(schema.text)
        self._columns: list[tuple[Column, pa.DataType]] = list(zip(schema.columns, types, strict=True))
        self._head = b"\xc3\x01" + fingerprint(given).to_bytes(8, "little")
        self._read = _Readers().of(given, "")

    def decode(self, body: bytes) -> dict[str, Any]:
        """Decode a body into a record; ``ValueError`` if it is malformed."""
        start = len(self._head) if body.startswith(self._head) else 0
        try:
            record, end = self._read(body, start)
        except (IndexError, struct.error):
            raise ValueError("the body ends inside the datum") from None
        if end != len(body):
            raise ValueError(f"{len(body) - end} octets follow the datum")
        found: dict[str, Any] = record
        return found

    def arrays(self, rows: list[Any]) -> list[pa.Array]:
        """Return the columns of these records; ``ValueError`` if a value does not fit its column."""
        return [_array([row[column.field] for row in rows], column, kind) for column, kind in self._columns]


def _array(values: list[Any], column: Column, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (OverflowError, pa.ArrowException) as error:
        raise ValueError(f"{error} - at field {column.field}") from None


class _Readers:
    """Makes readers for a schema's types; keeps the readers of named types for later references."""

    def __init__(self) -> None:
        self._named: dict[str, Read] = {}

    def of(self, given: Any, space: str) -> Read:
        if isinstance(given, str):
            return _SIMPLE[given] if given in _SIMPLE else self._named[_full(given, space)]
        if isinstance(given, list):
            return _union([self.of(each, space) for each in given])
        kind = given["type"]
        if not isinstance(kind, str):
            return self.of(kind, space)
        if kind == "array":
            return _array_of(self.of(given["items"], space))
        if kind == "map":
            return _map_of(self.of(given["values"], space))
        if kind in ("record", "enum", "fixed"):
            return self._of_named(given, kind, space)
        read = self.of(kind, space)
        make = _LOGICAL.get((str(given.get("logicalType")), kind))
        if make is None:
            return read
        return _mapped(read, make(given))

    def _of_named(self, given: dict[str, Any], kind: str, space: str) -> Read:
        name = _full(given["name"], given.get("namespace", space))
        inside = name.rpartition(".")[0]
        if kind == "record":
            read = _record([(each["name"], self.of(each["type"], inside)) for each in given["fields"]])
        elif kind == "enum":
            read = _enum(given["symbols"])
        else:
            read = _fixed(given["size"])
            if given.get("logicalType") == "decimal":
                read = _mapped(read, _decimal(given))
        self._named[name] = read
        return read


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _long(data: bytes, at: int) -> tuple[int, int]:
    octet = data[at]
    at += 1
    value, shift = octet & 0x7F, 7
    while octet & 0x80:
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("an integer has more than 64 bits")
    return value >> 1 ^ -(value & 1), at


def _null(_data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _float(data: bytes, at: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, at)[0], at + 4


def _double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise IndexError
    return data[at:end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    octets, at = _bytes(data, at)
    return octets.decode(), at


_SIMPLE: Final[dict[str, Read]] = {
    "null": _null, "boolean": _boolean, "int": _long, "long": _long, "float": _float, "double": _double,
    "bytes": _bytes, "string": _string,
}  # fmt: skip


def _union(branches: list[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(branches):
            raise ValueError(f"a union of {len(branches)} types has no type number {index}")
        return branches[index](data, at)

    return read


def _record(fields: list[tuple[str, Read]]) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = {}
        for name, read_field in fields:
            found[name], at = read_field(data, at)
        return found, at

    return read


def _array_of(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        count, at = _block(data, at)
        while count:
            for _ in range(count):
                value, at = item(data, at)
                found.append(value)
            count, at = _block(data, at)
        return found, at

    return read


def _map_of(value_of: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        found: dict[str, Any] = {}
        count, at = _block(data, at)
        while count:
            for _ in range(count):
                key, at = _string(data, at)
                found[key], at = value_of(data, at)
            count, at = _block(data, at)
        return list(found.items()), at

    return read


def _block(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items in the next block. Each item has at least one octet, so a larger count is an error and
    cannot fill the memory."""
    count, at = _long(data, at)
    if count < 0:
        _, at = _long(data, at)  # the block's size in octets, for readers that skip it
        count = -count
    if count > len(data) - at:
        raise IndexError
    return count, at


def _enum(symbols: list[str]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(symbols):
            raise ValueError(f"an enum of {len(symbols)} symbols has no symbol number {index}")
        return symbols[index], at

    return read


def _fixed(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise IndexError
        return data[at : at + size], at + size

    return read


def _mapped(read: Read, convert: Callable[[Any], Any]) -> Read:
    def read_and_convert(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return convert(value), at

    return read_and_convert


def _instant(unit: timedelta) -> Callable[[int], datetime]:
    def convert(count: int) -> datetime:
        try:
            return _EPOCH + count * unit
        except OverflowError:
            raise ValueError(f"{count} is a time beyond the years 1 to 9999") from None

    return convert


def _date(days: int) -> date:
    try:
        return date.fromordinal(_DAY_ONE + days)
    except (OverflowError, ValueError):
        raise ValueError(f"{days} is a date beyond the years 1 to 9999") from None


def _decimal(given: dict[str, Any]) -> Callable[[bytes], Decimal]:
    scale = given.get("scale", 0)
    return lambda octets: Decimal(int.from_bytes(octets, "big", signed=True)).scaleb(-scale, _EXACT)


_LOGICAL: Final[dict[tuple[str, str], Callable[[dict[str, Any]], Callable[[Any], Any]]]] = {
    ("timestamp-millis", "long"): lambda _: _instant(timedelta(milliseconds=1)),
    ("timestamp-micros", "long"): lambda _: _instant(timedelta(microseconds=1)),
    ("date", "int"): lambda _: _date,
    ("decimal", "bytes"): _decimal,
}


def fingerprint(given: Any) -> int:
    """Return the CRC-64-AVRO of a schema's parsing canonical form (Avro 1.12, "Schema Fingerprints")."""
    crc = _CRC_EMPTY
    for octet in _canonical(given, "").encode():
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC_EMPTY if crc & 1 else 0)
    return crc


def _canonical(given: Any, space: str) -> str:
    if isinstance(given, str):
        return json.dumps(given if given in _PRIMITIVE else _full(given, space), ensure_ascii=False)
    if isinstance(given, list):
        return "[" + ",".join(_canonical(each, space) for each in given) + "]"
    kind = given["type"]
    if not isinstance(kind, str) or kind in _PRIMITIVE:
        return _canonical(kind, space)
    parts = []
    if "name" in given and kind in ("record", "enum", "fixed"):
        name = _full(given["name"], given.get("namespace", space))
        space = name.rpartition(".")[0]
        parts.append(f'"name":{json.dumps(name, ensure_ascii=False)}')
    parts.append(f'"type":{json.dumps(kind)}')
    if kind == "record":
        fields = (
            f'{{"name":{json.dumps(each["name"])},"type":{_canonical(each["type"], space)}}}'
            for each in given["fields"]
        )
        parts.append(f'"fields":[{",".join(fields)}]')
    elif kind == "enum":
        parts.append(f'"symbols":{json.dumps(given["symbols"], separators=(",", ":"))}')
    elif kind == "array":
        parts.append(f'"items":{_canonical(given["items"], space)}')
    elif kind == "map":
        parts.append(f'"values":{_canonical(given["values"], space)}')
    elif kind == "fixed":
        parts.append(f'"size":{given["size"]}')
    return "{" + ",".join(parts) + "}"
