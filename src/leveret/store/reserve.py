"""A file that only occupies space, and is removed when the disk is full, so that the journal can go on for a while.

On a full disk consumers can empty the queues, which frees journal files; but their acknowledgements are records, too,
and the broker must write one to start at all. The reserve is the space for these.
"""

from __future__ import annotations

import contextlib
import os

from leveret.store.disk import Disk

FILE_NAME = "reserve"
# a usual batch, a new file's declarations, and some 100,000 settlements
SIZE_OCTETS = 8 << 20


class Reserve:
    """`size` bytes at `path`, which exist (`is_whole`) or not. One thread at a time changes it; any thread may read."""

    def __init__(self, disk: Disk, path: str, size: int = SIZE_OCTETS) -> None:
        self._disk = disk
        self._path = path
        self._size = size
        self.is_whole = False
        with contextlib.suppress(OSError):
            self.is_whole = disk.size(path) >= size

    def fill(self) -> bool:
        """Allocate the space if it is not there; False if the disk does not have it. Never raises for a full disk."""
        if self.is_whole:
            return True
        try:
            file = self._disk.create(self._path)
            try:
                file.allocate(self._size)
            finally:
                file.close()
            self.is_whole = True
        except OSError:
            self._remove()  # a part of it would only be missing elsewhere
        return self.is_whole

    def release(self) -> bool:
        """Free the space; False if it was free already."""
        if not self.is_whole:
            return False
        self.is_whole = False
        self._remove()
        return True

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._disk.remove(self._path)
            # some file systems hand out freed blocks only after this
            self._disk.sync_directory(os.path.dirname(self._path))
