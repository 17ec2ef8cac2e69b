"""The content header: the fourteen properties of class basic, and the body's size (AMQP 0-9-1, section 4.2.6.1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from leveret.wire.table import OCTETS, Value, decode_table, encode_short, encode_table, malformed

__all__ = ["Properties", "decode_header", "encode_header"]

# (name, kind) from the highest flag bit (15) downwards; bit 0 of the flags announces another flag word
PROPERTIES: Final[tuple[tuple[str, str], ...]] = (
    ("content_type", "shortstr"),
    ("content_encoding", "shortstr"),
    ("headers", "table"),
    ("delivery_mode", "octet"),
    ("priority", "octet"),
    ("correlation_id", "shortstr"),
    ("reply_to", "shortstr"),
    ("expiration", "shortstr"),
    ("message_id", "shortstr"),
    ("timestamp", "longlong"),
    ("type", "shortstr"),
    ("user_id", "shortstr"),
    ("app_id", "shortstr"),
    ("cluster_id", "shortstr"),
)
HAS_HEADERS: Final = 1 << 13
HAS_DELIVERY_MODE: Final = 1 << 12
HAS_PRIORITY: Final = 1 << 11
HAS_REPLY_TO: Final = 1 << 9
HAS_EXPIRATION: Final = 1 << 8
HAS_USER_ID: Final = 1 << 4


@dataclass
class Properties:
    """Properties of a message; None = absent. timestamp in seconds, expiration in ms as text, headers a table."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Value] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


def encode_header(properties: Properties, body_size: int) -> bytes:
    """The payload of a content header frame. ValueError for a short string over 255 bytes."""
    return struct.pack(">HHQ", 60, 0, body_size) + encode_properties(properties)


def encode_properties(properties: Properties) -> bytes:
    """The flags and values of a content header, after the body size. ValueError for a short string over 255 bytes."""
    flags = 0
    parts: list[bytes] = [b""]
    # written out: a loop over the names takes three times as long
    if properties.content_type is not None:
        flags |= 1 << 15
        parts.append(encode_short(properties.content_type))
    if properties.content_encoding is not None:
        flags |= 1 << 14
        parts.append(encode_short(properties.content_encoding))
    if properties.headers is not None:
        flags |= 1 << 13
        parts.append(encode_table(properties.headers))
    if properties.delivery_mode is not None:
        flags |= 1 << 12
        parts.append(bytes([properties.delivery_mode]))
    if properties.priority is not None:
        flags |= 1 << 11
        parts.append(bytes([properties.priority]))
    if properties.correlation_id is not None:
        flags |= 1 << 10
        parts.append(encode_short(properties.correlation_id))
    if properties.reply_to is not None:
        flags |= 1 << 9
        parts.append(encode_short(properties.reply_to))
    if properties.expiration is not None:
        flags |= 1 << 8
        parts.append(encode_short(properties.expiration))
    if properties.message_id is not None:
        flags |= 1 << 7
        parts.append(encode_short(properties.message_id))
    if properties.timestamp is not None:
        flags |= 1 << 6
        parts.append(struct.pack(">Q", properties.timestamp))
    if properties.type is not None:
        flags |= 1 << 5
        parts.append(encode_short(properties.type))
    if properties.user_id is not None:
        flags |= 1 << 4
        parts.append(encode_short(properties.user_id))
    if properties.app_id is not None:
        flags |= 1 << 3
        parts.append(encode_short(properties.app_id))
    if properties.cluster_id is not None:
        flags |= 1 << 2
        parts.append(encode_short(properties.cluster_id))
    parts[0] = OCTETS[flags >> 8] + OCTETS[flags & 255]
    return b"".join(parts)


def decode_header(payload: bytes) -> tuple[Properties, int]:
    """Decode a content header's payload to (properties, body size in bytes). ProtocolError 502 if it is malformed."""
    if len(payload) < 14:
        raise malformed("content header too short")
    size: int = struct.unpack_from(">Q", payload, 4)[0]
    properties = Properties()
    for name, start, stop in property_spans(payload):
        setattr(properties, name, _decode(name, payload, start, stop))
    return properties, size


def _decode(name: str, payload: bytes, start: int, stop: int) -> Value:
    if name == "headers":
        return decode_table(payload, start)[0]
    if name == "delivery_mode" or name == "priority":
        return payload[start]
    if name == "timestamp":
        seconds: int = struct.unpack_from(">Q", payload, start)[0]
        return seconds
    return payload[start + 1 : stop].decode("utf-8", "surrogateescape")


def property_spans(payload: bytes) -> list[tuple[str, int, int]]:
    """(name, start, stop) of each property in a content header's payload, undecoded. ProtocolError 502 if malformed."""
    if len(payload) < 14:
        raise malformed("content header too short")
    flags = payload[12] << 8 | payload[13]
    offset = 14
    if flags & 1:
        raise malformed("content header with flags that class basic does not have")
    spans: list[tuple[str, int, int]] = []
    bit = 15
    for name, kind in PROPERTIES:
        if flags >> bit & 1:
            stop = offset + _size(kind, payload, offset)
            if stop > len(payload):
                raise malformed(f"property {name} runs over the frame")
            spans.append((name, offset, stop))
            offset = stop
        bit -= 1
    if offset != len(payload):
        raise malformed("content header has octets after its properties")
    return spans


def _size(kind: str, payload: bytes, offset: int) -> int:
    if kind == "octet":
        return 1
    if kind == "longlong":
        return 8
    if kind == "shortstr":
        if offset >= len(payload):
            raise malformed("property is missing")
        return 1 + payload[offset]
    if offset + 4 > len(payload):
        raise malformed("property is missing")
    length: int = struct.unpack_from(">I", payload, offset)[0]
    return 4 + length


def text_property(payload: bytes, wanted: str) -> str | None:
    """One short-string property without decoding the others; None if it is absent."""
    for name, start, stop in property_spans(payload):
        if name == wanted:
            return payload[start + 1 : stop].decode("utf-8", "surrogateescape")
    return None


def replace_property(payload: bytes, wanted: str, encoded: bytes | None) -> bytes:
    """The header with one property's bytes inserted, replaced, or (None) removed; all others are unchanged."""
    bit = 15
    for name, _ in PROPERTIES:
        if name == wanted:
            break
        bit -= 1
    flags = payload[12] << 8 | payload[13]
    flags = flags & ~(1 << bit) if encoded is None else flags | 1 << bit
    before = 14
    after = 14
    order = [name for name, _ in PROPERTIES]
    for name, _start, stop in property_spans(payload):
        if order.index(name) < order.index(wanted):
            before = after = stop
        elif name == wanted:
            after = stop
    return payload[:12] + struct.pack(">H", flags) + payload[14:before] + (encoded or b"") + payload[after:]
