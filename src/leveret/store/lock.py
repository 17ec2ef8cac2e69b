"""Locks a data directory, so that one process at a time uses it.

The lock is the kernel's (flock), held through an open file: it is released when its process ends, however that happens,
so a killed broker never blocks its successor. The file also holds the owner's process id, for the error message of a
process that is refused; the id alone decides nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from leveret.store.disk import RealDisk

LOCK_FILE_NAME = "lock"


class DataDirectoryInUse(Exception):
    """Another live process holds this data directory. `pid` is None if it has not written its id yet."""

    def __init__(self, path: str, pid: int | None) -> None:
        owner = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"the data directory {path} is in use by {owner}; stop it first, or choose another with --data-dir"
        )
        self.path = path
        self.pid = pid


class DirectoryLock:
    """The exclusive right to a data directory, held from construction until `release` or the end of the process.

    Creates the directory (0700) if it is missing. Raises DataDirectoryInUse if a live process holds it, OSError if the
    directory cannot be made or written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        RealDisk().make_directory(path)
        # not inherited across exec: a program started by the broker must not keep the directory locked after it
        descriptor = os.open(os.path.join(path, LOCK_FILE_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _read_pid(descriptor)
            os.close(descriptor)
            raise DataDirectoryInUse(path, pid) from None
        except OSError:
            os.close(descriptor)
            raise
        with contextlib.suppress(OSError):  # the process id is useful, but a full disk is no reason not to start
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the directory; a second call does nothing.

        The file stays: were it removed, a third process could lock a new file of that name while a second one, which
        opened the old file just before, locks that one.
        """
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # the id in the file decides nothing, and the disk may be read-only
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Hold the right to read a data directory at rest while the body runs: keeps out brokers, but not other readers.

    Changes nothing; a directory without a lock file (a copy) is not locked. Raises as DirectoryLock does.
    """
    lock_path = os.path.join(path, LOCK_FILE_NAME)
    try:
        descriptor = os.open(lock_path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirectoryInUse(path, _read_pid(descriptor)) from None
        yield
    finally:
        os.close(descriptor)


def _read_pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
