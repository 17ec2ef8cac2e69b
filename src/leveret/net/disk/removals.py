"""Deletes segments in pieces, with pauses, so that no confirm waits for it.

A file system that tells its disk which blocks are free ("discard") does that in the commit that the next sync waits
for, too: when thirty segments were deleted at once, a sync took up to 28 ms. The name is removed first, so a crash
leaves no file half deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from leveret.store.disk import DiskFile
from leveret.store.segment import SegmentStore

PIECE_OCTETS: Final = 4 << 20
PAUSE_S: Final = 0.008


class Removals:
    """Deletes segments on `thread`, which also writes them; other work runs between two pieces."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, segments: SegmentStore, thread: ThreadPoolExecutor,
        pause_s: float = PAUSE_S,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._segments = segments
        self._thread = thread
        self._pause_s = pause_s
        self.doomed: set[int] = set()  # segments whose names still exist
        self._numbers: deque[int] = deque()
        self._file: DiskFile | None = None  # its name is removed already
        self._size = 0
        self._is_going_on = False
        self._is_stopped = False

    def remove(self, number: int) -> None:
        """Delete this segment, after those before it. If that fails it occupies the disk until the next start."""
        self.doomed.add(number)
        self._numbers.append(number)
        if not self._is_going_on:
            self._go_on()

    def _go_on(self) -> None:
        self._is_going_on = not self._is_stopped and (self._file is not None or bool(self._numbers))
        if self._is_going_on:
            done = self._loop.run_in_executor(self._thread, self._step)
            done.add_done_callback(lambda _: self._loop.call_later(self._pause_s, self._go_on))

    def _step(self) -> None:
        """Free the next piece; runs on the thread."""
        with contextlib.suppress(OSError):
            if self._file is None:
                number = self._numbers.popleft()
                self._file, self._size = self._segments.detach(number)
                self.doomed.discard(number)
            self._size -= PIECE_OCTETS
            if self._size > 0:
                self._file.truncate(self._size)
                return
        self._end()

    def _end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def stop(self) -> None:
        """Delete what is left without pauses. Call it after the thread has ended."""
        self._is_stopped = True
        self._end()
        while self._numbers:
            with contextlib.suppress(OSError):
                self._segments.remove(self._numbers.popleft())
