"""A stream's native files, read by another process than the broker, which may be appending to them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from leveret.store.disk import Disk
from leveret.store.stream_files import Segment, StreamDamaged, StreamFiles

PART_OCTETS: Final = 2 << 20
"""How much is made rows at a time: fewer octets cost more steps of Python, more cost memory."""


@dataclass(frozen=True, slots=True)
class Part:
    """Chunks of one file, back to back. first: offset of the first message; segment: that of the file."""

    segment: int
    first: int
    payload: bytes


def parts(disk: Disk, directory: str, first: int, end: int, lost: Callable[[StreamDamaged], None]) -> Iterator[Part]:
    """The chunks that have messages from `first` on and below `end`, whole chunks, in their order.

    lost: told of those that can't be read; they are passed over. OSError where the system refuses.
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
            segment.places = None  # of the index of many files nothing is needed again


def _of_segment(
    files: StreamFiles, segment: Segment, first: int, end: int, lost: Callable[[StreamDamaged], None]
) -> Iterator[Part]:
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
        assert payload is not None  # it was not asked for the page cache alone
        if payloads and (place.first != expected or octets + len(payload) > PART_OCTETS):
            yield Part(segment.first, begun, b"".join(payloads))
            payloads = []
        if not payloads:
            begun, octets = place.first, 0
        payloads.append(payload)
        octets += len(payload)
        expected = place.end
    if payloads:
        yield Part(segment.first, begun, b"".join(payloads))
