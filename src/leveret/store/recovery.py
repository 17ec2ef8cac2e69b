"""Reading the journal after whatever happened to it: cut what is torn, report and set aside what is damaged.

Damage never stops the broker. The damaged file is copied to `salvage/` as it was found, and replaced by one with its
sound batches and a tombstone for what is missing, so that the same damage is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from leveret.store.disk import Disk
from leveret.store.format import (
    DATA_START,
    FileHeader,
    Scan,
    new_header,
    pack_batch,
    payloads,
    read_header,
    scan,
)
from leveret.store.salvage import read_readable, set_aside, write_whole


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of a journal file that can't be read. `salvaged_to` is the copy's path, "" where copying failed."""

    file: str
    offset: int
    length: int
    reason: str
    salvaged_to: str = ""

    def __str__(self) -> str:
        where = f"{self.file} at byte {self.offset}"
        kept = f"the file as found is kept as {self.salvaged_to}" if self.salvaged_to else "no copy could be made"
        return f"{where}: {self.reason} ({self.length} bytes); {kept}"


@dataclass(slots=True)
class RecoveryReport:
    """What replaying the journal found. Sizes and offsets in bytes."""

    files: int = 0
    batches: int = 0
    bytes_cut: int = 0
    cut_file: str = ""
    cut_offset: int = 0
    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Nothing was cut, damaged or left unfinished."""
        return not (self.bytes_cut or self.damages or self.notes)

    def lines(self) -> list[str]:
        """One sentence per finding that an operator should see."""
        found = [str(damage) for damage in self.damages]
        if self.bytes_cut:
            found.append(
                f"{self.cut_file}: cut {self.bytes_cut} bytes of an unfinished batch at byte {self.cut_offset}; "
                "nothing in it had been confirmed"
            )
        return found + self.notes


@dataclass(frozen=True, slots=True)
class Tail:
    """Where writing goes on: the last file, its header, its sound size, and its last batch with its offset."""

    path: str
    header: FileHeader
    size: int
    last_batch: bytes
    last_batch_offset: int


class Recovery:
    """One pass over the files of a journal, oldest first."""

    def __init__(self, disk: Disk, directory: str, random_bytes: Callable[[int], bytes]) -> None:
        self.report = RecoveryReport()
        self.next_number = 1
        self.tail: Tail | None = None
        self._disk = disk
        self._directory = directory
        self._random_bytes = random_bytes
        # Batches before a file's first one may be missing where older files were removed, and behind a tombstone.
        self._may_skip = True

    def read(self, files: Sequence[tuple[int, str]]) -> Iterator[bytes]:
        """Yield every sound payload of `files` (number and path, in order).

        At the end `next_number` is the number of the next batch, and `tail` says where to write on (None: nowhere, a
        new file is needed). Raises JournalVersionError for a newer format, OSError where a file can't be opened.
        """
        for number, path in files:
            is_last = path == files[-1][1]
            data = self._read_file(path)
            header = read_header(data, number, path)
            if header is not None and self._may_skip:
                self.next_number = max(self.next_number, header.first_batch)
            found = scan(data, header, self.next_number) if header is not None else Scan()
            is_tail_lost = self._is_tail_lost(header, data, found, is_last)
            damages = _describe(path, data, header, found, is_tail_lost)
            if damages:
                new_life = header or new_header(number, self.next_number, self._random_bytes)
                new_life, content = self._rebuild(new_life, data, found, is_tail_lost)
                is_repaired = self._repair(path, data, content, damages)
                if is_repaired and is_last:
                    self.tail = Tail(path, new_life, len(content), b"", 0)
            if is_last and header is not None and self.tail is None:
                self._set_tail(path, header, data, found)
            self._advance(found, is_tail_lost)
            self.report.files += 1
            self.report.batches += found.batches
            yield from payloads(data, found.runs)

    def _is_tail_lost(self, header: FileHeader | None, data: bytes, found: Scan, is_last: bool) -> bool:
        """Sound batches are missing at the file's end, or instead of all of it."""
        if header is None or len(data) < DATA_START:
            return True
        if not found.runs and header.first_batch > self.next_number:
            return True
        # Only the last file can end in a batch that was never synced: a file is begun after the last sync of the one
        # before.
        return not is_last and found.end < len(data)

    def _read_file(self, path: str) -> bytes:
        data, refusal = read_readable(self._disk, path)
        if refusal:
            self.report.notes.append(f"{path}: {refusal}; reading what is readable of it")
        return data

    def _set_tail(self, path: str, header: FileHeader, data: bytes, found: Scan) -> None:
        self.tail = Tail(path, header, found.end, data[found.last_batch : found.end], found.last_batch)
        if found.end < len(data):
            self.report.bytes_cut = len(data) - found.end
            self.report.cut_file = path
            self.report.cut_offset = found.end

    def _advance(self, found: Scan, is_tail_lost: bool) -> None:
        if found.runs:
            self.next_number = found.runs[-1].last + 1
        if is_tail_lost:
            # The tombstone at the repaired file's end has a number, too.
            self.next_number += 1
        self._may_skip = is_tail_lost or found.last_is_tombstone

    def _rebuild(self, header: FileHeader, data: bytes, found: Scan, is_tail_lost: bool) -> tuple[FileHeader, bytes]:
        """A header and the sound batches of a file, with a tombstone wherever some are missing."""
        expected = self.next_number
        header = replace(header, first_batch=expected)
        parts = [header.pack()]
        for run in found.runs:
            if run.gap and run.first > expected:
                parts.append(pack_batch(header, expected, [])[0])
            parts.append(data[run.start : run.end])
            expected = run.last + 1
        if is_tail_lost:
            parts.append(pack_batch(header, expected, [])[0])
        return header, b"".join(parts)

    def _repair(self, path: str, data: bytes, content: bytes, damages: list[Damage]) -> bool:
        """Keep a copy of a damaged file and replace it; report the damage. False when the disk refused."""
        salvaged_to = ""
        is_repaired = False
        try:
            salvaged_to = set_aside(self._disk, path, data)
            write_whole(self._disk, path, [content])
            self._disk.sync_directory(self._directory)
            is_repaired = True
        except OSError as error:
            self.report.notes.append(f"{path}: could not be repaired now: {error.strerror or error}")
        self.report.damages += [replace(damage, salvaged_to=salvaged_to) for damage in damages]
        return is_repaired


def _describe(path: str, data: bytes, header: FileHeader | None, found: Scan, is_tail_lost: bool) -> list[Damage]:
    if header is None:
        return [Damage(path, 0, len(data), "neither copy of the file header is sound")]
    damages = [Damage(path, start, end - start, "batches with a wrong checksum") for start, end in found.unsound]
    explained = {end for _, end in found.unsound}
    damages += [
        Damage(path, run.start, 0, f"the batches before number {run.first} are missing")
        for run in found.runs
        if run.gap and run.start not in explained
    ]
    if len(data) < DATA_START:
        damages.append(Damage(path, len(data), 0, "the file ends inside its header"))
    elif not found.runs and is_tail_lost and found.end == len(data):
        damages.append(Damage(path, found.end, 0, f"the batches before number {header.first_batch} are missing"))
    elif is_tail_lost:
        damages.append(Damage(path, found.end, len(data) - found.end, "batches with a wrong checksum at the end"))
    return damages
