"""The log's batches on their way to the disk: when they go, on which thread, and how their results are reported."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from leveret.broker.broker import Broker
from leveret.net.disk.batch_delay import BatchDelay
from leveret.net.disk.commit import Committer
from leveret.net.poller import Poller
from leveret.store.journal import JournalFull
from leveret.store.sync import SyncThread

logger = logging.getLogger("leveret")


class Batches:
    """Sends batches to the disk, and handles their results on the loop's thread, on which it must be created.

    poller: the loop's, which is told whether the kernel or a thread works for the loop. changed: called on the loop's
    thread when a batch is on disk, waits for room, or has failed.
    """

    def __init__(
        self, broker: Broker, committer: Committer, sync: SyncThread, stopping: asyncio.Event,
        now_us: Callable[[], int], poller: Poller | None, changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self.is_full = False  # a batch waits for room on the disk
        self.failure: Exception | None = None  # why no more batches will be written, None = there was no failure
        self._log = broker.log
        self._committer = committer
        self._sync = sync
        self._stopping = stopping
        self._now_us = now_us
        self._poller = poller
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._batch_delay = BatchDelay(self._loop, committer, self._submit)
        self._told = asyncio.Event()
        self._is_over = False
        if sync.kernel is not None:
            self._loop.add_reader(sync.kernel, sync.end)

    def end_turn(self) -> None:
        """Have the log's batch written, now or soon; called when it is not empty."""
        is_alone = self._poller is not None and self._poller.found <= 1
        self._batch_delay.end_turn(self._stopping.is_set(), is_alone)

    def _submit(self) -> None:
        if self._is_over:
            return  # a timer that was set before the end
        self._committer.submit()
        if self._poller is not None:
            self._poller.yields = self._sync.has_begun
            self._poller.rests = self._committer.is_syncing and not self._sync.has_begun

    def done(self, batch: int, error: Exception | None) -> None:
        """Receive a result of SyncWork, on the sync thread or on this one."""
        if threading.get_ident() == self._thread_id:
            self._on_disk(batch, error)
        else:
            self._loop.call_soon_threadsafe(self._on_disk, batch, error)

    def _on_disk(self, batch: int, error: Exception | None) -> None:
        self._told.set()
        if isinstance(error, JournalFull) and not self._stopping.is_set():
            if not self.is_full:
                logger.warning("%s; the write is retried until there is", error)
                self.is_full = True
        elif error is not None:
            # no confirm may leave any more, and memory and disk differ: end now
            if self.failure is None:
                logger.critical("the journal failed, stopping: %s", error)
                self.failure = error
        else:
            if self._sync.took_us:
                self._log.measures.sync_us.add(self._sync.took_us)
            self._committer.on_disk(batch, self._now_us())
            if self._poller is not None:
                self._poller.rests = self._poller.yields = False
            if self.is_full:
                self.is_full = False
                logger.warning("the journal has disk space again")
        self._changed()

    async def drain(self) -> None:
        """Write what the log has; return when it is on disk, or never will be."""
        self._committer.submit()
        if self.is_full:
            self._sync.retry()
        while (self._committer.is_syncing or self._log.size()) and self.failure is None:
            await self._next()

    async def settled(self) -> None:
        """Return when everything recorded so far is on disk, or never will be."""
        batch = self._log.batch if self._log.size() else self._log.batch - 1
        while self._log.synced < batch and self.failure is None:
            await self._next()

    async def _next(self) -> None:
        self._told.clear()
        await self._told.wait()

    def stop(self) -> None:
        """Finish what was handed over. The loop may outlive this object."""
        self._is_over = True
        if self._sync.kernel is not None:
            self._loop.remove_reader(self._sync.kernel)
        self._sync.stop()
