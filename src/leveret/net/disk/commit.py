"""Between the broker's log and the sync thread: what is submitted when, and what follows when it is on the disk.

Everything here runs on the event loop's side, but knows neither loop nor clock: the simulation (tests/sim) drives it
just as the server does.
"""

from __future__ import annotations

from collections.abc import Callable

from leveret.broker.broker import Broker
from leveret.broker.storage.recovery import Recovery
from leveret.net.disk.paging import Paging
from leveret.session.connection import Connection
from leveret.store.journal import Journal, JournalFull
from leveret.store.reserve import Reserve
from leveret.store.sync import SyncWork

# a journal file smaller than this is not worth a new one in its place
SPENT_OCTETS_MIN = 1 << 20
# a batch that nobody waits for may grow to this size, and for so long, before it goes to the disk
BATCH_DELAY_OCTETS_MAX = 1 << 18
BATCH_DELAY_US = 5_000
# to copy more than that to the kernel is left to the thread
WRITTEN_HERE_OCTETS_MAX = 1 << 16


class Committer:
    """One batch at a time: while it is being synced, the next one collects in the log.

    is_syncing: a batch was submitted and `on_disk` was not called for it yet.
    saves_room: set while the disk is nearly full: a file is given up as soon as nothing in it lives.
    """

    def __init__(self, broker: Broker, journal: Journal, work: SyncWork, paging: Paging) -> None:
        self.is_syncing = False
        self.saves_room = False
        self._paging = paging
        self._broker = broker
        self._journal = journal
        self._work = work
        self._gated: list[Connection] = []

    def recover(self, resume: Callable[[], int], reserve: Reserve | None = None) -> int:
        """Read the journal back, before anything is submitted; returns the number of messages.

        resume: says what time it is, when the journal's samples of the clocks are known (net/clock.py).
        On a full disk the reserve is given up for the one record that must be written.
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
            # Before the first delivery it must be on disk that the last orderly stop says nothing any more.
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
        """Whether the batch under construction need not be submitted yet, but within BATCH_DELAY_US.

        Hops of delayed messages and settlements come in great number, and no one is told when they are on the disk.
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
            # asked for before the request, which another thread may have carried out by the time submit() returns
            number = self._journal.current + 1
            self._work.submit(batch, data, self._broker.snapshot())
            log.start_file(number)
            self._paging.is_due = True
        elif sum(map(len, data)) > WRITTEN_HERE_OCTETS_MAX or not self._work.begin(batch, data):
            self._work.submit(batch, data)
        # in turn: a file goes when the batch is on disk that says that nothing in it is alive
        # after an orderly stop none goes: it may hold what the stop says of messages that are in pages
        oldest = 0 if log.is_stopped else log.disposable()
        if oldest:
            self._work.remove_before(oldest)

    def _is_spent(self) -> bool:
        """Nothing in the journal lives, and a new file in place of it would be worth its own room."""
        return self._broker.log.live() == 0 and self._journal.current_size > SPENT_OCTETS_MIN

    def hold(self, connection: Connection) -> None:
        """Part of its output waits at a gate: `on_disk` looks at it again."""
        self._gated.append(connection)

    def on_disk(self, batch: int, now_us: int = 0) -> None:
        """This batch is on the medium: acks are written, and output behind its gates may leave.

        now_us: for who wants to know how long that took, 0 = nobody does."""
        self.is_syncing = False
        self._broker.log.on_disk(batch, now_us)
        gated, self._gated = self._gated, []
        for connection in gated:
            connection.mark()
