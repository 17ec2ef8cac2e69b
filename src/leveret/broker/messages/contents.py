"""Stored content frames: the header frame of a message and its body frames, one after the other."""

from __future__ import annotations

import struct

from leveret.session.output import LARGE_OCTETS_MIN
from leveret.wire.properties import property_spans
from leveret.wire.table import split_table

HEADER_AT = 7


def header_of(content: bytes) -> bytes:
    """Return the header payload of stored content frames."""
    size: int = struct.unpack_from(">I", content, 3)[0]
    return content[HEADER_AT : HEADER_AT + size]


def with_header(content: bytes, header: bytes) -> bytes:
    """Return the content frames with another header payload."""
    size: int = struct.unpack_from(">I", content, 3)[0]
    return behind(content[:3] + struct.pack(">I", len(header)) + header, content, HEADER_AT + size)


def behind(head: bytes, content: bytes, start: int) -> bytes:
    """Return head + content[start:], copying large contents only once."""
    if len(content) < LARGE_OCTETS_MIN:
        return head + content[start:]
    return b"".join([head, memoryview(content)[start:]])


def body_of(content: bytes) -> bytes:
    """Return the body of stored content frames."""
    size: int = struct.unpack_from(">I", content, 3)[0]
    at = size + 8
    parts: list[bytes] = []
    while at < len(content):
        size = struct.unpack_from(">I", content, at + 3)[0]
        parts.append(content[at + 7 : at + 7 + size])
        at += size + 8
    return b"".join(parts)


def raw_headers(header: bytes) -> list[tuple[bytes, bytes]]:
    """Return the encoded headers in a content header's payload, as (name, value)."""
    for name, start, stop in property_spans(header):
        if name == "headers":
            return split_table(header[start:stop])
    return []
