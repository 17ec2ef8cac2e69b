"""Filters: a consumer may ask for messages with certain values of x-stream-filter-value only (RabbitMQ 3.13, Streams).

The broker examines each message, so a consumer gets only what it wants; RabbitMQ's gets whole chunks that may contain
some of it, and filters again. A chunk in the stream's files has a digest of its messages' values, so that chunks
without any wanted value are not read:

    empty: no message has a value; else one octet: 1 = some have none, 2 = too many values to be listed; then 16 bits
    of the CRC-32 of each value, ascending.
"""

from __future__ import annotations

import zlib
from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.messages.headers import find, headers_at, text_at
from leveret.broker.streams.chunk import ChunkGroup
from leveret.broker.terms import items_of, text_of

FILTER: Final = "x-stream-filter"
MATCH_UNFILTERED: Final = "x-stream-match-unfiltered"
VALUE: Final = b"x-stream-filter-value"
_UNFILTERED: Final = 1
_ANY: Final = 2
# a digest lists no more values; a chunk has about as many messages of 100 octets
_VALUES_MAX: Final = 1024


def filter_value(content: bytes) -> bytes | None:
    """Return the filter value of a message, None if it has none."""
    at = headers_at(content)
    found = find(content, at, VALUE) if at != 0 else 0
    return text_at(content, found) if found != 0 else None


def digest_of(groups: list[ChunkGroup]) -> bytes:
    """Return the digest of a chunk of these groups."""
    values: set[bytes] = set()
    has_unfiltered = False
    header = b""
    for group in groups:
        before, header = header, group.data[: i64(read_i32_be(group.data, 3)) + 8]
        if header == before:
            continue
        value = filter_value(header)
        if value is None:
            has_unfiltered = True
        else:
            values.add(value)
    if not values:
        return b""
    if len(values) > _VALUES_MAX:
        return bytes([_ANY])
    marks = sorted({_mark(value) for value in values})
    return bytes([_UNFILTERED if has_unfiltered else 0]) + b"".join(marks)


def _mark(value: bytes) -> bytes:
    return (zlib.crc32(value) & 0xFFFF).to_bytes(2, "big")


class Filter:
    """The values that a consumer wants, and whether it wants messages without a value, too."""

    def __init__(self, values: set[bytes], has_unfiltered: bool) -> None:
        self._values = values
        self._has_unfiltered = has_unfiltered
        self._marks = {_mark(value) for value in values}

    def admits(self, content: bytes) -> bool:
        """Whether the consumer wants this message, or the messages that differ from it in their bodies only."""
        value = filter_value(content)
        return self._has_unfiltered if value is None else value in self._values

    def may_admit(self, digest: bytes) -> bool:
        """Whether the consumer may want a message of a chunk with this digest."""
        if digest == b"":
            return self._has_unfiltered
        if digest[0] == _ANY or (digest[0] == _UNFILTERED and self._has_unfiltered):
            return True
        return any(digest[at : at + 2] in self._marks for at in range(1, len(digest), 2))


def filter_of(arguments: dict[str, bytes]) -> Filter | None:
    """Return the filter in a consumer's encoded and checked arguments, None if it wants all messages."""
    given = arguments.get(FILTER)
    if given is None:
        return None
    texts = items_of(given) if given[:1] == b"A" else [given]
    values = {value for value in map(text_of, texts) if value is not None}
    unfiltered = arguments.get(MATCH_UNFILTERED, b"t\x00")
    return Filter(values, unfiltered[1] != 0)
