"""Cuts bytes into frames, and builds frames (AMQP 0-9-1, section 4.2.3)."""

from __future__ import annotations

import struct
from typing import Final

from leveret.wire.errors import FRAME_ERROR, ProtocolError

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_MIN_SIZE: Final = 4096
FRAME_OVERHEAD: Final = 8
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"


class Frame:
    """One frame: kind (1 method, 2 header, 3 body, 8 heartbeat), channel number, payload."""

    def __init__(self, kind: int, channel: int, payload: bytes) -> None:
        self.kind = kind
        self.channel = channel
        self.payload = payload

    def __repr__(self) -> str:
        return f"<frame {self.kind} channel {self.channel} {self.payload!r}>"


class FrameReader:
    """Cuts a stream of bytes into frames. frame_max: largest whole frame in bytes that is allowed; 0 = no limit.

    Memory is bounded by frame_max: a longer frame is refused as soon as its length is known.
    """

    def __init__(self, frame_max: int) -> None:
        self.frame_max = frame_max
        self._data = b""
        self._offset = 0

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer, in pieces of any size."""
        self._data = self._data[self._offset :] + data if self._offset < len(self._data) else data
        self._offset = 0

    def next(self) -> Frame | None:
        """The next whole frame, or None until more bytes come. ProtocolError 501 for an invalid frame."""
        data = self._data
        start = self._offset
        if len(data) - start < 7:
            return None
        kind, channel, size = struct.unpack_from(">BHI", data, start)
        check_frame_head(kind, size, self.frame_max)
        end = start + size + FRAME_OVERHEAD
        if len(data) < end:
            return None
        if data[end - 1] != FRAME_END:
            raise ProtocolError(FRAME_ERROR, f"frame end is {data[end - 1]}, not 206")
        self._offset = end
        return Frame(kind, channel, data[start + 7 : end - 1])


def check_frame_head(kind: int, size: int, frame_max: int) -> None:
    """ProtocolError 501 for an unknown frame type or a frame over frame_max (whole size in bytes; 0 = no limit)."""
    if kind not in (FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT):
        raise ProtocolError(FRAME_ERROR, f"unknown frame type {kind}")
    if frame_max and size + FRAME_OVERHEAD > frame_max:
        raise ProtocolError(FRAME_ERROR, f"type {kind} payload of {size} octets, frame_max is {frame_max}")


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Encode a whole frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def content_frames(channel: int, header_payload: bytes, body: bytes, frame_max: int) -> bytes:
    """The header frame and the body frames of one message, none over frame_max bytes (0 = no limit)."""
    head = frame(FRAME_HEADER, channel, header_payload)
    size = len(body)
    if not size:
        return head
    room = frame_max - FRAME_OVERHEAD if frame_max else size
    if size <= room:
        return head + frame(FRAME_BODY, channel, body)
    parts = [head]
    for start in range(0, size, room):
        parts.append(frame(FRAME_BODY, channel, body[start : start + room]))
    return b"".join(parts)
