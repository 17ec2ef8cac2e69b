"""A backup while the broker serves: the files stay until they are copied, on a separate thread.

Files of streams are noted before the journal's mark: what the journal has dropped until then is in them already, and
what is written to them later is in the journal that is copied. What is noted was in the journal before it was in them,
so the copy is what the broker had at the mark, and nothing later.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from leveret.net.disk.removals import Removals
from leveret.net.disk.streams import StreamStorage
from leveret.store.backup import BackupMark, BackupRefused, CopiedFile, copy
from leveret.store.journal import Journal
from leveret.store.segment import SegmentStore
from leveret.store.sync import SyncWork

__all__ = ["BackupRefused", "Backups"]


class Backups:
    """Takes one backup at a time."""

    def __init__(
        self, journal: Journal, segments: SegmentStore, streams: StreamStorage, work: SyncWork, removals: Removals
    ) -> None:
        self._journal = journal
        self._segments = segments
        self._streams = streams
        self._work = work
        self._removals = removals
        self._thread: ThreadPoolExecutor | None = None
        self._stopping = threading.Event()
        self._removed: list[int] = []
        self.is_on = False  # journal files and segments must stay; removals are postponed to the end of the backup

    def remove_segment(self, number: int) -> None:
        """Delete a segment that nobody needs any more, after the backup if one is being taken."""
        if self.is_on:
            self._removed.append(number)
        else:
            self._removals.remove(number)

    async def take(self, directory: str, facts: dict[str, str]) -> list[CopiedFile]:
        """Copy what is on disk now, including everything confirmed before; returns the files.

        BackupRefused, or OSError, in which case no part of the copy is left.
        """
        if self.is_on or self._stopping.is_set():
            raise BackupRefused("another backup is being taken" if self.is_on else "the broker is stopping")
        self.is_on = True
        self._thread = self._thread or ThreadPoolExecutor(1, "leveret-backup")
        mark: Future[BackupMark] = Future()
        self._work.hold(functools.partial(self._mark, mark, self._streams.hold()))
        work = self._thread.submit(self._copy, mark, directory, facts)
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _: self._call(loop))
        # the copy is finished even if the caller is cancelled
        return await asyncio.shield(asyncio.wrap_future(work))

    def _mark(self, mark: Future[BackupMark], streams: list[tuple[str, int]], is_sound: bool) -> None:
        """Note the journal's files and end; runs on the sync thread, between two batches."""
        if not is_sound:
            mark.set_exception(BackupRefused("the journal's disk is full"))
            return
        try:
            journal = [self._journal.path(number) for number in self._journal.files()]
            doomed = self._removals.doomed.copy()  # before the listing, as they are removed meanwhile
            segments = [self._segments.path(number) for number in self._segments.numbers() if number not in doomed]
            mark.set_result(BackupMark(journal, self._journal.current_size, segments, streams))
        except OSError as error:
            mark.set_exception(error)

    def _copy(self, mark: Future[BackupMark], directory: str, facts: dict[str, str]) -> list[CopiedFile]:
        return copy(mark.result(), directory, facts, lambda: not self._stopping.is_set())

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have `_release` called on the loop; runs on the backup's thread."""
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
        """Give up a backup that is being taken; returns when it has ended."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.shutdown()
