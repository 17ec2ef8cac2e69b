"""Field tables and their values, with the type letters that RabbitMQ and its clients use.

Source: AMQP 0-9-1 section 4.2.5.5, corrected by RabbitMQ's errata page (s is a 16-bit integer, no short strings).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Union

from leveret.wire.errors import SYNTAX_ERROR, ProtocolError

if TYPE_CHECKING:  # the client needs this module, and runs where there is nothing but Python
    from mypy_extensions import i64

Value = Union[None, bool, int, float, str, bytes, Decimal, datetime, "list[Value]", "dict[str, Value]"]

# a limit of nesting: deeper tables are an attack, not data
DEPTH_MAX: Final = 64

_TEXT: Final = 0x53  # S
_BINARY: Final = 0x78  # x
_TABLE: Final = 0x46  # F
_ARRAY: Final = 0x41  # A
_BOOL: Final = 0x74  # t
_FIXED: Final[dict[str, str]] = {
    "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q", "f": ">f", "d": ">d",
}  # fmt: skip


_LENGTHS: Final[list[bytes]] = [struct.pack(">I", size) for size in range(256)]


def _steps() -> list[i64]:
    """By type letter: the bytes of a value with its letter; -1: a 32-bit length follows; 0: must be decoded."""
    steps: list[i64] = [0] * 256
    for step, kinds in ((-1, b"Sx"), (1, b"V"), (2, b"bBt"), (3, b"su"), (5, b"Iif"), (6, b"D"), (9, b"lLdT")):
        for kind in kinds:
            steps[kind] = step
    return steps


_STEPS: Final = _steps()
# each byte as bytes
OCTETS: Final[list[bytes]] = [bytes([octet]) for octet in range(256)]


def malformed(what: str) -> ProtocolError:
    """The error for bytes that the grammar does not allow (502); for those in a method, see decode_method."""
    return ProtocolError(SYNTAX_ERROR, what, 60, 40)


def decode_table(data: bytes, offset: i64, depth: i64 = 0) -> tuple[dict[str, Value], i64]:
    """Decode the table whose 32-bit length is at offset: (table, offset after it). ProtocolError if malformed."""
    end = _end_of(data, offset)
    offset += 4
    if depth > DEPTH_MAX:
        raise malformed("table nested too deeply")
    table: dict[str, Value] = {}
    while offset < end:
        key, offset = decode_key(data, offset, end)
        value, offset = decode_value(data, offset, end, depth)
        table[key] = value
    return table, offset


def decode_key(data: bytes, offset: i64, end: i64) -> tuple[str, i64]:
    """Decode the field name at offset (a short string); returns it with the offset after it."""
    stop = offset + 1 + data[offset]
    if stop > end:
        raise malformed("field name extends beyond its table")
    return data[offset + 1 : stop].decode("utf-8", "surrogateescape"), stop


def decode_value(data: bytes, offset: i64, end: i64, depth: i64) -> tuple[Value, i64]:
    """Decode the tagged value at offset; returns it with the offset after it. ProtocolError if it runs over end."""
    if offset >= end:
        raise malformed("field value is missing")
    kind: i64 = data[offset]
    offset += 1
    if kind in (_TEXT, _BINARY):
        stop = _end_of(data, offset)
        raw = data[offset + 4 : stop]
        if stop > end:
            raise malformed("field value extends beyond its table")
        return (raw if kind == _BINARY else _text(raw)), stop
    if kind == _TABLE:
        inner, stop = decode_table(data, offset, depth + 1)
        if stop > end:
            raise malformed("inner table extends beyond its table")
        return inner, stop
    if kind == _ARRAY:
        return _decode_array(data, offset, end, depth + 1)
    if kind == _BOOL:
        if offset >= end:
            raise malformed("field value extends beyond its table")
        return data[offset] != 0, offset + 1
    return _decode_fixed(chr(kind), data, offset, end)


def _decode_fixed(kind: str, data: bytes, offset: i64, end: i64) -> tuple[Value, i64]:
    if kind == "V":
        return None, offset
    layout = _FIXED.get(kind)
    size: i64 = {"T": 8, "D": 5}.get(kind, 0) if layout is None else struct.calcsize(layout)
    if size == 0:
        raise malformed(f"unknown field type {kind!r}")
    stop = offset + size
    if stop > end:
        raise malformed("field value extends beyond its table")
    if layout is not None:
        number: Value = struct.unpack_from(layout, data, offset)[0]
        return number, stop
    if kind == "T":
        seconds: int = struct.unpack_from(">Q", data, offset)[0]
        try:
            return datetime.fromtimestamp(seconds, UTC), stop
        except (ValueError, OverflowError, OSError):
            # beyond the calendar, so the number is returned
            return (seconds if seconds < 1 << 63 else seconds - (1 << 64)), stop
    unscaled: int = struct.unpack_from(">i", data, offset + 1)[0]
    return Decimal(unscaled).scaleb(-data[offset]), stop


def _decode_array(data: bytes, offset: i64, end: i64, depth: i64) -> tuple[Value, i64]:
    stop = _end_of(data, offset)
    if stop > end or depth > DEPTH_MAX:
        raise malformed("array extends beyond its table")
    offset += 4
    values: list[Value] = []
    while offset < stop:
        value, offset = decode_value(data, offset, stop, depth)
        values.append(value)
    return values, offset


def length_at(data: bytes, offset: i64) -> i64:
    """The 32-bit length at this offset. IndexError if the data is too short."""
    return data[offset] << 24 | data[offset + 1] << 16 | data[offset + 2] << 8 | data[offset + 3]


def _end_of(data: bytes, offset: i64) -> i64:
    if offset + 4 > len(data):
        raise malformed("length is missing")
    end = offset + 4 + length_at(data, offset)
    if end > len(data):
        raise malformed("length extends beyond the frame")
    return end


def _text(raw: bytes) -> Value:
    """A long string as text if it is UTF-8, else as bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def encode_table(table: Mapping[str, Value]) -> bytes:
    """A table with its 32-bit length. ValueError for a name over 255 bytes, TypeError for a type that AMQP lacks."""
    parts: list[bytes] = []
    for key, value in table.items():
        parts.append(encode_short(key))
        parts.append(encode_value(value))
    body = b"".join(parts)
    return _length(len(body)) + body


