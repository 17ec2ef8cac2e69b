"""Log, journal and sync thread together: rotation and the removal of files that hold nothing alive."""

from __future__ import annotations

import pytest

from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .house import House


@pytest.mark.parametrize("hasty", [False, True])
def test_a_file_stays_while_a_message_in_it_lives_however_fast_the_thread_is(hasty: bool) -> None:
    disk = MemoryDisk()
    house = House(disk, hasty=hasty)
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
    assert [entry.content[-2:-1] for entry in queue.ready.in_memory()] == [b"3", b"4", b"5", b"6"]
