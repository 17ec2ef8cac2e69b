"""Immediate notice of new files, from the kernel: the JVM's side of the pipeline cannot be wrapped."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from pathlib import Path
from types import TracebackType
from typing import Final, Self

CLOSE_WRITE: Final = 0x8
MOVED_TO: Final = 0x80
CREATE: Final = 0x100
EVENT: Final = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """Watches directories for files that appear (CREATE, MOVED_TO) or are complete (CLOSE_WRITE)."""

    def __init__(self) -> None:
        self._handle = self._checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))

    def watch(self, directory: Path, mask: int) -> int:
        """Watch a directory, which must exist; return the number that its events carry."""
        return self._checked(_libc.inotify_add_watch(self._handle, os.fsencode(directory), mask))

    def events(self, timeout_s: float) -> list[tuple[int, int, str]]:
        """Wait up to ``timeout_s`` for events; return each as (watch, mask, name of the file)."""
        if not select.select([self._handle], [], [], timeout_s)[0]:
            return []
        data = os.read(self._handle, 65536)
        found, at = [], 0
        while at < len(data):
            watch, mask, _, length = EVENT.unpack_from(data, at)
            at += EVENT.size
            found.append((watch, mask, data[at : at + length].rstrip(b"\0").decode()))
            at += length
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        return result
