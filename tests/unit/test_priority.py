"""Priority queues: the order of deliveries, with paging and after any number of restarts."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header
from leveret.wire.scan import priority_of

from .rig import SEGMENTS, Rig
from .support import SECOND_US, Bench, Client

MOST = 3


def declare(client: Client, **arguments: object) -> None:
    client.send(
        1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments={"x-max-priority": MOST, **arguments}
    )


def alike(count: int, first: int, priority: int | None, persistent: bool = True) -> bytes:
    """Return publishes of one priority back to back; the bodies are numbers from `first` on."""
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange="", routing_key="q")
    properties = Properties(priority=priority, delivery_mode=2 if persistent else 1)
    bodies = [b"%08d" % number for number in range(first, first + count)]
    return b"".join(method + content_frames(1, encode_header(properties, 8), body, 131072) for body in bodies)


def publish(client: Client, *priorities: int | None, **values: object) -> None:
    for number, priority in enumerate(priorities):
        client.publish("q", b"%d" % number, priority=priority, **values)


def consume(client: Client, tag: str = "c", **values: object) -> list[bytes]:
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag=tag, **values)
    return client.bodies()


@pytest.mark.parametrize(
    "properties",
    [
        Properties(priority=7),
        Properties(priority=7, content_type="text/plain", delivery_mode=2),
        Properties(priority=7, content_encoding="utf-8", headers={"a": 1}, correlation_id="x"),
        Properties(priority=7, content_type="t", content_encoding="e", headers={}, delivery_mode=1, message_id="m"),
    ],
)
def test_the_priority_is_found_among_other_properties(properties: Properties) -> None:
    assert priority_of(content_frames(1, encode_header(properties, 3), b"abc", 131072)) == 7


def test_no_priority_is_zero() -> None:
    header = encode_header(Properties(content_type="t", headers={"x": 1}, delivery_mode=2, expiration="9"), 3)
    assert priority_of(content_frames(1, header, b"abc", 131072)) == 0


def test_the_highest_priority_goes_first_and_equals_in_the_order_of_their_arrival() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client)
    bench.sync()
    publish(client, 1, None, 3, 0, 200, 1)  # a priority above the queue's maximum counts as the maximum
    assert consume(client) == [b"2", b"4", b"0", b"5", b"1", b"3"]


def test_of_what_comes_in_one_read_the_highest_priority_goes_first_to_a_consumer_that_waits() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client)
    bench.sync()
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    client.frames()
    client.raw(alike(3, 0, 1, persistent=False) + alike(3, 3, 2, persistent=False))
    assert client.bodies() == [b"%08d" % number for number in [3, 4, 5, 0, 1, 2]]


def test_requeued_messages_go_back_to_their_places() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client)
    bench.sync()
    publish(client, 1, 2, 1, 2)
    assert consume(client) == [b"1", b"3", b"0", b"2"]
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
    client.send(1, grammar.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True)
    client.publish("q", b"new", priority=2)
    client.frames()
    assert consume(client) == [b"1", b"3", b"new", b"0", b"2"]


def test_only_what_is_next_expires() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client, **{"x-dead-letter-exchange": "amq.fanout"})
    bench.sync()
    client.queue("dead")
    client.call(1, grammar.QUEUE_BIND, queue="dead", exchange="amq.fanout")
    client.publish("q", b"low", priority=0, expiration="1000")
    client.publish("q", b"high", priority=3, expiration="2000")
    client.publish("q", b"stays", priority=3)
    client.publish("q", b"behind", priority=3, expiration="1000")
    queue = bench.broker.vhosts["/"].queues["q"]
    bench.pass_time(SECOND_US)
    assert queue.count() == 4  # an expired message behind another one waits for it
    bench.pass_time(SECOND_US)
    assert queue.count() == 3
    client.frames()
    client.send(1, grammar.BASIC_CONSUME, queue="dead", no_ack=True)
    assert client.bodies() == [b"high"]
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    assert client.bodies() == [b"stays", b"behind", b"low"]


def test_a_full_queue_drops_its_next_message_whatever_its_priority() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client, **{"x-max-length": 2})
    bench.sync()
    publish(client, 0, 3, 1, 0)
    assert consume(client) == [b"0", b"3"]


def test_runs_of_alike_messages_keep_their_priority() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client)
    bench.sync()
    client.raw(alike(5, 0, 1, persistent=False) + alike(5, 10, 2, persistent=False) + alike(3, 20, 1, persistent=False))
    numbers = [*range(10, 15), *range(5), *range(20, 23)]
    assert consume(client, no_ack=True) == [b"%08d" % number for number in numbers]


def test_priorities_survive_a_restart_on_disk_and_in_the_journal() -> None:
    disk = MemoryDisk()
    rig = Rig(disk, octets_max=3000)
    client = rig.bench.connect()
    declare(client)
    for turn in range(20):
        client.raw(alike(10, 100 * turn, turn % (MOST + 1)))
        rig.write()
        rig.page()
    assert len(disk.list_names(SEGMENTS)) > 1
    disk.crash()
    again = Rig(disk, octets_max=3000)
    assert again.recovered == 200
    wanted = [100 * turn + n for level in range(MOST, -1, -1) for turn in range(level, 20, MOST + 1) for n in range(10)]
    reader = again.bench.connect()
    reader.raw(alike(1, 77777777, 2))
    wanted.insert(100, 77777777)  # behind the 50 messages of priority 3 and the 50 of priority 2
    assert consume(reader, no_ack=True) == [b"%08d" % number for number in wanted]
    again.write()
    again.page()
    assert disk.list_names(SEGMENTS) == []
    disk.crash()
    assert Rig(disk).recovered == 0


def test_deleting_a_priority_queue_frees_its_disk() -> None:
    disk = MemoryDisk()
    rig = Rig(disk, octets_max=3000)
    client = rig.bench.connect()
    declare(client)
    for turn in range(20):
        client.raw(alike(10, 0, turn % 3))
        rig.write()
        rig.page()
    client.send(1, grammar.BASIC_QOS, prefetch_count=100)  # two priorities are unacknowledged at the deletion
    consume(client)
    for _ in range(20):
        rig.page()
        rig.bench.pass_time(0)
    assert rig.bench.broker.vhosts["/"].queues["q"].unacked == 100
    client.send(1, grammar.QUEUE_DELETE, queue="q")
    rig.write()
    rig.page()
    assert disk.list_names(SEGMENTS) == []
    declare(client)
    rig.write()
    disk.crash()
    assert Rig(disk).recovered == 0


class Waiting(NamedTuple):
    """A message of the model; sorts by order of delivery."""

    rank: int
    number: int


OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 12), st.integers(0, 5)),
    st.tuples(st.just("publish"), st.integers(1, 12), st.integers(0, 5)),
    st.tuples(st.just("get"), st.integers(1, 9), st.booleans()),
    st.tuples(st.sampled_from(["ack", "requeue"]), st.integers(0, 9), st.booleans()),
    st.tuples(st.sampled_from(["page", "page", "crash", "stop", "purge"]), st.integers(0, 3), st.just(0)),
)


class Model:
    """Model of a priority queue of persistent messages."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.unacked: dict[int, Waiting] = {}

    def publish(self, first: int, count: int, priority: int) -> None:
        rank = -min(priority, MOST)
        self.waiting = sorted([*self.waiting, *(Waiting(rank, number) for number in range(first, first + count))])

    def restore(self) -> None:
        self.waiting = sorted([*self.waiting, *self.unacked.values()])
        self.unacked = {}


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATIONS, max_size=30))
def test_a_priority_queue_is_as_its_model(operations: list[tuple[str, int, int]]) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, octets_max=2000)
    client = rig.bench.connect()
    declare(client)
    rig.write()
    client.frames()
    model = Model()
    next_number = next_tag = 1
    for operation, value, more in operations:
        if operation == "publish":
            client.raw(alike(value, next_number, more))
            model.publish(next_number, value, more)
            next_number += value
        elif operation == "get":
            for _ in range(value):
                client.send(1, grammar.BASIC_GET, queue="q", no_ack=bool(more))
                wanted = [model.waiting.pop(0)] if model.waiting else []
                assert client.bodies() == [b"%08d" % message.number for message in wanted]
                for message in wanted:
                    if not more:
                        model.unacked[next_tag] = message
                    next_tag += 1
        elif operation in ("ack", "requeue"):
            tags = sorted(model.unacked)[: value + 1]
            if not tags:
                continue
            settled = tags if more else tags[-1:]
            if operation == "ack":
                client.send(1, grammar.BASIC_ACK, delivery_tag=tags[-1], multiple=bool(more))
            else:
                client.send(1, grammar.BASIC_NACK, delivery_tag=tags[-1], multiple=bool(more), requeue=True)
                model.waiting = sorted([*model.waiting, *(model.unacked[tag] for tag in settled)])
            for tag in settled:
                del model.unacked[tag]
        elif operation == "page":
            rig.write()
            rig.page()
        elif operation == "purge" and value == 0:
            client.send(1, grammar.QUEUE_PURGE, queue="q")
            rig.write()
            model.waiting = []
        elif operation in ("crash", "stop"):
            if operation == "stop":
                client.peer.lost(rig.bench.now_us)
                rig.bench.broker.stop()
            rig.write()
            disk.crash()
            rig = Rig(disk, octets_max=2000)
            client = rig.bench.connect()
            model.restore()
            next_tag = 1
            assert rig.recovered == len(model.waiting)
        client.frames()
    model.restore()
    client.send(1, grammar.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True)
    client.frames()
    assert consume(client, no_ack=True) == [b"%08d" % message.number for message in model.waiting]
