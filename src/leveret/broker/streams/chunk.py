"""Chunks: messages of a stream, back to back, in the same format in memory and in its files.

A chunk's payload is groups back to back; their offsets follow without a gap from the chunk's first one:

    arrival time i64 (µs) | count u32 | size u32 | length of key u16 | key | `count` contents of `size` octets

The key is exchange and routing key as two short strings, then BCC keys, which only the broker sees. A content is header
frame and body frames as the publisher cut them, with the publisher's channel number in them.
"""

from __future__ import annotations

from typing import Final

from librt.strings import (
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from leveret.broker.storage.pieces import Pieces

_HEAD_OCTETS: Final[i64] = 18


class ChunkGroup:
    """Consecutive messages of a stream that arrived together and differ in their bodies only."""

    def __init__(self, offset: i64, time_us: i64, key: bytes, data: bytes, size: i64, count: i64, id: i64) -> None:
        self.offset = offset  # of the first message
        self.time_us = time_us  # when they arrived: wall clock, µs since 1970
        self.key = key  # exchange and routing key as basic.deliver carries them
        self.data = data  # `count` contents of `size` octets
        self.size = size
        self.count = count
        self.id = id  # the journal's id of the first message, 0 = the group comes from a file

    @property
    def end(self) -> i64:
        """The offset after its last message."""
        return self.offset + self.count

    def content(self, index: i64) -> bytes:
        """Return header frame and body frames of the message at this index."""
        at = index * self.size
        return self.data[at : at + self.size]

    def octets(self) -> i64:
        """Return its size in a chunk."""
        return _HEAD_OCTETS + len(self.key) + len(self.data)


def encode(groups: list[ChunkGroup]) -> bytes:
    """Return the payload of a chunk of these groups."""
    return b"".join(encode_pieces(groups))


def encode_pieces(groups: list[ChunkGroup]) -> list[bytes]:
    """Return the payload of a chunk of these groups, in pieces."""
    pieces = Pieces()
    out = pieces.writer
    for group in groups:
        write_i64_be(out, group.time_us)
        write_i32_be(out, i32(group.count))
        write_i32_be(out, i32(group.size))
        write_i16_be(out, i16(i64(len(group.key))))
        out.write(group.key)
        pieces.add(group.data)
    return pieces.take()


class Cursor:
    """A reader's place in a chunk or group: at messages that differ in their bodies only, without a copy of them."""

    def __init__(self) -> None:
        self.offset: i64 = 0  # of the first message
        self.count: i64 = 0  # this, size, time_us and key: as in Group
        self.size: i64 = 0
        self.time_us: i64 = 0
        self.key = b""
        self.data = b""
        self.at: i64 = 0  # where in `data` the first content begins
        self._next_at: i64 = 0

    @property
    def end(self) -> i64:
        """The offset after the last of the messages."""
        return self.offset + self.count

    def open(self, payload: bytes, first_offset: i64) -> None:
        """Go before the first group of a chunk that begins with this offset and was checked when it was read."""
        self.data = payload
        self.offset = first_offset
        self.count = 0
        self._next_at = 0

    def show(self, group: ChunkGroup) -> None:
        """Go to this group, which no other follows."""
        self.data = group.data
        self.offset = group.offset
        self.count = group.count
        self.size = group.size
        self.time_us = group.time_us
        self.key = group.key
        self.at = 0
        self._next_at = len(group.data)

    def advance(self) -> bool:
        """Go to the next group of the chunk; False at its end. Raises ValueError if the data is no group."""
        data = self.data
        at = self._next_at
        if at >= len(data):
            return False
        if at + _HEAD_OCTETS > len(data):
            raise ValueError("a chunk ends inside a group")
        self.offset += self.count
        self.time_us = read_i64_be(data, at)
        self.count = i64(read_i32_be(data, at + 8))
        self.size = i64(read_i32_be(data, at + 12))
        start = at + _HEAD_OCTETS
        self.at = start + (i64(read_i16_be(data, at + 16)) & 0xFFFF)
        named = data[start : self.at]
        if named != self.key:
            self.key = named  # one object for consecutive groups, so that consumers need not compare keys
        self._next_at = self.at + self.count * self.size
        if self.count < 1 or self.size < 1 or self._next_at > len(data):
            raise ValueError("a chunk contains messages without a size")
        return True


def decode(payload: bytes, first_offset: i64) -> list[ChunkGroup]:
    """Return the groups of a chunk that begins with this offset and was checked when it was read."""
    groups: list[ChunkGroup] = []
    cursor = Cursor()
    cursor.open(payload, first_offset)
    while cursor.advance():
        data = payload[cursor.at : cursor.at + cursor.count * cursor.size]
        groups.append(ChunkGroup(cursor.offset, cursor.time_us, cursor.key, data, cursor.size, cursor.count, 0))
    return groups


def group_starts(payload: bytes) -> list[int]:
    """Return where each group of a chunk begins, for callers that examine many groups at once."""
    starts: list[int] = []
    at: i64 = 0
    end: i64 = len(payload)
    while at < end:
        starts.append(int(at))
        octets = i64(read_i32_be(payload, at + 8)) * i64(read_i32_be(payload, at + 12))
        at += _HEAD_OCTETS + (i64(read_i16_be(payload, at + 16)) & 0xFFFF) + octets
    return starts
