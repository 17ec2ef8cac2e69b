"""A directory of files, on this host, in HDFS or in an object store, and the operations that a lake is made of.

Each operation is a point where everything may end. What is synced survives a loss of power on a local disk; elsewhere
the store itself sees to that.
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
"""Hadoop's names of what Arrow calls otherwise."""


@dataclass(frozen=True)
class Entry:
    """A file: its path below the storage's root, and its size."""

    path: str
    octets: int


class Storage:
    """Paths are relative to the root, with slashes. Methods raise ``OSError``, which Arrow's errors of files are."""

    def __init__(self, location: str, filesystem: fs.FileSystem, root: str) -> None:
        """location: what Spark calls the root; filesystem, root: what Arrow calls it. See :meth:`at`."""
        self.location = location
        self.is_local = isinstance(filesystem, fs.LocalFileSystem)
        self.root = root
        self._fs = filesystem

    @classmethod
    def at(cls, location: str) -> Storage:
        """The directory at a path of this host or a URI: ``hdfs://…``, ``s3a://…``, ``gs://…``, ``abfss://…``.

        What stands behind a ``?`` is for Arrow alone, as ``region=`` and ``endpoint_override=``; Spark has settings.

        Raises:
            PipelineError: Arrow knows no such file system, or can't reach it.
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
        """A directory in this one."""
        return Storage(self.spark(path), self._fs, self._full(path))

    def beside(self, ending: str) -> Storage:
        """The directory whose name is that of this one with something behind it."""
        return Storage(self.location + ending, self._fs, self.root + ending)

    def spark(self, path: str = "") -> str:
        """What Spark calls this path."""
        return f"{self.location}/{path}" if path else self.location

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return bool(self._fs.get_file_info(self._full(path)).type != fs.FileType.NotFound)

    def names(self, directory: str) -> list[str]:
        """What a directory holds, sorted; nothing if there is no such directory."""
        selector = fs.FileSelector(self._full(directory), allow_not_found=True)
        return sorted(info.base_name for info in self._fs.get_file_info(selector))

    def files(self, directory: str, suffix: str = "") -> list[Entry]:
        """All files below a directory whose names end like this, in the order of their paths."""
        selector = fs.FileSelector(self._full(directory), allow_not_found=True, recursive=True)
        found = [info for info in self._fs.get_file_info(selector) if info.type == fs.FileType.File]
        entries = [Entry(info.path[len(self.root) :].lstrip("/"), info.size) for info in found]
        return sorted((one for one in entries if one.path.endswith(suffix)), key=lambda one: one.path)

    def read(self, path: str) -> bytes:
        """A file's content."""
        with self._fs.open_input_stream(self._full(path)) as file:
            return bytes(file.read())

    def open(self, path: str) -> pa.NativeFile:
        """A file to read anywhere in it."""
        return self._fs.open_input_file(self._full(path))

    def create(self, path: str) -> pa.NativeFile:
        """A file to write."""
        return self._fs.open_output_stream(self._full(path))

    def make_directory(self, path: str) -> None:
        """Create it, and what is above it, where it is missing."""
        self._fs.create_dir(self._full(path), recursive=True)

    def write(self, path: str, data: bytes) -> None:
        """Make a file with this content, which may be lost as long as it is not synced."""
        with self.create(path) as file:
            file.write(data)

    def sync(self, path: str) -> None:
        """A file's content is on the disk when this returns."""
        self._sync(path, os.O_RDONLY)

    def sync_directory(self, path: str) -> None:
        """Which files a directory has is on the disk when this returns."""
        self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def move(self, old: str, new: str) -> None:
        """Give a file another name; one that has it already goes."""
        self._fs.move(self._full(old), self._full(new))

    def link(self, old: str, new: str) -> None:
        """Give a file on a local disk a second name. ``FileExistsError`` if one has it already."""
        os.link(self._full(old), self._full(new))

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._fs.delete_file(self._full(path))

    def delete_directory(self, path: str) -> None:
        """Remove a directory that has no files."""
        self._fs.delete_dir(self._full(path))

    # -- made of these

    def publish(self, path: str, data: bytes) -> None:
        """Write a file that is there wholly or not at all, and stays when this has returned."""
        aside = path + _ASIDE
        self.write(aside, data)
        self.sync(aside)
        self.move(aside, path)
        self.sync_directory(_parent(path))

    def publish_new(self, path: str, data: bytes) -> bool:
        """The same for a file that nobody has made yet; whether it was so. Only local disks can tell for sure."""
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
        """Remove a directory with all that it has; none is fine."""
        for file in self.files(path):
            self.delete(file.path)
        if self.exists(path):
            self.delete_directory(path)

    def sync_directories(self, paths: set[str]) -> None:
        """Sync these directories, and those above them up to the root, for they may be new, too."""
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
