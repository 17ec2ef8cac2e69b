"""Paging of long queues to disk is invisible to clients, and a restart changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.net.disk.paging import LOOK_OCTETS
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .rig import FILE_SIZE, SEGMENTS, Rig
from .support import SECOND_US, Client
from .test_runs import alike


def body(number: int) -> bytes:
    return b"%08d" % number


def start(rig: Rig) -> Client:
    client = rig.bench.connect()
    for name, durable in (("d", True), ("t", False)):
        client.send(1, grammar.QUEUE_DECLARE, queue=name, durable=durable)
        client.send(1, grammar.QUEUE_BIND, queue=name, exchange="amq.topic", routing_key=name)
    rig.write()
    client.frames()
    return client


def paged(batches: int) -> tuple[Rig, Client]:
    """Return a rig whose durable queue has ten messages per batch, most of them on disk."""
    rig = Rig(MemoryDisk(), octets_max=3000)
    client = start(rig)
    for _ in range(batches):
        client.raw(b"".join(alike("d", 10, delivery_mode=2)))
        rig.write()
        rig.page()
    return rig, client


def drain(client: Client, queue: str) -> list[bytes]:
    """Consume all messages of a queue without acknowledgements and return their bodies."""
    client.send(1, grammar.BASIC_CONSUME, queue=queue, no_ack=True, consumer_tag=queue)
    bodies = client.bodies()
    client.send(1, grammar.BASIC_CANCEL, consumer_tag=queue)
    client.frames()
    return bodies


def in_memory(rig: Rig, queue: str) -> int:
    return len(rig.bench.broker.vhosts["/"].queues[queue].in_memory())


@pytest.mark.parametrize("queue", ["d", "t"])
@pytest.mark.parametrize("is_alike", [True, False])
def test_a_long_queue_goes_to_disk_and_comes_back_in_order(queue: str, is_alike: bool) -> None:
    rig = Rig(MemoryDisk(), octets_max=3000)
    client = start(rig)
    for _ in range(20):
        messages = alike(queue, 10, delivery_mode=2)
        for data in [b"".join(messages)] if is_alike else messages:
            client.raw(data)
        rig.write()
        rig.page()
    assert in_memory(rig, queue) <= 50
    assert len(rig.disk.list_names(SEGMENTS)) > 1
    assert drain(client, queue) == [body(number) for number in range(10)] * 20
    rig.write()
    rig.page()
    assert rig.disk.list_names(SEGMENTS) == []


def test_what_is_on_disk_comes_back_after_a_crash_without_its_journal_files() -> None:
    rig, _ = paged(30)
    disk = rig.disk
    assert len(rig.journal.files()) <= 4
    disk.crash()
    again = Rig(disk, octets_max=3000)
    assert again.recovered == 300
    assert in_memory(again, "d") < 100
    reader = again.bench.connect()
    reader.send(1, grammar.BASIC_GET, queue="d", no_ack=False)
    assert reader.methods()[-1].flag("redelivered")
    reader.send(1, grammar.BASIC_NACK, delivery_tag=1, requeue=True)
    assert drain(reader, "d") == [body(number) for number in range(10)] * 30


def test_unacknowledged_messages_do_not_keep_a_journal_file() -> None:
    disk = MemoryDisk()
    rig = Rig(disk)
    client = start(rig)
    client.raw(b"".join(alike("d", 3, delivery_mode=2)))
    client.send(1, grammar.BASIC_CONSUME, queue="d", consumer_tag="c")
    assert client.bodies() == [body(0), body(1), body(2)]
    client.send(1, grammar.BASIC_ACK, delivery_tag=2)
    client.send(1, grammar.BASIC_NACK, delivery_tag=3, requeue=True)
    client.frames()
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
    for _ in range(10):  # other traffic fills journal files
        client.raw(b"".join(alike("t", 3)) + b"".join(alike("d", 3, delivery_mode=2)))
        rig.write()
        client.send(1, grammar.QUEUE_PURGE, queue="t")
        rig.write()
        rig.page()
    assert rig.journal.files()[0] > 3
    disk.crash()
    again = Rig(disk)
    assert again.recovered == 2 + 30
    assert drain(again.bench.connect(), "d") == [body(0), body(2)] + [body(0), body(1), body(2)] * 10


@pytest.mark.parametrize("method", [grammar.QUEUE_PURGE, grammar.QUEUE_DELETE])
def test_purge_and_delete_free_the_disk(method: grammar.MethodSpec) -> None:
    rig, client = paged(20)
    disk = rig.disk
    client.frames()
    client.send(1, method, queue="d")
    rig.write()
    (answer,) = client.methods() if method is grammar.QUEUE_PURGE else [None]
    assert answer is None or answer.number("message_count") == 200
    rig.page()
    assert disk.list_names(SEGMENTS) == []
    disk.crash()
    assert Rig(disk).recovered == 0


def test_a_lost_segment_costs_its_messages_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    rig, client = paged(20)
    disk = rig.disk
    path = f"{SEGMENTS}/{disk.list_names(SEGMENTS)[0]}"
    content = bytearray(disk.read(path))
    content[9000] ^= 1
    file = disk.create(path)
    file.write(0, [bytes(content)])
    left = drain(client, "d")
    assert 150 < len(left) < 200
    assert "messages are lost" in caplog.text
    assert client.call(1, grammar.QUEUE_DECLARE, queue="d", passive=True).number("message_count") == 0
    disk.remove(path)
    disk.sync_directory(SEGMENTS)
    disk.crash()
    again = Rig(disk)
    assert again.recovered < 200
    assert "the segments that held them are missing" in caplog.text


NAMES = st.sampled_from(["d", "t"])
OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), NAMES, st.integers(1, 12), st.integers(1, 2)),
    st.tuples(st.just("publish"), NAMES, st.integers(1, 12), st.integers(1, 2)),
    st.tuples(st.just("get"), NAMES, st.integers(1, 9)),
    st.tuples(st.sampled_from(["ack", "nack", "requeue", "purge"]), NAMES, st.integers(0, 9)),
    st.tuples(st.sampled_from(["write", "step", "page", "page"]), NAMES, st.just(0)),
)


def play(operations: list[tuple[str, str, int, int]], rig: Rig, *, pages: bool) -> Client:
    client = start(rig)
    number = 0
    for operation, queue, value, *more in operations:
        number += 1
        if operation == "publish":
            client.raw(b"".join(alike(queue, value, delivery_mode=more[0], message_id=str(number))))
        elif operation == "get":
            for _ in range(value):
                client.send(1, grammar.BASIC_GET, queue=queue, no_ack=value % 3 == 0)
        elif operation in ("ack", "nack", "requeue"):
            unacked = client.peer.channels[1].unacked
            tag = max(1, int(client.peer.channels[1].next_tag) - 1 - value)
            if not unacked.has(tag):
                continue
            multiple = value % 2 == 0
            if operation == "ack":
                client.send(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=multiple)
            else:
                requeue = operation == "requeue"
                client.send(1, grammar.BASIC_NACK, delivery_tag=tag, multiple=multiple, requeue=requeue)
        elif operation == "purge" and value == 0:
            client.send(1, grammar.QUEUE_PURGE, queue=queue)
        elif operation == "write":
            rig.write()
        elif operation == "step" and pages:
            rig.paging.look()
            rig.page_step()
        elif operation == "page" and pages:
            rig.page()
    rig.write()
    return client


def contents(rig: Rig) -> list[list[tuple[bytes, bool]]]:
    """Return (content, redelivered) of every message of queues d and t, in order."""
    client = rig.bench.connect()
    found: list[list[tuple[bytes, bool]]] = []
    for name in ("d", "t"):
        queue = rig.bench.broker.vhosts["/"].queues.get(name)
        entries: list[tuple[bytes, bool]] = []
        while queue is not None and (entry := queue.peek()) is not None:
            entries.append((entry.content, entry.redelivered))
            queue.message_list.ready.drop()
        assert queue is None or queue.count() == 0
        found.append(entries)
    client.peer.lost(rig.bench.now_us)
    return found


@settings(max_examples=300)
@given(st.lists(OPERATIONS, max_size=40))
def test_pages_cannot_be_told_from_memory(operations: list[tuple[str, str, int, int]]) -> None:
    usual, paged = Rig(MemoryDisk(), file_size=1 << 20), Rig(MemoryDisk(), octets_max=2000)
    seen = []
    for rig in (usual, paged):
        client = play(operations, rig, pages=rig is paged)
        seen.append([(frame.kind, frame.channel, frame.payload) for frame in client.frames()])
    assert seen[0] == seen[1]
    assert contents(usual) == contents(paged)


@settings(max_examples=300)
@given(st.lists(OPERATIONS, max_size=40))
def test_pages_come_back_as_memory_does(operations: list[tuple[str, str, int, int]]) -> None:
    found = []
    for pages in (False, True):
        disk = MemoryDisk()
        rig = Rig(disk, octets_max=2000) if pages else Rig(disk, file_size=1 << 20)
        play(operations, rig, pages=pages)
        disk.crash()
        again = Rig(disk, octets_max=2000)
        found.append(contents(again))
        assert again.recovered == len(found[-1][0])
    assert found[0] == found[1]


def test_time_to_live_goes_on_on_disk() -> None:
    rig = Rig(MemoryDisk(), octets_max=2000)
    client = rig.bench.connect()
    arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.send(1, grammar.QUEUE_DECLARE, queue="d", durable=True, arguments=arguments)
    client.send(1, grammar.QUEUE_DECLARE, queue="dead", durable=True)
    client.send(1, grammar.QUEUE_BIND, queue="d", exchange="amq.topic", routing_key="d")
    for _ in range(10):
        client.raw(b"".join(alike("d", 10, delivery_mode=2)))
        rig.write()
        rig.page()
    client.frames()
    rig.bench.pass_time(SECOND_US - 1)
    assert client.call(1, grammar.QUEUE_DECLARE, queue="dead", passive=True).number("message_count") == 0
    rig.bench.pass_time(1)
    assert drain(client, "dead") == [body(number) for number in range(10)] * 10


def always_paging(disk: MemoryDisk, file_size: int = FILE_SIZE) -> tuple[Rig, Client]:
    """Return a rig that pages out every message as soon as possible."""
    rig = Rig(disk, octets_max=0, file_size=file_size)
    return rig, start(rig)


def count(rig: Rig, queue: str) -> int:
    return int(rig.bench.broker.vhosts["/"].queues[queue].count())


def test_pages_do_not_overlap_though_what_lies_between_unacknowledged_messages_has_one() -> None:
    disk = MemoryDisk()
    rig, client = always_paging(disk)
    for number in range(4):
        client.publish("d", body(number), delivery_mode=2)
    for _ in range(2):
        client.send(1, grammar.BASIC_GET, queue="d")
    rig.write()
    rig.page()  # pages out the third and the fourth message
    for number in range(4, 6):
        client.publish("d", body(number), delivery_mode=2)
    for _ in range(4):
        client.send(1, grammar.BASIC_GET, queue="d")
    for _ in range(6):
        client.publish("d", b"x" * 400, delivery_mode=2)
        rig.write()
    rig.page()  # the unacknowledged messages keep the oldest files
    assert rig.journal.files()[0] > 1
    disk.crash()
    again = Rig(disk)
    assert drain(again.bench.connect(), "d") == [body(number) for number in range(6)] + [b"x" * 400] * 6


def test_messages_in_pages_expire_after_a_restart_though_nobody_looks_at_their_queue() -> None:
    disk = MemoryDisk()
    rig, client = always_paging(disk)
    for expiration, mode in (("5000", 1), ("1000", 2)):
        client.publish("d", expiration=expiration, delivery_mode=mode)
    rig.write()
    rig.page()
    assert count(rig, "d") == 2
    disk.crash()
    again = Rig(disk)
    again.bench.pass_time(SECOND_US - 1)
    assert count(again, "d") == 1
    again.bench.pass_time(1)
    assert count(again, "d") == 0


def test_what_an_orderly_stop_says_of_messages_in_pages_is_not_lost_with_its_file() -> None:
    disk = MemoryDisk()
    rig, client = always_paging(disk, file_size=1)  # every batch completes a file
    for number in range(2):
        client.publish("d", body(number), delivery_mode=2)
    rig.write()
    rig.page()
    client.send(1, grammar.BASIC_GET, queue="d")
    client.peer.lost(rig.bench.now_us)
    rig.bench.broker.stop()
    rig.write()
    queue = Rig(disk).bench.broker.vhosts["/"].queues["d"]
    found = []
    while (entry := queue.peek()) is not None:
        found.append(entry.redelivered)
        queue.message_list.ready.drop()
    assert found == [True, False]


def test_a_queue_that_is_deleted_while_the_pager_has_it_in_mind() -> None:
    rig, client = paged(20)
    for _ in range(10):
        client.publish("d", bytes(50), delivery_mode=2)
    rig.write()
    rig.pager.relieve(0)
    client.send(1, grammar.QUEUE_DELETE, queue="d")
    rig.page()
    rig.disk.crash()
    assert Rig(rig.disk).recovered == 0


def test_a_segment_that_is_ready_after_an_orderly_stop_is_not_recorded_behind_it() -> None:
    disk = MemoryDisk()
    rig, client = always_paging(disk)
    client.publish("d", delivery_mode=2)
    rig.write()
    rig.pager.relieve(0)
    while not rig.unwritten:
        rig.page_step()
    rig.bench.broker.stop()
    rig.write()
    while rig.page_step():
        pass
    assert not rig.bench.broker.log.size()
    assert not Rig(disk).bench.broker.vhosts["/"].queues["d"].in_memory()[0].redelivered


def test_paging_is_behind_while_memory_grows_and_a_segment_is_on_its_way() -> None:
    rig = Rig(MemoryDisk(), octets_max=1000)
    client = start(rig)
    for _ in range(20):
        client.raw(b"".join(alike("t", 10)))
    rig.paging.received(LOOK_OCTETS)
    assert rig.paging.is_behind
    while rig.paging.step():
        pass
    assert rig.paging.is_behind
    rig.paging.saves_room = True
    assert not rig.paging.is_behind, "then the disk's alarm is what stops publishers"
    rig.paging.saves_room = False
    rig.page_step()
    assert not rig.paging.is_behind


def test_what_comes_while_messages_are_moved_is_moved_too() -> None:
    rig = Rig(MemoryDisk(), octets_max=3000)
    client = start(rig)
    runs = 0
    for count in (30, 5):  # the second lot is below the memory limit, but above half of it
        for _ in range(count):
            client.raw(b"".join(alike("t", 10)))
        runs += count
        rig.paging.look()
        while not rig.unwritten:
            assert rig.page_step()
    while rig.page_step():
        pass
    assert rig.pager.octets() <= 1500
    assert drain(client, "t") == [body(number) for number in range(10)] * runs


def immovable(octets_max: int) -> tuple[Rig, Client]:
    """Return a rig with a message of 1,000 octets on disk and in memory; the other one of its page is gone."""
    rig = Rig(MemoryDisk(), octets_max=octets_max)
    client = start(rig)
    for size in (100, 1000):
        client.publish("d", bytes(size), delivery_mode=2)
    rig.write()
    rig.pager._page_octets = 5000
    rig.pager.relieve(0)
    while not rig.unwritten:
        rig.page_step()
    client.send(1, grammar.BASIC_GET, queue="d", no_ack=True)
    while rig.page_step():
        pass
    rig.write()
    client.frames()
    assert rig.pager.octets() > 1000
    return rig, client


def test_what_cannot_be_moved_is_tried_once_in_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, _ = immovable(500)
    tries: list[int] = []
    relieve = rig.paging._relieve

    def tried() -> None:
        tries.append(rig.pager.octets())
        relieve()

    monkeypatch.setattr(rig.paging, "_relieve", tried)
    for looks in (1, 2):
        rig.paging.look()
        for _ in range(3):
            assert not rig.page_step()
        assert len(tries) == looks


def test_nobody_waits_for_what_cannot_be_moved() -> None:
    rig, client = immovable(100)
    rig.paging.look()
    assert rig.paging.is_behind  # more than six times the limit, and no paging has failed yet
    assert not rig.page_step()
    for _ in range(3):
        assert not rig.paging.is_behind
        rig.paging.look()
    client.publish("d", bytes(1000))
    rig.paging.look()
    assert rig.paging.is_behind, "this one can be moved"
    while rig.page_step():
        pass
    rig.paging.look()
    assert not rig.paging.is_behind
    assert [len(each) for each in drain(client, "d")] == [1000, 1000]


def test_a_large_message_at_the_head_goes_to_the_disk_at_once() -> None:
    rig = Rig(MemoryDisk(), octets_max=3000)
    client = start(rig)
    for name in ("d", "t"):
        client.publish(name, bytes(5000))
        client.publish(name, b"small")
    rig.paging.look()
    while rig.page_step():
        pass
    assert rig.pager.octets() < 1500
    assert in_memory(rig, "t") == 0
    assert [len(each) for each in drain(client, "t")] == [5000, 5]
