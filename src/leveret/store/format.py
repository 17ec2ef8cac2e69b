"""The journal's bytes: file headers, batches, and how sound ones are told from everything else.

A file is a header block and then batches back to back. All numbers are little-endian.

    file header     magic "LEVERET1" | version u16 | 0 u16 | number u64 | first batch u64 | generation u64 | crc32 u32
    batch           marker u32 | length u32 | number u64 | crc32 u32 | payload (length bytes)

The header is stored twice, at 0 and at 4,096, so that one bad sector cannot make a whole file unreadable.

`generation` is drawn at random for each life of a file. Its upper half is the marker that every batch of this life
starts with, its lower half the start value of the batches' checksums. So the batches of a recycled file's former life
do not count, and a publisher cannot smuggle in records: a message that contains the bytes of a batch would have to
guess 64 random bits.

A file may be longer than its batches: room is written ahead, and a recycled file has the size of its former life.

Batches are numbered from 1 without gaps through all files, one sync each: a batch is written only when the one before
is on the medium. Therefore an unsound batch at the very end was never confirmed to anyone, while one that is followed
by sound ones was, and its loss is damage. A batch without payload is a tombstone: the numbers from its own up to the
next batch's were lost, and that was reported when the file was repaired.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

FORMAT_VERSION = 1
MAGIC = b"LEVERET1"
DATA_START = 8192
BATCH_HEADER_SIZE = 20
PAYLOAD_SIZE_MAX = 0xFFFF_FFFF

_HEADER_COPIES = (0, 4096)
_FILE_HEADER = struct.Struct("<8sHHQQQ")
_BATCH_HEADER = struct.Struct("<IIQ")
_CHECKSUM = struct.Struct("<I")


class JournalVersionError(Exception):
    """The journal was written by a newer leveret; serving it with this one could destroy what it cannot read."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(
            f"{path} has journal format {version}, but this version of leveret supports formats up to "
            f"{FORMAT_VERSION}: start the version that wrote it, or a newer one"
        )
        self.path = path
        self.version = version


class FileHeader(NamedTuple):
    """Identifies a journal file.

    Attributes:
        number: Its place in the order of files.
        first_batch: The number of its first batch, which may be still to come.
        generation: Random number of its present life.
    """

    number: int
    first_batch: int
    generation: int
    version: int = FORMAT_VERSION

    @property
    def marker(self) -> int:
        """The first four bytes of every batch of this file, as a number."""
        return self.generation >> 32

    @property
    def seed(self) -> int:
        """The start value of the checksums of this file's batches."""
        return self.generation & 0xFFFF_FFFF

    def pack(self) -> bytes:
        """The header block: DATA_START bytes."""
        fields = _FILE_HEADER.pack(MAGIC, self.version, 0, self.number, self.first_batch, self.generation)
        header = fields + _CHECKSUM.pack(zlib.crc32(fields))
        block = bytearray(DATA_START)
        for offset in _HEADER_COPIES:
            block[offset : offset + len(header)] = header
        return bytes(block)


def new_header(number: int, first_batch: int, random_bytes: Callable[[int], bytes]) -> FileHeader:
    """A header for a new life of a file. A marker of 0 is never drawn: zeroed space must not look like a batch."""
    generation = int.from_bytes(random_bytes(8), "little")
    while generation >> 32 == 0:
        generation = int.from_bytes(random_bytes(8), "little")
    return FileHeader(number, first_batch, generation)


def read_header(data: bytes, number: int, path: str) -> FileHeader | None:
    """Read the header of file `number` from its bytes `data`, from either copy; None if neither is sound.

    Raises JournalVersionError for a sound header of a newer format.
    """
    for offset in _HEADER_COPIES:
        fields = data[offset : offset + _FILE_HEADER.size]
        checksum = data[offset + _FILE_HEADER.size :][: _CHECKSUM.size]
        if len(checksum) < _CHECKSUM.size or _CHECKSUM.unpack(checksum)[0] != zlib.crc32(fields):
            continue
        magic, version, _, own_number, first_batch, generation = _FILE_HEADER.unpack(fields)
        if magic != MAGIC:
            continue
        if version > FORMAT_VERSION:
            raise JournalVersionError(path, version)
        if own_number == number:
            return FileHeader(own_number, first_batch, generation, version)
    return None


def pack_batch(header: FileHeader, number: int, parts: Sequence[bytes]) -> tuple[bytes, int]:
    """The header of batch `number` with payload `parts`, and the size of the whole batch in bytes."""
    length = sum(map(len, parts))
    if length > PAYLOAD_SIZE_MAX:
        raise ValueError(f"a batch holds at most {PAYLOAD_SIZE_MAX} bytes, not {length}")
    fields = _BATCH_HEADER.pack(header.marker, length, number)
    checksum = zlib.crc32(fields, header.seed)
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return fields + _CHECKSUM.pack(checksum), BATCH_HEADER_SIZE + length


