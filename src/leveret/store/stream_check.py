"""Reads a stream's files whole, without changing a byte: verifies all checksums, and that no offset is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from leveret.store.format import DATA_START
from leveret.store.stream_files import ChunkPlace, Segment, StreamDamaged, StreamFiles


@dataclass(slots=True)
class StreamFileReading:
    """The result for one file.

    Attributes:
        first, end: Its offsets.
        size: In bytes.
        torn: Bytes of an unfinished chunk at the newest file's end, whose messages the journal still has.
        damages: What is wrong and where, as text.
    """

    path: str
    first: int
    end: int = 0
    chunks: int = 0
    size: int = 0
    torn: int = 0
    damages: list[str] = field(default_factory=list)


def read_files(files: StreamFiles, journalled_from: int) -> Iterator[StreamFileReading]:
    """Check the files that `find` found, oldest first. journalled_from: messages below it are in no other place.

    OSError if the system refuses.
    """
    for index, segment in enumerate(files.segments):
        following = files.segments[index + 1] if index + 1 < len(files.segments) else None
        yield _read_file(files, segment, following, journalled_from)


def _read_file(
    files: StreamFiles, segment: Segment, following: Segment | None, journalled_from: int
) -> StreamFileReading:
    reading = StreamFileReading(files.path(segment.first), segment.first, size=segment.size)
    files.look_into(segment)
    places = segment.places or []
    if segment.header is None:
        reading.damages.append("neither copy of the file header is sound")
    for place, error in _unreadable(files, segment, places):
        is_torn = following is None and place is places[-1] and place.end > journalled_from
        if is_torn:
            places = places[:-1]
        else:
            reading.damages.append(f"messages {place.first} to {place.end - 1}: {error.reason}")
    reading.chunks = len(places)
    reading.end = places[-1].end if places else segment.first
    ends_at = places[-1].at + places[-1].octets if places else DATA_START
    if following is not None:
        if reading.end != following.first:
            reading.damages.append(f"messages {reading.end} to {following.first - 1} are missing at byte {ends_at}")
    elif reading.end < journalled_from:
        reading.damages.append(f"messages {reading.end} to {journalled_from - 1} are missing at byte {ends_at}")
    elif ends_at < segment.size:
        reading.torn = segment.size - ends_at
    return reading


def _unreadable(
    files: StreamFiles, segment: Segment, places: list[ChunkPlace]
) -> Iterator[tuple[ChunkPlace, StreamDamaged]]:
    for place in places:
        try:
            files.read(segment, place)
        except StreamDamaged as error:
            yield place, error


def payloads(files: StreamFiles) -> Iterator[tuple[Segment, ChunkPlace, bytes]]:
    """Yield the sound chunks of files that `find` found, in order."""
    for segment in files.segments:
        files.look_into(segment)
        for place in segment.places or []:
            try:
                payload = files.read(segment, place)
            except StreamDamaged:
                continue
            assert payload is not None
            yield segment, place, payload
