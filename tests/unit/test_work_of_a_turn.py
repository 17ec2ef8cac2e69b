"""No turn does more than its share: what is long is done in parts, however much there is of it.

Each test counts what one turn or step has done, and then that all of it comes to its end.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from leveret.broker.acknowledgement import ACKED_MAX
from leveret.broker.binding import Binding
from leveret.broker.broker import DUE_MAX, LATE_MAX
from leveret.broker.consumer import CROWDED_OCTETS_MAX, OUT_OCTETS_MAX
from leveret.broker.kinds.direct import Direct
from leveret.broker.log import GONE_AT_ONCE
from leveret.broker.pager import DEAD_MAX
from leveret.broker.queue import CROWD, EXPIRED_MAX, Queue
from leveret.broker.remains import STEP
from leveret.broker.way_back import COUNTED_COST, STEP_MAX
from leveret.control.commands.definitions import ImportDefinitions
from leveret.control.definitions.document import Document
from leveret.control.definitions.importing import Import
from leveret.control.directory import Directory, Place
from leveret.control.refusal import Refused
from leveret.control.sliced import CHUNK, Steps
from leveret.session import lifecycle
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.method import method_frame
from leveret.wire.table import Value

from .house import House
from .support import SECOND_US, Bench, Client

MANY = 3 * GONE_AT_ONCE


def fill(client: Client, count: int, key: str = "q", **values: Any) -> None:
    """Messages that differ in size, so that each is kept by itself."""
    pair = [client.encoded(key, bytes(8 + number % 2), **values) for number in range(2)]
    client.raw(b"".join(pair) * (count // 2))


def queue_of(bench: Bench, name: str = "q") -> Queue:
    return bench.broker.vhosts["/"].queues[name]


def house_with(count: int, persistent: bool, **options: Any) -> tuple[House, Client]:
    house = House(MemoryDisk(), **options)
    client = house.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    fill(client, count, delivery_mode=2 if persistent else 1)
    house.write()
    client.frames()
    return house, client


def segment_of(house: House) -> tuple[int, list[bytes]]:
    """What the pager moves away of a house that has too much in memory."""
    house.pager.relieve(1500)
    while house.pager.step():
        pass
    found = house.pager.segment()
    assert found is not None
    return found


@pytest.mark.parametrize("persistent", [False, True])
def test_a_segment_that_is_stored_is_taken_over_a_page_at_a_time(persistent: bool) -> None:
    house, _ = house_with(200, persistent, octets_max=3000)
    found = segment_of(house)
    pages = len(found[1])
    assert pages > 2
    queue = queue_of(house.bench)
    house.paging.written(house.segments.write(*found), None)
    assert (len(queue.in_memory()), len(queue.shelf.ready.waiting_pages())) == (200, 0)
    for settled in range(1, pages + 1):
        assert house.pager.is_writing
        assert house.paging.step()
        assert len(queue.shelf.ready.waiting_pages()) == settled
    assert not house.pager.is_writing
    assert queue.count() == 200


def test_a_crash_between_two_pages_of_a_segment_loses_nothing() -> None:
    house, _ = house_with(200, True, octets_max=3000)
    found = segment_of(house)
    house.paging.written(house.segments.write(*found), None)
    house.pager.settle()
    house.write()
    house.pager.settle()
    house.disk.crash()
    assert House(house.disk).recovered == 200


def test_dead_pages_are_looked_at_some_at_a_time_and_all_segments_go() -> None:
    house, client = house_with(2, True, octets_max=3000)
    while len(queue_of(house.bench).shelf.pages) <= 2 * DEAD_MAX:
        fill(client, 400, delivery_mode=2)
        house.write()
        house.page()
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    log = house.bench.broker.log
    batch = log.batch
    data = log.close_batch()
    house.journal.append(data)
    house.committer.on_disk(batch)
    left = len(log.dead_pages)
    assert left > 2 * DEAD_MAX
    while log.dead_pages:
        assert house.paging.step() == (left > DEAD_MAX)
        assert left - len(log.dead_pages) <= DEAD_MAX
        left = len(log.dead_pages)
    house.page()
    assert (house.pager.segments, queue_of(house.bench).shelf.pages) == ({}, [])


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("spec", [grammar.QUEUE_PURGE, grammar.QUEUE_DELETE])
def test_what_is_purged_or_deleted_is_freed_some_at_a_time(spec: grammar.MethodSpec, persistent: bool) -> None:
    house, client = house_with(MANY, persistent)
    log = house.bench.broker.log
    client.send(1, spec, queue="q")
    assert sum(len(items) for items in log.gone) == MANY
    house.write()
    assert client.methods()[-1].number("message_count") == MANY
    left = MANY
    while log.has_waste:
        house.paging.step()
        assert left - sum(len(items) for items in log.gone) <= GONE_AT_ONCE
        left = sum(len(items) for items in log.gone)
    assert left == 0
    house.disk.crash()
    assert House(house.disk).recovered == 0


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("spec", [grammar.QUEUE_PURGE, grammar.QUEUE_DELETE])
def test_pages_go_with_what_is_purged_or_deleted(spec: grammar.MethodSpec, persistent: bool) -> None:
    house, client = house_with(200, persistent, octets_max=3000)
    house.page()
    assert house.pager.segments
    client.send(1, spec, queue="q")
    house.page()
    assert (house.pager.segments, house.segments.numbers()) == ({}, [])
    house.disk.crash()
    assert House(house.disk).recovered == 0


def test_few_messages_are_freed_at_once() -> None:
    house, client = house_with(10, False)
    client.send(1, grammar.QUEUE_DELETE, queue="q")
    assert not house.bench.broker.log.has_waste


def test_a_purge_of_runs_makes_one_record_of_each_stretch_of_ids() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", durable=True)
    client.raw(client.encoded("q", delivery_mode=2) * 500)
    bench.sync()
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    assert len(bench.sync()) < 60


@pytest.mark.parametrize("has_limits", [False, True])
def test_a_turn_takes_out_so_many_expired_messages_and_no_more(has_limits: bool) -> None:
    bench = Bench()
    client = bench.connect()
    count = 5 * EXPIRED_MAX
    client.queue("q", arguments={"x-max-length": 2 * count} if has_limits else {})
    client.publish("q")
    fill(client, count, expiration="1000")
    bench.now_us += 10 * SECOND_US
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    assert queue_of(bench).count() >= count - 3 * EXPIRED_MAX
    for _ in range(count // LATE_MAX):
        bench.pass_time(0)
    assert queue_of(bench).count() == 0


def test_while_much_is_late_each_turn_has_little_of_it() -> None:
    bench = Bench()
    client, other = bench.connect(), bench.connect()
    client.queue("q")
    fill(client, 2 * DUE_MAX, expiration="1000")
    bench.now_us += 10 * SECOND_US
    other.publish("elsewhere")
    for taken in range(DUE_MAX, 2 * DUE_MAX, LATE_MAX):
        assert queue_of(bench).count() == 2 * DUE_MAX - taken
        other.publish("elsewhere")
    bench.pass_time(0)
    fill(client, 2 * DUE_MAX, expiration="1000")  # all was done, so there is time for much again
    bench.now_us += 10 * SECOND_US
    other.publish("elsewhere")
    assert queue_of(bench).count() == DUE_MAX


def with_many_that_expire(bench: Bench, expiration: str) -> Client:
    """A client with a queue: one that stays, four turns' worth that expire, one that stays."""
    client = bench.connect()
    client.queue("q")
    client.publish("q", b"first")
    fill(client, 4 * EXPIRED_MAX, expiration=expiration)
    client.publish("q", b"last")
    return client


