"""The disk as the store sees it, with two implementations: the real one, and one in memory that can crash.

The protocol is small on purpose, and says exactly what a crash may take away, because recovery is tested against it:

- bytes written to a file are safe once `DiskFile.sync` of that file has returned;
- a name (created, renamed, removed) is safe once `Disk.sync_directory` of its directory has returned;
- everything else may be lost, wholly or in part, in any order, and the last write may be torn at any byte.

`MemoryDisk` keeps what was not synced as a list of pending operations, so that a test can choose which of them a crash
keeps. Paths are plain strings; sizes and offsets are bytes.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

# Linux accepts at most 1,024 buffers in one pwritev. Longer lists are written in parts: joining them would keep the
# interpreter from all other threads for milliseconds.
_BUFFERS_MAX = 1000


class SyncFailed(OSError):
    """What was written is not on the medium, and the system may have dropped it: no later sync can be trusted."""


class DiskFile(ABC):
    """An open file. One thread writes to it at a time."""

    @abstractmethod
    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        """Write `parts`, joined, at `offset`: all bytes or an OSError. Safe only after `sync`.

        After an error any part of the bytes may have been written; the same write can be made again.
        """

    @abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on; fewer at the end of the file."""

    @abstractmethod
    def sync(self) -> None:
        """Return when everything written and truncated so far is on the medium (fdatasync). SyncFailed if it is not."""

    def descriptor(self) -> int:
        """The file descriptor, for callers that sync it in another way. OSError if only `sync` works."""
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Set the file's length to `size` bytes."""

    @abstractmethod
    def allocate(self, size: int) -> None:
        """Reserve space for `size` bytes from the start, so that later writes need none. OSError if there is too
        little."""

    @abstractmethod
    def close(self) -> None:
        """Close the file, without a sync."""


class Disk(ABC):
    """The operations of a file system that the store needs. All methods raise OSError if the system refuses."""

    @abstractmethod
    def create(self, path: str) -> DiskFile:
        """Open a new, empty file for writing; an existing one of the same name is emptied."""

    @abstractmethod
    def open(self, path: str) -> DiskFile:
        """Open an existing file for writing. FileNotFoundError if it does not exist."""

    @abstractmethod
    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read up to `length` bytes from `offset` on; without a length, everything that follows."""

    @abstractmethod
    def read_cached(self, path: str, offset: int, length: int) -> bytes | None:
        """As `read`, if that is possible without waiting for the medium; else None."""

    @abstractmethod
    def size(self, path: str) -> int:
        """The file's length in bytes."""

    @abstractmethod
    def list_names(self, directory: str) -> list[str]:
        """The names in a directory, sorted; sub-directories are included."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically, replacing one of the new name."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file."""

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents; those created are on the medium on return."""

    @abstractmethod
    def is_directory(self, path: str) -> bool:
        """Whether this is an existing directory."""

    @abstractmethod
    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Return when the names in this directory are on the medium. SyncFailed if they are not."""


class _RealFile(DiskFile):
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        for start in range(0, len(parts), _BUFFERS_MAX):
            some = parts[start : start + _BUFFERS_MAX]
            self._write(offset, some)
            offset += sum(map(len, some))

    def _write(self, offset: int, parts: Sequence[bytes]) -> None:
        written = os.pwritev(self._descriptor, parts, offset)
        if written == sum(map(len, parts)):
            return
        # A short write is legal (signals, a nearly full disk); the rest is written piece by piece until all is written
        # or refused.
        rest = memoryview(b"".join(parts))[written:]
        offset += written
        while rest:
            written = os.pwrite(self._descriptor, rest, offset)
            if written == 0:
                raise OSError(errno.EIO, "the disk accepted no bytes of a write")
            rest = rest[written:]
            offset += written

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length and (more := os.pread(self._descriptor, length - len(data), offset + len(data))):
            data += more
        return data

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise SyncFailed(*error.args) from error

    def descriptor(self) -> int:
        return self._descriptor

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
                raise
            self.write(0, [bytes(size)])  # a file system, or a C library, that has no better way

    def close(self) -> None:
        os.close(self._descriptor)


