"""A publish whose content does not come in one piece: its frames so far, and how much of the body is missing."""

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

# A hundred megabytes take a tenth of a second to put together: it is done so much at a time.
JOINED_AT_ONCE: Final[i64] = 1 << 20
PIECE_COST: Final[i64] = 64  # of pieces of few octets there are very many
# This much is joined as a whole.
JOINED_WHOLE_MAX: Final[i64] = 2 << 20


class Assembly:
    """number: of the channel that sends it; method: the raw basic.publish frame; frame_max in octets of a frame,
    message_octets_max of a body.

    pieces: its frames, or parts of them, header first. missing: octets of the last one, a body frame. It does not know
    its channel, which knows it: the collector is off, and the body would stay in memory.
    """

    def __init__(self, number: i64, method: bytes, frame_max: i64, message_octets_max: i64) -> None:
        self.number = number
        self.method = method
        self.frame_max = frame_max
        self.message_octets_max = message_octets_max
        self.left: i64 = -1  # -1: the header frame has not come yet
        self.pieces: list[Buffer] = []
        self.missing: i64 = 0
        self._last: i64 = 0  # the piece with which the last frame begins
        self._joined: io.BytesIO | None = None
        self._joined_count: i64 = 0  # how many pieces of it
        self._octets: i64 = 0  # octets of all pieces

    def join(self) -> bytes | None:
        """Once nothing is left: the whole content, or None if that takes more turns. The pieces go meanwhile."""
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
            self._joined = io.BytesIO(bytes(self._octets))  # which grows no more: to grow it would be copied
        while self._joined_count < stop:
            self._joined.write(pieces[self._joined_count])
            pieces[self._joined_count] = b""
            self._joined_count += 1
        return self._joined.getvalue() if stop == count else None  # without a copy

    def begin(self, size: i64) -> bool:
        """A body frame of `size` octets comes next, by `take`. False if there is anything wrong with that."""
        if size > self.left or self.left < 0:
            return False
        self.left -= size
        self.missing = size + 8
        self._last = len(self.pieces)
        return True

    def take(self, piece: Buffer) -> None:
        """Take the next octets of the frame that has begun."""
        self.missing -= len(piece)
        self._keep(piece)

    def _keep(self, piece: Buffer) -> None:
        self._octets += len(piece)
        self.pieces.append(piece)

    def last_frame(self) -> bytes:
        """What has come of it."""
        return b"".join(self.pieces[self._last :])

    def give_up(self) -> None:
        """Nobody waits for the content any more. Of a frame that is not all there the rest is still to be passed over,
        so what has come of it stays: all the others go."""
        first: i64 = len(self.pieces)
        if self.missing > 0:
            first = self._last
        del self.pieces[:first]
        self._last = 0

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