def test_a_consumer_waits_some_turns_for_what_is_behind_many_expired_messages() -> None:
    bench = Bench()
    client = with_many_that_expire(bench, "1000")
    bench.now_us += 10 * SECOND_US
    client.frames()
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    assert client.bodies() == [b"first"]
    assert queue_of(bench).count() >= 2 * EXPIRED_MAX
    for _ in range(4):
        bench.pass_time(0)
    assert client.bodies() == [b"last"]


def test_the_pager_looks_only_at_queues_that_had_messages() -> None:
    house = House(MemoryDisk())
    client = house.bench.connect()
    for number in range(50):
        client.send(1, grammar.QUEUE_DECLARE, queue=f"q{number}")
    filled = house.bench.broker.log.filled
    fill(client, 2, "q7")
    fill(client, 2, "q8")
    assert [queue.name for queue in filled] == ["q7", "q8"]
    client.send(1, grammar.QUEUE_PURGE, queue="q7")
    assert house.pager.octets() > 0
    house.pager.relieve(1 << 30)  # it looks at all that has something
    assert [queue.name for queue in filled] == ["q8"]
    fill(client, 2, "q7")
    assert [queue.name for queue in filled] == ["q8", "q7"]
    client.send(1, grammar.QUEUE_DELETE, queue="q8")
    client.send(1, grammar.QUEUE_DELETE, queue="q7")
    assert not filled
    assert house.pager.octets() == 0


