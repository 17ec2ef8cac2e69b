"""x-message-deduplication: queues that have each key once, and exchanges that remember keys."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.exchange_types.deduplication import Deduplication, KeyCache
from leveret.broker.messages.deduplication_key import KEPT_OCTETS, KEY_OCTETS_MAX, key_of
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_keys import QueueKeys
from leveret.broker.storage.recovery import Recovery
from leveret.delay.named import NSERVICEBUS
from leveret.delay.topology import QueueDeclaration
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header, replace_property
from leveret.wire.table import Value

from .asking import Operator
from .rig import SEGMENTS, Rig
from .stages import attach, opened, release, settle
from .support import SECOND_US, Bench, Client, recovered

HEADER = "x-deduplication-header"
ON: dict[str, Value] = {"x-message-deduplication": True}


def begun(*, durable: bool = True, **arguments: object) -> tuple[Bench, Client]:
    """Return a broker with the queue "q", which takes no duplicates, and a client in confirm mode."""
    bench = Bench()
    bench.batches.append(b"".join(bench.broker.snapshot()))
    client = bench.connect()
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    client.queue("q", durable=durable, arguments=ON | given)
    client.call(1, grammar.CONFIRM_SELECT)
    return bench, client


def encoded(client: Client, key: object, body: bytes = b"x", exchange: str = "", **values: object) -> bytes:
    """Return the frames of a publish to "q", or to an exchange. key: None = without the header."""
    headers = {} if key is None else {HEADER: key}
    headers |= values.pop("headers", {})  # type: ignore[operator]
    routing_key = "" if exchange else "q"
    return client.encoded(routing_key, body, exchange=exchange, headers=headers, **{"delivery_mode": 2, **values})


def publish(client: Client, key: object, body: bytes = b"x", **values: object) -> None:
    client.raw(encoded(client, key, body, **values))  # type: ignore[arg-type]


def queue_of(bench: Bench, name: str = "q") -> Queue:
    return bench.broker.vhosts["/"].queues[name]


def keys_of(bench: Bench) -> QueueKeys:
    limits = queue_of(bench).limits
    assert limits is not None
    assert limits.keys is not None
    return limits.keys


def get(client: Client, *, no_ack: bool = False, queue: str = "q") -> list[bytes]:
    client.send(1, grammar.BASIC_GET, queue=queue, no_ack=no_ack)
    return client.bodies()


def names(client: Client) -> list[str]:
    return [method.name for method in client.methods()]


# -- keys --------------------------------------------------------------------------------------------------------------


def key(value: object) -> bytes:
    header = encode_header(Properties(headers={"a": 1, HEADER: value, "z": 2}), 1)
    return key_of(content_frames(1, header, b"x", 131072))


def test_equal_values_have_equal_keys_and_others_do_not() -> None:
    values: list[object] = ["1", "", 1, -1, 1.0, 4.2, True, False, None, Decimal("1")]
    values += ["a" * 100, "a" * 101, b"b" * 5000]
    assert len({key(value) for value in values}) == len(values)
    assert all(0 < len(key(value)) <= KEY_OCTETS_MAX for value in values)
    assert key("text") == key(b"text")
    assert key("a" * 5000) == key(b"a" * 5000)


@pytest.mark.parametrize("value", [[1], {"a": 1}, [], {}])
def test_arrays_and_tables_are_no_keys(value: object) -> None:
    assert key(value) == b""


def test_integers_of_all_widths_are_equal() -> None:
    found = set()
    for kind, layout in (("b", ">b"), ("B", ">B"), ("s", ">h"), ("u", ">H"), ("I", ">i"), ("i", ">I"), ("l", ">q")):
        entry = bytes([len(HEADER)]) + HEADER.encode() + kind.encode() + struct.pack(layout, 42)
        header = encode_header(Properties(headers={}), 1)
        header = replace_property(header, "headers", len(entry).to_bytes(4, "big") + entry)
        found.add(key_of(content_frames(1, header, b"x", 131072)))
    assert found == {key(42)}


@pytest.mark.parametrize("tail", [b"", b"S", b"S\0\0\0\x09short", b"?", b"l\0"])
def test_malformed_headers_have_no_key(tail: bytes) -> None:
    entry = bytes([len(HEADER)]) + HEADER.encode() + tail
    header = encode_header(Properties(headers={}), 1)
    header = replace_property(header, "headers", len(entry).to_bytes(4, "big") + entry)
    assert key_of(content_frames(1, header, b"x", 131072)) == b""


def test_no_headers_no_key() -> None:
    assert key_of(content_frames(1, encode_header(Properties(), 1), b"x", 131072)) == b""
    header = encode_header(Properties(headers={"other": HEADER}), 1)
    assert key_of(content_frames(1, header, b"x", 131072)) == b""


# -- queues ------------------------------------------------------------------------------------------------------------


def test_a_duplicate_is_dropped_and_confirmed() -> None:
    bench, client = begun()
    publish(client, "a", b"1")
    publish(client, "a", b"2")
    publish(client, "b", b"3")
    publish(client, None, b"4")
    publish(client, None, b"5")
    bench.sync()
    assert set(names(client)) == {"basic.ack"}
    assert [get(client, no_ack=True) for _ in range(5)] == [[b"1"], [b"3"], [b"4"], [b"5"], []]
    assert keys_of(bench).count() == 0


def test_alike_messages_in_one_read_are_duplicates_of_the_first() -> None:
    bench, client = begun()
    client.raw(b"".join(encoded(client, "a", b"%d" % n) for n in range(8)))
    client.raw(b"".join(encoded(client, None, b"%d" % n) for n in range(8)))
    bench.sync()
    assert queue_of(bench).count() == 9


def test_a_key_stays_until_the_acknowledgement() -> None:
    bench, client = begun()
    publish(client, "a", b"1")
    client.frames()
    assert get(client) == [b"1"]
    publish(client, "a", b"2")
    client.send(1, grammar.BASIC_NACK, delivery_tag=1, requeue=True)
    publish(client, "a", b"3")
    client.frames()
    assert get(client) == [b"1"]
    client.send(1, grammar.BASIC_ACK, delivery_tag=2)
    publish(client, "a", b"4")
    client.frames()
    assert get(client) == [b"4"]
    assert bench is not None


@pytest.mark.parametrize("how", ["multiple", "tx", "reject", "no_ack", "waiting", "closed"])
def test_what_frees_a_key(how: str) -> None:
    bench, client = begun()
    if how == "waiting":
        client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    publish(client, "a", b"1")
    client.frames()
    client.call(2, grammar.CHANNEL_OPEN)
    if how == "tx":
        client.call(2, grammar.TX_SELECT)
    if how in ("multiple", "tx", "reject", "closed"):
        client.send(2, grammar.BASIC_GET, queue="q")
    if how == "multiple":
        client.send(2, grammar.BASIC_ACK, delivery_tag=1, multiple=True)
    elif how == "tx":
        client.send(2, grammar.BASIC_ACK, delivery_tag=1)
        assert keys_of(bench).count() == 1
        client.call(2, grammar.TX_COMMIT)
    elif how == "reject":
        client.send(2, grammar.BASIC_REJECT, delivery_tag=1, requeue=False)
    elif how == "no_ack":
        client.send(2, grammar.BASIC_GET, queue="q", no_ack=True)
    elif how == "closed":
        client.call(2, grammar.CHANNEL_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0)
    assert keys_of(bench).count() == (1 if how == "closed" else 0)


def test_a_key_belongs_to_the_message_that_came_last() -> None:
    """Here both are the first of their priority."""
    bench, client = begun(x_max_priority=3)
    publish(client, "a", b"1", priority=1, expiration="1000")
    client.frames()
    assert get(client) == [b"1"]
    bench.pass_time(SECOND_US)
    publish(client, "a", b"2", priority=2)
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    publish(client, "a", b"3", priority=2)
    assert queue_of(bench).count() == 1


def test_a_key_ends_with_the_time_to_live() -> None:
    """As in the plugin: also of a message that a consumer has, or that waits behind others."""
    bench, client = begun(x_message_ttl=10_000)
    publish(client, "stays", b"0")
    publish(client, "a", b"1", expiration="1000")
    publish(client, "a", b"2", expiration="1000")
    bench.pass_time(SECOND_US)
    publish(client, "a", b"3")
    assert queue_of(bench).count() == 3
    bench.pass_time(9 * SECOND_US)
    client.frames()
    assert get(client) == [b"3"]
    bench.pass_time(SECOND_US)
    publish(client, "a", b"4")
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    publish(client, "a", b"5")
    client.frames()
    assert get(client) == [b"4"]
    assert get(client) == []


def test_the_key_of_a_dropped_or_dead_message_is_free() -> None:
    bench, client = begun(x_max_length=1, x_dead_letter_exchange="", x_dead_letter_routing_key="q")
    client.queue("dead", durable=True, arguments=ON)
    publish(client, "a", b"1")
    publish(client, "b", b"2")
    publish(client, "a", b"3")
    client.frames()
    assert get(client) == [b"3"]
    assert keys_of(bench).count() == 1


def test_dead_letters_are_deduplicated_in_their_new_queue() -> None:
    bench, client = begun()
    client.queue("source", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    for body in (b"1", b"2"):
        client.publish("source", body, headers={HEADER: "a"}, delivery_mode=2, expiration="1000")
    bench.sync()
    bench.pass_time(2 * SECOND_US)
    bench.sync()
    assert (queue_of(bench).count(), queue_of(bench, "source").count()) == (1, 0)
    again = recovered(bench.batches)
    assert (queue_of(again).count(), queue_of(again, "source").count()) == (1, 0)


def test_a_full_queue_refuses_a_duplicate_as_any_message() -> None:
    bench, client = begun(x_max_length=1, x_overflow="reject-publish")
    publish(client, "a", b"1")
    bench.sync()
    client.frames()
    publish(client, "a", b"2")
    bench.sync()
    assert names(client) == ["basic.nack"]


def test_the_others_take_what_is_a_duplicate_in_one_queue() -> None:
    bench, client = begun()
    client.queue("other", durable=True)
    for name in ("q", "other"):
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    publish(client, "a", exchange="amq.fanout")
    publish(client, "a", exchange="amq.fanout", mandatory=True)
    bench.sync()
    assert (queue_of(bench).count(), queue_of(bench, "other").count()) == (1, 2)
    assert "basic.return" not in names(client)


def test_a_duplicate_is_not_confirmed_before_the_first_copy_is_on_disk() -> None:
    bench, client = begun()
    other = bench.connect()
    other.call(1, grammar.CONFIRM_SELECT)
    publish(client, "a")
    publish(other, "a")
    assert names(other) == []
    batch = bench.broker.log.batch
    bench.broker.log.close_batch()
    publish(other, "a")
    assert names(other) == []
    bench.broker.log.on_disk(batch)
    bench.broker.end_turn(bench.now_us)
    assert names(other) == ["basic.ack"]
    publish(other, "a")
    assert names(other) == ["basic.ack"]


def test_a_commit_waits_for_the_first_copy() -> None:
    bench, client = begun()
    other = bench.connect()
    other.call(1, grammar.TX_SELECT)
    publish(client, "a")
    publish(other, "a")
    other.send(1, grammar.TX_COMMIT)
    assert names(other) == []
    bench.sync()
    assert names(other) == ["tx.commit-ok"]
    assert queue_of(bench).count() == 1


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_other_queue_types_refuse_the_argument(kind: str) -> None:
    bench = Bench()
    client = bench.connect()
    closed = client.call(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=ON | {"x-queue-type": kind})
    text = "PRECONDITION_FAILED - invalid arg 'x-message-deduplication' for queue 'q' in vhost '/' of queue type "
    assert closed.text("reply_text") == f"{text}rabbit_{kind}_queue"


def test_the_argument_is_a_boolean_and_false_is_off() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("off", arguments={"x-message-deduplication": False})
    assert queue_of(bench, "off").limits is None
    closed = client.call(1, grammar.QUEUE_DECLARE, queue="q", arguments={"x-message-deduplication": "true"})
    assert closed.text("reply_text") == (
        "PRECONDITION_FAILED - invalid arg 'x-message-deduplication' for queue 'q' in vhost '/': "
        "{unacceptable_type,longstr}"
    )


def policy(bench: Bench, definition: dict[str, Value] | None, *, name: str = "p", exchanges: bool = False) -> None:
    value: dict[str, Value] = {"pattern": "", "apply-to": "exchanges" if exchanges else "queues"}
    policies = bench.broker.vhosts["/"].policies
    policies.set(name, None if definition is None else {**value, "definition": definition}, False)
    bench.pass_time(1)


def test_a_policy_switches_it_on_and_off() -> None:
    """As in the plugin: messages that are there already have no keys, and the policy counts, whatever was declared."""
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    client.queue("declared", arguments=ON)
    client.raw(b"".join(encoded(client, "a", b"%d" % n) for n in range(3)))
    policy(bench, {"x-message-deduplication": True, "max-length": 100})
    client.raw(b"".join(encoded(client, "a", b"%d" % n) for n in range(3, 6)))
    assert queue_of(bench).count() == 4
    client.send(1, grammar.BASIC_CONSUME, queue="q")  # the first three are a run, without keys
    assert client.bodies() == [b"0", b"1", b"2", b"3"]
    client.send(1, grammar.BASIC_ACK, delivery_tag=3, multiple=True)
    assert keys_of(bench).count() == 1
    policy(bench, {"x-message-deduplication": True})  # another policy with the same effect keeps the keys
    assert keys_of(bench).count() == 1
    policy(bench, {"x-message-deduplication": False})
    assert queue_of(bench).limits is None
    assert queue_of(bench, "declared").limits is None
    policy(bench, None)
    assert queue_of(bench, "declared").limits is not None


def test_a_run_that_was_there_has_one_key() -> None:
    """After a restart all messages have their keys, also those from before the policy; a run's leaves with its last."""
    bench = Bench()
    bench.batches.append(b"".join(bench.broker.snapshot()))
    client = bench.connect()
    client.queue("q", durable=True)
    client.raw(b"".join(encoded(client, "a", b"%d" % n) for n in range(5)))
    bench.sync()
    again = Bench()
    recovery = Recovery(again.broker, again.now_us)
    for batch in bench.batches:
        recovery.batch(batch)
    value: dict[str, Value] = {"pattern": "", "definition": {"x-message-deduplication": True}}
    again.broker.vhosts["/"].policies.set("p", value, False)
    recovery.finish()
    client = again.connect()
    client.send(1, grammar.BASIC_QOS, prefetch_count=4)
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    assert client.bodies() == [b"0", b"1", b"2", b"3"]
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
    client.send(1, grammar.BASIC_ACK, delivery_tag=4, multiple=True)
    publish(client, "a", b"5")
    assert keys_of(again).count() == 1
    client.frames()
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    assert client.bodies() == [b"4"]
    assert keys_of(again).count() == 0


