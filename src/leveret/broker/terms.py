"""Encoded table values, compared and printed as RabbitMQ does: by their types on the wire."""

from __future__ import annotations

import struct
from typing import Final

from leveret.wire.table import decode_value, split_table

# RabbitMQ's names for the type letters
TYPES: Final[dict[bytes, str]] = {
    b"S": "longstr", b"I": "signedint", b"i": "unsignedint", b"l": "long", b"L": "long", b"b": "byte",
    b"B": "unsignedbyte", b"s": "short", b"u": "unsignedshort", b"f": "float", b"d": "double", b"t": "bool",
    b"x": "binary", b"D": "decimal", b"T": "timestamp", b"F": "table", b"A": "array", b"V": "void",
}  # fmt: skip
_ESCAPES: Final[dict[int, str]] = {
    8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 27: "\\e", 34: '\\"', 92: "\\\\",
}  # fmt: skip


def type_of(value: bytes) -> str:
    """Return RabbitMQ's name for the type of an encoded value."""
    return TYPES.get(value[:1], "longstr")


def text_of(value: bytes | None) -> bytes | None:
    """Return the octets of a long string or binary, None for other values and for None."""
    return value[5:] if value is not None and value[:1] in (b"S", b"x") else None


def comparable(value: bytes) -> object:
    """Return a value that is equal for encoded values which RabbitMQ considers equal, e.g. numbers of different types.

    Strings and binaries are equal, too. Inside of tables and arrays the types and the order of a table's fields must
    also be equal. Raises ProtocolError if the value is malformed.
    """
    kind = value[:1]
    if kind == b"S" or kind == b"x":
        return value[5:]
    if kind == b"F":
        return tuple([(name, type_of(item), comparable(item)) for name, item in split_table(value[1:])])
    if kind == b"A":
        return tuple([(type_of(item), comparable(item)) for item in items_of(value)])
    if kind == b"T":
        return int.from_bytes(value[1:], "big")
    if kind == b"t":
        return (kind, value[1] != 0)  # true and 1 are different values, but equal in Python
    if kind == b"V" or kind == b"D":
        return (kind, value[1:])
    return decode_value(value, 0, len(value), 0)[0]


def items_of(array: bytes) -> list[bytes]:
    """Return the encoded items of an encoded array."""
    items: list[bytes] = []
    offset = 5
    while offset < len(array):
        _, stop = decode_value(array, offset, len(array), 0)
        items.append(array[offset:stop])
        offset = stop
    return items


def shown(value: bytes) -> str:
    """Return the value as Erlang's ~p prints it, on one line."""
    kind = value[:1]
    if kind == b"S" or kind == b"x":
        return binary(value[5:])
    if kind == b"F":
        fields = [f"{{{binary(name)},{type_of(item)},{shown(item)}}}" for name, item in split_table(value[1:])]
        return "[" + ",".join(fields) + "]"
    if kind == b"A":
        return "[" + ",".join([f"{{{type_of(item)},{shown(item)}}}" for item in items_of(value)]) + "]"
    if kind == b"D":
        return f"{{{value[1]},{int(struct.unpack_from('>i', value, 2)[0])}}}"
    if kind == b"T":
        return str(int.from_bytes(value[1:], "big"))
    if kind == b"V":
        return "undefined"
    decoded, _ = decode_value(value, 0, len(value), 0)
    return str(decoded).lower()


def binary(octets: bytes) -> str:
    """Return octets as Erlang's ~p prints a binary: as text if each is a printable character of Latin-1."""
    if all(32 <= octet < 127 or octet >= 160 or (octet in _ESCAPES) for octet in octets):
        parts = [_ESCAPES[octet].encode() if octet in _ESCAPES else bytes([octet]) for octet in octets]
        return '<<"' + b"".join(parts).decode("utf-8", "surrogateescape") + '">>' if octets else "<<>>"
    return "<<" + ",".join([str(octet) for octet in octets]) + ">>"
