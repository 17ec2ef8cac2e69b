"""Reads a stream's native files in a process other than the broker, which may be appending to them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from leveret.store.disk import Disk
from leveret.store.stream_files import Segment, StreamDamaged, StreamFiles

PART_OCTETS: Final = 2 << 20
"""Bytes converted to rows at a time: fewer cost more Python steps, more cost memory."""


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """Consecutive chunks of one file. first: offset of the first message; segment: first offset of the file."""

    segment: int
    first: int
    payload: bytes


def parts(
    disk: Disk, directory: str, first: int, end: int, lost: Callable[[StreamDamaged], None]
) -> Iterator[ChunkRange]:
    """Yield the complete chunks that have messages from `first` on and below `end`, in order.

    Damaged chunks and files are skipped, and passed to `lost`. Raises OSError.
    """
    if first >= end:
        return
    files = StreamFiles(disk, directory)
    files.find()
    if not files.segments:
        raise FileNotFoundError(errno.ENOENT, "no files of a stream found", directory)
    for segment in files.segments:
        if segment.first < end and not 0 <= segment.end <= first:
            try:
                files.look_into(segment)
            except StreamDamaged as damaged:
                lost(damaged)
                continue
            yield from _of_segment(files, segment, first, end, lost)
            segment.places = None  # frees the index, which is not needed again


def _of_segment(
    files: StreamFiles, segment: Segment, first: int, end: int, lost: Callable[[StreamDamaged], None]
) -> Iterator[ChunkRange]:
    payloads: list[bytes] = []
    begun = expected = octets = 0
    for place in segment.places or ():
        if place.end <= first or place.first >= end:
            continue
        try:
            payload = files.read(segment, place)
        except StreamDamaged as damaged:
            lost(damaged)
            continue
        assert payload is not None  # None is returned only for reads from the page cache
        if payloads and (place.first != expected or octets + len(payload) > PART_OCTETS):
            yield ChunkRange(segment.first, begun, b"".join(payloads))
            payloads = []
        if not payloads:
            begun, octets = place.first, 0
        payloads.append(payload)
        octets += len(payload)
        expected = place.end
    if payloads:
        yield ChunkRange(segment.first, begun, b"".join(payloads))