def test_a_purge_frees_all_keys_and_their_memory_comes_back_in_steps() -> None:
    rig = Rig(MemoryDisk())
    client = rig.bench.connect()
    client.queue("q", durable=True, arguments=ON)
    for first in range(0, 3000, 500):
        client.raw(b"".join(encoded(client, n, delivery_mode=1) for n in range(first, first + 500)))
    assert keys_of(rig.bench).count() == 3000
    assert keys_of(rig.bench).octets() == 3000 * int(KEPT_OCTETS)
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    assert keys_of(rig.bench).count() == 0
    steps = 0
    while rig.bench.broker.log.has_waste:
        rig.pager.let_go()
        steps += 1
    assert 2 <= steps <= 5
    publish(client, 1)
    assert queue_of(rig.bench).count() == 1
    client.send(1, grammar.QUEUE_DELETE, queue="q")
    rig.pager.let_go()
    assert not rig.bench.broker.log.gone_keys


def paged_out(disk: MemoryDisk) -> tuple[Rig, Client]:
    """Return a broker with 200 messages with keys in the journal and on pages, and their publisher."""
    rig = Rig(disk, octets_max=3000)
    client = rig.bench.connect()
    client.queue("q", durable=True, arguments=ON)
    for first in range(0, 200, 20):
        client.raw(b"".join(encoded(client, n, b"%08d" % n) for n in range(first, first + 20)))
        rig.write()
        rig.page()
    return rig, client


