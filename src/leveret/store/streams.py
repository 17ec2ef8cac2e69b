"""The directory of all streams' files: one sub-directory for each, named by the stream's number."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from leveret.store.disk import Disk
from leveret.store.stream_files import StreamFiles
from leveret.store.tables import TABLES_DIRECTORY, Extent, remove_strays, remove_tables, sealed_end, stream_directory


class StreamStore:
    """The files and tables of all streams. Methods raise OSError if the system refuses.

    `directory` is created with the first file in it. tables_dir: where the streams' tables are, "" = in a directory of
    its own beside this one.
    """

    def __init__(
        self, disk: Disk, directory: str, random_bytes: Callable[[int], bytes] = os.urandom, tables_dir: str = ""
    ) -> None:
        self.tables_dir = tables_dir or os.path.join(os.path.dirname(directory), TABLES_DIRECTORY)
        self._disk = disk
        self._directory = directory
        self._random_bytes = random_bytes

    def path(self, number: int) -> str:
        """The directory of the stream with this number."""
        return os.path.join(self._directory, str(number))

    def numbers(self) -> list[int]:
        """The numbers of the streams that have files."""
        if not self._disk.is_directory(self._directory):
            return []
        names = self._disk.list_names(self._directory)
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def open(self, number: int, journalled_from: int) -> StreamFiles:
        """Open a stream's files after a crash or an orderly end; a torn chunk is cut. StreamDamaged if that is
        impossible.

        journalled_from: the offset from which on the journal may have messages.
        """
        files = StreamFiles(self._disk, self.path(number), self._random_bytes)
        files.recover(journalled_from)
        return files

    def remove(self, number: int) -> None:
        """Delete a stream's files, if it has any."""
        path = self.path(number)
        if self._disk.is_directory(path):
            for name in self._disk.list_names(path):
                self._disk.remove(os.path.join(path, name))
            # a power cut must not bring them back, as another stream may have the number by then
            self._disk.sync_directory(path)
            self._disk.remove_directory(path)

    def sealed_end(self, vhost: str, stream: str, creation: str) -> int:
        """The offset after the last message that the stream's tables hold, 0 if it has none."""
        return sealed_end(self._disk, stream_directory(self.tables_dir, vhost, stream), creation)

    def tables_of(self, vhost: str, stream: str) -> str:
        """The directory of a stream's tables."""
        return stream_directory(self.tables_dir, vhost, stream)

    def trim_tables(self, vhost: str, stream: str, extent: Extent | None) -> None:
        """Delete the tables of messages that are not in the stream of this name. extent: None if it does not exist."""
        remove_tables(self._disk, self.tables_of(vhost, stream), extent)

    def trim_all_tables(self, extents: Mapping[tuple[str, str], Extent]) -> None:
        """As `trim_tables`, for all streams. extents: of the existing ones, by virtual host and name."""
        streams = {self.tables_of(*names): extent for names, extent in extents.items()}
        remove_strays(self._disk, self.tables_dir, streams)