def test_the_record_of_a_queue_is_encoded_once_and_anew_when_it_changes() -> None:
    bench = Bench()
    bench.connect().queue("q", durable=True, arguments={"x-max-length": 5})
    queue = queue_of(bench)
    before = queue.encoded()
    b"".join(bench.broker.snapshot())
    assert queue.encoded() is before
    queue.unplace()
    assert queue.encoded() != before
    queue.arguments = {"x-max-length": 6}
    assert queue.encoded() != before


def exhausted(steps: Steps[list[Place]]) -> list[Place]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(list[Place], end.value)


# -- bindings ----------------------------------------------------------------------------------------------------------


def bound(bench: Bench, count: int, kind: str = "direct") -> Client:
    """A client with a queue that has so many bindings, each with a key of one word."""
    client = bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", exclusive=True)
    client.send(1, grammar.EXCHANGE_DECLARE, exchange="x", type=kind)
    client.frames()
    vhost = bench.broker.vhosts["/"]
    for number in range(count):
        vhost.bind(Binding(vhost.exchanges["x"], vhost.queues["q"], f"k{number}", b"\0\0\0\0"))
    return client


def indexed(matcher: Any) -> int:
    """How many bindings its index has."""
    return len(matcher._by_key if isinstance(matcher, Direct) else matcher._root.children)


@pytest.mark.parametrize("what", ["queue", "exchange", "connection", "virtual host"])
@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_bindings_of_what_is_deleted_are_cleared_away_some_at_a_time(kind: str, what: str) -> None:
    house = House(MemoryDisk())
    bench = house.bench
    client = bound(bench, 3 * STEP, kind)
    vhost = bench.broker.vhosts["/"]
    matcher = vhost.exchanges["x"].matcher
    if what == "queue":
        assert client.call(1, grammar.QUEUE_DELETE, queue="q").spec is grammar.QUEUE_DELETE_OK
    elif what == "exchange":
        assert client.call(1, grammar.EXCHANGE_DELETE, exchange="x").spec is grammar.EXCHANGE_DELETE_OK
    elif what == "connection":
        client.peer.lost(bench.now_us)
    else:
        bench.broker.delete_vhost("/")
    assert vhost.binding_count == 0
    left = indexed(matcher)
    assert left == 3 * STEP
    while bench.broker.log.has_waste:
        house.paging.step()
        assert left - indexed(matcher) <= STEP
        left = indexed(matcher)
    assert left == 0


# -- what operators ask for --------------------------------------------------------------------------------------------


def go_on(client: Client) -> int:
    """As the server does, until all that the client has said is handled; how many more turns that took."""
    turns = 0
    while client.peer.has_more:
        client.bench.broker.give_back(client.bench.now_us)
        client.raw(b"")
        turns += 1
    return turns


def consuming(bench: Bench, count: int, **arguments: Value) -> Client:
    """It has so many messages, and has acknowledged none."""
    client = bench.connect()
    client.queue("q", durable=True, arguments=arguments)
    fill(client, count)
    go_on(client)
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    while client.peer.is_full:
        client.frames()
        client.peer.drained(bench.now_us)
    client.frames()
    assert queue_of(bench).unacked == count
    return client


@pytest.mark.parametrize("tag", [0, 2 * ACKED_MAX + 2])
def test_an_acknowledgement_of_very_many_takes_several_turns(tag: int) -> None:
    bench = Bench()
    client = consuming(bench, 2 * ACKED_MAX + 2)
    ack = method_frame(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=True)
    client.raw(ack + client.encoded("q", b"behind it"))
    queue = queue_of(bench)
    assert (queue.unacked, queue.count()) == (ACKED_MAX + 2, 0)
    assert go_on(client) == 2
    # what came behind it was delivered, and is not covered by it
    assert (queue.unacked, client.bodies(), client.peer.state) == (1, [b"behind it"], lifecycle.RUNNING)


