"""Inspects a data directory from outside, without changing a byte: the basis of `leveret store`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from leveret.store.disk import Disk
from leveret.store.reading import FileReading, JournalReader, journal_files, read_segment
from leveret.store.salvage import SALVAGE_DIRECTORY, UNFINISHED_SUFFIX
from leveret.store.segment import segment_files, segment_path
from leveret.store.spares import is_spare
from leveret.store.stream_files import StreamFiles

JOURNAL_DIRECTORY = "journal"
SEGMENT_DIRECTORY = "segments"
STREAM_DIRECTORY = "streams"


class NoDataDirectory(Exception):
    """The directory has no journal."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not a data directory: it has no {JOURNAL_DIRECTORY}/ with journal files")


class Inspection:
    """The files of a data directory. NoDataDirectory if it has no journal, OSError if they cannot be listed."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._journal = os.path.join(path, JOURNAL_DIRECTORY)
        self._segments = os.path.join(path, SEGMENT_DIRECTORY)
        self._streams = os.path.join(path, STREAM_DIRECTORY)
        if not journal_files(self._names(self._journal)):
            raise NoDataDirectory(path)

    def journal(self) -> Iterator[FileReading]:
        """Read the journal's files, oldest first. Raises as `JournalReader.read` does."""
        return JournalReader(self._disk, self._journal).read(journal_files(self._names(self._journal)))

    def segments(self) -> Iterator[FileReading]:
        """Read the segments. Raises as `read_segment` does."""
        for number in segment_files(self._names(self._segments)):
            yield read_segment(self._disk, segment_path(self._segments, number), number)

    def streams(self) -> Iterator[tuple[int, StreamFiles]]:
        """Yield each stream that has files: its number, and its files after `find`."""
        for number in sorted(int(name) for name in self._names(self._streams) if name.isdecimal()):
            files = StreamFiles(self._disk, os.path.join(self._streams, str(number)))
            files.find()
            yield number, files

    def others(self) -> list[tuple[str, str]]:
        """(path, description) of the files that contain no messages in use."""
        found = []
        streams = [os.path.join(self._streams, name) for name in self._names(self._streams)]
        for directory in (self._journal, self._segments, *streams):
            for name in self._names(directory):
                path = os.path.join(directory, name)
                if is_spare(name):
                    found.append((path, f"a spare file of {self._disk.size(path)} bytes"))
                elif name.endswith(UNFINISHED_SUFFIX):
                    found.append((path, "unfinished; the next start removes it"))
                elif name == SALVAGE_DIRECTORY:
                    copies = self._names(path)
                    found += [(os.path.join(path, copy), "a damaged file, kept as it was found") for copy in copies]
        return found

    def _names(self, directory: str) -> list[str]:
        try:
            return self._disk.list_names(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
