"""A broker with its journal and its pages on a disk in memory; the test does the work of the threads."""

from __future__ import annotations

import random

from leveret.broker.storage.pager import Pager
from leveret.net.disk.commit import Committer
from leveret.net.disk.paging import Paging
from leveret.store.disk import MemoryDisk
from leveret.store.format import DATA_START
from leveret.store.journal import Journal
from leveret.store.segment import SegmentStore
from leveret.store.sync import Payload, SyncWork

from .support import Bench

# room for the definitions, and little more
FILE_SIZE = DATA_START + 571 + 300
SEGMENTS = "/segments"


class HastyWork(SyncWork):
    """Work of a sync thread that is done before submit() returns."""

    def submit(self, batch_id: int, payload: Payload, rotate_snapshot: Payload | None = None) -> None:
        super().submit(batch_id, payload, rotate_snapshot)
        self.perform()


class Rig:
    """A broker, its journal and its pages."""

    def __init__(
        self, disk: MemoryDisk, *, file_size: int = FILE_SIZE, hasty: bool = False, octets_max: int = 1 << 30
    ) -> None:
        self.bench = Bench()
        self.disk = disk
        broker = self.bench.broker
        self.journal = Journal(disk, "/data", file_size, random.Random(disk.crashes).randbytes)
        self.segments = SegmentStore(disk, SEGMENTS, random.Random(disk.crashes + 1000).randbytes)
        self.pager = Pager(broker, page_octets=400, step_octets=700, segment_octets=1500, front_octets=300)
        self.unwritten: list[tuple[int, list[list[bytes]]]] = []
        # `octets_max`: octets of messages in memory above which some go to pages
        self.paging = Paging(broker, self.pager, self.segments, self._write, self.segments.remove, octets_max)
        self.done: list[tuple[int, Exception | None]] = []
        self.work = (HastyWork if hasty else SyncWork)(self.journal, lambda *result: self.done.append(result))
        self.committer = Committer(broker, self.journal, self.work, self.paging)
        self.recovered = self.committer.recover(lambda: self.bench.now_us)  # number of messages

    def _write(self, number: int, pages: list[list[bytes]]) -> None:
        self.unwritten.append((number, pages))

    def write(self) -> None:
        """Submit, do and report the work until nothing is left to write."""
        while self.bench.broker.log.size():
            self.committer.submit()
            while self.work.is_waiting:
                self.work.perform()
            for batch, error in self.done:
                assert error is None
                self.committer.on_disk(batch)
            self.done.clear()

    def page_step(self) -> bool:
        """Do one step of the pager, or write one segment; return False if there was nothing to do."""
        if self.unwritten:
            self.paging.written(self.segments.write(*self.unwritten.pop()), None)
            return True
        return self.paging.step() or bool(self.unwritten)

    def page(self) -> None:
        """Check the memory, and move everything that has to go to disk."""
        self.paging.look()
        while self.page_step() or self.bench.broker.log.size():
            self.write()