def test_keys_survive_a_restart_in_the_journal_and_on_pages() -> None:
    disk = MemoryDisk()
    paged_out(disk)
    assert len(disk.list_names(SEGMENTS)) > 1
    disk.crash()
    rig = Rig(disk, octets_max=3000)
    assert rig.recovered == 200
    assert keys_of(rig.bench).count() == 200
    client = rig.bench.connect()
    client.raw(b"".join(encoded(client, n, b"again") for n in range(200)))
    assert queue_of(rig.bench).count() == 200
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    assert client.bodies() == [b"%08d" % n for n in range(200)]
    assert keys_of(rig.bench).count() == 0


def test_the_keys_of_messages_that_cannot_be_read_are_free() -> None:
    rig, client = paged_out(MemoryDisk())
    rig.bench.broker.log.read_page = lambda segment, offset, size: None
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    assert len(client.bodies()) < 200
    assert queue_of(rig.bench).count() == 0
    assert keys_of(rig.bench).count() == 0


def test_a_released_message_is_deduplicated() -> None:
    bench = Bench()
    client = opened(bench)
    client.queue("q", durable=True, arguments=ON)
    attach(client, 0, "a")
    for body in (b"1", b"2"):
        publish(client, "a", body)
    publish(client, "b", b"3")
    release(client, 0, "a")
    settle(bench)
    assert [entry.content[-2:-1] for entry in queue_of(bench).in_memory()] == [b"1", b"3"]
    again = recovered(bench.batches)
    assert queue_of(again).count() == 2


