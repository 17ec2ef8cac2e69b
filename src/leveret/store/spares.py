"""Spare files: former journal files, kept to be overwritten.

When a file is overwritten the file system need only sync its data, without allocating blocks and recording a new
length: large batches are synced several times faster than at the end of a growing file.

A spare has a name of its own, and gets that of a journal file only when its new header and first batch are synced. So
whatever a crash leaves in a spare is never read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence

from leveret.store.disk import Disk

_FILE_NAME = re.compile(r"spare-\d{10}\.lvj")


def is_spare(name: str) -> bool:
    """Whether a file of this name is a spare."""
    return _FILE_NAME.fullmatch(name) is not None


class Spares:
    """At most `count` spare files in `directory`, none larger than `size_max` bytes."""

    def __init__(self, disk: Disk, directory: str, count: int, size_max: int) -> None:
        self._disk = disk
        self._directory = directory
        self._count = count
        self._size_max = size_max
        self._paths: list[str] = []

    def find(self, names: Sequence[str]) -> None:
        """Take over the spares among the names of the directory, which must be synced; delete those above `count`."""
        paths = [os.path.join(self._directory, name) for name in names if is_spare(name)]
        self._paths = paths[: self._count]
        for path in paths[self._count :]:
            self._disk.remove(path)

    def keep(self, path: str, number: int) -> str | None:
        """Rename journal file `number` to a spare, and return its path; None if there are enough, or it is too large.

        The caller syncs the directory and then calls `add` with the new path, not before: as long as a crash can bring
        the old name back, the file must stay unchanged.
        """
        if len(self._paths) >= self._count or self._disk.size(path) > self._size_max:
            return None
        spare = os.path.join(self._directory, f"spare-{number:010d}.lvj")
        self._disk.rename(path, spare)
        return spare

    @property
    def kept(self) -> int:
        """How many spare files there are."""
        return len(self._paths)

    def add(self, path: str) -> None:
        """Allow this spare to be used from now on."""
        self._paths.append(path)

    def become(self, path: str, parts: Sequence[bytes]) -> bool:
        """Overwrite the beginning of a spare with `parts`, sync, and rename it to `path`; False if there is no spare.

        The caller must call `sync_directory` for the new name.
        """
        while self._paths:
            spare = self._paths[-1]
            try:
                file = self._disk.open(spare)
            except FileNotFoundError:
                self._paths.pop()  # somebody has deleted it to make room on the disk
                continue
            try:
                file.write(0, parts)
                file.sync()
            finally:
                file.close()
            self._disk.rename(spare, path)
            self._paths.pop()
            return True
        return False

    def give_up(self) -> bool:
        """Delete all spares, to make room on the disk; returns whether any was deleted.

        One that cannot be deleted is used, or tried again later.
        """
        before = len(self._paths)
        for path in list(self._paths):
            with contextlib.suppress(OSError):
                self._disk.remove(path)
                self._paths.remove(path)
        return len(self._paths) < before