def test_an_acknowledgement_of_all_is_of_what_there_was() -> None:
    """What is delivered between its turns has not been seen by who said it."""
    bench = Bench()
    client = consuming(bench, ACKED_MAX + 2)
    client.raw(method_frame(1, grammar.BASIC_ACK, delivery_tag=0, multiple=True))
    bench.connect().publish("q", b"new")
    assert client.bodies() == [b"new"]
    assert go_on(client) == 1
    assert queue_of(bench).unacked == 1


def test_an_acknowledgement_of_very_many_of_what_is_unknown_is_an_error_at_once() -> None:
    bench = Bench()
    client = consuming(bench, ACKED_MAX + 2)
    client.raw(method_frame(1, grammar.BASIC_ACK, delivery_tag=ACKED_MAX + 3, multiple=True))
    assert not client.peer.has_more
    assert client.methods()[-1].spec is grammar.CHANNEL_CLOSE
    bench.broker.ways_back.finish()
    assert queue_of(bench).count() == ACKED_MAX + 2


def returned_by_steps(bench: Bench, count: int, step: int) -> int:
    """So many messages come back to the queue, and no step brings more than that; how many steps there are."""
    queue, steps = queue_of(bench), 0
    while bench.broker.ways_back.is_busy:
        before = queue.count()
        assert before + queue.unacked == count
        bench.broker.give_back(bench.now_us)
        assert 0 < queue.count() - before <= step
        steps += 1
    assert (queue.count(), queue.unacked, queue.awaiting) == (count, 0, 0)
    return steps


@pytest.mark.parametrize("how", ["lost", "closed", "failed", "timed out"])
def test_what_a_channel_had_comes_back_in_steps(how: str) -> None:
    bench = Bench()
    count = 3 * STEP_MAX + 2
    client = consuming(bench, count)
    if how == "lost":
        client.peer.lost(bench.now_us)
    elif how == "closed":
        assert client.call(1, grammar.CHANNEL_CLOSE).spec is grammar.CHANNEL_CLOSE_OK
    elif how == "failed":
        assert client.call(1, grammar.CHANNEL_OPEN).spec is grammar.CONNECTION_CLOSE
    else:
        client.peer.check_ack_timeouts(bench.now_us)
        client.peer.check_ack_timeouts(bench.now_us + 3600 * SECOND_US)
        assert client.methods()[-1].spec is grammar.CHANNEL_CLOSE
    assert queue_of(bench).count() == STEP_MAX
    assert returned_by_steps(bench, count, STEP_MAX) == 3


def test_what_is_told_how_often_it_came_back_is_more_work() -> None:
    bench = Bench()
    step = STEP_MAX // COUNTED_COST
    consuming(bench, 3 * step, **{"x-queue-type": "quorum"}).peer.lost(bench.now_us)
    assert queue_of(bench).count() == step
    assert returned_by_steps(bench, 3 * step, step) == 2


@pytest.mark.parametrize("tag", [0, 2 * STEP_MAX + 2])
@pytest.mark.parametrize("spec", [grammar.BASIC_NACK, grammar.BASIC_RECOVER])
def test_a_client_gives_very_many_back_in_several_turns(spec: grammar.MethodSpec, tag: int) -> None:
    bench = Bench()
    count = 2 * STEP_MAX + 2
    client = consuming(bench, count)
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
    fields = {"delivery_tag": tag, "multiple": True} if spec is grammar.BASIC_NACK else {}
    client.frames()
    client.raw(method_frame(1, spec, requeue=True, **fields) + method_frame(1, grammar.BASIC_QOS))
    queue = queue_of(bench)
    assert (queue.count(), queue.unacked, client.methods()) == (STEP_MAX, STEP_MAX + 2, [])
    assert go_on(client) == 2
    answers = ["basic.qos-ok"] if spec is grammar.BASIC_NACK else ["basic.recover-ok", "basic.qos-ok"]
    assert [method.name for method in client.methods()] == answers
    assert (queue.count(), queue.unacked, queue.awaiting) == (count, 0, 0)


def test_a_get_behind_very_many_expired_messages_takes_several_turns() -> None:
    bench = Bench()
    client = with_many_that_expire(bench, "1")
    go_on(client)
    bench.now_us += SECOND_US  # no alarm rings: the head has no time to live
    get = method_frame(1, grammar.BASIC_GET, queue="q", no_ack=True)
    client.raw(get)
    assert client.methods()[-1].spec is grammar.BASIC_GET_OK
    before = queue_of(bench).count()
    client.raw(get + get)
    assert before - queue_of(bench).count() <= 2 * EXPIRED_MAX  # the get's, and perhaps the queue's own
    assert client.methods() == []
    assert go_on(client) >= 1
    assert [method.spec.name for method in client.methods()] == ["basic.get-ok", "basic.get-empty"]
    assert queue_of(bench).count() == 0