class Waiting(NamedTuple):
    """A message of the model; sorts by order of arrival."""

    rank: int  # by priority
    number: int
    key: int | None
    expires_us: int  # 0 = never


class Model:
    """A queue that has each key once, and what died in it. Messages with a time to live are transient."""

    def __init__(self, length_max: int, priorities: int) -> None:
        self.length_max = length_max  # 0 = none
        self.priorities = priorities  # how many it has
        self.waiting: list[Waiting] = []
        self.unacked: dict[int, Waiting] = {}  # by delivery tag
        self.owners: dict[int, Waiting] = {}  # the message that has a key
        self.dead: list[Waiting] = []

    def publish(self, number: int, key: int | None, expires_us: int, now_us: int) -> None:
        owner = None if key is None else self.owners.get(key)
        if owner is not None and (owner.expires_us == 0 or owner.expires_us > now_us):
            return
        message = Waiting(-(number % self.priorities), number, key, expires_us)
        self.waiting = sorted([*self.waiting, message])
        if key is not None:
            self.owners[key] = message
        self.trim(now_us)

    def leave(self, message: Waiting) -> None:
        if message.key is not None and self.owners.get(message.key) == message:
            del self.owners[message.key]

    def die(self, message: Waiting) -> None:
        self.leave(message)
        self.dead.append(message)

    def trim(self, now_us: int) -> None:
        while self.length_max and len(self.waiting) > self.length_max:
            self.die(self.waiting.pop(0))
        while self.waiting and 0 < self.waiting[0].expires_us <= now_us:
            self.die(self.waiting.pop(0))

    def requeue(self, tags: list[int]) -> None:
        self.waiting = sorted([*self.waiting, *(self.unacked.pop(tag) for tag in tags)])

    def restart(self) -> None:
        self.requeue(list(self.unacked))
        self.waiting = [message for message in self.waiting if message.expires_us == 0]
        self.dead = [message for message in self.dead if message.expires_us == 0]
        self.owners = {message.key: message for message in self.waiting if message.key is not None}


OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 3), st.integers(0, 4)),
    st.tuples(st.just("publish"), st.integers(1, 3), st.integers(0, 4)),
    st.tuples(st.just("brief"), st.integers(1, 2), st.integers(0, 4)),
    st.tuples(st.just("fill"), st.integers(1, 15), st.just(0)),
    st.tuples(st.just("get"), st.integers(1, 9), st.booleans()),
    st.tuples(st.sampled_from(["ack", "requeue", "reject"]), st.integers(0, 9), st.booleans()),
    st.tuples(st.sampled_from(["page", "page", "crash", "stop", "purge", "wait"]), st.integers(0, 3), st.just(0)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(OPERATIONS, max_size=40), st.sampled_from([0, 0, 5]), st.sampled_from([1, 3]))
def test_a_queue_without_duplicates_is_as_its_model(
    operations: list[tuple[str, int, int]], length_max: int, priorities: int
) -> None:
    disk = MemoryDisk()
    rig = Rig(disk, octets_max=2000)
    client = rig.bench.connect()
    limit: dict[str, Value] = {"x-max-length": length_max} if length_max else {}
    if priorities > 1:
        limit["x-max-priority"] = priorities
    dead: dict[str, Value] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.send(1, grammar.QUEUE_DECLARE, queue="dead", durable=True)
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=ON | limit | dead)
    rig.write()
    client.frames()
    model = Model(length_max, priorities)
    number, next_tag = 0, 1
    for operation, value, more in operations:
        now_us = rig.bench.now_us
        if operation in ("publish", "brief"):
            expires_us = now_us + SECOND_US if operation == "brief" else 0
            brief: dict[str, object] = {"expiration": "1000", "delivery_mode": 1} if operation == "brief" else {}
            frames = b""
            for _ in range(value):
                brief["priority"] = number % priorities
                frames += encoded(client, more or None, b"%08d" % number, **brief)  # type: ignore[arg-type]
                model.publish(number, more or None, expires_us, now_us)
                number += 1
            client.raw(frames)
        elif operation == "fill":
            for _ in range(value):
                client.raw(encoded(client, 1000 + number, b"%08d" % number, priority=number % priorities))
                model.publish(number, 1000 + number, 0, now_us)
                number += 1
        elif operation == "get":
            for _ in range(value):
                client.frames()
                client.send(1, grammar.BASIC_GET, queue="q", no_ack=bool(more))
                wanted = [model.waiting.pop(0)] if model.waiting else []
                assert client.bodies() == [b"%08d" % message.number for message in wanted]
                for message in wanted:
                    if more:
                        model.leave(message)
                    else:
                        model.unacked[next_tag] = message
                    next_tag += 1
                model.trim(now_us)
        elif operation in ("ack", "requeue", "reject"):
            tags = sorted(model.unacked)[: value + 1]
            if not tags:
                continue
            settled = tags if more else tags[-1:]
            if operation == "ack":
                client.send(1, grammar.BASIC_ACK, delivery_tag=tags[-1], multiple=bool(more))
                for tag in settled:
                    model.leave(model.unacked.pop(tag))
            else:
                is_requeue = operation == "requeue"
                client.send(1, grammar.BASIC_NACK, delivery_tag=tags[-1], multiple=bool(more), requeue=is_requeue)
                if is_requeue:
                    model.requeue(settled)
                else:
                    for tag in settled:
                        model.die(model.unacked.pop(tag))
            model.trim(now_us)
        elif operation == "page":
            rig.write()
            rig.page()
        elif operation == "wait":
            rig.bench.pass_time(SECOND_US + 1)  # no message is due exactly now
            model.trim(rig.bench.now_us)
        elif operation == "purge" and value == 0:
            client.send(1, grammar.QUEUE_PURGE, queue="q")
            rig.write()
            model.waiting, model.owners = [], {}
        elif operation in ("crash", "stop"):
            if operation == "stop":
                client.peer.lost(now_us)
                model.requeue(list(model.unacked))
                model.trim(now_us)
                rig.bench.broker.stop()
            rig.write()
            disk.crash()
            before_us = rig.bench.now_us
            rig = Rig(disk, octets_max=2000)
            rig.bench.pass_time(before_us - rig.bench.now_us)
            client = rig.bench.connect()
            model.restart()
            model.trim(before_us)
            next_tag = 1
        client.frames()
        live = {key for key, owner in model.owners.items() if not 0 < owner.expires_us <= rig.bench.now_us}
        assert keys_of(rig.bench).count() >= len(live)
    client.peer.lost(rig.bench.now_us)
    model.requeue(list(model.unacked))
    model.trim(rig.bench.now_us)
    delivered: list[int] = []
    while model.waiting:
        delivered.append(model.waiting.pop(0).number)
        model.trim(rig.bench.now_us)
    client = rig.bench.connect()
    for name, numbers in (("q", delivered), ("dead", [message.number for message in model.dead])):
        client.send(1, grammar.BASIC_CONSUME, queue=name, no_ack=True)
        assert client.bodies() == [b"%08d" % each for each in numbers]
    assert keys_of(rig.bench).count() == 0


