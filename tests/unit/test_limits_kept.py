"""Limits together with pages on disk, single records for dead letters, and transactions."""

from __future__ import annotations

import pytest

from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, decode_header, encode_header

from .rig import Rig
from .support import Bench, Client
from .test_limits import bodies, publishes, words


def filled(rig: Rig, **arguments: object) -> Client:
    """Fill a durable queue "q" with 200 messages of 8 octets, nearly all of them in pages."""
    client = rig.bench.connect()
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=given)
    for first in range(0, 200, 20):
        client.raw(publishes("q", *[b"%08d" % number for number in range(first, first + 20)], delivery_mode=2))
        rig.write()
        rig.page()
    assert len(rig.bench.broker.vhosts["/"].queues["q"].in_memory()) < 50
    client.frames()
    return client


def left(client: Client) -> list[bytes]:
    """Take everything out of "q"."""
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True, consumer_tag="all")
    found = client.bodies()
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="all")
    client.frames()
    return found


@pytest.mark.parametrize("is_restarted", [False, True])
def test_octets_on_disk_count(is_restarted: bool) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, octets_max=3000)
    client = filled(rig, x_max_length_bytes=1608, x_overflow="reject-publish")
    if is_restarted:
        disk.crash()
        rig = Rig(disk, octets_max=3000)
        client = rig.bench.connect()
    client.call(1, grammar.CONFIRM_SELECT)
    client.raw(publishes("q", b"too large", b"it fits!", b"x"))
    assert [word for word, _, _ in words(client)] == ["basic.nack", "basic.ack", "basic.nack"]
    assert left(client) == [*[b"%08d" % number for number in range(200)], b"it fits!"]
    assert int(rig.bench.broker.vhosts["/"].queues["q"].limits.octets) == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_oldest_are_dropped_from_disk(is_restarted: bool) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, octets_max=3000)
    client = filled(rig, x_max_length=200)
    if is_restarted:
        disk.crash()
        rig = Rig(disk, octets_max=3000)
        client = rig.bench.connect()
    client.raw(publishes("q", b"one", b"more", delivery_mode=2))
    rig.write()
    disk.crash()
    again = Rig(disk, octets_max=3000)
    assert again.recovered == 200
    assert left(again.bench.connect()) == [*[b"%08d" % number for number in range(2, 200)], b"one", b"more"]


def test_no_page_is_read_for_a_queue_with_limits_that_is_not_full() -> None:
    disk = MemoryDisk()
    filled(Rig(disk, octets_max=3000), x_max_length=1000, x_message_ttl=60_000)
    disk.crash()
    rig = Rig(disk, octets_max=3000)
    assert rig.bench.broker.vhosts["/"].queues["q"].in_memory() == []
    places: list[int] = []

    def read(segment: int, offset: int, size: int) -> bytes | None:
        places.append(segment)
        return None

    rig.bench.broker.log.read_page = read
    rig.bench.connect().raw(publishes("q", b"more", delivery_mode=2))
    assert places == []


def test_a_lost_page_does_not_fill_its_queue_for_ever() -> None:
    rig = Rig(MemoryDisk(), octets_max=3000)
    client = filled(rig, x_max_length_bytes=1600, x_overflow="reject-publish")
    rig.bench.broker.log.read_page = lambda *_: None
    assert len(left(client)) < 200
    client.call(1, grammar.CONFIRM_SELECT)
    client.raw(publishes("q", b"x" * 1600))
    assert words(client) == [("basic.ack", 1, False)]


def test_the_count_of_returns_is_kept_beside_the_publishers_headers() -> None:
    """It continues after a restart, and a dead letter has the headers that it was published with."""
    disk = MemoryDisk()
    rig = Rig(disk)
    client = rig.bench.connect()
    arguments = {"x-delivery-limit": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other"}
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=arguments)
    client.raw(publishes("q", b"back", delivery_mode=2))
    rig.write()
    client.send(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=True)
    client.send(1, grammar.QUEUE_DECLARE, queue="other", durable=True)
    for _ in range(10):  # other messages fill files
        client.raw(publishes("other", b"x" * 200, b"y" * 200, delivery_mode=2))
        rig.write()
        client.send(1, grammar.QUEUE_PURGE, queue="other")
        rig.write()
        rig.page()
    assert rig.bench.broker.vhosts["/"].queues["q"].message_list.pages
    disk.crash()
    reader = Rig(disk).bench.connect()
    reader.send(1, grammar.BASIC_CONSUME, queue="q")
    header, body = [frame.payload for frame in reader.frames() if frame.kind > 1]
    assert (decode_header(header)[0].headers, body) == ({"x-delivery-count": 1}, b"back")
    reader.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=False)
    reader.send(1, grammar.BASIC_GET, queue="other")
    headers = decode_header(next(frame.payload for frame in reader.frames() if frame.kind == 2))[0].headers or {}
    assert ("x-death" in headers, "x-delivery-count" in headers) == (True, False)


def test_a_dead_letter_that_one_queue_refuses_and_another_takes_leaves_its_own_once() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("full", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.queue("takes", durable=True)
    for name in ("full", "takes"):
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.queue("q", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout"})
    client.publish("q", delivery_mode=2)
    client.send(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=False)
    assert (bodies(bench, "full"), bodies(bench, "takes")) == ([], [b"x"])
    assert int(bench.broker.log._current_live) == 1


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("overflow", "kept"), [("drop-head", [b"2", b"3"]), ("reject-publish", [b"1", b"2"])])
def test_limits_are_asked_at_the_commit(overflow: str, kept: list[bytes]) -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", durable=True, arguments={"x-max-length": 2, "x-overflow": overflow})
    client.call(1, grammar.TX_SELECT)
    client.raw(publishes("q", b"1", b"2", b"3", delivery_mode=2))
    assert bodies(bench, "q") == []
    assert client.call(1, grammar.TX_COMMIT).name == ("tx.commit-ok" if overflow == "drop-head" else "channel.close")
    assert bodies(bench, "q") == kept


def test_rejections_in_a_transaction_are_trimmed_at_the_commit() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", arguments={"x-max-length": 1})
    client.publish("q", b"1")
    client.call(1, grammar.TX_SELECT)
    client.send(1, grammar.BASIC_GET, queue="q")
    client.publish("q", b"2")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=True)
    client.call(1, grammar.TX_COMMIT)
    assert bodies(bench, "q") == [b"2"]


def test_copies_wait_for_the_commit_and_find_new_queues() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("first")
    client.call(1, grammar.TX_SELECT)
    method = method_frame(1, grammar.BASIC_PUBLISH, routing_key="first")
    header = encode_header(Properties(headers={"CC": ["second"], "BCC": ["third"]}), 1)
    client.raw(method + content_frames(1, header, b"x", 131072))
    for name in ("second", "third"):
        client.call(1, grammar.QUEUE_DECLARE, queue=name)
    assert [bodies(bench, name) for name in ("first", "second", "third")] == [[], [], []]
    client.call(1, grammar.TX_COMMIT)
    ready = [len(bench.broker.vhosts["/"].queues[name].in_memory()) for name in ("first", "second", "third")]
    assert ready == [1, 1, 1]
