"""Connects the broker's log with the sync thread: which batch is submitted when, and what follows once it is on disk.

Everything here runs on the event loop's side, but uses neither loop nor clock: the simulation (tests/sim) drives it
just as the server does.
"""

from __future__ import annotations

from collections.abc import Callable

from leveret.broker.broker import Broker
from leveret.broker.peer import Peer
from leveret.broker.storage.recovery import Recovery
from leveret.net.disk.paging import Paging
from leveret.store.journal import Journal, JournalFull
from leveret.store.reserve import Reserve
from leveret.store.sync import SyncWork

# a journal file smaller than this is not worth replacing
SPENT_OCTETS_MIN = 1 << 20
# a batch that no client waits for may grow up to this size, and for this time, before it goes to the disk
BATCH_DELAY_OCTETS_MAX = 1 << 18
BATCH_DELAY_US = 5_000
# larger batches are copied to the kernel by the thread
WRITTEN_HERE_OCTETS_MAX = 1 << 16


class Committer:
    """Writes one batch at a time; while it is being synced, the next one collects in the log."""

    def __init__(self, broker: Broker, journal: Journal, work: SyncWork, paging: Paging) -> None:
        self.is_syncing = False  # a batch was submitted, and `on_disk` was not called for it yet
        # set while the disk is nearly full: the current file is given up as soon as nothing in it is alive
        self.saves_room = False
        self._paging = paging
        self._broker = broker
        self._journal = journal
        self._work = work
        self._gated: list[Peer] = []

    def recover(self, resume: Callable[[], int], reserve: Reserve | None = None) -> int:
        """Read the journal before anything is submitted; returns the number of messages.

        resume: returns the time, once the journal's samples of the clocks are known (net/clock.py). On a full disk the
        reserve is released for the one record that must be written.
        """
        recovery = Recovery(self._broker, 0)
        for batch in self._journal.replay():
            recovery.batch(batch)
        recovery.is_damaged = len(self._journal.report.damages) > 0
        recovery.now_us = resume()
        count = self._paging.recover(recovery)
        log = self._broker.log
        log.recovered(self._journal.current, recovery.in_journal)
        if log.size():
            # before the first delivery it must be on disk that the last orderly stop is no longer the end of the
            # journal
            number = log.batch
            data = log.close_batch()
            try:
                self._journal.append(data)
            except JournalFull:
                if reserve is None or not reserve.release():
                    raise
                self._journal.append(data)
            log.on_disk(number)
        return count

    def may_delay(self) -> bool:
        """Whether the batch under construction need not be submitted now, but within BATCH_DELAY_US.

        Hops of delayed messages and settlements are numerous, and no client is told when they are on disk.
        """
        log = self._broker.log
        return not (log.is_awaited or log.is_stopped) and log.size() < BATCH_DELAY_OCTETS_MAX

    def submit(self) -> None:
        """Hand the batch under construction to the disk, unless one is on its way or there is nothing to write."""
        log = self._broker.log
        if self.is_syncing or not log.size():
            return
        self.is_syncing = True
        batch = log.batch
        data = log.close_batch()
        if self._journal.is_full or (self.saves_room and self._is_spent()):
            # computed before the request, which another thread may have carried out by the time submit() returns
            number = self._journal.current + 1
            self._work.submit(batch, data, self._broker.snapshot())
            log.start_file(number)
            self._paging.is_due = True
        elif sum(map(len, data)) > WRITTEN_HERE_OCTETS_MAX or not self._work.begin(batch, data):
            self._work.submit(batch, data)
        # one after the other: a file is removed when the batch is on disk that says that nothing in it is alive; after
        # an orderly stop none is removed, as it may hold what the stop says of messages in pages
        oldest = 0 if log.is_stopped else log.disposable()
        if oldest:
            self._work.remove_before(oldest)

    def _is_spent(self) -> bool:
        """Whether nothing in the journal is alive, and a new file in its place would be worth its room."""
        return self._broker.log.live() == 0 and self._journal.current_size > SPENT_OCTETS_MIN

    def hold(self, connection: Peer) -> None:
        """Have `on_disk` look again at a connection, part of whose output waits at a gate."""
        self._gated.append(connection)

    def on_disk(self, batch: int, now_us: int = 0) -> None:
        """Handle that this batch is on disk: write acks, and let output behind its gates leave.

        now_us: the broker's time, for measuring how long that took, 0 = not measured.
        """
        self.is_syncing = False
        self._broker.log.on_disk(batch, now_us)
        gated, self._gated = self._gated, []
        for connection in gated:
            connection.mark()
