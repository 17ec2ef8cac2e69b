"""Octets on their way to the disk: what is small is put together, and what is large stays where it is.

To copy a message of a hundred megabytes takes a tenth of a second, in which nobody else is served. The disk takes
pieces as well.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

# from here on a reference is kept
REFERRED_OCTETS_MIN: Final[i64] = 1 << 16


class Pieces:
    """writer: of what comes behind the pieces that are there."""

    def __init__(self) -> None:
        self.writer = BytesWriter()
        self._pieces: list[bytes] = []
        self._closed: i64 = 0  # octets in front of the writer's

    def octets(self) -> i64:
        """How much there is."""
        return self._closed + len(self.writer)

    def add(self, data: bytes) -> None:
        """The next octets, by reference if they are many."""
        size: i64 = len(data)
        if size < REFERRED_OCTETS_MIN:
            self.writer.write(data)
            return
        self._close()
        self._pieces.append(data)
        self._closed += size

    def take(self) -> list[bytes]:
        """All there is, in order; no piece is empty. The next one begins."""
        self._close()
        pieces = self._pieces
        self._pieces = []
        self._closed = 0
        return pieces

    def _close(self) -> None:
        size: i64 = len(self.writer)
        if size > 0:
            self._pieces.append(self.writer.getvalue())
            self.writer.truncate(0)
            self._closed += size
