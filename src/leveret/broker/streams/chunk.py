"""Messages of a stream, back to back, as they stand in memory and in its files.

A chunk's payload is groups back to back; their offsets follow without a gap from the chunk's first one:

    arrival time i64 (µs) | count u32 | size u32 | length of key u16 | key | `count` contents of `size` octets

The key is exchange and routing key as two short strings, then what only the broker sees (BCC keys). A content is header
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

from leveret.broker.pieces import Pieces

_HEAD_OCTETS: Final[i64] = 18


class Group:
    """Consecutive messages of a stream that arrived together and are alike up to their bodies.

    offset: of the first; time_us: when they arrived, wall clock, µs since 1970; key: exchange and routing key as
    basic.deliver carries them; data: `count` contents of `size` octets; id: the journal's number of the first, 0 = it
    comes from a file.
    """

    def __init__(self, offset: i64, time_us: i64, key: bytes, data: bytes, size: i64, count: i64, id: i64) -> None:
        self.offset = offset
        self.time_us = time_us
        self.key = key
        self.data = data
        self.size = size
        self.count = count
        self.id = id

    @property
    def end(self) -> i64:
        """The offset behind its last message."""
        return self.offset + self.count

    def content(self, index: i64) -> bytes:
        """Header frame and body frames of the message at this index."""
        at = index * self.size
        return self.data[at : at + self.size]

    def octets(self) -> i64:
        """What it takes in a chunk."""
        return _HEAD_OCTETS + len(self.key) + len(self.data)


def encode(groups: list[Group]) -> bytes:
    """The payload of a chunk of these groups."""
    return b"".join(encode_pieces(groups))


def encode_pieces(groups: list[Group]) -> list[bytes]:
    """The same in pieces."""
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
    """Where somebody stands who reads: at messages alike up to their bodies, in bytes that are not copied for it.

    offset: of the first of them; count, size, time_us, key: as of a group; data, at: the first content begins there.
    """

    def __init__(self) -> None:
        self.offset: i64 = 0
        self.count: i64 = 0
        self.size: i64 = 0
        self.time_us: i64 = 0
        self.key = b""
        self.data = b""
        self.at: i64 = 0
        self._next_at: i64 = 0

    @property
    def end(self) -> i64:
        """The offset behind the last of them."""
        return self.offset + self.count

    def open(self, payload: bytes, first_offset: i64) -> None:
        """Stand before the first group of a chunk that begins with this offset. It was checked when it was read."""
        self.data = payload
        self.offset = first_offset
        self.count = 0
        self._next_at = 0

    def show(self, group: Group) -> None:
        """Stand at this group; none follows it."""
        self.data = group.data
        self.offset = group.offset
        self.count = group.count
        self.size = group.size
        self.time_us = group.time_us
        self.key = group.key
        self.at = 0
        self._next_at = len(group.data)

    def advance(self) -> bool:
        """Go on to the next group of the chunk; False if there is none. ValueError if there is something else."""
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
            self.key = named  # one object for those that follow each other, so that consumers need not compare them
        self._next_at = self.at + self.count * self.size
        if self.count < 1 or self.size < 1 or self._next_at > len(data):
            raise ValueError("a chunk contains messages without a size")
        return True


def decode(payload: bytes, first_offset: i64) -> list[Group]:
    """The groups of a chunk that begins with this offset. The payload was checked when it was read."""
    groups: list[Group] = []
    cursor = Cursor()
    cursor.open(payload, first_offset)
    while cursor.advance():
        data = payload[cursor.at : cursor.at + cursor.count * cursor.size]
        groups.append(Group(cursor.offset, cursor.time_us, cursor.key, data, cursor.size, cursor.count, 0))
    return groups


def group_starts(payload: bytes) -> list[int]:
    """Where each group of a chunk begins, for those who look at many of them at once."""
    starts: list[int] = []
    at: i64 = 0
    end: i64 = len(payload)
    while at < end:
        starts.append(int(at))
        octets = i64(read_i32_be(payload, at + 8)) * i64(read_i32_be(payload, at + 12))
        at += _HEAD_OCTETS + (i64(read_i16_be(payload, at + 16)) & 0xFFFF) + octets
    return starts
