"""Decodes and encodes methods by the grammar's table, for everything that is not on the hot path.

The client uses it with nothing but Python; when compiled, its loops make calls only for text fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.wire import dump
from leveret.wire.errors import COMMAND_INVALID, FRAME_ERROR, ProtocolError
from leveret.wire.grammar import BIT, LONGSTR, METHODS, SHORTSTR, TABLE, MethodSpec
from leveret.wire.table import OCTETS, Value, decode_table, encode_short, encode_table, length_at

if TYPE_CHECKING:
    from mypy_extensions import i64


class Method:
    """A decoded method: its spec and its fields by name. The accessors return a field in the table's type."""

    def __init__(self, spec: MethodSpec, values: dict[str, Value], tables: dict[str, bytes]) -> None:
        self.spec = spec
        self.values = values
        # its field tables as received, by field name: different types on the wire may decode to equal values
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

    strict: short strings must be UTF-8, as RabbitMQ requires of its clients, except in methods with content.
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
        return Method(spec, _decode_fields(spec, payload, strict and not spec.has_content, tables), tables)
    except UnicodeDecodeError:
        raise ProtocolError(FRAME_ERROR, "Malformed UTF-8 in shortstr") from None
    except ProtocolError as error:
        # RabbitMQ does not survive a malformed table, so it has no text for it
        raise ProtocolError(FRAME_ERROR, f"cannot decode {spec.name}: {error.text}", class_id, method_id) from None
    except IndexError:
        raise ProtocolError(FRAME_ERROR, f"cannot decode {dump.numbers(payload[4:])}", class_id, method_id) from None


def _decode_fields(spec: MethodSpec, payload: bytes, strict: bool, tables: dict[str, bytes]) -> dict[str, Value]:
    """Decode all fields; adds raw tables to `tables`. IndexError if the fields do not fill the payload exactly."""
    values: dict[str, Value] = {}
    size: i64 = len(payload)
    at: i64 = 4
    bit: i64 = 0  # the next bit within the octet before `at`; 0 = none is open
    for field in spec.layout:
        kind = field.kind
        if kind == BIT:
            if bit == 0 or bit == 8:
                at += 1
                bit = 0
            values[field.name] = payload[at - 1] >> bit & 1 == 1
            bit += 1
            continue
        bit = 0
        if kind == SHORTSTR:
            start = at + 1
            at = start + payload[at]
            if at > size:
                raise IndexError
            raw = payload[start:at]
            values[field.name] = raw.decode() if strict else raw.decode("utf-8", "surrogateescape")
        elif kind in (LONGSTR, TABLE):
            start = at
            at = start + 4 + length_at(payload, start)
            if at > size:
                raise IndexError
            if kind == LONGSTR:
                values[field.name] = payload[start + 4 : at]
            else:
                values[field.name] = decode_table(payload, start)[0]
                tables[field.name] = payload[start:at]
        else:
            start = at
            at += kind
            if at > size:
                raise IndexError
            values[field.name] = int.from_bytes(payload[start:at], "big")
    if at < size:
        raise IndexError
    return values


def encode_method(spec: MethodSpec, **values: object) -> bytes:
    """The payload of a method frame. Missing fields are 0, "", False or {}; tables may be given encoded."""
    return _encoded(spec, values)


def _encoded(spec: MethodSpec, values: dict[str, object]) -> bytes:
    return _encode_fields(spec, values) if values else spec.blank


def _encode_fields(spec: MethodSpec, values: dict[str, object]) -> bytes:
    parts: list[bytes] = [spec.head]
    bits: i64 = 0
    bit: i64 = 0
    given = 0
    for field in spec.layout:
        value = values.get(field.name)
        if value is not None:
            given += 1
        kind = field.kind
        if kind == BIT:
            if bit == 8:
                parts.append(OCTETS[bits])
                bits = bit = 0
            if value:
                bits |= 1 << bit
            bit += 1
            continue
        if bit != 0:
            parts.append(OCTETS[bits])
            bits = bit = 0
        if kind == SHORTSTR:
            assert value is None or isinstance(value, str)
            parts.append(encode_short(value or ""))
        elif kind == LONGSTR:
            raw = value.encode() if isinstance(value, str) else value
            assert raw is None or isinstance(raw, bytes)
            raw = raw or b""
            parts.append(len(raw).to_bytes(4, "big"))
            parts.append(raw)
        elif kind == TABLE:
            if not isinstance(value, bytes):
                assert value is None or isinstance(value, dict)
                value = encode_table(value or {})
            parts.append(value)
        else:
            assert value is None or isinstance(value, int)
            parts.append((value or 0).to_bytes(kind, "big"))
    if bit != 0:
        parts.append(OCTETS[bits])
    if given < len(values):
        _check_names(spec, values)
    return b"".join(parts)


def _check_names(spec: MethodSpec, values: dict[str, object]) -> None:
    strange = values.keys() - {field.name for field in spec.layout}
    if strange:
        raise TypeError(f"{spec.name} has no field {sorted(strange)}")


def method_frame(channel: int, spec: MethodSpec, **values: object) -> bytes:
    """A whole method frame for a channel (0 = the connection)."""
    return frame_with(channel, spec, values)


def frame_with(channel: int, spec: MethodSpec, values: dict[str, object]) -> bytes:
    """As `method_frame`; a compiled caller is much faster without keyword arguments that it does not know."""
    payload = _encoded(spec, values)
    return b"".join([b"\x01", channel.to_bytes(2, "big"), len(payload).to_bytes(4, "big"), payload, b"\xce"])


def _write_blanks() -> None:
    for spec in METHODS.values():
        spec.blank = _encode_fields(spec, {})


_write_blanks()
