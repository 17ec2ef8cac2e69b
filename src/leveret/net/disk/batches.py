"""The log's batches on their way to the disk: when they go, and how their results are reported."""

from __future__ import annotations

import logging
from collections.abc import Callable

from leveret.broker.broker import Broker
from leveret.net.disk.batch_delay import BatchDelay
from leveret.net.disk.commit import Committer
from leveret.net.event_loop import EventLoop
from leveret.net.poller import Poller
from leveret.store.journal import JournalFull
from leveret.store.sync import SyncWork

logger = logging.getLogger("leveret")


class Batches:
    """Sends batches to the disk, and handles their results, which its owner passes on to `on_disk`.

    poller: the loop's, which is told whether the kernel or a thread works for the loop. changed: called when a batch is
    on disk, waits for room, or has failed.
    """

    def __init__(
        self, broker: Broker, committer: Committer, sync: SyncWork, loop: EventLoop, now_us: Callable[[], int],
        poller: Poller | None, changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self.is_full = False  # a batch waits for room on the disk
        self.failure: Exception | None = None  # why no more batches will be written, None = there was no failure
        self.is_over = False  # nothing is submitted any more
        self._log = broker.log
        self._committer = committer
        self._sync = sync
        self._now_us = now_us
        self._poller = poller
        self._changed = changed
        self._batch_delay = BatchDelay(loop, committer, self.submit)

    def end_turn(self, is_stopping: bool) -> None:
        """Have the log's batch written, now or soon; called when it is not empty."""
        is_alone = self._poller is not None and self._poller.found <= 1
        self._batch_delay.end_turn(is_stopping, is_alone)

    def submit(self) -> None:
        """Have the log's batch written now, unless one is on its way or it is empty."""
        if self.is_over:
            return  # a timer that was set before the end
        self._committer.submit()
        if self._poller is not None:
            self._poller.yields = self._sync.has_begun
            self._poller.rests = self._committer.is_syncing and not self._sync.has_begun

    def on_disk(self, batch: int, error: Exception | None, is_stopping: bool) -> None:
        """Handle a result of SyncWork."""
        if isinstance(error, JournalFull) and not is_stopping:
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