def test_a_level_of_a_delay_layout_takes_duplicates() -> None:
    """A policy for all queues must not drop delayed messages on their way."""
    bench = Bench()
    client = bench.connect()
    for declaration in NSERVICEBUS.topology():
        if isinstance(declaration, QueueDeclaration):
            client.queue(declaration.name, durable=True, arguments=declaration.arguments)
    policy(bench, {"x-message-deduplication": True})
    queues = bench.broker.vhosts["/"].queues.values()
    assert len(queues) > 10
    assert all(queue.level is not None and queue.limits is None for queue in queues)


# -- exchanges ---------------------------------------------------------------------------------------------------------


def exchanging(*, durable: bool = False, **arguments: object) -> tuple[Bench, Client]:
    """Return a broker with a deduplication exchange "d", bound to the queue "q", and a client in confirm mode."""
    bench = Bench()
    bench.batches.append(b"".join(bench.broker.snapshot()))
    client = bench.connect()
    given = {name.replace("_", "-"): value for name, value in ({"x_cache_size": 10} | arguments).items()}
    kind = "x-message-deduplication"
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="d", type=kind, durable=durable, arguments=given)
    client.queue("q", durable=True)
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="d")
    client.call(1, grammar.CONFIRM_SELECT)
    return bench, client


def seen(bench: Bench) -> KeyCache:
    matcher = bench.broker.vhosts["/"].exchanges["d"].matcher
    assert isinstance(matcher, Deduplication)
    return matcher.cache


