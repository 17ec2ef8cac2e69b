"""Methods decoded by the grammar's table: for everything that is not on the hot path."""

from __future__ import annotations

import struct
from typing import Final

from leveret.wire import dump
from leveret.wire.errors import COMMAND_INVALID, FRAME_ERROR, ProtocolError
from leveret.wire.grammar import METHODS, MethodSpec
from leveret.wire.table import Value, decode_table, encode_short, encode_table

_SIZES: Final[dict[str, int]] = {"octet": 1, "short": 2, "long": 4, "longlong": 8}
_LAYOUTS: Final[dict[str, str]] = {"octet": ">B", "short": ">H", "long": ">I", "longlong": ">Q"}


class Method:
    """A decoded method: its spec and its fields by name. The accessors give a field as the table's type.

    tables: its field tables as they came, by field name: values of different types on the wire may be decoded alike.
    """

    def __init__(self, spec: MethodSpec, values: dict[str, Value], tables: dict[str, bytes]) -> None:
        self.spec = spec
        self.values = values
        self.tables = tables

    @property
    def name(self) -> str:
        return self.spec.name

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str)
        return value

    def number(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        return self.values[name] is True

    def data(self, name: str) -> bytes:
        value = self.values[name]
        assert isinstance(value, bytes)
        return value

    def table(self, name: str) -> dict[str, Value]:
        value = self.values[name]
        assert isinstance(value, dict)
        return value

    def __repr__(self) -> str:
        return f"<{self.spec.name} {self.values}>"


def decode_method(payload: bytes, strict: bool = False) -> Method:
    """Decode a method frame's payload. ProtocolError 503 for an unknown method, 501 for malformed arguments.

    strict: short strings must be UTF-8, as RabbitMQ asks of its clients; but not those of a publish.
    """
    if len(payload) < 4:
        raise ProtocolError(FRAME_ERROR, f"type 1, {dump.snippet(payload)}: unknown_frame")
    class_id = payload[0] << 8 | payload[1]
    method_id = payload[2] << 8 | payload[3]
    spec = METHODS.get(class_id << 16 | method_id)
    if spec is None:
        raise ProtocolError(COMMAND_INVALID, f"unknown method {class_id}.{method_id}", class_id, method_id)
    try:
        tables: dict[str, bytes] = {}
        errors = "strict" if strict and not spec.has_content else "surrogateescape"
        return Method(spec, _decode_fields(spec, payload, errors, tables), tables)
    except UnicodeDecodeError:
        raise ProtocolError(FRAME_ERROR, "Malformed UTF-8 in shortstr") from None
    except ProtocolError as error:
        # RabbitMQ does not survive a malformed table and has no words for it
        raise ProtocolError(FRAME_ERROR, f"cannot decode {spec.name}: {error.text}", class_id, method_id) from None
    except (IndexError, struct.error):
        raise ProtocolError(FRAME_ERROR, f"cannot decode {dump.numbers(payload[4:])}", class_id, method_id) from None


def _decode_fields(spec: MethodSpec, payload: bytes, errors: str, tables: dict[str, bytes]) -> dict[str, Value]:
    """IndexError or struct.error if the fields don't fill the payload."""
    values: dict[str, Value] = {}
    offset = 4
    bit = 0  # the next bit within the octet before offset; 0 = none is open
    for name, kind in spec.fields:
        if kind == "bit":
            if bit == 0 or bit == 8:
                offset += 1
                bit = 0
            values[name] = payload[offset - 1] >> bit & 1 == 1
            bit += 1
            continue
        bit = 0
        if kind == "shortstr":
            stop = offset + 1 + payload[offset]
            if stop > len(payload):
                raise IndexError
            values[name] = payload[offset + 1 : stop].decode("utf-8", errors)
            offset = stop
        elif kind == "longstr" or kind == "table":
            stop = offset + 4 + int(struct.unpack_from(">I", payload, offset)[0])
            if stop > len(payload):
                raise IndexError
            if kind == "longstr":
                values[name] = payload[offset + 4 : stop]
            else:
                values[name] = decode_table(payload, offset)[0]
                tables[name] = payload[offset:stop]
            offset = stop
        else:
            values[name] = struct.unpack_from(_LAYOUTS[kind], payload, offset)[0]
            offset += _SIZES[kind]
    if offset < len(payload):
        raise IndexError
    return values


def encode_method(spec: MethodSpec, **values: object) -> bytes:
    """The payload of a method frame. Fields that are not given are 0, "", False or {}; tables may come encoded."""
    if not spec.field_names.issuperset(values):
        raise TypeError(f"{spec.name} has no field {sorted(values.keys() - spec.field_names)}")
    parts: list[bytes] = [struct.pack(">HH", spec.class_id, spec.method_id)]
    bits = 0
    bit = 0
    for name, kind in spec.fields:
        value = values.get(name)
        if kind == "bit":
            if bit == 8:
                parts.append(bytes([bits]))
                bits = bit = 0
            if value:
                bits |= 1 << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes([bits]))
            bits = bit = 0
        parts.append(_encode_field(kind, value))
    if bit:
        parts.append(bytes([bits]))
    return b"".join(parts)


def _encode_field(kind: str, value: object) -> bytes:
    if kind == "shortstr":
        assert value is None or isinstance(value, str)
        return encode_short(value or "")
    if kind == "longstr":
        raw = value.encode() if isinstance(value, str) else value
        assert raw is None or isinstance(raw, bytes)
        raw = raw or b""
        return struct.pack(">I", len(raw)) + raw
    if kind == "table":
        if isinstance(value, bytes):
            return value
        assert value is None or isinstance(value, dict)
        return encode_table(value or {})
    return struct.pack(_LAYOUTS[kind], value or 0)


def method_frame(channel: int, spec: MethodSpec, **values: object) -> bytes:
    """A whole method frame for a channel (0 = the connection)."""
    payload = encode_method(spec, **values)
    return struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce"
