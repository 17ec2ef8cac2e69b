"""Log, journal and sync thread together: rotation, and removal of files without live messages."""

from __future__ import annotations

import errno

import pytest

from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .rig import FILE_SIZE, Rig


@pytest.mark.parametrize("hasty", [False, True])
def test_a_file_stays_while_a_message_in_it_lives_however_fast_the_thread_is(hasty: bool) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, hasty=hasty)
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.publish("q", b"0" * FILE_SIZE, delivery_mode=2)
    rig.write()  # the first file begins with no declarations, so it holds more than others
    for text in (b"1", b"2", b"3", b"4"):
        client.publish("q", text * 400, delivery_mode=2)  # every second batch ends a file
        rig.write()
    for _ in range(3):
        client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    for text in (b"5", b"6"):
        client.publish("q", text * 400, delivery_mode=2)
        rig.write()
    assert rig.journal.files() == [2, 3, 4]
    disk.crash()
    queue = Rig(disk).bench.broker.vhosts["/"].queues["q"]
    assert [entry.content[-2:-1] for entry in queue.in_memory()] == [b"3", b"4", b"5", b"6"]


def stopped_after(disk: MemoryDisk, bodies: list[bytes], fetched: int) -> None:
    """Run an epoch in which these messages come, `fetched` of them are delivered and returned, and which stops
    orderly."""
    rig = Rig(disk)
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    for text in bodies:
        client.publish("q", text, delivery_mode=2)
    for _ in range(fetched):
        client.send(1, grammar.BASIC_GET, queue="q")
    client.peer.lost(rig.bench.now_us)
    rig.bench.broker.stop()
    rig.write()


def redelivered(disk: MemoryDisk) -> list[bool]:
    return [entry.redelivered for entry in Rig(disk).bench.broker.vhosts["/"].queues["q"].in_memory()]


def test_an_orderly_stop_is_one_though_its_batch_filled_the_file() -> None:
    disk = MemoryDisk()
    stopped_after(disk, [b"1" * FILE_SIZE, b"2"], fetched=0)
    stopped_after(disk, [], fetched=1)  # the file is full: after this batch a new one begins
    assert redelivered(disk) == [True, False]


def test_what_an_earlier_stop_said_of_a_message_is_not_said_of_another_with_its_number() -> None:
    """Message numbers begin anew when the files that used the old ones are gone."""
    disk = MemoryDisk()
    stopped_after(disk, [b"1"], fetched=1)
    rig = Rig(disk)
    client = rig.bench.connect()
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    rig.bench.broker.log.next_id = 1
    client.publish("q", b"2", delivery_mode=2)
    rig.bench.broker.stop()
    rig.write()
    assert redelivered(disk) == [False]


@pytest.mark.parametrize("saves_room", [False, True])
def test_on_a_nearly_full_disk_a_file_goes_as_soon_as_nothing_in_it_lives(saves_room: bool) -> None:
    """So consumers alone can make room; otherwise what they have emptied stays until the file is full."""
    disk = MemoryDisk()
    rig = Rig(disk, file_size=1 << 30)
    rig.committer.saves_room = saves_room
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    for _ in range(2):
        client.publish("q", bytes(1 << 20), delivery_mode=2)
    rig.write()
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    rig.write()
    assert rig.journal.files() == [1]  # one message is live
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    rig.write()
    assert rig.journal.files() == ([2] if saves_room else [1])
    client.publish("q", b"the last", delivery_mode=2)
    rig.write()
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    rig.write()
    assert rig.journal.files() == ([2] if saves_room else [1])  # removing a small file is not worth it
    disk.crash()
    assert Rig(disk).recovered == 0


def test_on_a_nearly_full_disk_no_segment_is_written_and_a_failed_one_is_not_tried_again_at_once() -> None:
    rig = Rig(MemoryDisk(), octets_max=1000)
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    for _ in range(20):
        client.publish("q", bytes(400), delivery_mode=2)
        rig.write()
    rig.paging.saves_room = True
    assert not rig.page_step()
    rig.paging.saves_room = False
    while not rig.unwritten:
        assert rig.page_step()
    rig.unwritten.clear()
    rig.paging.written(None, OSError(errno.ENOSPC, "No space left on device"))
    assert not rig.page_step()
    rig.paging.saves_room = False  # as the server does at its next check of the disk
    assert rig.page_step()


@pytest.mark.parametrize("method", [
    ("basic.ack", {}), ("basic.reject", {"requeue": True}), ("basic.reject", {"requeue": False}), ("channel.close", {}),
])
def test_a_deleted_queues_deliveries_keep_no_file(method: tuple[str, dict[str, object]]) -> None:
    rig = Rig(MemoryDisk())
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    client.publish("q", b"1" * FILE_SIZE, delivery_mode=2)
    rig.write()
    client.send(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.QUEUE_DELETE, queue="q")
    rig.write()
    assert rig.journal.files() == [1, 2]
    name, values = method
    spec = {spec.name: spec for spec in grammar.METHODS.values()}[name]
    client.send(1, spec, **({"delivery_tag": 1} if name != "channel.close" else {}), **values)
    client.send(2, grammar.CHANNEL_OPEN)
    client.send(2, grammar.QUEUE_DECLARE, queue="other", durable=True)
    rig.write()
    assert rig.journal.files() == [2]