def test_an_exchange_routes_each_key_once() -> None:
    bench, client = exchanging()
    client.raw(b"".join(encoded(client, "a", b"%d" % n, exchange="d") for n in range(5)))
    client.raw(b"".join(encoded(client, None, b"%d" % n, exchange="d") for n in range(2)))
    bench.sync()
    assert queue_of(bench).count() == 3
    client.frames()
    publish(client, "a", exchange="d", mandatory=True)
    bench.sync()
    assert names(client) == ["basic.return", "basic.ack"]


def test_a_duplicate_goes_to_the_alternate_exchange() -> None:
    bench, client = exchanging(alternate_exchange="amq.fanout")
    client.queue("others")
    client.call(1, grammar.QUEUE_BIND, queue="others", exchange="amq.fanout")
    for body in (b"1", b"2"):
        publish(client, "a", body, exchange="d")
    assert (queue_of(bench).count(), queue_of(bench, "others").count()) == (1, 1)


def test_the_time_of_a_key_is_its_messages_or_the_exchanges() -> None:
    bench, client = exchanging(x_cache_ttl="1000")
    ttls: dict[str, dict[str, Value]] = {"a": {}, "b": {"x-cache-ttl": 5000}, "c": {"x-cache-ttl": "t"}}
    for key, headers in (ttls | {"d": {"x-cache-ttl": 0}}).items():
        publish(client, key, exchange="d", headers=headers)
        publish(client, key, exchange="d", headers=headers)
    assert queue_of(bench).count() == 5  # d at once
    bench.pass_time(SECOND_US - 1)
    for key in "abc":
        publish(client, key, exchange="d")
    assert queue_of(bench).count() == 5
    bench.pass_time(1)
    for key in "abc":
        publish(client, key, exchange="d")
    assert queue_of(bench).count() == 7
    bench.pass_time(4 * SECOND_US)
    publish(client, "b", exchange="d")
    assert queue_of(bench).count() == 8


def test_a_full_cache_forgets_the_oldest_key() -> None:
    bench, client = exchanging(x_cache_size=2)
    for key in "abcab":
        publish(client, key, exchange="d")
    assert queue_of(bench).count() == 5
    assert seen(bench).count() == 2


def test_a_policy_sets_size_and_time() -> None:
    """As in the plugin the policy counts, not the declaration; without it the declaration does again."""
    bench, client = exchanging(x_cache_size=1, x_cache_ttl=1000)
    policy(bench, {"x-cache-size": 50, "x-cache-ttl": 5000}, exchanges=True)
    for key in range(40):
        publish(client, key, exchange="d")
    bench.pass_time(2 * SECOND_US)
    for key in range(40):
        publish(client, key, exchange="d")
    assert queue_of(bench).count() == 40
    policy(bench, None, exchanges=True)
    for key in range(100, 130):
        publish(client, key, exchange="d")
    assert seen(bench).count() == 1


def test_the_cache_of_an_exchange_is_empty_after_a_restart() -> None:
    bench, client = exchanging(durable=True)
    publish(client, "a", exchange="d")
    bench.sync()
    again = recovered(bench.batches)
    publish(again.connect(), "a", exchange="d")
    assert queue_of(again).count() == 2


