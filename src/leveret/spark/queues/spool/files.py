"""The file operations of a spool, one method each, so that tests can make any of them fail."""

from __future__ import annotations

import os

import pyarrow as pa


class SpoolFiles:
    """The file operations on the real file system. Methods raise ``OSError``."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents."""
        os.makedirs(path, exist_ok=True)

    def names(self, directory: str) -> list[str]:
        """Return the names of a directory's files, sorted."""
        return sorted(os.listdir(directory))

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        """Create a file with this content, which a crash may lose until it is synced."""
        with open(path, "wb") as file:
            file.write(data)

    def sync(self, path: str) -> None:
        """Return when a file's content is on disk."""
        self._sync(path, os.O_RDONLY)

    def sync_directory(self, path: str) -> None:
        """Return when a directory's entries are on disk."""
        self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing one that has the new name."""
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