def _length(size: int) -> bytes:
    return _LENGTHS[size] if size < 256 else struct.pack(">I", size)


def encode_short(text: str) -> bytes:
    """A short string: one byte of length, at most 255 bytes of UTF-8. ValueError if longer."""
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > 255:
        raise ValueError(f"short string of {len(raw)} octets; AMQP allows 255: {text[:40]!r}...")
    return OCTETS[len(raw)] + raw


def encode_value(value: Value) -> bytes:
    """A value with its type letter. Integers take 32 bits if they fit, else 64 (ValueError beyond)."""
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        if -(1 << 31) <= value < 1 << 31:
            return b"I" + struct.pack(">i", value)
        if -(1 << 63) <= value < 1 << 63:
            return b"l" + struct.pack(">q", value)
        raise ValueError(f"integer of more than 64 bits in a table: {value}")
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogateescape")
        return b"S" + _length(len(raw)) + raw
    if isinstance(value, (bytes, bytearray)):
        return b"x" + struct.pack(">I", len(value)) + bytes(value)
    return _encode_rest(value)


def _encode_rest(value: Value) -> bytes:
    if isinstance(value, float):
        return b"d" + struct.pack(">d", value)
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int):
            raise ValueError(f"decimal without a value in a table: {value}")
        scale = max(0, -exponent)
        return b"D" + struct.pack(">Bi", scale, int(value.scaleb(scale)))
    if isinstance(value, datetime):
        return b"T" + struct.pack(">Q", int(value.timestamp()))
    if isinstance(value, Mapping):
        return b"F" + encode_table(value)
    if isinstance(value, Sequence):
        body = b"".join([encode_value(item) for item in value])
        return b"A" + struct.pack(">I", len(body)) + body
    raise TypeError(f"AMQP tables have no type for {type(value).__name__}: {value!r}")


def split_table(data: bytes) -> list[tuple[bytes, bytes]]:
    """The entries of an encoded table as (name, value with its type letter), undecoded, so that they stay unchanged."""
    end = _end_of(data, 0)
    offset = 4
    entries: list[tuple[bytes, bytes]] = []
    while offset < end:
        start = offset + 1 + data[offset]
        stop = _stop_of(data, start, end)
        entries.append((data[offset + 1 : start], data[start:stop]))
        offset = stop
    return entries


def _stop_of(data: bytes, offset: int, end: int) -> int:
    """The offset after the value at offset. The contents of tables and arrays are checked, too."""
    size: i64 = _STEPS[data[offset]] if offset < end else 0
    if size == 0:
        return decode_value(data, offset, end, 0)[1]
    if size < 0:
        if offset + 5 > end:
            raise malformed("length is missing")
        size = 5 + length_at(data, offset + 1)
    if offset + size > end:
        raise malformed("field value extends beyond its table")
    return offset + size


def join_table(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Encode a table from entries; the inverse of split_table."""
    body = b"".join([bytes([len(key)]) + key + value for key, value in entries])
    return struct.pack(">I", len(body)) + body