def test_a_duplicate_at_an_exchange_is_not_confirmed_before_the_first_copy_is_on_disk() -> None:
    bench, client = exchanging()
    other = bench.connect()
    other.call(1, grammar.CONFIRM_SELECT)
    publish(client, "a", exchange="d")
    publish(other, "a", exchange="d")
    assert names(other) == []
    bench.sync()
    assert names(other) == ["basic.ack"]
    publish(other, "a", exchange="d")
    assert names(other) == ["basic.ack"]


def test_a_deduplication_exchange_takes_nothing_from_a_stage() -> None:
    bench, client = exchanging()
    client = opened(bench, "r")
    attach(client, 0, "a")
    publish(client, "a", exchange="d")
    bench.sync()
    closed = client.methods()[-1]
    assert (closed.name, closed.number("reply_code")) == ("connection.close", 540)
    assert seen(bench).count() == 0


def widened(client: Client) -> None:
    """Let "d" lead on to so many bindings that a lookup takes several turns."""
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="wide", type="fanout")
    client.call(1, grammar.EXCHANGE_BIND, destination="wide", source="d")
    for number in range(20_000):
        client.send(1, grammar.QUEUE_BIND, queue="q", exchange="wide", routing_key=str(number), no_wait=True)


def test_a_publish_that_is_given_up_during_its_lookup_was_not_seen() -> None:
    bench, client = exchanging()
    widened(client)
    publish(client, "a", exchange="d")
    assert client.peer.is_suspended
    assert seen(bench).count() == 1
    client.peer.lost(bench.now_us)
    assert seen(bench).count() == 0
    assert queue_of(bench).count() == 0


def test_a_dead_letter_whose_lookup_begins_anew_is_no_duplicate_of_itself() -> None:
    bench, client = exchanging()
    widened(client)
    client.queue("source", durable=True, arguments={"x-dead-letter-exchange": "d"})
    client.publish("source", headers={HEADER: "a"}, delivery_mode=2, expiration="1000")
    for _ in range(20):
        bench.pass_time(SECOND_US)
        bench.sync()
    assert queue_of(bench).count() == 1
    assert queue_of(bench, "source").undeliverable_count() == 0


def test_a_delayed_exchange_may_deduplicate() -> None:
    bench = Bench()
    client = bench.connect()
    given: dict[str, Value] = {"x-delayed-type": "x-message-deduplication", "x-cache-size": 5}
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="d", type="x-delayed-message", arguments=given)
    client.queue("q")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="d")
    for delay in (1000, 2000, 0):
        publish(client, "a", exchange="d", headers={"x-delay": delay})
    bench.pass_time(3 * SECOND_US)
    assert queue_of(bench).count() == 1


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 6), st.sampled_from([-1, 0, 3, 7]), st.integers(0, 4))))
def test_a_cache_is_as_its_model(size: int, steps: list[tuple[int, int, int]]) -> None:
    """It never has more keys than its size, none beyond its time, and forgets none without need."""
    cache = KeyCache()
    cache.size = size
    model: dict[bytes, float] = {}  # when each expires, in the order of their arrival
    now_ms = 1
    for number, ttl_ms, pause_ms in steps:
        now_ms += pause_ms
        key = b"%d" % number
        is_known = model.get(key, 0) > now_ms
        assert cache.has(key, now_ms * 1000) == is_known
        if is_known:
            continue
        model.pop(key, None)
        cache.add(key, now_ms * 1000, ttl_ms)
        while model and (len(model) >= size or next(iter(model.values())) <= now_ms):
            del model[next(iter(model))]
        model[key] = float("inf") if ttl_ms < 0 else now_ms + ttl_ms
        assert cache.count() == len(model) <= size


def test_explanations_say_what_is_a_duplicate() -> None:
    operator = Operator()
    client = operator.client()
    client.queue("q", arguments=ON)
    kind = "x-message-deduplication"
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="d", type=kind, arguments={"x-cache-size": 5})
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="d")
    for exchange, word in (("d", "has routed before"), ("", "same x-deduplication-header")):
        asked = {"exchange": exchange, "routing_key": "q", "properties": {"headers": {HEADER: "a"}}}
        assert word not in str(operator.ask("explain_route", **asked))
        publish(client, "a", exchange=exchange)
        assert word in str(operator.ask("explain_route", **asked))
        client.send(1, grammar.QUEUE_PURGE, queue="q")
