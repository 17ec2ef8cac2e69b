"""A backup while the broker serves: the files stay until they are copied, on a thread of its own.

Files of streams are noted before the journal's mark: what the journal lets go of until then was in them already, and
what comes into them later is in the journal that is copied. What is noted was in the journal before it was in them, so
the copy is what the broker had at the mark, and nothing later.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from leveret.net.removals import Removals
from leveret.net.streams import Streams
from leveret.store.backup import BackupRefused, CopiedFile, Mark, copy
from leveret.store.journal import Journal
from leveret.store.segment import SegmentStore
from leveret.store.sync import SyncWork

__all__ = ["BackupRefused", "Backups"]


class Backups:
    """One at a time. is_on: journal files and segments must stay; what was to go in the meantime goes afterwards."""

    def __init__(
        self, journal: Journal, segments: SegmentStore, streams: Streams, work: SyncWork, removals: Removals
    ) -> None:
        self._journal = journal
        self._segments = segments
        self._streams = streams
        self._work = work
        self._removals = removals
        self._thread: ThreadPoolExecutor | None = None
        self._stopping = threading.Event()
        self._removed: list[int] = []
        self.is_on = False

    def remove_segment(self, number: int) -> None:
        """Delete a segment that nobody needs any more, as soon as no backup does either."""
        if self.is_on:
            self._removed.append(number)
        else:
            self._removals.remove(number)

    async def take(self, directory: str, facts: dict[str, str]) -> list[CopiedFile]:
        """Copy what is on the medium now, with everything that was confirmed before; returns the files.

        BackupRefused, or OSError: then nothing is left of it.
        """
        if self.is_on or self._stopping.is_set():
            raise BackupRefused("another backup is being taken" if self.is_on else "the broker is stopping")
        self.is_on = True
        self._thread = self._thread or ThreadPoolExecutor(1, "leveret-backup")
        mark: Future[Mark] = Future()
        self._work.hold(functools.partial(self._mark, mark, self._streams.hold()))
        work = self._thread.submit(self._copy, mark, directory, facts)
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _: self._call(loop))
        # who asked may go: the copy is finished all the same
        return await asyncio.shield(asyncio.wrap_future(work))

    def _mark(self, mark: Future[Mark], streams: list[tuple[str, int]], is_sound: bool) -> None:
        """On the sync thread, between two batches."""
        if not is_sound:
            mark.set_exception(BackupRefused("the journal's disk is full"))
            return
        try:
            journal = [self._journal.path(number) for number in self._journal.files()]
            doomed = self._removals.doomed.copy()  # first: they go meanwhile
            segments = [self._segments.path(number) for number in self._segments.numbers() if number not in doomed]
            mark.set_result(Mark(journal, self._journal.current_size, segments, streams))
        except OSError as error:
            mark.set_exception(error)

    def _copy(self, mark: Future[Mark], directory: str, facts: dict[str, str]) -> list[CopiedFile]:
        return copy(mark.result(), directory, facts, lambda: not self._stopping.is_set())

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the backup's thread, when it is done."""
        if not self._stopping.is_set():
            loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self.is_on = False
        self._work.release()
        self._streams.release()
        removed, self._removed = self._removed, []
        for number in removed:
            self.remove_segment(number)

    def stop(self) -> None:
        """Give up the one on its way; returns when it has ended."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.shutdown()
