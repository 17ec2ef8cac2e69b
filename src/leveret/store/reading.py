"""Reads the journal's files in order, without changing them: what is sound, what is missing, what is unfinished.

What stands behind a file's last sound batch proves nothing by itself: it may be room written ahead, or batches of the
file's former life. An older file is complete if its last batch comes just before the first one of the next file, whose
header has the number. In the last file a batch is torn if its marker or its number stands where it would begin.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leveret.store.disk import Disk
from leveret.store.format import DATA_START, FileHeader, Scan, batches, read_header, scan, torn_size
from leveret.store.salvage import read_readable

_FILE_NAME = re.compile(r"journal-(\d{10})\.lvj")


def journal_path(directory: str, number: int) -> str:
    """The path of journal file `number`."""
    return os.path.join(directory, f"journal-{number:010d}.lvj")


def journal_files(names: Sequence[str]) -> list[int]:
    """The numbers of the journal files among the names of a directory, oldest first."""
    return sorted(int(match[1]) for match in map(_FILE_NAME.fullmatch, names) if match)


class Damage(NamedTuple):
    """A stretch of a journal file that cannot be read. `salvaged_to` is the copy's path, "" if there is no copy."""

    file: str
    offset: int
    length: int
    reason: str
    salvaged_to: str = ""

    @property
    def what(self) -> str:
        """Where the damage is and what it is."""
        return f"{self.file} at byte {self.offset}: {self.reason} ({self.length} bytes)"


class FileReading(NamedTuple):
    """The contents of one file.

    Attributes:
        expected: The number that its first batch should have.
        torn: Bytes of an unfinished batch behind the sound ones, in the last file only.
        refusal: The system's error for sectors that it could not read, or "".
    """

    number: int
    path: str
    data: bytes
    header: FileHeader | None
    expected: int
    found: Scan
    is_tail_lost: bool
    torn: int
    damages: list[Damage]
    refusal: str

    def batches(self) -> Iterator[tuple[int, int, bytes]]:
        """(number, offset, payload) of the sound batches, in order."""
        return batches(self.data, self.found.runs)


class JournalReader:
    """One pass over the files of a journal, oldest first."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.next_number = 1  # of the batch after those read so far
        self._disk = disk
        self._directory = directory
        # batches before a file's first one may be missing where older files were removed, and behind a tombstone
        self._may_skip = True

    def read(self, numbers: Sequence[int]) -> Iterator[FileReading]:
        """Read these files.

        JournalVersionError, before anything is read, if one has a newer format; OSError if one cannot be opened.
        """
        paths = [journal_path(self._directory, number) for number in numbers]
        headers = [_read_header(self._disk, path, number) for path, number in zip(paths, numbers, strict=True)]
        for index, number in enumerate(numbers):
            is_last = index + 1 == len(numbers)
            is_followed = not is_last and numbers[index + 1] == number + 1
            yield self._read_file(number, headers[index], is_last, headers[index + 1] if is_followed else None)

    def _read_file(
        self, number: int, header: FileHeader | None, is_last: bool, following: FileHeader | None
    ) -> FileReading:
        path = journal_path(self._directory, number)
        data, refusal = read_readable(self._disk, path)
        if header is not None and self._may_skip:
            self.next_number = max(self.next_number, header.first_batch)
        expected = self.next_number
        found = scan(data, header, expected) if header is not None else Scan()
        if found.runs:
            self.next_number = found.runs[-1].last + 1
        torn = torn_size(data, found.end, header, self.next_number) if header is not None else 0
        loss = _loss_at_start(path, data, header, found, expected)
        # only the last file can end in a batch that was never synced: a file is begun after the last sync of the one
        # before
        if loss is None and not is_last and not found.last_is_tombstone:
            loss = _loss_at_end(path, found, torn, self.next_number, following)
        # the tombstone at the repaired file's end has a number, too
        self.next_number += loss is not None
        self._may_skip = loss is not None or found.last_is_tombstone
        damages = [*_damages_inside(path, found), *([loss] if loss is not None else [])]
        return FileReading(
            number, path, data, header, expected, found, loss is not None, torn if is_last else 0, damages, refusal
        )


def read_segment(disk: Disk, path: str, number: int) -> FileReading:
    """Read all pages of a segment, which was synced whole before it had its name.

    Raises as `JournalReader.read` does.
    """
    header = _read_header(disk, path, number)
    data, refusal = read_readable(disk, path)
    found = scan(data, header, 1) if header is not None else Scan()
    loss = _loss_at_start(path, data, header, found, 1)
    if loss is None and found.end < len(data):
        loss = Damage(path, found.end, len(data) - found.end, "pages with a wrong checksum at the end")
    damages = [*_damages_inside(path, found), *([loss] if loss is not None else [])]
    return FileReading(number, path, data, header, 1, found, loss is not None, 0, damages, refusal)


def _read_header(disk: Disk, path: str, number: int) -> FileHeader | None:
    try:
        data = disk.read(path, 0, DATA_START)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        data = read_readable(disk, path)[0]
    return read_header(data, number, path)


def _damages_inside(path: str, found: Scan) -> list[Damage]:
    """What is damaged or missing before sound batches."""
    damages = [Damage(path, start, end - start, "batches with a wrong checksum") for start, end in found.unsound]
    explained = {end for _, end in found.unsound}
    return damages + [
        Damage(path, run.start, 0, f"the batches before number {run.first} are missing")
        for run in found.runs
        if run.gap and run.start not in explained
    ]


def _loss_at_start(path: str, data: bytes, header: FileHeader | None, found: Scan, expected: int) -> Damage | None:
    """The damage if nothing of the file is readable, or if it is empty and begins later than it should."""
    if header is None:
        return Damage(path, 0, len(data), "neither copy of the file header is sound")
    if len(data) < DATA_START:
        return Damage(path, len(data), 0, "the file ends inside its header")
    if not found.runs and header.first_batch > expected:
        return Damage(path, found.end, 0, f"the batches before number {header.first_batch} are missing")
    return None


def _loss_at_end(path: str, found: Scan, torn: int, next_number: int, following: FileHeader | None) -> Damage | None:
    """The damage if batches are missing at the end of an older file, which was complete when the next one was begun.

    Without the next file's header, only an unsound batch that begins there shows it.
    """
    if following is not None and following.first_batch <= next_number:
        return None
    if torn:
        return Damage(path, found.end, torn, "batches with a wrong checksum at the end")
    if following is not None:
        return Damage(path, found.end, 0, f"the batches before number {following.first_batch} are missing")
    return None
