"""The operations on files that a spool is made of, each of which is a point where everything may end."""

from __future__ import annotations

import os

import pyarrow as pa


class Files:
    """The file system itself. Methods raise ``OSError``."""

    def make_directory(self, path: str) -> None:
        """Create it, and what is above it, where it is missing."""
        os.makedirs(path, exist_ok=True)

    def names(self, directory: str) -> list[str]:
        """The files of a directory, sorted."""
        return sorted(os.listdir(directory))

    def read(self, path: str) -> bytes:
        """A file's content."""
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        """Make a file with this content, which may be lost as long as it is not synced."""
        with open(path, "wb") as file:
            file.write(data)

    def sync(self, path: str) -> None:
        """A file's content is on the disk when this returns."""
        self._sync(path, os.O_RDONLY)

    def sync_directory(self, path: str) -> None:
        """Which files a directory has is on the disk when this returns."""
        self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; one that has it already goes."""
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def _sync(self, path: str, flags: int) -> None:
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
