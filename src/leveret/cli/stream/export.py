"""Export of a stream to files: JSON lines or Parquet. An interrupted export resumes after the last complete message."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from leveret.cli.stream.reading import StreamMessage
from leveret.cli.stream.shown import as_line

if TYPE_CHECKING:
    from leveret.cli.stream.parquet import ParquetFile

UNFINISHED: Final = ".unfinished"
# limits of one Parquet file
ROWS_MAX: Final = 250_000
OCTETS_MAX: Final = 128 << 20
_TAIL_OCTETS: Final = 1 << 16
_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.parquet")


class ExportRefused(Exception):
    """The export can't be written there; the text says why."""


class ExportTarget(Protocol):
    """The target of an export. `next_offset` follows the last exported message, or None."""

    next_offset: int | None

    def write(self, message: StreamMessage) -> None:
        """Write one message."""

    def close(self) -> None:
        """End the export. Called after errors, too: complete messages are kept."""


class JsonLines:
    """JSON lines to an open file."""

    def __init__(self, file: TextIO, next_offset: int | None = None) -> None:
        self.next_offset = next_offset
        self._file = file

    def write(self, message: StreamMessage) -> None:
        self._file.write(as_line(message) + "\n")

    def close(self) -> None:
        self._file.flush()


class LinesFile(JsonLines):
    """JSON lines to the file at a path. If resumed, an incomplete last line is removed.

    Raises ExportRefused if the file is not empty and not resumed, or is no export.
    """

    def __init__(self, path: Path, is_resumed: bool) -> None:
        if path.exists() and path.stat().st_size and not is_resumed:
            raise ExportRefused(f"{path} exists: continue after its last message with --resume, or choose another file")
        next_offset = _cut_to_last(path) if path.exists() and path.stat().st_size else None
        self._target = path.open("a", encoding="utf-8")
        super().__init__(self._target, next_offset)

    def close(self) -> None:
        self._target.close()


def _cut_to_last(path: Path) -> int | None:
    """Remove an incomplete last line; return the offset after the last message, or None without lines."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        tail = b""
        while end and tail.count(b"\n") < 2:
            start = max(0, end - _TAIL_OCTETS)
            file.seek(start)
            tail = file.read(end - start) + tail
            end = start
        whole, newline, _ = tail.rpartition(b"\n")
        file.truncate(end + len(whole) + len(newline))
        if not newline:
            return None
        try:
            offset = json.loads(whole.rpartition(b"\n")[2])["offset"]
        except (ValueError, KeyError, TypeError):
            offset = None
        if not isinstance(offset, int):
            raise ExportRefused(f"the last line of {path} is not a stream message")
        return offset + 1


class ParquetDirectory:
    """Files <first>-<last offset>.parquet in a directory; each is renamed to that name when it is complete.

    Raises ExportRefused if there are some and it is not resumed, or if pyarrow is not installed.
    """

    def __init__(self, path: Path, is_resumed: bool) -> None:
        try:
            from leveret.cli.stream.parquet import ParquetFile
        except ImportError as error:
            raise ExportRefused(f"Parquet needs leveret[lake]: {error}") from None
        path.mkdir(parents=True, exist_ok=True)
        ends = [int(match[2]) + 1 for match in map(_NAME.fullmatch, os.listdir(path)) if match]
        if ends and not is_resumed:
            raise ExportRefused(f"{path} has files: continue after their last message with --resume, or choose "
                                "another directory")
        self.next_offset = max(ends, default=None)
        self._path = path
        self._begin = ParquetFile
        self._file: ParquetFile | None = None

    def write(self, message: StreamMessage) -> None:
        if self._file is None:
            self._file = self._begin(self._path / UNFINISHED)
        self._file.add(message)
        if self._file.rows >= ROWS_MAX or self._file.octets >= OCTETS_MAX:
            self.close()

    def close(self) -> None:
        if self._file is not None:
            first, last = self._file.finish()
            os.replace(self._path / UNFINISHED, self._path / f"{first:020d}-{last:020d}.parquet")
            self._file = None
