"""A connection's output until the network takes it: buffers, in order, to be written as they are.

Small output is written to `writer`; a large content is kept beside it by reference, so that it is not copied. A gate
holds back what is behind it until its journal batch is synced, so the order within the connection is kept.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

Buffer = bytes | memoryview
# from this size on a reference is cheaper than a copy
LARGE_OCTETS_MIN: Final[i64] = 16384
# a writer never shrinks: one that held more than this is replaced when there is time
WIDE_OCTETS: Final[i64] = 65536


def cut(data: bytes, start: i64, stop: i64) -> Buffer:
    """data[start:stop], as a view if it is large and at least an eighth of `data`, which it keeps in memory."""
    size = stop - start
    if size < LARGE_OCTETS_MIN or size * 8 < len(data):
        return data[start:stop]
    return memoryview(data)[start:stop]


def part(data: bytes, start: i64, stop: i64) -> bytes:
    """data[start:stop], or `data` itself if that is all of it: compiled code would copy it."""
    return data if start == 0 and stop == len(data) else data[start:stop]


class Output:
    """The output of one connection."""

    def __init__(self) -> None:
        self.writer = BytesWriter()
        self.closed: i64 = 0  # bytes in the buffers before the writer's
        self._buffers: list[Buffer] = []
        self._gates: list[tuple[int, int]] = []  # (bytes before it, batch)
        self._ahead = b""
        self._is_wide = False

    def narrow(self) -> None:
        """Release the memory that a turn with much output has needed. Called from time to time."""
        if self._is_wide and len(self.writer) == 0:
            self._is_wide = False
            self.writer = BytesWriter()

    def octets(self) -> i64:
        """How many bytes wait to be taken."""
        return self.closed + len(self.writer)

    def attach(self, content: Buffer) -> None:
        """Append a content by reference; it must not be changed from now on."""
        writer = self.writer
        size: i64 = len(writer)
        if size > 0:
            self._buffers.append(writer.getvalue())
            writer.truncate(0)
        self._buffers.append(content)
        self.closed += size + len(content)

    def quote(self, data: bytes, start: i64, stop: i64) -> None:
        """Append data[start:stop]."""
        if stop - start < LARGE_OCTETS_MIN:
            self.writer.write(data[start:stop])
        else:
            self.attach(cut(data, start, stop))

    def write_ahead(self, frame: bytes) -> None:
        """Write a frame past all gates, because it answers nothing."""
        if self._gates:
            self._ahead += frame
        else:
            self.writer.write(frame)

    def gate(self, batch: int, octets: i64) -> None:
        """Hold back what is written from now on, and the last `octets` bytes, until this journal batch is synced."""
        if not self._gates or self._gates[-1][1] != batch:
            self._gates.append((int(self.octets() - octets), batch))

    @property
    def is_gated(self) -> bool:
        return len(self._gates) > 0

    def take(self, synced: int) -> list[Buffer]:
        """The output that may leave: all of it, or up to the first gate whose batch is later than `synced`."""
        gates = self._gates
        while gates and gates[0][1] <= synced:
            gates.pop(0)
        writer = self.writer
        buffers = self._buffers
        size: i64 = len(writer)
        if size > 0:
            self._is_wide = self._is_wide or size > WIDE_OCTETS
            buffers.append(writer.getvalue())
            writer.truncate(0)
        self._buffers = []
        self.closed = 0
        if gates:
            self._keep(buffers, gates[0][0])
        if self._ahead:
            buffers.append(self._ahead)
            self._ahead = b""
        return buffers

    def _keep(self, buffers: list[Buffer], first: i64) -> None:
        """Take back what is behind the first `first` bytes."""
        left = first
        index: i64 = 0
        while index < len(buffers) and left >= len(buffers[index]):
            left -= len(buffers[index])
            index += 1
        kept = buffers[index:]
        del buffers[index:]
        if left > 0:
            buffers.append(kept[0][:left])
            kept[0] = kept[0][left:]
        for buffer in kept:
            self._buffers.append(buffer)
            self.closed += len(buffer)
        self._gates = [(offset - int(first), batch) for offset, batch in self._gates]
