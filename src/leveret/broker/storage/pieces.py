"""Octets to be written to disk: small pieces are joined, large ones stay where they are.

To copy a message of a hundred megabytes takes a tenth of a second, during which nobody else is served. The disk takes
pieces as well.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

# pieces of this size or more are kept by reference
REFERRED_OCTETS_MIN: Final[i64] = 1 << 16


class Pieces:
    """A list of pieces under construction."""

    def __init__(self) -> None:
        self.writer = BytesWriter()  # for small data that follows the pieces so far
        self._pieces: list[bytes] = []
        self._closed: i64 = 0  # octets before the writer's

    def octets(self) -> i64:
        """Return the total size."""
        return self._closed + len(self.writer)

    def add(self, data: bytes) -> None:
        """Append data, by reference if it is large."""
        size: i64 = len(data)
        if size < REFERRED_OCTETS_MIN:
            self.writer.write(data)
            return
        self._close()
        self._pieces.append(data)
        self._closed += size

    def take(self) -> list[bytes]:
        """Return all pieces in order, none of them empty, and start over."""
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
