"""The file operations of a lake, on a local directory, in HDFS or in an object store.

A crash may happen between any two of them. Synced files survive a loss of power on a local disk; elsewhere the store
takes care of that.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import fs

from leveret.pipelines.errors import PipelineError

_ASIDE: Final = ".part"
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's schemes that Arrow names differently."""


@dataclass(frozen=True)
class StoredFile:
    """A file: its path below the storage's root, and its size."""

    path: str
    octets: int


class Storage:
    """A directory; paths are relative to it, with slashes. Methods raise ``OSError``, also for Arrow's file errors."""

    def __init__(self, location: str, filesystem: fs.FileSystem, root: str) -> None:
        """Take the root as Spark names it (``location``) and as Arrow does (``filesystem``, ``root``). See
        :meth:`at`."""
        self.location = location
        self.is_local = isinstance(filesystem, fs.LocalFileSystem)
        self.root = root
        self._fs = filesystem

    @classmethod
    def at(cls, location: str) -> Storage:
        """Return the directory at a local path or a URI: ``hdfs://…``, ``s3a://…``, ``gs://…``, ``abfss://…``.

        A query, such as ``?region=…&endpoint_override=…``, is for Arrow only; Spark has settings for that.

        Raises:
            PipelineError: Arrow does not know the file system, or cannot reach it.
        """
        scheme = _SCHEME.match(location)
        if scheme is None or scheme[1].lower() == "file":
            root = os.path.abspath(location if scheme is None else location[scheme.end() :])
            return cls(f"file://{root}", fs.LocalFileSystem(), root)
        path, mark, options = location.partition("?")
        uri = path.rstrip("/")
        name = scheme[1].lower()
        arrow_uri = _ARROW_SCHEMES.get(name, name) + uri[len(scheme[1]) :] + mark + options
        try:
            filesystem, root = fs.FileSystem.from_uri(arrow_uri)
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(f"{location} can't be used: {error}") from error
        return cls(uri, filesystem, root)

    def below(self, path: str) -> Storage:
        """Return a directory in this one."""
        return Storage(self.spark(path), self._fs, self._full(path))

    def beside(self, ending: str) -> Storage:
        """Return the directory beside this one whose name has ``ending`` appended."""
        return Storage(self.location + ending, self._fs, self.root + ending)

    def spark(self, path: str = "") -> str:
        """Return the path as Spark writes it."""
        return f"{self.location}/{path}" if path else self.location

    def exists(self, path: str) -> bool:
        """Whether the file or directory exists."""
        return bool(self._fs.get_file_info(self._full(path)).type != fs.FileType.NotFound)

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist."""
        selector = fs.FileSelector(self._full(directory), allow_not_found=True)
        return sorted(info.base_name for info in self._fs.get_file_info(selector))

    def files(self, directory: str, suffix: str = "") -> list[StoredFile]:
        """Return all files below a directory whose names end with ``suffix``, in order of paths."""
        selector = fs.FileSelector(self._full(directory), allow_not_found=True, recursive=True)
        found = [info for info in self._fs.get_file_info(selector) if info.type == fs.FileType.File]
        entries = [StoredFile(info.path[len(self.root) :].lstrip("/"), info.size) for info in found]
        return sorted((one for one in entries if one.path.endswith(suffix)), key=lambda one: one.path)

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        with self._fs.open_input_stream(self._full(path)) as file:
            return bytes(file.read())

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for random access."""
        return self._fs.open_input_file(self._full(path))

    def create(self, path: str) -> pa.NativeFile:
        """Open a file for writing."""
        return self._fs.open_output_stream(self._full(path))

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents."""
        self._fs.create_dir(self._full(path), recursive=True)

    def write(self, path: str, data: bytes) -> None:
        """Create a file with this content, which a crash may lose until it is synced."""
        with self.create(path) as file:
            file.write(data)

    def sync(self, path: str) -> None:
        """Return when a file's content is on disk."""
        self._sync(path, os.O_RDONLY)

    def sync_directory(self, path: str) -> None:
        """Return when a directory's entries are on disk."""
        self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def move(self, old: str, new: str) -> None:
        """Rename a file, replacing one that has the new name."""
        self._fs.move(self._full(old), self._full(new))

    def link(self, old: str, new: str) -> None:
        """Hard-link a file on a local disk; ``FileExistsError`` if the new name exists."""
        os.link(self._full(old), self._full(new))

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._fs.delete_file(self._full(path))

    def delete_directory(self, path: str) -> None:
        """Remove a directory without files."""
        self._fs.delete_dir(self._full(path))

    # -- built on these

    def publish(self, path: str, data: bytes) -> None:
        """Write a file atomically and durably."""
        aside = path + _ASIDE
        self.write(aside, data)
        self.sync(aside)
        self.move(aside, path)
        self.sync_directory(_parent(path))

    def publish_new(self, path: str, data: bytes) -> bool:
        """Publish a file unless it exists; return whether it was written. Only local disks exclude a race."""
        if self.exists(path):
            return False
        if not self.is_local:
            self.publish(path, data)
            return True
        aside = f"{path}.{os.getpid()}-{threading.get_ident()}{_ASIDE}"
        self.write(aside, data)
        self.sync(aside)
        try:
            self.link(aside, path)
        except FileExistsError:
            return False
        finally:
            self.delete(aside)
        self.sync_directory(_parent(path))
        return True

    def delete_tree(self, path: str) -> None:
        """Delete a directory with its content; does nothing if it does not exist."""
        for file in self.files(path):
            self.delete(file.path)
        if self.exists(path):
            self.delete_directory(path)

    def sync_directories(self, paths: set[str]) -> None:
        """Sync these directories and their parents up to the root, which may be new, too."""
        for path in sorted({above for each in paths for above in _upwards(each)}, reverse=True):
            self.sync_directory(path)

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _sync(self, path: str, flags: int) -> None:
        if not self.is_local:
            return
        descriptor = os.open(self._full(path), flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = _parent(path)
    yield ""
