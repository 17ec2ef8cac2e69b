"""Log, journal and sync thread together: rotation and the removal of files that hold nothing alive."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from leveret.net.commit import Committer
from leveret.store.disk import MemoryDisk
from leveret.store.format import DATA_START
from leveret.store.journal import Journal
from leveret.store.sync import SyncWork
from leveret.wire import grammar

from .support import Bench

FILE_SIZE = DATA_START + 300


class HastyWork(SyncWork):
    """A sync thread so fast that a request is carried out before submit() returns."""

    def submit(self, batch_id: int, payload: bytes | Sequence[bytes], rotate_snapshot: bytes | None = None) -> None:
        super().submit(batch_id, payload, rotate_snapshot)
        self.perform()


class House:
    """A broker with a journal; the test plays the sync thread."""

    def __init__(self, disk: MemoryDisk, hasty: bool = False) -> None:
        self.bench = Bench()
        self.journal = Journal(disk, "/data", FILE_SIZE, random.Random(disk.crashes).randbytes)
        self.done: list[tuple[int, Exception | None]] = []
        self.work = (HastyWork if hasty else SyncWork)(self.journal, lambda *result: self.done.append(result))
        self.committer = Committer(self.bench.broker, self.journal, self.work)
        self.recovered = self.committer.recover(self.bench.now_us)

    def write(self) -> None:
        """Submit, carry out, report, until nothing is left to write."""
        while self.bench.broker.log.size():
            self.committer.submit()
            while self.work.is_waiting:
                self.work.perform()
            for batch, error in self.done:
                assert error is None
                self.committer.on_disk(batch)
            self.done.clear()


@pytest.mark.parametrize("hasty", [False, True])
def test_a_file_stays_while_a_message_in_it_lives_however_fast_the_thread_is(hasty: bool) -> None:
    disk = MemoryDisk()
    house = House(disk, hasty)
    client = house.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    for text in (b"1", b"2", b"3", b"4"):
        client.publish("q", text * 400, delivery_mode=2)  # every second batch ends a file
        house.write()
    for _ in range(2):
        client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    for text in (b"5", b"6"):
        client.publish("q", text * 400, delivery_mode=2)
        house.write()
    assert house.journal.files() == [2, 3, 4]
    disk.crash()
    queue = House(disk).bench.broker.vhosts["/"].queues["q"]
    assert [entry.content[-2:-1] for entry in queue.ready.all()] == [b"3", b"4", b"5", b"6"]
