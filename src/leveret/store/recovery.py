"""Reads the journal after any kind of end: cuts what is torn, reports and sets aside what is damaged.

Damage never stops the broker. The damaged file is copied to `salvage/` as it was found, and replaced by one with its
sound batches and a tombstone for what is missing, so that the same damage is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leveret.store.disk import Disk
from leveret.store.format import FileHeader, new_header, pack_batch
from leveret.store.reading import Damage, FileReading, JournalReader
from leveret.store.salvage import set_aside, write_whole


@dataclass(slots=True)
class RecoveryReport:
    """What replaying the journal has found. Sizes and offsets are in bytes."""

    files: int = 0
    batches: int = 0
    bytes_cut: int = 0
    cut_file: str = ""
    cut_offset: int = 0
    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was cut, damaged or left unfinished."""
        return not (self.bytes_cut or self.damages or self.notes)

    def lines(self) -> list[str]:
        """One sentence per finding that an operator should see."""
        found = [
            f"{damage.what}; the file as found is kept as {damage.salvaged_to}"
            if damage.salvaged_to
            else f"{damage.what}; no copy could be made"
            for damage in self.damages
        ]
        if self.bytes_cut:
            found.append(
                f"{self.cut_file}: cut {self.bytes_cut} bytes of an unfinished batch at byte {self.cut_offset}; "
                "nothing in it had been confirmed"
            )
        return found + self.notes


class Tail(NamedTuple):
    """Where writing continues.

    Attributes:
        path: The last file.
        size: Its sound size, in bytes.
        torn: Bytes of a torn batch that follow.
        last_batch: Its last sound batch, which begins at last_batch_offset.
    """

    path: str
    header: FileHeader
    size: int
    torn: int
    last_batch: bytes
    last_batch_offset: int


class JournalRecovery:
    """One pass over the files of a journal, oldest first."""

    def __init__(self, disk: Disk, directory: str, random_bytes: Callable[[int], bytes]) -> None:
        self.report = RecoveryReport()
        self.next_number = 1
        self.tail: Tail | None = None
        self._disk = disk
        self._directory = directory
        self._random_bytes = random_bytes

    def read(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yield every sound payload of the files with these numbers.

        At the end `next_number` is the number of the next batch, and `tail` says where to continue writing; None if a
        new file is needed. Raises JournalVersionError for a newer format, OSError if a file cannot be opened.
        """
        reader = JournalReader(self._disk, self._directory)
        for file in reader.read(numbers):
            if file.refusal:
                self.report.notes.append(f"{file.path}: {file.refusal}; reading the readable parts")
            self.tail = self._repair(file) if file.damages else _tail(file)
            if file.torn and self.tail is not None and self.tail.torn:
                self.report.bytes_cut = file.torn
                self.report.cut_file = file.path
                self.report.cut_offset = file.found.end
            self.report.files += 1
            self.report.batches += file.found.batches
            for _, _, payload in file.batches():
                yield payload
        self.next_number = reader.next_number

    def _repair(self, file: FileReading) -> Tail | None:
        """Keep a copy of a damaged file and replace it; report the damage."""
        header = file.header or new_header(file.number, file.expected, self._random_bytes)
        header, content = _rebuild(header._replace(first_batch=file.expected), file)
        tail = _tail(file)
        salvaged_to = ""
        try:
            salvaged_to = set_aside(self._disk, file.path, file.data)
            write_whole(self._disk, file.path, [content])
            self._disk.sync_directory(self._directory)
            tail = Tail(file.path, header, len(content), 0, b"", 0)
        except OSError as error:
            self.report.notes.append(f"{file.path}: could not be repaired: {error.strerror or error}")
        self.report.damages += [damage._replace(salvaged_to=salvaged_to) for damage in file.damages]
        return tail


def _tail(file: FileReading) -> Tail | None:
    if file.header is None:
        return None
    found = file.found
    return Tail(
        file.path, file.header, found.end, file.torn, file.data[found.last_batch : found.end], found.last_batch
    )


def _rebuild(header: FileHeader, file: FileReading) -> tuple[FileHeader, bytes]:
    """A header and the sound batches of a file, with a tombstone wherever some are missing."""
    expected = file.expected
    parts = [header.pack()]
    for run in file.found.runs:
        if run.gap and run.first > expected:
            parts.append(pack_batch(header, expected, [])[0])
        parts.append(file.data[run.start : run.end])
        expected = run.last + 1
    if file.is_tail_lost:
        parts.append(pack_batch(header, expected, [])[0])
    return header, b"".join(parts)
