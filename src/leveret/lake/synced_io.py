"""Syncs the metadata files of an Iceberg table before the catalogue refers to them.

pyiceberg writes a version's files, then changes one row in the catalogue, which syncs. Without a sync of the files, a
power cut could leave a row that refers to an empty file.
"""

from __future__ import annotations

import os
from types import TracebackType

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class _SyncedStream(OutputStream):
    def __init__(self, stream: OutputStream, path: str) -> None:
        self._stream = stream
        self._path = path

    def write(self, b: bytes) -> int:
        return self._stream.write(b)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        for path in (self._path, os.path.dirname(self._path)):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        self.close()


class SyncedFile(PyArrowFile):
    """A local file that is synced when its output stream is closed."""

    def create(self, overwrite: bool = False) -> OutputStream:
        return _SyncedStream(super().create(overwrite), self._path)


class SyncedFileIO(PyArrowFileIO):
    """The file access for a warehouse at a file:// URI."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        return SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))