class RealDisk(Disk):
    """The operating system's files. New files are readable by their owner only (0600), directories 0700."""

    def create(self, path: str) -> DiskFile:
        return _RealFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))

    def open(self, path: str) -> DiskFile:
        return _RealFile(os.open(path, os.O_RDWR))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            if length is None:
                return file.readall()
            return file.read(length) or b""

    def read_cached(self, path: str, offset: int, length: int) -> bytes | None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            data = bytearray(length)
            if os.preadv(descriptor, [data], offset, os.RWF_NOWAIT) == length:
                return bytes(data)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EOPNOTSUPP}:
                raise
        finally:
            os.close(descriptor)
        return None

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def list_names(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.remove(path)

    def make_directory(self, path: str) -> None:
        path = os.path.abspath(path)
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        self.make_directory(parent)
        os.mkdir(path, 0o700)
        self.sync_directory(parent)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise SyncFailed(*error.args) from error
        finally:
            os.close(descriptor)


class _Inode:
    """The contents of a file: as the running process sees them, and as a crash would leave them."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.stable = bytearray()


class PendingChange(NamedTuple):
    """An operation that a crash may still undo.

    Attributes:
        kind: "write", "truncate" or "names".
        path: The file's name when it happened.
        size: The bytes written, or the new length.
        data: The bytes of a write.
        names: Directory changes that happen together; None as inode: the name is removed.
    """

    kind: str
    path: str
    size: int
    offset: int = 0
    data: bytes = b""
    inode: _Inode | None = None
    names: tuple[tuple[str, _Inode | None], ...] = ()


def _splice(target: bytearray, offset: int, data: bytes) -> None:
    """Write into a file's bytes; a gap before `offset` reads as zeros, as on a real file system."""
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


def _resize(target: bytearray, size: int) -> None:
    if size < len(target):
        del target[size:]
    else:
        target.extend(bytes(size - len(target)))


class _MemoryFile(DiskFile):
    def __init__(self, disk: MemoryDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._life = disk.crashes

    def _check_alive(self) -> None:
        if self._life != self._disk.crashes:
            raise OSError(errno.EIO, "this handle was opened before the crash", self._path)

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        self._check_alive()
        data = b"".join(parts)
        self._disk.pending.append(PendingChange("write", self._path, len(data), offset, data, self._inode))
        _splice(self._inode.content, offset, data)
        # announced afterwards: a crash "at" a write may leave any part of it on the medium
        self._disk.announce("write", self._path)

    def read(self, offset: int, length: int) -> bytes:
        self._check_alive()
        return bytes(self._inode.content[offset : offset + length])

    def sync(self) -> None:
        self._check_alive()
        self._disk.announce_sync("sync", self._path)
        self._disk.settle(self._inode)

    def truncate(self, size: int) -> None:
        self._check_alive()
        self._disk.pending.append(PendingChange("truncate", self._path, size, inode=self._inode))
        _resize(self._inode.content, size)
        self._disk.announce("truncate", self._path)

    def allocate(self, size: int) -> None:
        self._check_alive()
        self._disk.announce("allocate", self._path)
        if size > len(self._inode.content):
            self.truncate(size)

    def close(self) -> None:
        """Do nothing: a file in memory holds no resources."""


class MemoryDisk(Disk):
    """A deterministic disk in memory, on which a crash loses what was not synced.

    `before(operation, path)`, if given, is called at each write, allocate, truncate, sync, names and sync_directory.
    What it raises is raised to the caller: an OSError to inject a fault (a SyncFailed at syncs), any exception of a
    test's own to stop at this point. A sync at which it raises did not happen; a write did, and is pending.
    """

    def __init__(self, before: Callable[[str, str], None] | None = None) -> None:
        self.before = before
        self.pending: list[PendingChange] = []
        self.crashes = 0
        self.operations = 0
        self._names: dict[str, _Inode] = {}
        self._stable_names: dict[str, _Inode] = {}
        self._directories: set[str] = set()

    def create(self, path: str) -> DiskFile:
        inode = _Inode()
        self._change_names(path, ((path, inode),))
        return _MemoryFile(self, path, inode)

    def open(self, path: str) -> DiskFile:
        return _MemoryFile(self, path, self._find(path))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        content = self._find(path).content
        return bytes(content[offset:] if length is None else content[offset : offset + length])

    def read_cached(self, path: str, offset: int, length: int) -> bytes | None:
        return self.read(path, offset, length)

    def size(self, path: str) -> int:
        return len(self._find(path).content)

    def list_names(self, directory: str) -> list[str]:
        inside = directory.rstrip("/") + "/"
        paths = [*self._names, *self._directories]
        return sorted({path[len(inside) :].split("/")[0] for path in paths if path.startswith(inside)})

    def rename(self, old: str, new: str) -> None:
        self._change_names(new, ((old, None), (new, self._find(old))))

    def remove(self, path: str) -> None:
        self._find(path)
        self._change_names(path, ((path, None),))

    def make_directory(self, path: str) -> None:
        path = path.rstrip("/")
        while path and path not in self._directories:
            self._directories.add(path)
            path = os.path.dirname(path)

    def is_directory(self, path: str) -> bool:
        return path.rstrip("/") in self._directories

    def remove_directory(self, path: str) -> None:
        self._directories.discard(path.rstrip("/"))

    def sync_directory(self, path: str) -> None:
        self.announce_sync("sync_directory", path)
        inside = path.rstrip("/")
        for operation in self.pending:
            if any(os.path.dirname(name) == inside for name, _ in operation.names):
                self._apply(operation)
        self.pending = [p for p in self.pending if all(os.path.dirname(name) != inside for name, _ in p.names)]

    def crash(self, keep: Collection[int] = (), torn: int | None = None, is_sized: bool = False) -> None:
        """Lose what was not synced, except for the pending operations whose index in `pending` is in `keep`.

        With `torn`, only the first `torn` bytes of the last kept write reach the medium; if `is_sized`, the file has
        the length that the whole write gave it, with zeros in place of the missing bytes. Handles opened before the
        crash become invalid.
        """
        kept = [operation for index, operation in enumerate(self.pending) if index in keep]
        writes = [operation for operation in kept if operation.kind == "write"]
        for operation in kept:
            is_last_write = bool(writes) and operation is writes[-1]
            self._apply(operation, torn if is_last_write else None)
            if is_last_write and is_sized and operation.inode is not None:
                missing = operation.offset + operation.size - len(operation.inode.stable)
                operation.inode.stable.extend(bytes(max(0, missing)))
        self.pending = []
        self.crashes += 1
        self._names = dict(self._stable_names)
        for inode in self._names.values():
            inode.content = bytearray(inode.stable)

    def announce(self, operation: str, path: str) -> None:
        """Count an operation and call `before`."""
        self.operations += 1
        if self.before is not None:
            self.before(operation, path)

    def announce_sync(self, operation: str, path: str) -> None:
        """As `announce`, for a sync: an OSError that `before` raises becomes a SyncFailed, as on a real disk."""
        try:
            self.announce(operation, path)
        except OSError as error:
            raise SyncFailed(*error.args) from error

    def settle(self, inode: _Inode) -> None:
        """Make everything pending on one file stable."""
        for operation in self.pending:
            if operation.inode is inode:
                self._apply(operation)
        self.pending = [operation for operation in self.pending if operation.inode is not inode]

    def _find(self, path: str) -> _Inode:
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return inode

    def _change_names(self, path: str, names: tuple[tuple[str, _Inode | None], ...]) -> None:
        self.pending.append(PendingChange("names", path, 0, names=names))
        self._set_names(self._names, names)
        self.announce("names", path)

    @staticmethod
    def _set_names(target: dict[str, _Inode], names: tuple[tuple[str, _Inode | None], ...]) -> None:
        for name, inode in names:
            if inode is None:
                target.pop(name, None)
            else:
                target[name] = inode

    def _apply(self, operation: PendingChange, torn: int | None = None) -> None:
        self._set_names(self._stable_names, operation.names)
        if operation.inode is None:
            return
        if operation.kind == "truncate":
            _resize(operation.inode.stable, operation.size)
        else:
            _splice(operation.inode.stable, operation.offset, operation.data[:torn])
