"""Writing of stored content frames to a receiver, for a federation link with the message's position.

x-leveret-position comes first in the headers table: a byte array of 16 octets, the name of an epoch and the id, both as
signed numbers in network order. The name is the broker's epoch combined with the queue's number, so no two queues share
a position, wherever they are. With the id 0 the message has no position. Every delivery to such a consumer has this
header, so one that a publisher wrote is never taken for the broker's.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from leveret.session.output import LARGE_OCTETS_MIN, Output

POSITIONS: Final = "x-leveret-positions"
"""The argument of a consumer that asks for positions, and of a queue whose messages all get one."""
HEADER: Final = b"\x12x-leveret-positionx\x00\x00\x00\x10"
_ELSE: Final = b"\x12x-leveret_position"
_OCTETS: Final[i64] = 40
# In larger contents even small frames are written by reference, because copying the whole would delay others.
_HUGE_OCTETS: Final[i64] = 1 << 20
_SMALL_OCTETS: Final[i64] = 2048


def write_content(output: Output, content: bytes, channel: i64, frame_max: i64, at: i64 = 0, end: i64 = -1) -> None:
    """Write stored content frames with another channel number; split bodies that are too long for frame_max.

    at: offset of the first frame; end: offset behind the last one, -1 = end of content.
    """
    out = output.writer
    if end < 0:
        end = len(content)
    view: memoryview | None = None
    least = LARGE_OCTETS_MIN
    if end - at >= LARGE_OCTETS_MIN and (end - at) * 8 >= len(content):
        view = memoryview(content)  # it may keep all of content alive, which is little more than the part
        if end - at >= _HUGE_OCTETS:
            least = _SMALL_OCTETS
    while at < end:
        size: i64 = i64(read_i32_be(content, at + 3))
        kind: i64 = i64(content[at])
        start = at + 7
        left = size
        while True:
            part = left
            if kind == 3 and part + 8 > frame_max:
                part = frame_max - 8
            out.append(int(kind))
            write_i16_be(out, i16(channel))
            write_i32_be(out, i32(part))
            if view is None or part < least:
                out.write(content[start : start + part])
            else:
                output.attach(view[start : start + part])
            out.append(0xCE)
            start += part
            left -= part
            if left == 0:
                break
        at += size + 8


def write_stamped(output: Output, content: bytes, channel: i64, frame_max: i64, epoch: i64, id: i64) -> None:
    """Write stored content frames like write_content, with this position as their first header.

    If a frame of frame_max octets has no room for it, it is left out, and one that is already there is renamed.
    """
    size: i64 = i64(read_i32_be(content, 3))
    flags: i64 = i64(content[19])  # the upper eight
    has_headers = flags & 0x20 != 0
    longer = size + (_OCTETS if has_headers else _OCTETS + 4)
    if longer + 8 > frame_max:
        write_content(output, content.replace(HEADER[:19], _ELSE, 1), channel, frame_max)
        return
    out = output.writer
    at: i64 = 21
    if flags & 0x80 != 0:
        at += 1 + i64(content[at])
    if flags & 0x40 != 0:
        at += 1 + i64(content[at])
    out.append(2)
    write_i16_be(out, i16(channel))
    write_i32_be(out, i32(longer))
    out.write(content[7:19])
    out.append(content[19] | 0x20)
    out.append(content[20])
    out.write(content[21:at])
    table: i64 = 0
    if has_headers:
        table = i64(read_i32_be(content, at))
        at += 4
    write_i32_be(out, i32(table + _OCTETS))
    out.write(HEADER)
    write_i64_be(out, epoch)
    write_i64_be(out, id)
    out.write(content[at : size + 8])
    write_content(output, content, channel, frame_max, size + 8)
