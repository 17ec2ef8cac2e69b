"""A publish whose content comes in several pieces: its frames so far, and how much of the body is missing."""

from __future__ import annotations

import io
from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from leveret.session import violations
from leveret.session.output import Buffer
from leveret.wire.errors import PRECONDITION_FAILED, UNEXPECTED_FRAME, ProtocolError
from leveret.wire.frames import FRAME_BODY, FRAME_HEADER, frame
from leveret.wire.table import malformed

# joining a hundred megabytes takes a tenth of a second, so this many bytes are joined at a time
JOINED_AT_ONCE: Final[i64] = 1 << 20
PIECE_COST: Final[i64] = 64  # so that very many small pieces take several turns, too
# contents up to this size are joined at once
JOINED_WHOLE_MAX: Final[i64] = 2 << 20


class Assembly:
    """An incomplete content.

    It does not refer to its channel, which refers to it: the collector is off, and the body would stay in memory.
    """

    def __init__(self, number: i64, method: bytes, frame_max: i64, message_octets_max: i64) -> None:
        self.number = number  # of the channel that sends it
        self.method = method  # the raw basic.publish frame
        self.frame_max = frame_max  # in bytes of a frame
        self.message_octets_max = message_octets_max  # in bytes of a body
        self.left: i64 = -1  # -1: the header frame has not come yet
        self.pieces: list[Buffer] = []  # its frames, or parts of them, header first
        self.missing: i64 = 0  # bytes missing of the last frame, a body frame
        self._last: i64 = 0  # the piece with which the last frame begins
        self._joined: io.BytesIO | None = None
        self._joined_count: i64 = 0  # how many pieces are joined
        self._octets: i64 = 0  # of all pieces

    def join(self) -> bytes | None:
        """Join the whole content, once nothing is missing; None if that takes more turns. Joined pieces are released.
        """
        pieces = self.pieces
        count: i64 = len(pieces)
        octets: i64 = 0
        most = JOINED_WHOLE_MAX if self._joined is None else JOINED_AT_ONCE
        stop = self._joined_count
        while stop < count and octets < most:
            octets += len(pieces[stop]) + PIECE_COST
            stop += 1
        if stop == count and self._joined is None:
            return b"".join(pieces)
        if self._joined is None:
            self._joined = io.BytesIO(bytes(self._octets))  # at its full size, since growing would copy it
        while self._joined_count < stop:
            self._joined.write(pieces[self._joined_count])
            pieces[self._joined_count] = b""
            self._joined_count += 1
        return self._joined.getvalue() if stop == count else None  # without a copy

    def begin(self, size: i64) -> bool:
        """Announce a body frame of `size` bytes, which `take` will get. False if it is invalid."""
        if size > self.left or self.left < 0:
            return False
        self.left -= size
        self.missing = size + 8
        self._last = len(self.pieces)
        return True

    def take(self, piece: Buffer) -> None:
        """Take the next bytes of the frame that has begun."""
        self.missing -= len(piece)
        self._keep(piece)

    def _keep(self, piece: Buffer) -> None:
        self._octets += len(piece)
        self.pieces.append(piece)

    def last_frame(self) -> bytes:
        """The part of the last frame that has come."""
        return b"".join(self.pieces[self._last :])

    def give_up(self) -> None:
        """Drop the content, which is no longer wanted.

        The rest of an incomplete frame must still be skipped, so what has come of it is kept.
        """
        first: i64 = len(self.pieces)
        if self.missing > 0:
            first = self._last
        del self.pieces[:first]
        self._last = 0

    def add(self, kind: i64, raw: bytes) -> None:
        """Take the next frame, a header or a body. ProtocolError if it should be the other, or is malformed."""
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
                # 8 bytes too many were accepted, but consumers must not see them
                number = raw[1] << 8 | raw[2]
                room = self.frame_max - 8
                self._keep(frame(FRAME_BODY, number, raw[7 : 7 + room]))
                raw = frame(FRAME_BODY, number, raw[7 + room : -1])
        self._keep(raw)

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
