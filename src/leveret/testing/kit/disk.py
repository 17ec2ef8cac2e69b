"""A disk that fills up, fails, is slow, or loses power, in front of a real or in-memory one.

    faults = DiskFaults()
    disk = FaultyDisk(MemoryDisk(), faults)
    faults.full += 1     # writes fail with ENOSPC from now on
    faults.change()      # threads that wait for the disk check again
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from leveret.store.disk import Disk, DiskFile, MemoryDisk, SyncFailed


class DiskFaults:
    """The current faults of a disk, shared by all runs of a broker. Each counts its causes; 0 means none."""

    def __init__(self) -> None:
        # full: writes fail with ENOSPC; broken: syncs fail; stalled: syncs do not return
        self.full = self.broken = self.stalled = 0
        self.delay_ms = 0.0  # added to each sync
        self.changed = threading.Condition()

    @property
    def is_slow(self) -> bool:
        """Whether syncs have to wait."""
        return self.stalled > 0 or self.delay_ms > 0

    def change(self) -> None:
        """Wake up the threads that wait for a sync, after a change."""
        with self.changed:
            self.changed.notify_all()


class FaultyDisk(Disk):
    """The disk as one run of a broker sees it. After `cut`, every access fails: the power is gone.

    Several threads may use it; a disk in memory is locked, so that one thread uses it at a time.
    """

    def __init__(self, disk: Disk, faults: DiskFaults) -> None:
        self.disk = disk
        self.faults = faults
        self._is_cut = False
        self._turn: AbstractContextManager[object] = (
            threading.RLock() if isinstance(disk, MemoryDisk) else nullcontext()
        )

    def cut(self) -> None:
        """Cut the power: every later access fails, and so do syncs in progress."""
        with self._turn:
            self._is_cut = True
        self.faults.change()

    def access(self, writes: bool = False) -> AbstractContextManager[object]:
        """Return a context manager for the disk. Raises OSError if the power is cut, or if `writes` on a full disk."""
        if self._is_cut:
            raise OSError(errno.EIO, "the power is off")
        if writes and self.faults.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._turn

    def sync(self) -> None:
        """Wait as long as the faults make a sync take. Raises SyncFailed if it fails."""
        faults = self.faults
        with faults.changed:
            if faults.delay_ms:
                faults.changed.wait_for(lambda: self._is_cut, faults.delay_ms / 1000)
            faults.changed.wait_for(lambda: self._is_cut or not faults.stalled)
        if self._is_cut or faults.broken:
            raise SyncFailed(errno.EIO, os.strerror(errno.EIO))

    def create(self, path: str) -> DiskFile:
        with self.access(writes=True):
            return FaultyFile(self, self.disk.create(path))

    def open(self, path: str) -> DiskFile:
        with self.access():
            return FaultyFile(self, self.disk.open(path))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with self.access():
            return self.disk.read(path, offset, length)

    def read_cached(self, path: str, offset: int, length: int) -> bytes | None:
        with self.access():
            return self.disk.read_cached(path, offset, length)

    def size(self, path: str) -> int:
        with self.access():
            return self.disk.size(path)

    def list_names(self, directory: str) -> list[str]:
        with self.access():
            return self.disk.list_names(directory)

    def rename(self, old: str, new: str) -> None:
        with self.access():
            self.disk.rename(old, new)

    def remove(self, path: str) -> None:
        with self.access():
            self.disk.remove(path)

    def make_directory(self, path: str) -> None:
        with self.access():
            self.disk.make_directory(path)

    def is_directory(self, path: str) -> bool:
        with self.access():
            return self.disk.is_directory(path)

    def remove_directory(self, path: str) -> None:
        with self.access():
            self.disk.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.sync()
        with self.access():
            self.disk.sync_directory(path)


class FaultyFile(DiskFile):
    """A file on a FaultyDisk."""

    def __init__(self, disk: FaultyDisk, file: DiskFile) -> None:
        self._disk = disk
        self._file = file

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        with self._disk.access(writes=True):
            self._file.write(offset, parts)

    def read(self, offset: int, length: int) -> bytes:
        with self._disk.access():
            return self._file.read(offset, length)

    def sync(self) -> None:
        self._disk.sync()
        with self._disk.access():
            self._file.sync()

    def truncate(self, size: int) -> None:
        with self._disk.access():
            self._file.truncate(size)

    def allocate(self, size: int) -> None:
        with self._disk.access(writes=True):
            self._file.allocate(size)

    def close(self) -> None:
        self._file.close()