def read_batch(view: memoryview, offset: int, header: FileHeader) -> tuple[int, int] | None:
    """(number, end offset) of the sound batch at `offset`, or None."""
    start = offset + BATCH_HEADER_SIZE
    if start > len(view):
        return None
    marker, length, number = _BATCH_HEADER.unpack_from(view, offset)
    end = start + length
    if marker != header.marker or end > len(view):
        return None
    (checksum,) = _CHECKSUM.unpack_from(view, offset + _BATCH_HEADER.size)
    computed = zlib.crc32(view[start:end], zlib.crc32(view[offset : offset + _BATCH_HEADER.size], header.seed))
    return (number, end) if checksum == computed else None


def is_batch(batch_header: bytes, parts: Sequence[bytes], header: FileHeader) -> bool:
    """Whether these are the header and the payload, in parts, of a sound batch."""
    if len(batch_header) < BATCH_HEADER_SIZE:
        return False
    number: int = _BATCH_HEADER.unpack_from(batch_header)[2]
    return pack_batch(header, number, parts)[0] == batch_header


def torn_size(data: bytes, offset: int, header: FileHeader, number: int) -> int:
    """How many bytes at `offset` belong to batch `number`, which is not sound; 0 if it does not begin there.

    A matching marker or number is enough, so that a few damaged bytes do not hide it: batches of a former life have
    neither. The size is only as reliable as the batch's own length.
    """
    head = data[offset : offset + _BATCH_HEADER.size]
    rest = len(data) - offset
    if len(head) < _BATCH_HEADER.size:
        return rest if head and _CHECKSUM.pack(header.marker).startswith(head[: _CHECKSUM.size]) else 0
    marker, length, own_number = _BATCH_HEADER.unpack(head)
    return min(BATCH_HEADER_SIZE + length, rest) if marker == header.marker or own_number == number else 0


class BatchSpan(NamedTuple):
    """Sound batches back to back in `start:end`, numbered `first` to `last`.

    `gap` says that batches are missing before the run which no tombstone accounts for.
    """

    start: int
    end: int
    first: int
    last: int
    gap: bool


@dataclass(slots=True)
class Scan:
    """What a file contains.

    Attributes:
        runs: Runs of sound batches, in order.
        unsound: The stretches between them, (start, end).
        end: Where the last run ends.
        last_batch: Where the last sound batch begins.
        batches: How many sound batches there are, without tombstones.
    """

    runs: list[BatchSpan] = field(default_factory=list)
    unsound: list[tuple[int, int]] = field(default_factory=list)
    end: int = DATA_START
    last_batch: int = DATA_START
    batches: int = 0
    last_is_tombstone: bool = False


def scan(data: bytes, header: FileHeader, expected: int) -> Scan:
    """Find every sound batch of a file, the first of which should be number `expected`.

    What follows the last sound batch is not in `unsound`: it may be a torn batch, damage, room written ahead or the
    file's former life; reading.py decides which.
    """
    result = Scan()
    view = memoryview(data)
    marker = _CHECKSUM.pack(header.marker)
    last = expected - 1
    is_after_tombstone = False
    offset = DATA_START
    while True:
        found = read_batch(view, offset, header)
        if found is None or found[0] <= last:
            # resynchronise at the next place where a sound batch of this life begins
            offset = data.find(marker, offset + 1)
            if offset < 0:
                return result
            continue
        number, end = found
        if offset > result.end:
            result.unsound.append((result.end, offset))
        gap = offset > result.end or (not is_after_tombstone and number != last + 1)
        if gap or not result.runs:
            result.runs.append(BatchSpan(offset, end, number, number, gap))
        else:
            run = result.runs[-1]
            result.runs[-1] = BatchSpan(run.start, end, run.first, number, run.gap)
        is_after_tombstone = end - offset == BATCH_HEADER_SIZE
        result.last_is_tombstone = is_after_tombstone
        result.batches += not is_after_tombstone
        result.last_batch, result.end = offset, end
        last, offset = number, end


def batches(data: bytes, runs: Sequence[BatchSpan]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number, offset, payload) of the batches in `runs`, in order, without the tombstones."""
    for run in runs:
        offset = run.start
        while offset < run.end:
            _, length, number = _BATCH_HEADER.unpack_from(data, offset)
            end = offset + BATCH_HEADER_SIZE + length
            if length:
                yield number, offset, data[offset + BATCH_HEADER_SIZE : end]
            offset = end
