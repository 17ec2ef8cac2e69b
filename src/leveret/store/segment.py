"""Segments: pages of long queues, in files of the journal's format, in a directory of their own.

A segment is written once, whole, and never changed: its header, then one batch per page, numbered from 1. The store
does not interpret pages. Their writer keeps the (offset, length) of each page, so reading one is a single pread; the
batch header before the page has the checksum that tells whether it is still what was written.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Sequence

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
from leveret.store.salvage import UNFINISHED_SUFFIX, read_readable, set_aside, write_whole

OPEN_FILES_MAX = 64
_FILE_NAME = re.compile(r"segment-(\d{10})\.lvs")
_UNFINISHED_NAME = re.compile(_FILE_NAME.pattern + re.escape(UNFINISHED_SUFFIX))


def segment_path(directory: str, number: int) -> str:
    """The path of segment `number`."""
    return os.path.join(directory, f"segment-{number:010d}.lvs")


def segment_files(names: Sequence[str]) -> list[int]:
    """The numbers of the segments among the names of a directory, ascending."""
    return sorted(int(match[1]) for match in map(_FILE_NAME.fullmatch, names) if match)


class SegmentDamaged(Exception):
    """A page cannot be read back as it was written. `offset` is the page's, in bytes from the file's start."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path} at byte {offset}: {reason}")
        self.path = path
        self.offset = offset


class SegmentStore:
    """A directory of segments, created if it is missing; what a crash left half made is removed.

    Segments may be written and removed on one thread while another reads. Every method raises OSError if the system
    refuses; a segment whose writing failed does not exist.
    """

    def __init__(self, disk: Disk, directory: str, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._disk = disk
        self._directory = directory
        self._random_bytes = random_bytes
        # the most recently read segments, each with an open file and its header; the least recently used one comes
        # first
        self._open: dict[int, tuple[DiskFile, FileHeader]] = {}
        self._lock = threading.Lock()
        self._copies: dict[int, str] = {}
        disk.make_directory(directory)
        for name in disk.list_names(directory):
            if _UNFINISHED_NAME.fullmatch(name):
                disk.remove(os.path.join(directory, name))

    def path(self, number: int) -> str:
        """The path of segment `number`."""
        return segment_path(self._directory, number)

    def numbers(self) -> list[int]:
        """The numbers of the existing segments, ascending."""
        return segment_files(self._disk.list_names(self._directory))

    def write(self, number: int, pages: Sequence[bytes | Sequence[bytes]]) -> list[tuple[int, int]]:
        """Make segment `number` of these pages, each whole or in pieces; returns (offset, length) of each, in bytes.

        No page may be empty. Everything is on the medium on return. An existing segment of this number is replaced.
        """
        header = new_header(number, 1, self._random_bytes)
        parts = [header.pack()]
        places = []
        offset = DATA_START
        for batch_number, page in enumerate(pages, 1):
            pieces = [page] if isinstance(page, bytes) else page
            batch_header, size = pack_batch(header, batch_number, pieces)
            if size == BATCH_HEADER_SIZE:
                raise ValueError("a page has content; a batch without any would be a tombstone")
            parts += [batch_header, *pieces]
            places.append((offset + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE))
            offset += size
        write_whole(self._disk, self.path(number), parts)
        self._disk.sync_directory(self._directory)
        self._forget(number)
        return places

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Read one page, at the place that `write` returned. SegmentDamaged if it, or its file, is damaged."""
        start = offset - BATCH_HEADER_SIZE
        try:
            with self._lock:
                file, header = self._find(number, offset)
                data = file.read(start, BATCH_HEADER_SIZE + length)
        except OSError as error:
            if error.errno not in {errno.EIO, errno.ENOENT}:
                raise
            raise SegmentDamaged(self.path(number), offset, error.strerror or str(error)) from error
        found = read_batch(memoryview(data), 0, header)
        if found is None or found[1] != BATCH_HEADER_SIZE + length:
            raise SegmentDamaged(self.path(number), offset, f"a page of {length} bytes with a wrong checksum")
        return data[BATCH_HEADER_SIZE:]

    def read_pieces(
        self, number: int, offset: int, length: int, head: int, cut: Callable[[bytes], list[int]]
    ) -> list[bytes]:
        """Read a large page, on any thread; concurrent reads of other pages do not wait for it.

        `cut` is given the first `head` bytes, and returns where to cut the page, so that no piece has to be copied.
        """
        path = self.path(number)
        file = self._disk.open(path)
        try:
            header = read_header(file.read(0, DATA_START), number, path)
            batch_header = file.read(offset - BATCH_HEADER_SIZE, BATCH_HEADER_SIZE)
            pieces: list[bytes] = []
            at = 0
            for stop in [*cut(file.read(offset, head)), length]:
                if at < stop <= length:
                    pieces.append(file.read(offset + at, stop - at))
                    at = stop
        finally:
            file.close()
        if header is None or not is_batch(batch_header, pieces, header):
            raise SegmentDamaged(path, offset, f"a page of {length} bytes with a wrong checksum")
        return pieces

    def remove(self, number: int) -> None:
        """Delete a segment. After a crash it may be back, so the owner's own records decide whether it counts."""
        self._forget(number)
        self._disk.remove(self.path(number))

    def detach(self, number: int) -> tuple[DiskFile, int]:
        """Delete a segment's name, as `remove` does; returns its file, and its size in bytes.

        The space becomes free when the file is truncated or closed.
        """
        path = self.path(number)
        size = self._disk.size(path)
        file = self._disk.open(path)
        try:
            self.remove(number)
        except OSError:
            file.close()
            raise
        return file, size

    def set_aside(self, number: int) -> str:
        """Keep a copy of a damaged segment in `salvage/`, once in the life of this object; returns the copy's path."""
        if number not in self._copies:
            path = self.path(number)
            self._copies[number] = set_aside(self._disk, path, read_readable(self._disk, path)[0])
        return self._copies[number]

    def close(self) -> None:
        """Close the open files."""
        for number in list(self._open):
            self._forget(number)

    def _find(self, number: int, offset: int) -> tuple[DiskFile, FileHeader]:
        found = self._open.pop(number, None)
        if found is None:
            path = self.path(number)
            file = self._disk.open(path)
            try:
                header = read_header(file.read(0, DATA_START), number, path)
                if header is None:
                    raise SegmentDamaged(path, offset, "neither copy of the file header is sound")
            except BaseException:
                file.close()
                raise
            found = file, header
            if len(self._open) >= OPEN_FILES_MAX:
                oldest = next(iter(self._open))
                self._open.pop(oldest)[0].close()
        self._open[number] = found
        return found

    def _forget(self, number: int) -> None:
        with self._lock:
            found = self._open.pop(number, None)
        if found is not None:
            found[0].close()
