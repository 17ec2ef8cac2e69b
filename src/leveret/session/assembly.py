"""A publish whose content does not come in one piece: its frames so far, and how much of the body is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import read_i64_be
from mypy_extensions import i64

from leveret.session import violations
from leveret.session.output import Buffer
from leveret.wire.errors import PRECONDITION_FAILED, UNEXPECTED_FRAME, ProtocolError
from leveret.wire.frames import FRAME_BODY, FRAME_HEADER, frame
from leveret.wire.table import malformed

if TYPE_CHECKING:
    from leveret.session.channel import Channel


class Assembly:
    """method: the raw basic.publish frame; frame_max in octets of a frame, message_octets_max of a body.

    pieces: its frames, or parts of them, header first. missing: octets of the last one, a body frame on `channel`.
    """

    def __init__(self, method: bytes, frame_max: i64, message_octets_max: i64) -> None:
        self.method = method
        self.frame_max = frame_max
        self.message_octets_max = message_octets_max
        self.left: i64 = -1  # -1: the header frame has not come yet
        self.pieces: list[Buffer] = []
        self.missing: i64 = 0
        self.channel: Channel | None = None
        self._last: i64 = 0  # the piece with which the last frame begins

    def content(self) -> bytes:
        """The whole content, once nothing is left."""
        return b"".join(self.pieces)

    def begin(self, channel: Channel, size: i64) -> bool:
        """A body frame of `size` octets comes next, by `take`. False if there is anything wrong with that."""
        if size > self.left or self.left < 0:
            return False
        self.channel = channel
        self.left -= size
        self.missing = size + 8
        self._last = len(self.pieces)
        return True

    def take(self, piece: Buffer) -> None:
        """Take the next octets of the frame that has begun."""
        self.missing -= len(piece)
        self.pieces.append(piece)

    def last_frame(self) -> bytes:
        """What has come of it."""
        return b"".join(self.pieces[self._last :])

    def add(self, kind: i64, raw: bytes) -> None:
        """Take the next frame, a header or a body. ProtocolError if it should have been the other, or is malformed."""
        if kind == FRAME_HEADER:
            if self.left >= 0:
                raise violations.expected_body()
            self.left = self._size(raw)
        else:
            if self.left < 0:
                raise violations.expected_header()
            self.left -= len(raw) - 8
            if self.left < 0:
                raise ProtocolError(UNEXPECTED_FRAME, "content body longer than its header says", 60, 40)
            if len(raw) > self.frame_max:
                # 8 octets too many were forgiven, but consumers must not see them
                number = raw[1] << 8 | raw[2]
                room = self.frame_max - 8
                self.pieces.append(frame(FRAME_BODY, number, raw[7 : 7 + room]))
                raw = frame(FRAME_BODY, number, raw[7 + room : -1])
        self.pieces.append(raw)

    def _size(self, raw: bytes) -> i64:
        """The size of the body that this header announces."""
        class_id = raw[7] << 8 | raw[8]
        if class_id != 60:
            raise violations.expected_class(class_id)
        if raw[9] or raw[10]:
            raise violations.expected_header()
        if len(raw) < 22:
            raise malformed("malformed content header")
        if len(raw) > self.frame_max:
            raise violations.frame_too_large(2, len(raw) - 8, self.frame_max)
        size = int(read_i64_be(raw, 11)) & 0xFFFF_FFFF_FFFF_FFFF
        if size > self.message_octets_max:
            text = f"message size {size} is larger than configured max size {self.message_octets_max}"
            raise ProtocolError(PRECONDITION_FAILED, text, 60, 40)
        return size
