"""The native files of one stream: chunks of messages, appended in the order of their offsets.

    <directory>/<first offset, 20 digits>.lvs

A file has the journal's format (format.py): a header, then batches; each batch is a chunk, and its number is the offset
of its first message + 1. All numbers in it are big-endian:

    chunk    first offset i64 | count u32 | first time i64 | last time i64 | length of digest u16 | digest | payload

Times are arrival times in µs. The store does not interpret digest and payload. A file's number is that of its first
chunk. The heads of the chunks are the index: they are read when a file is first used.

Only the newest file grows, by one write and one sync at a time, and the journal drops its records of what is here. So
after a crash only messages that the journal still has can be torn; a torn chunk is cut. Anything else that cannot be
read is damage: it stays as it is, and if it hides what follows, a new file begins behind it. Retention removes whole
files, oldest first, never the newest.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leveret.store.disk import Disk, DiskFile
from leveret.store.format import (
    BATCH_HEADER_SIZE,
    DATA_START,
    FileHeader,
    is_batch,
    new_header,
    pack_batch,
    read_batch,
    read_header,
)
from leveret.store.salvage import UNFINISHED_SUFFIX, write_whole

SEGMENT_OCTETS_DEFAULT = 500_000_000
# the most that one call of `append` should write
APPEND_OCTETS_MAX = 16 << 20
# larger payloads are read on a thread that may take its time, and are not copied
LARGE_OCTETS = 4 << 20
# later than any message
TIME_US_MAX = 1 << 62
_NAME = re.compile(r"(\d{20})\.lvs")
_HEAD = struct.Struct(">qIqqH")
_BATCH = struct.Struct("<IIQ")


class StreamDamaged(Exception):
    """A chunk cannot be read back as it was written. `offset` is that of its first message."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path}, message {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk to be written.

    Attributes:
        first: Offset of its first message.
        count: Number of its messages.
        first_us, last_us: Arrival times of its first and last message.
        payload: Bytes, or parts that are joined.
        digest: At most 65,535 bytes that the index keeps in memory.
    """

    first: int
    count: int
    first_us: int
    last_us: int
    payload: bytes | Sequence[bytes]
    digest: bytes = b""

    def pack(self) -> bytes:
        """The chunk as it stands in a batch, without its payload."""
        head = _HEAD.pack(self.first, self.count, self.first_us, self.last_us, len(self.digest))
        return head + self.digest


class ChunkPlace(NamedTuple):
    """A chunk in a file.

    at, octets: position and size of its payload, in bytes; end: the offset after its last message.
    """

    first: int
    end: int
    first_us: int
    last_us: int
    digest: bytes
    at: int
    octets: int


@dataclass(slots=True)
class Segment:
    """One file of a stream.

    Attributes:
        first, end: Its range of offsets, as far as its chunks are known. If `places` is None, `end` is where the next
            file begins.
        size: In bytes.
        places: Its chunks, None if its index was not read yet.
        is_checked: First offsets of the chunks whose checksum was verified.
    """

    first: int
    end: int
    size: int
    header: FileHeader | None = None
    places: list[ChunkPlace] | None = None
    is_checked: set[int] = field(default_factory=set)


class Appended(NamedTuple):
    """The result of one `append`: the changed segments, with their new sizes and places."""

    segments: tuple[Segment, ...]


class StreamFiles:
    """The files of one stream in `directory`, which is made when there is something to write.

    `append` and `remove` may run on one thread while `read` runs on another: the index changes only by `appended` and
    `dropped`, on the reader's thread. Every method raises OSError if the system refuses.
    """

    def __init__(self, disk: Disk, directory: str, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self.directory = directory
        self.segments: list[Segment] = []  # oldest first
        self._disk = disk
        self._random_bytes = random_bytes
        self._oldest = (-1, 0)  # first offset of the oldest file, and the arrival time of that message

    # -- overview ------------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The offset of the oldest message in the files, 0 if there are none."""
        return self.segments[0].first if self.segments else 0

    @property
    def end(self) -> int:
        """The offset after the newest message in the files, 0 if there are none."""
        return self.segments[-1].end if self.segments else 0

    @property
    def octets(self) -> int:
        """The size of all files, in bytes."""
        return sum(segment.size for segment in self.segments)

    def path(self, first: int) -> str:
        """The path of the file that begins with this offset."""
        return os.path.join(self.directory, f"{first:020d}.lvs")

    def recover(self, journalled_from: int) -> None:
        """Find the files, cut what a crash left half written, and sync what may be in the page cache only.

        journalled_from: the journal may have messages from this offset on; earlier ones were on the medium once.
        """
        for name in self._names():
            if name.endswith(UNFINISHED_SUFFIX):
                self._disk.remove(os.path.join(self.directory, name))
        self.find()
        if self.segments:
            self._recover_newest(self.segments[-1], journalled_from)

    def find(self) -> None:
        """Find the files without changing them, for readers that do not own them: the newest may be growing."""
        firsts = [int(match[1]) for match in map(_NAME.fullmatch, self._names()) if match]
        self.segments = [
            Segment(first, following, self._disk.size(self.path(first)))
            for first, following in zip(firsts, [*firsts[1:], -1], strict=False)
        ]

    def _names(self) -> list[str]:
        try:
            return self._disk.list_names(self.directory)
        except FileNotFoundError:
            return []

    def _recover_newest(self, segment: Segment, journalled_from: int) -> None:
        file = self._disk.open(self.path(segment.first))
        try:
            self._index(file, segment)
            assert segment.places is not None
            for index, place in enumerate(segment.places):
                if place.end > journalled_from and not self._is_sound(file, segment, place):
                    del segment.places[index:]
                    break
            size = segment.places[-1].at + segment.places[-1].octets if segment.places else DATA_START
            segment.end = segment.places[-1].end if segment.places else segment.first
            if size < segment.size and segment.end >= journalled_from and segment.header is not None:
                file.truncate(size)
                segment.size = size
            file.sync()
        finally:
            file.close()
        self._disk.sync_directory(self.directory)

    def _index(self, file: DiskFile, segment: Segment) -> None:
        """Read a file's header and the heads of its chunks; without a sound header it has no chunks."""
        segment.header = read_header(file.read(0, DATA_START), segment.first, self.path(segment.first))
        segment.places = list(self._walk(file, segment.header, segment.size)) if segment.header else []

    def _walk(self, file: DiskFile, header: FileHeader, size: int) -> Iterator[ChunkPlace]:
        """Yield the chunks of a file according to their heads, up to the first invalid one."""
        at = DATA_START
        expected = header.number
        while at + BATCH_HEADER_SIZE + _HEAD.size <= size:
            head = file.read(at, BATCH_HEADER_SIZE + _HEAD.size)
            if len(head) < BATCH_HEADER_SIZE + _HEAD.size:
                return
            marker, length, number = _BATCH.unpack_from(head)
            first, count, first_us, last_us, digest_octets = _HEAD.unpack_from(head, BATCH_HEADER_SIZE)
            start = at + BATCH_HEADER_SIZE + _HEAD.size
            end = at + BATCH_HEADER_SIZE + length
            is_whole = start + digest_octets <= end <= size
            if marker != header.marker or first != expected or number != first + 1 or not is_whole:
                return
            digest = file.read(start, digest_octets) if digest_octets else b""
            start += digest_octets
            yield ChunkPlace(first, first + count, first_us, last_us, digest, start, end - start)
            expected = first + count
            at = end

    def _is_sound(self, file: DiskFile, segment: Segment, place: ChunkPlace) -> bool:
        assert segment.header is not None
        start = place.at - _HEAD.size - len(place.digest) - BATCH_HEADER_SIZE
        data = file.read(start, place.at + place.octets - start)
        found = read_batch(memoryview(data), 0, segment.header)
        return found is not None and found[1] == len(data)

    # -- writing -------------------------------------------------------------------------------------------------------

    def append(self, chunks: Sequence[Chunk], segment_octets: int = SEGMENT_OCTETS_DEFAULT) -> Appended:
        """Write chunks behind the newest one; returns the argument for `appended`.

        Everything is on the medium on return. segment_octets: a file that has reached this size gets no further chunk,
        and a new one begins. A new file begins also if messages are missing between the newest chunk and these. After
        an OSError nothing has changed, and the same chunks can be given again.
        """
        changed: list[Segment] = []
        newest = self.segments[-1] if self.segments else None
        left = list(chunks)
        while left:
            if newest is not None and newest.size < segment_octets and newest.header and newest.end == left[0].first:
                newest = self._extend(newest, newest.header, left, segment_octets)
            else:
                newest = self._begin(left, segment_octets)
            changed.append(newest)
        return Appended(tuple(changed))

    def _begin(self, left: list[Chunk], segment_octets: int) -> Segment:
        first = left[0].first
        header = new_header(first, first + 1, self._random_bytes)
        segment = Segment(first, first, DATA_START, header, [])
        parts = self._take(segment, left, segment_octets)
        self._disk.make_directory(self.directory)
        write_whole(self._disk, self.path(first), [header.pack(), *parts])
        self._disk.sync_directory(self.directory)
        return segment

    def _extend(self, before: Segment, header: FileHeader, left: list[Chunk], segment_octets: int) -> Segment:
        file = self._disk.open(self.path(before.first))
        try:
            places = list(before.places or ())
            segment = Segment(before.first, before.end, before.size, header, places, before.is_checked)
            parts = self._take(segment, left, segment_octets)
            file.write(before.size, parts)
            file.sync()
        finally:
            file.close()
        return segment

    def _take(self, segment: Segment, left: list[Chunk], segment_octets: int) -> list[bytes]:
        """Move chunks into a file until it is full; returns the bytes to write."""
        assert segment.header is not None
        assert segment.places is not None
        parts: list[bytes] = []
        while left and left[0].first == segment.end and (segment.size < segment_octets or not parts):
            chunk = left.pop(0)
            head = chunk.pack()
            payload = [chunk.payload] if isinstance(chunk.payload, bytes) else chunk.payload
            batch_header, size = pack_batch(segment.header, chunk.first + 1, [head, *payload])
            parts += [batch_header, head, *payload]
            at = segment.size + BATCH_HEADER_SIZE + len(head)
            segment.end = chunk.first + chunk.count
            segment.size += size
            segment.places.append(
                ChunkPlace(
                    chunk.first, segment.end, chunk.first_us, chunk.last_us, chunk.digest, at, sum(map(len, payload))
                )
            )
        return parts

    def appended(self, result: Appended) -> None:
        """Make what `append` wrote visible to readers."""
        for segment in result.segments:
            if self.segments and self.segments[-1].first == segment.first:
                self.segments[-1] = segment
            else:
                if self.segments:
                    self.segments[-1].end = segment.first
                self.segments.append(segment)

    # -- reading -------------------------------------------------------------------------------------------------------

    def segment_of(self, offset: int) -> Segment | None:
        """The file that contains this offset; the oldest file for older offsets, None for offsets not yet here."""
        if not self.segments or offset >= self.end:
            return None
        index = bisect_right(self.segments, offset, key=lambda segment: segment.first) - 1
        return self.segments[max(0, index)]

    def look_into(self, segment: Segment) -> None:
        """Read the index of a file, unless it is read already: many small reads, a few ms for a full file.

        A damaged index ends at the damage.
        """
        if segment.places is None:
            file = self._disk.open(self.path(segment.first))
            try:
                self._index(file, segment)
            finally:
                file.close()

    def place_of(self, segment: Segment, offset: int) -> ChunkPlace | None:
        """The chunk of a file that contains this offset, its first one for older offsets; None if it is lost to damage.
        """
        self.look_into(segment)
        assert segment.places is not None
        index = max(0, bisect_right(segment.places, offset, key=lambda place: place.first) - 1)
        found = segment.places[index] if segment.places else None
        return found if found is not None and offset < found.end else None

    def read(self, segment: Segment, place: ChunkPlace, is_cached: bool = False) -> bytes | None:
        """The payload of a chunk. is_cached: only if the system has it in memory, else None.

        StreamDamaged if it is not what was written; each chunk's checksum is verified once.
        """
        is_new = place.first not in segment.is_checked
        start = place.at - (_HEAD.size + len(place.digest) + BATCH_HEADER_SIZE if is_new else 0)
        length = place.at + place.octets - start
        path = self.path(segment.first)
        if place.octets > LARGE_OCTETS and not is_cached:
            return self._read_large(segment, place, start if is_new else place.at)
        data = self._disk.read_cached(path, start, length) if is_cached else self._disk.read(path, start, length)
        if data is None or not is_new:
            return data
        assert segment.header is not None
        found = read_batch(memoryview(data), 0, segment.header)
        if found is None or found[1] != length:
            raise StreamDamaged(path, place.first, f"a chunk of {place.octets} bytes with a wrong checksum")
        segment.is_checked.add(place.first)
        return data[place.at - start :]

    def _read_large(self, segment: Segment, place: ChunkPlace, start: int) -> bytes:
        """Read a payload without copying it. start: where its batch begins, or the payload if it was verified before.
        """
        path = self.path(segment.first)
        payload = self._disk.read(path, place.at, place.octets)
        if start < place.at:
            head = self._disk.read(path, start, place.at - start)
            assert segment.header is not None
            if not is_batch(head[:BATCH_HEADER_SIZE], [head[BATCH_HEADER_SIZE:], payload], segment.header):
                raise StreamDamaged(path, place.first, f"a chunk of {place.octets} bytes with a wrong checksum")
            segment.is_checked.add(place.first)
        return payload

    def first_since(self, time_us: int) -> int:
        """The offset of the first chunk that ends at this arrival time or later, or `end`."""
        index = max(0, bisect_left(range(len(self.segments)), time_us, key=self._begins_us) - 1)
        for segment in self.segments[index:]:
            self.look_into(segment)
            assert segment.places is not None
            found = bisect_left(segment.places, time_us, key=lambda place: place.last_us)
            if found < len(segment.places):
                return segment.places[found].first
        return self.end

    def _begins_us(self, index: int) -> int:
        """The arrival time of the first readable message in this file or a later one."""
        for segment in self.segments[index:]:
            self.look_into(segment)
            if segment.places:
                return segment.places[0].first_us
        return TIME_US_MAX

    def oldest_us(self) -> int:
        """When the oldest message here arrived, or 0, or it cannot be read."""
        if not self.segments:
            return 0
        segment = self.segments[0]
        if segment.places is None and self._oldest[0] != segment.first:
            with contextlib.suppress(OSError):
                self._oldest = (segment.first, self._first_us(segment))
        if segment.places is None:
            return self._oldest[1] if self._oldest[0] == segment.first else 0
        return segment.places[0].first_us if segment.places else 0

    def _first_us(self, segment: Segment) -> int:
        """The arrival time of a file's first message, reading only the first head of its index."""
        file = self._disk.open(self.path(segment.first))
        try:
            header = read_header(file.read(0, DATA_START), segment.first, self.path(segment.first))
            return next((place.first_us for place in self._walk(file, header, segment.size)), 0) if header else 0
        finally:
            file.close()

    def newest_us(self) -> int:
        """When the newest message here arrived, or 0."""
        places = self.segments[-1].places if self.segments else None
        return places[-1].last_us if places else 0

    def ended_before(self, segment: Segment, time_us: int) -> bool:
        """Whether the last message of a file arrived before this time."""
        if time_us <= 0:
            return False
        self.look_into(segment)
        return not segment.places or segment.places[-1].last_us < time_us

    # -- removal -------------------------------------------------------------------------------------------------------

    def dropped(self, count: int) -> list[int]:
        """Forget the oldest files; returns their numbers, which `remove` takes."""
        gone = [segment.first for segment in self.segments[:count]]
        del self.segments[:count]
        return gone

    def remove(self, firsts: Sequence[int]) -> None:
        """Delete files, oldest first, so that after a crash no older file exists than one that is missing."""
        for first in firsts:
            self._disk.remove(self.path(first))
            self._disk.sync_directory(self.directory)
