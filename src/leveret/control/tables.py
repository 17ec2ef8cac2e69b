"""Converts field tables to the JSON of HTTP API and definitions, and back, as RabbitMQ does (rabbit_misc)."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Final
from urllib.parse import quote

from leveret.broker.exchanges.binding import Binding
from leveret.control.refusal import bad_request
from leveret.wire.table import Value, decode_table, encode_short, encode_value

NO_TABLE: Final = b"\0\0\0\0"


def plain_table(table: Mapping[str, Value]) -> dict[str, object]:
    """Convert a table to values that JSON has."""
    return {sayable(name): plain_value(value) for name, value in table.items()}


def plain_value(value: Value) -> object:
    """Convert one value: times to seconds, decimals to numbers, octets to text if they are UTF-8."""
    if isinstance(value, str):
        return sayable(value)
    if isinstance(value, bytes):
        return _octets(value)
    if isinstance(value, dict):
        return plain_table(value)
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, Decimal):
        return float(value)
    return value


def sayable(text: str) -> str:
    """Return a name that JSON can represent: one that is not UTF-8 in base64, in RabbitMQ's wording."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _octets(text.encode("utf-8", "surrogateescape"))
    return text


def _octets(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        encoded = b64encode(octets).decode()
        return "Not UTF-8, base64 is: " + "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76))


def encoded_table(fields: Mapping[str, object]) -> bytes:
    """Encode a table from JSON, with 64-bit integers as in RabbitMQ. Raises Refused for unsupported values."""
    try:
        # Erlang's tables are sorted by name
        in_order = sorted([(encode_short(name)[1:], value) for name, value in fields.items()], key=itemgetter(0))
        body = b"".join([bytes([len(name)]) + name + _encoded(value) for name, value in in_order])
    except (ValueError, struct.error) as error:
        raise bad_request(str(error)) from None
    return struct.pack(">I", len(body)) + body


def _encoded(value: object) -> bytes:
    if isinstance(value, (bool, str, float)):
        return encode_value(value)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"integer of more than 64 bits: {value}")
        return b"l" + struct.pack(">q", value)
    if isinstance(value, Mapping):
        return b"F" + encoded_table(value)
    if isinstance(value, list):
        body = b"".join([_encoded(item) for item in value])
        return b"A" + struct.pack(">I", len(body)) + body
    raise bad_request("null_not_allowed")


def table_of(encoded: bytes) -> dict[str, Value]:
    """Decode a table; the inverse of `encoded_table`."""
    return decode_table(encoded, 0)[0]


def properties_key(binding: Binding) -> str:
    """Return what tells a binding from others between the same two, fit for a path: KEY, KEY~HASH of the arguments,
    or ~."""
    return key_and_hash(binding.key, binding.arguments)


def key_and_hash(key: str, arguments: bytes) -> str:
    """Return the properties key for a routing key and encoded arguments, which must be sorted by name."""
    if arguments == NO_TABLE:
        return quoted(key) or "~"
    octets = zlib.crc32(arguments).to_bytes(4, "big")
    return f"{quoted(key)}~{urlsafe_b64encode(octets).decode().rstrip('=')}"


def quoted(key: str) -> str:
    """Quote a key for a path as Mochiweb's quote_plus does, and ~ as well."""
    return quote(key.encode("utf-8", "surrogateescape"), safe=" ._-").replace(" ", "+").replace("~", "%7E")