def file_with(queues: int) -> Document:
    names = [f"q{number}" for number in range(queues)]
    return msgspec.convert(
        {
            "queues": [{"name": name, "vhost": "/", "durable": True} for name in names],
            "bindings": [
                {"source": "amq.direct", "destination": name, "destination_type": "queue", "vhost": "/"}
                for name in names
            ],
        },
        Document,
    )


def test_an_import_is_checked_and_carried_out_entry_by_entry() -> None:
    """Nothing is changed before all is checked."""
    bench = Bench()
    plan = Import(bench.broker, file_with(100))
    assert sum(1 for _ in plan.steps) >= 200
    vhost = bench.broker.vhosts["/"]
    assert not vhost.queues
    steps, before = 0, (0, 0)
    for _ in plan.changes(lambda: bench.now_us):
        now = len(vhost.queues), int(vhost.binding_count)
        assert sum(now) <= sum(before) + 1
        steps, before = steps + 1, now
    assert (steps, len(vhost.queues), vhost.binding_count) == (200, 100, 100)


class Node:
    """As much of control's node as an import needs."""

    def __init__(self, bench: Bench) -> None:
        self.broker = bench.broker
        self.host = self
        self._bench = bench

    def now_us(self) -> int:
        return self._bench.now_us


def test_what_is_declared_while_an_import_is_checked_stays_as_it_is() -> None:
    bench = Bench()
    client = bench.connect()
    command = ImportDefinitions(definitions=file_with(10))
    steps = command._steps(cast(Any, Node(bench)))
    for _ in range(12):
        next(steps)
    client.queue("q3")
    client.publish("q3")
    for _ in steps:
        pass
    queue = queue_of(bench, "q3")
    assert (queue.durable, queue.count(), len(bench.broker.vhosts["/"].queues)) == (False, 1, 10)


def test_an_import_is_refused_if_what_it_relies_on_goes_while_it_is_checked() -> None:
    bench = Bench()
    client = bench.connect()
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="x-consistent-hash")
    document = file_with(3)
    document.bindings = [msgspec.structs.replace(each, source="x", routing_key="1") for each in document.bindings]
    steps = ImportDefinitions(definitions=document)._steps(cast(Any, Node(bench)))
    for _ in range(5):
        next(steps)
    client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="x-consistent-hash")
    document.bindings[2].routing_key = "no number"
    with pytest.raises(Refused, match="bindings"):
        list(steps)
    assert not bench.broker.vhosts["/"].queues


def test_the_names_of_many_queues_are_sorted_in_steps() -> None:
    bench = Bench()
    vhost = bench.broker.vhosts["/"]
    names = dict.fromkeys(f"q{number * 7919 % 10_000:05}" for number in range(10_000))
    vhost.changed()
    directory = Directory()
    count = sum(1 for _ in directory.places(vhost, names))
    found = exhausted(directory.places(vhost, names))
    assert [name for _, name in found] == sorted(names)
    assert count >= len(names) // CHUNK


@pytest.mark.parametrize("count", [1, 2])
def test_who_consumes_a_long_queue_gets_a_part_of_it_in_a_turn(count: int) -> None:
    house, publisher = house_with(CROWD, False, octets_max=3000)
    for _ in range(3):
        fill(publisher, CROWD)
    house.page()
    queue = queue_of(house.bench)
    assert queue.shelf.ready.waiting_pages()
    consumers = [house.bench.connect() for _ in range(count)]
    for consumer in consumers:
        consumer.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    received = turns = 0
    while queue.count() > CROWD:
        received += told(consumers, CROWDED_OCTETS_MAX)
        turns += 1
    assert turns > 1
    while queue.count():
        received += told(consumers, OUT_OCTETS_MAX)
    received += told(consumers, OUT_OCTETS_MAX)
    assert received == 4 * CROWD


def told(consumers: list[Client], octets_max: int) -> int:
    """How many messages these got in a turn, of hardly more octets than that; the next turn is over, too."""
    received = 0
    for consumer in consumers:
        assert consumer.peer.output.octets() < octets_max + 1000
        received += len(consumer.bodies())
        consumer.peer.drained(consumer.bench.now_us)
    return received
