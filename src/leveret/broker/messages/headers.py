"""Access to single headers in an encoded table, without decoding the others."""

from __future__ import annotations

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.messages.carbon_copies import COUNTED, SIZES


def headers_at(content: bytes) -> i64:
    """Return the offset of the headers' table (of its length) in stored content frames; 0 = no headers."""
    flags: i64 = i64(content[19])
    if flags & 0x20 == 0:
        return 0
    at: i64 = 21
    if flags & 0x80 != 0:
        at += 1 + i64(content[at])
    if flags & 0x40 != 0:
        at += 1 + i64(content[at])
    return at


def find(data: bytes, at: i64, name: bytes) -> i64:
    """Return the offset of the value (of its type letter) of the first header of this name; 0 = not found.

    at: offset of the table (of its length), which must be well-formed: it was checked when the message was published.
    """
    length: i64 = len(name)
    end = at + 4 + i64(read_i32_be(data, at))
    at += 4
    while at < end:
        value = at + 1 + i64(data[at])
        if value - at - 1 == length and data[at + 1 : value] == name:
            return value
        size = SIZES[data[value]]
        at = value + 1 + size if size != COUNTED else value + 5 + i64(read_i32_be(data, value + 1))
    return 0


def text_at(data: bytes, at: i64) -> bytes | None:
    """Return the octets of the long string or byte array whose type letter is at this offset; None for other types."""
    if data[at] != 0x53 and data[at] != 0x78:
        return None
    return data[at + 5 : at + 5 + i64(read_i32_be(data, at + 1))]
