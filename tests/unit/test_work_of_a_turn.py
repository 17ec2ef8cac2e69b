"""Work per turn is limited: long work is done in parts, however much there is.

Each test counts the work of one turn or step, and then checks that all of it is completed.
"""

from __future__ import annotations

import gc
import random
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest

from leveret.broker.broker import DUE_MAX, LATE_MAX
from leveret.broker.exchange_types.direct import Direct
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.lookup import ARRIVALS_MAX
from leveret.broker.exchanges.stale_bindings import STEP
from leveret.broker.methods.binding_methods import HISTORY_STEP_OCTETS
from leveret.broker.peer import EXCLUSIVE_COST_MAX, MESSAGES_COST
from leveret.broker.queues.acknowledgement import ACKED_MAX
from leveret.broker.queues.consumer import CROWDED_OCTETS_MAX, OUT_OCTETS_MAX
from leveret.broker.queues.queue import CROWD, EXPIRED_MAX, Queue
from leveret.broker.queues.ready import ITEM_OCTETS
from leveret.broker.queues.requeue_job import COUNTED_COST, STEP_MAX
from leveret.broker.storage.log import GONE_AT_ONCE, SETTLED_AT_ONCE, SETTLED_MAX
from leveret.broker.storage.page import LARGE_PAGE_OCTETS, Page
from leveret.broker.storage.pager import DEAD_MAX, Pager
from leveret.broker.vhost import PREDECLARED
from leveret.broker.vhost_removal import COST_MAX
from leveret.control.commands.definitions import ImportDefinitions
from leveret.control.commands.vhosts import AddVhost, DeleteVhost
from leveret.control.definitions.document import Document
from leveret.control.definitions.importing import Import
from leveret.control.directory import Directory, Place
from leveret.control.refusal import Refused
from leveret.control.sliced import CHUNK, Sliced, Steps
from leveret.session import lifecycle
from leveret.session.assembly import JOINED_AT_ONCE, Assembly
from leveret.session.connection import TURN_METHODS_MAX
from leveret.session.output import Buffer
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.method import method_frame
from leveret.wire.table import Value

from .rig import Rig
from .support import SECOND_US, Bench, Client, recovered

MANY = 3 * GONE_AT_ONCE


def fill(client: Client, count: int, key: str = "q", **values: Any) -> None:
    """Publish messages of alternating size, so that each is kept by itself."""
    pair = [client.encoded(key, bytes(8 + number % 2), **values) for number in range(2)]
    client.raw(b"".join(pair) * (count // 2))


def queue_of(bench: Bench, name: str = "q") -> Queue:
    return bench.broker.vhosts["/"].queues[name]


def rig_with(count: int, persistent: bool, **options: Any) -> tuple[Rig, Client]:
    rig = Rig(MemoryDisk(), **options)
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    fill(client, count, delivery_mode=2 if persistent else 1)
    rig.write()
    client.frames()
    return rig, client


def segment_of(rig: Rig) -> tuple[int, list[list[bytes]]]:
    """Return the segment that the pager would write to relieve memory."""
    rig.pager.relieve(1500)
    while rig.pager.step():
        pass
    found = rig.pager.segment()
    assert found is not None
    return found


@pytest.mark.parametrize("persistent", [False, True])
def test_a_segment_that_is_stored_is_taken_over_a_page_at_a_time(persistent: bool) -> None:
    rig, _ = rig_with(200, persistent, octets_max=3000)
    found = segment_of(rig)
    pages = len(found[1])
    assert pages > 2
    queue = queue_of(rig.bench)
    rig.paging.written(rig.segments.write(*found), None)
    assert (len(queue.in_memory()), len(queue.message_list.ready.waiting_pages())) == (200, 0)
    for settled in range(1, pages + 1):
        assert rig.pager.is_writing
        assert rig.paging.step()
        assert len(queue.message_list.ready.waiting_pages()) == settled
    assert not rig.pager.is_writing
    assert queue.count() == 200


def test_a_crash_between_two_pages_of_a_segment_loses_nothing() -> None:
    rig, _ = rig_with(200, True, octets_max=3000)
    found = segment_of(rig)
    rig.paging.written(rig.segments.write(*found), None)
    rig.pager.settle()
    rig.write()
    rig.pager.settle()
    rig.disk.crash()
    assert Rig(rig.disk).recovered == 200


def test_dead_pages_are_looked_at_some_at_a_time_and_all_segments_go() -> None:
    rig, client = rig_with(2, True, octets_max=3000)
    while len(queue_of(rig.bench).message_list.pages) <= 2 * DEAD_MAX:
        fill(client, 400, delivery_mode=2)
        rig.write()
        rig.page()
    client.send(1, grammar.QUEUE_PURGE, queue="q")
    log = rig.bench.broker.log
    batch = log.batch
    data = log.close_batch()
    rig.journal.append(data)
    rig.committer.on_disk(batch)
    left = len(log.dead_pages)
    assert left > 2 * DEAD_MAX
    while log.dead_pages:
        assert rig.paging.step() == (left > DEAD_MAX)
        assert left - len(log.dead_pages) <= DEAD_MAX
        left = len(log.dead_pages)
    rig.page()
    assert (rig.pager.segments, queue_of(rig.bench).message_list.pages) == ({}, [])


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("spec", [grammar.QUEUE_PURGE, grammar.QUEUE_DELETE])
def test_what_is_purged_or_deleted_is_freed_some_at_a_time(spec: grammar.MethodSpec, persistent: bool) -> None:
    rig, client = rig_with(MANY, persistent)
    log = rig.bench.broker.log
    client.send(1, spec, queue="q")
    assert sum(len(items) for items in log.gone) == MANY
    rig.write()
    assert client.methods()[-1].number("message_count") == MANY
    left = MANY
    while log.has_waste:
        rig.paging.step()
        assert left - sum(len(items) for items in log.gone) <= GONE_AT_ONCE
        left = sum(len(items) for items in log.gone)
    assert left == 0
    rig.disk.crash()
    assert Rig(rig.disk).recovered == 0


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("spec", [grammar.QUEUE_PURGE, grammar.QUEUE_DELETE])
def test_pages_go_with_what_is_purged_or_deleted(spec: grammar.MethodSpec, persistent: bool) -> None:
    rig, client = rig_with(200, persistent, octets_max=3000)
    rig.page()
    assert rig.pager.segments
    client.send(1, spec, queue="q")
    rig.page()
    assert (rig.pager.segments, rig.segments.numbers()) == ({}, [])
    rig.disk.crash()
    assert Rig(rig.disk).recovered == 0


def fill_at_once(client: Client, count: int, key: str = "q") -> None:
    """Like `fill`, with persistent messages, without the work of publishing."""
    vhost, now_us = client.bench.broker.vhosts["/"], client.bench.now_us
    client.publish(key, b"first", delivery_mode=2)
    [route] = client.peer.last_routes()
    content = queue_of(client.bench, key).peek()
    assert content is not None
    for _ in range(count - 1):
        vhost.accept(route, content.content, True, -1, now_us)


def purge_or_delete(bench: Bench, client: Client, spec: grammar.MethodSpec) -> tuple[Queue, list[int]]:
    """Purge or delete a queue; return it and the number of live messages before each turn and after the last."""
    log, queue = bench.broker.log, queue_of(bench)
    lived = [int(queue.count())]
    client.raw(method_frame(1, spec, queue="q"))
    lived.append(log.live())
    while bench.broker.is_busy or client.peer.has_more:
        bench.broker.requeue_step(bench.now_us)
        lived.append(log.live())
        if client.peer.has_more:
            client.raw(b"")
    return queue, lived


@pytest.mark.parametrize("spec", [grammar.QUEUE_PURGE, grammar.QUEUE_DELETE])
def test_what_is_purged_or_deleted_is_settled_some_at_a_time(spec: grammar.MethodSpec) -> None:
    count = SETTLED_AT_ONCE + 2 * SETTLED_MAX + 2
    rig, client = rig_with(0, True)
    bench = rig.bench
    fill_at_once(client, count)
    rig.write()
    queue, lived = purge_or_delete(bench, client, spec)
    assert lived[0] - lived[1] == SETTLED_AT_ONCE
    assert max(before - after for before, after in pairwise(lived[1:])) == SETTLED_MAX
    assert (lived[-1], queue.count(), queue.leaving) == (0, 0, 0)
    rig.write()
    assert client.methods()[-1].number("message_count") == count
    rig.disk.crash()
    assert Rig(rig.disk).recovered == 0


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_purge_is_answered_when_all_of_it_is_on_disk_and_what_comes_meanwhile_stays(is_answered: bool) -> None:
    rig, client = rig_with(0, True)
    fill_at_once(client, SETTLED_AT_ONCE + 2)
    rig.write()
    bench = rig.bench
    other = bench.connect()
    client.raw(method_frame(1, grammar.QUEUE_PURGE, queue="q") + client.encoded("q", b"behind", delivery_mode=2))
    other.publish("q", b"meanwhile", delivery_mode=2)
    rig.write()
    assert client.methods() == []
    if is_answered:
        assert go_on(client) == 1
        rig.write()
        assert [method.name for method in client.methods()] == ["queue.purge-ok"]
    rig.disk.crash()
    assert Rig(rig.disk).recovered == (2 if is_answered else 3)


def test_who_goes_before_the_answer_leaves_a_purge_that_goes_on() -> None:
    rig, client = rig_with(0, True)
    fill_at_once(client, SETTLED_AT_ONCE + 2)
    rig.write()
    bench = rig.bench
    client.raw(method_frame(1, grammar.QUEUE_PURGE, queue="q"))
    client.peer.lost(bench.now_us)
    assert bench.broker.log.live() == 2
    bench.broker.stop()
    assert bench.broker.log.live() == 0


@pytest.mark.parametrize("spec", [grammar.QUEUE_PURGE, grammar.QUEUE_DELETE])
def test_a_segment_that_is_stored_while_its_messages_leave_counts_none_twice(spec: grammar.MethodSpec) -> None:
    """With a wrong count a journal file would be removed too early, or never."""
    rig, client = rig_with(0, True, octets_max=3000)
    fill_at_once(client, 2 * SETTLED_AT_ONCE)
    rig.write()
    client.send(1, grammar.QUEUE_DECLARE, queue="other", durable=True)
    client.publish("other", delivery_mode=2)
    rig.write()
    rig.pager.relieve(100_000)
    while rig.pager.step():
        pass
    found = rig.pager.segment()
    assert found is not None
    client.raw(method_frame(1, spec, queue="q"))
    rig.paging.written(rig.segments.write(*found), None)
    while rig.pager.settle():
        pass
    rig.write()
    rig.paging.step()
    go_on(client)
    while rig.bench.broker.is_busy:
        rig.bench.broker.requeue_step(rig.bench.now_us)
    assert rig.bench.broker.log.live() == 1
    rig.write()
    rig.page()
    assert found[0] not in rig.segments.numbers()
    rig.disk.crash()
    assert Rig(rig.disk).recovered == 1


@pytest.mark.parametrize("how", ["lost", "closes", "is closed"])
def test_queues_go_with_their_connection_some_at_a_time(how: str) -> None:
    bench = Bench()
    client = bench.connect()
    count = 3 * EXCLUSIVE_COST_MAX + 1
    for number in range(count):
        client.send(1, grammar.QUEUE_DECLARE, queue=f"q{number}", exclusive=True, no_wait=True)
    queues = bench.broker.vhosts["/"].queues
    assert len(queues) == count
    if how == "lost":
        client.peer.lost(bench.now_us)
    elif how == "closes":
        client.raw(method_frame(0, grammar.CONNECTION_CLOSE))
    else:
        client.peer.close(320, "enough")
    assert count - len(queues) == EXCLUSIVE_COST_MAX
    while queues:
        assert "connection.close-ok" not in [method.name for method in client.methods()]
        left = len(queues)
        bench.broker.requeue_step(bench.now_us)
        assert 0 < left - len(queues) <= EXCLUSIVE_COST_MAX
    go_on(client)
    assert not bench.broker.is_busy
    assert client.peer.state != lifecycle.RUNNING
    if how == "closes":
        assert [method.name for method in client.methods()] == ["connection.close-ok"]


def test_queues_that_go_with_their_connection_have_so_many_messages_between_them() -> None:
    bench = Bench()
    client = bench.connect()
    for number in range(20):
        client.send(1, grammar.QUEUE_DECLARE, queue=f"q{number}", exclusive=True)
        fill_at_once(client, 2048, f"q{number}")
    client.peer.lost(bench.now_us)
    queues = bench.broker.vhosts["/"].queues
    assert 20 - len(queues) == EXCLUSIVE_COST_MAX // (1 + 2048 // MESSAGES_COST) + 1


def test_the_name_of_a_queue_that_is_still_to_go_with_its_connection_is_free() -> None:
    bench = Bench()
    client, other = bench.connect(), bench.connect()
    for number in range(3 * EXCLUSIVE_COST_MAX):
        client.send(1, grammar.QUEUE_DECLARE, queue=f"q{number}", exclusive=True, no_wait=True)
    client.peer.lost(bench.now_us)
    bench.broker.has_hung_up = lambda connection: connection is client.peer
    assert "q0" in bench.broker.vhosts["/"].queues
    other.queue("q0")
    while bench.broker.is_busy:
        bench.broker.requeue_step(bench.now_us)
    assert list(bench.broker.vhosts["/"].queues) == ["q0"]


@pytest.mark.parametrize("is_awaited", [True, False])
def test_what_is_in_a_virtual_host_goes_some_at_a_time(is_awaited: bool) -> None:
    """Whether or not the client that deletes the virtual host stays connected."""
    bench = Bench()
    bench.sync()
    vhost = bench.broker.vhosts["/"]
    for number in range(COST_MAX):
        vhost.add_exchange(f"x{number}", "fanout", True, False, False, {})
        vhost.add_queue(Queue(vhost, f"q{number}", True, False, {}), 0, bench.now_us)
        vhost.add_queue(Queue(vhost, f"r{number}", True, False, {}), 0, bench.now_us)
    bench.sync()
    result = DeleteVhost(name="/").run(cast(Any, Node(bench)))
    assert isinstance(result, Sliced)
    left = len(vhost.exchanges) + len(vhost.queues)
    while "/" in bench.broker.vhosts:
        if is_awaited:
            next(result.steps)
        else:
            assert bench.broker.is_busy
            bench.broker.requeue_step(bench.now_us)
        now = len(vhost.exchanges) + len(vhost.queues)
        assert left - now <= COST_MAX + len(PREDECLARED)
        left = now
    assert left == 0
    bench.broker.requeue_step(bench.now_us)
    assert not bench.broker.is_busy


def test_a_virtual_host_that_is_being_deleted_is_closed_and_sound_after_a_crash() -> None:
    bench = Bench()
    vhost = bench.broker.vhosts["/"]
    for number in range(2 * COST_MAX):
        vhost.add_exchange(f"x{number}", "fanout", True, False, False, {})
    node = cast(Any, Node(bench))
    result = DeleteVhost(name="/").run(node)
    assert isinstance(result, Sliced)
    next(result.steps)
    again = bench.connect()
    assert again.peer.vhost is bench.broker.nowhere
    with pytest.raises(Refused, match="does not exist"):
        DeleteVhost(name="/").run(node)
    with pytest.raises(Refused, match="is being deleted"):
        AddVhost(name="/").run(node)
    bench.sync()
    after = recovered(bench.batches)
    assert len(after.broker.vhosts["/"].exchanges) == COST_MAX + len(PREDECLARED)


def test_few_messages_are_freed_at_once() -> None:
    rig, client = rig_with(10, False)
    client.send(1, grammar.QUEUE_DELETE, queue="q")
    assert not rig.bench.broker.log.has_waste


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
    fill(client, 2 * DUE_MAX, expiration="1000")  # the backlog is done, so a turn may take the full number again
    bench.now_us += 10 * SECOND_US
    other.publish("elsewhere")
    assert queue_of(bench).count() == DUE_MAX


def with_many_that_expire(bench: Bench, expiration: str) -> Client:
    """Return a client with a queue of one message that stays, four turns' worth that expire, and one that stays."""
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
    rig = Rig(MemoryDisk())
    client = rig.bench.connect()
    for number in range(50):
        client.send(1, grammar.QUEUE_DECLARE, queue=f"q{number}")
    filled = rig.bench.broker.log.filled
    fill(client, 2, "q7")
    fill(client, 2, "q8")
    assert [queue.name for queue in filled] == ["q7", "q8"]
    client.send(1, grammar.QUEUE_PURGE, queue="q7")
    assert rig.pager.octets() > 0
    rig.pager.relieve(1 << 30)  # visits all queues with messages
    assert [queue.name for queue in filled] == ["q8"]
    fill(client, 2, "q7")
    assert [queue.name for queue in filled] == ["q8", "q7"]
    client.send(1, grammar.QUEUE_DELETE, queue="q8")
    client.send(1, grammar.QUEUE_DELETE, queue="q7")
    assert not filled
    assert rig.pager.octets() == 0


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
    """Return a client with a queue that has this many bindings, each with a key of one word."""
    client = bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", exclusive=True)
    client.send(1, grammar.EXCHANGE_DECLARE, exchange="x", type=kind)
    client.frames()
    vhost = bench.broker.vhosts["/"]
    for number in range(count):
        vhost.bind(Binding(vhost.exchanges["x"], vhost.queues["q"], f"k{number}", b"\0\0\0\0"))
    return client


def indexed(matcher: Any) -> int:
    """Return the number of keys in the matcher's index."""
    return len(matcher._by_key if isinstance(matcher, Direct) else matcher._root.children)


@pytest.mark.parametrize("what", ["queue", "exchange", "connection", "virtual host"])
@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_bindings_of_what_is_deleted_are_cleared_away_some_at_a_time(kind: str, what: str) -> None:
    rig = Rig(MemoryDisk())
    bench = rig.bench
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
        rig.paging.step()
        assert left - indexed(matcher) <= STEP
        left = indexed(matcher)
    assert left == 0


# -- methods of one connection -----------------------------------------------------------------------------------------


def test_very_many_methods_of_one_read_take_several_turns() -> None:
    bench = Bench()
    client, queues = bench.connect(), bench.broker.vhosts["/"].queues
    names = [f"q{number}" for number in range(3 * TURN_METHODS_MAX)]
    client.raw(b"".join(method_frame(1, grammar.QUEUE_DECLARE, queue=name, no_wait=True) for name in names))
    counts = [len(queues)]
    while client.peer.has_more:
        assert client.peer.turn(b"", bench.now_us) is client.peer.has_more
        counts.append(len(queues))
    assert counts == [TURN_METHODS_MAX, 2 * TURN_METHODS_MAX, 3 * TURN_METHODS_MAX]
    assert list(queues) == names


def test_who_does_not_read_answers_gets_no_more_of_them_by_turns_that_follow() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    client.raw(method_frame(1, grammar.BASIC_GET, queue="q") * (2 * TURN_METHODS_MAX))
    assert len(client.methods()) == TURN_METHODS_MAX
    client.peer.is_flooded = True  # as the network sets it when the client reads nothing
    client.raw(b"")
    assert client.methods() == []
    client.peer.drained(bench.now_us)
    client.raw(b"")
    assert len(client.methods()) == TURN_METHODS_MAX


def test_errors_do_not_let_a_turn_have_more_methods() -> None:
    bench = Bench()
    client = bench.connect()
    again = [method_frame(1, grammar.CHANNEL_CLOSE_OK), method_frame(1, grammar.CHANNEL_OPEN)]
    wrong = [method_frame(1, grammar.QUEUE_PURGE, queue="missing"), *again]
    client.raw(b"".join(wrong) * TURN_METHODS_MAX)
    assert len([each for each in client.methods() if each.spec is grammar.CHANNEL_CLOSE]) <= TURN_METHODS_MAX // 3 + 1
    assert go_on(client) == 2
    assert client.peer.channels[1].state == lifecycle.OPEN


def huge(pieces: int) -> tuple[Bench, Client, bytes]:
    """Send a message of `pieces` times JOINED_AT_ONCE octets, except for its last 10 octets."""
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    said = client.encoded("q", bytes(pieces * JOINED_AT_ONCE))
    for at in range(0, len(said) - 10, 1 << 18):
        client.raw(said[at : min(at + (1 << 18), len(said) - 10)])
    return bench, client, said


def test_the_content_of_a_huge_message_is_put_together_in_several_turns() -> None:
    bench, client, said = huge(10)
    client.raw(said[-10:] + client.encoded("q", b"behind it"))
    assert client.peer.has_more
    assert queue_of(bench).count() == 0
    assert go_on(client) > 5
    first, second = (entry.content for entry in queue_of(bench).in_memory())
    assert said.endswith(first)
    assert second.endswith(b"behind it\xce")


def test_a_content_that_is_joined_at_once_takes_one_turn() -> None:
    bench, client, said = huge(1)
    client.raw(said[-10:])
    assert not client.peer.has_more
    assert queue_of(bench).count() == 1


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_huge_message_that_is_being_put_together_goes_with_its_channel(is_lost: bool) -> None:
    bench, client, said = huge(10)
    client.raw(said[-10:])
    assert client.peer.is_suspended
    if is_lost:
        client.peer.lost(bench.now_us)
    else:
        client.peer.close_channel(client.peer.channels[1], 406, "an operator's word")
        go_on(client)
    assert (client.peer.is_suspended, queue_of(bench).count()) == (False, 0)
    assert not [each for each in gc.get_objects() if type(each) is Assembly]


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_huge_message_goes_to_the_disk_as_the_object_that_it_is(is_durable: bool) -> None:
    rig = Rig(MemoryDisk(), octets_max=3000)
    client = rig.bench.connect()
    client.queue("q", durable=is_durable)
    client.publish("q", bytes(1 << 20), delivery_mode=2 if is_durable else 1)
    client.publish("q", b"small", delivery_mode=2 if is_durable else 1)
    content = queue_of(rig.bench).in_memory()[0].content
    log = rig.bench.broker.log
    if is_durable:
        batch, pieces = log.batch, log.close_batch()
        assert [piece for piece in pieces if len(piece) > 1000] == [content]
        assert pieces[1] is content
        log.on_disk(batch)
    rig.paging.look()
    while rig.paging.step():
        pass
    [(_, pages)] = rig.unwritten
    assert [piece is content for page in pages for piece in page if len(piece) > 1000] == [True]


def referred(buffers: list[Buffer]) -> tuple[list[object], int]:
    """Return the objects whose octets are referred to, each once, and the number of copied octets."""
    whole = {id(view.obj): view.obj for view in buffers if isinstance(view, memoryview)}
    return list(whole.values()), sum(len(each) for each in buffers if isinstance(each, bytes))


@pytest.mark.parametrize("frame_max", [131072, 4096])
def test_a_huge_message_is_delivered_on_any_channel_without_a_copy(frame_max: int) -> None:
    bench = Bench()
    client, consumer = bench.connect(), bench.connect(frame_max=frame_max)
    client.queue("q")
    body = random.Random(1).randbytes(4 << 20)
    client.publish("q", body)
    content = queue_of(bench).in_memory()[0].content
    consumer.call(2, grammar.CHANNEL_OPEN)
    consumer.frames()
    consumer.send(2, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    buffers = consumer.peer.take(bench.broker.log.synced)
    (found,), copied = referred(buffers)
    assert found is content
    assert copied < 100_000
    consumer.reader.feed(b"".join(buffers))
    frames = consumer.frames()
    assert {frame.channel for frame in frames} == {2}
    assert b"".join(frame.payload for frame in frames if frame.kind == 3) == body


def test_a_huge_message_in_pieces_is_put_together_for_a_consumer_on_another_channel_in_several_turns() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q")
    client.call(2, grammar.CHANNEL_OPEN)
    client.send(2, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=True)
    client.publish("q", b"so that the way is known")
    client.frames()
    said = client.encoded("q", bytes(10 * JOINED_AT_ONCE))
    for at in range(0, len(said), 1 << 18):
        client.raw(said[at : at + (1 << 18)])
    assert client.peer.is_suspended
    assert go_on(client) > 5
    (content,), copied = referred(client.peer.take(bench.broker.log.synced))
    assert isinstance(content, bytes)
    assert said.endswith(content)
    assert copied < 10_000


def far_away(**arguments: Value) -> tuple[Rig, Client, list[Page]]:
    """Page out one huge and three small messages; the returned list collects the pages fetched from now on."""
    rig = Rig(MemoryDisk(), octets_max=3000)
    rig.pager = rig.paging.pager = Pager(rig.bench.broker, page_octets=400, front_octets=0)
    client = rig.bench.connect()
    client.queue("q", durable=True, arguments=arguments)
    client.publish("q", bytes(LARGE_PAGE_OCTETS), delivery_mode=2, priority=2)
    for number in range(3):
        client.publish("q", b"small %d" % number, delivery_mode=2, priority=2)
    rig.write()
    rig.page()
    assert not queue_of(rig.bench).in_memory()
    wanted: list[Page] = []
    rig.bench.broker.log.fetch_page = wanted.append
    return rig, client, wanted


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}])
@pytest.mark.parametrize("consumers", [1, 2])
def test_who_consumes_a_huge_message_waits_until_another_thread_has_read_it(
    arguments: dict[str, Value], consumers: int
) -> None:
    rig, client, wanted = far_away(**arguments)
    for number in range(consumers):
        client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag=f"{number}")
    client.publish("q", b"behind", delivery_mode=2, priority=0)
    assert client.bodies() == []
    assert len(wanted) == 1, "it is asked for once"
    pieces = rig.paging.fetch(wanted[0])
    rig.bench.broker.log.fetched(wanted[0], pieces)
    rig.bench.broker.end_turn(rig.bench.now_us)
    buffers: list[Buffer] = []
    while said := client.peer.take(rig.bench.broker.log.synced):
        buffers += said
        client.peer.drained(rig.bench.now_us)
    assert [each is pieces[1] for each in buffers if len(each) > 1000] == [True]
    client.reader.feed(b"".join(buffers))
    assert [body[-7:] for body in client.bodies()][-4:] == [b"small 0", b"small 1", b"small 2", b"behind"]
    assert not wanted[0].fetched


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_get_of_a_huge_message_waits_until_another_thread_has_tried_to_read_it(is_readable: bool) -> None:
    rig, client, wanted = far_away()
    client.raw(method_frame(1, grammar.BASIC_GET, queue="q") + method_frame(1, grammar.BASIC_QOS))
    for _ in range(3):
        assert client.peer.has_more
        client.raw(b"")
    assert len(wanted) == 1
    rig.bench.broker.log.fetched(wanted[0], rig.paging.fetch(wanted[0]) if is_readable else [])
    client.raw(b"")
    assert [method.spec for method in client.methods()] == [grammar.BASIC_GET_OK, grammar.BASIC_QOS_OK]
    assert queue_of(rig.bench).count() == 3


def test_what_is_deleted_while_it_is_read_is_not_kept() -> None:
    rig, client, wanted = far_away()
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    client.send(1, grammar.QUEUE_DELETE, queue="q")
    rig.bench.broker.log.fetched(wanted[0], rig.paging.fetch(wanted[0]))
    rig.bench.broker.end_turn(rig.bench.now_us)
    assert not wanted[0].fetched


# -- operator commands -------------------------------------------------------------------------------------------------


def go_on(client: Client) -> int:
    """Run turns as the server does until the client's input is handled, and return their number."""
    turns = 0
    while client.peer.has_more:
        client.bench.broker.requeue_step(client.bench.now_us)
        client.raw(b"")
        turns += 1
    return turns


def consuming(bench: Bench, count: int, **arguments: Value) -> Client:
    """Return a client with this many unacknowledged messages."""
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


@pytest.mark.parametrize("to_exchange", [False, True], ids=["queue", "exchange"])
def test_a_long_history_comes_to_what_is_bound_in_several_turns(to_exchange: bool) -> None:
    bench = Bench()
    client = bench.connect()
    long: dict[str, Value] = {"x-recent-history-length": 10_000}
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="x-recent-history", arguments=long)
    client.raw(b"".join(client.encoded("", b"%4d" % number, exchange="x") for number in range(5_000)))
    client.queue("q")
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="fan", type="fanout")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="fan")
    if to_exchange:
        client.send(1, grammar.EXCHANGE_BIND, source="x", destination="fan")
    else:
        client.send(1, grammar.QUEUE_BIND, queue="q", exchange="x")
    assert client.peer.has_more
    had = 0
    while client.peer.has_more:
        assert not client.methods()
        assert queue_of(bench).count() - had <= HISTORY_STEP_OCTETS // ITEM_OCTETS + 1
        had = int(queue_of(bench).count())
        client.raw(b"")
    assert len(client.methods()) == 1
    bodies = [bytes(entry.content[-5:-1]) for entry in queue_of(bench).in_memory()]
    wanted = [b"%4d" % number for number in range(5_000)]
    assert bodies == (wanted[::-1] if to_exchange else wanted)


@pytest.mark.parametrize("how", ["rejected", "expired", "dropped"])
def test_dead_letters_that_fan_out_arrive_some_at_a_time(how: str) -> None:
    bench = Bench()
    client = bench.connect()
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="fan", type="fanout")
    for number in range(100):
        client.queue(f"to {number}")
        client.call(1, grammar.QUEUE_BIND, queue=f"to {number}", exchange="fan")
    arguments: dict[str, Value] = {"x-dead-letter-exchange": "fan"}
    if how == "dropped":
        arguments["x-max-length"] = 1
    client.queue("q", arguments=arguments)
    client.call(1, grammar.BASIC_QOS, prefetch_count=0)
    arrived = 0

    def look() -> int:
        nonlocal arrived
        now = sum(int(queue_of(bench, f"to {number}").count()) for number in range(100))
        assert now - arrived <= ARRIVALS_MAX + 100
        arrived = now
        return now

    count = 1000
    data = client.encoded("q", b"x", **({"expiration": "1000"} if how == "expired" else {})) * count
    client.raw(data)
    while client.peer.has_more:
        look()
        client.raw(b"")
    if how == "rejected":
        client.send(1, grammar.BASIC_CONSUME, queue="q")
        client.frames()
        client.send(1, grammar.BASIC_NACK, delivery_tag=0, multiple=True, requeue=False)
    look()
    bench.pass_time(SECOND_US)
    turns = 1
    while look() < 100 * (count - (how == "dropped")):
        bench.pass_time(10)
        turns += 1
        assert turns < 100
    assert turns >= 100 * count // (ARRIVALS_MAX + 100)


@pytest.mark.parametrize("tag", [0, 2 * ACKED_MAX + 2])
def test_an_acknowledgement_of_very_many_takes_several_turns(tag: int) -> None:
    bench = Bench()
    client = consuming(bench, 2 * ACKED_MAX + 2)
    ack = method_frame(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=True)
    client.raw(ack + client.encoded("q", b"behind it"))
    queue = queue_of(bench)
    assert (queue.unacked, queue.count()) == (ACKED_MAX + 2, 0)
    assert go_on(client) == 2
    # the message behind the ack was delivered, and the ack does not cover it
    assert (queue.unacked, client.bodies(), client.peer.state) == (1, [b"behind it"], lifecycle.RUNNING)


def test_an_acknowledgement_of_all_is_of_what_there_was() -> None:
    """Deliveries between the turns of the ack are not covered, since the client had not seen them."""
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
    bench.broker.requeue_jobs.finish()
    assert queue_of(bench).count() == ACKED_MAX + 2


def returned_by_steps(bench: Bench, count: int, step: int) -> int:
    """Requeue this many messages in steps of at most `step`, and return the number of steps."""
    queue, steps = queue_of(bench), 0
    while bench.broker.requeue_jobs.is_busy:
        before = queue.count()
        assert before + queue.unacked == count
        bench.broker.requeue_step(bench.now_us)
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
    bench.now_us += SECOND_US  # no timer fires, since the head has no time to live
    get = method_frame(1, grammar.BASIC_GET, queue="q", no_ack=True)
    client.raw(get)
    assert client.methods()[-1].spec is grammar.BASIC_GET_OK
    before = queue_of(bench).count()
    client.raw(get + get)
    assert before - queue_of(bench).count() <= 2 * EXPIRED_MAX  # by the get, and perhaps by the queue itself
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
    """Nothing is changed before all entries are checked."""
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
    """The part of a node that an import uses."""

    def __init__(self, bench: Bench) -> None:
        self.broker = bench.broker
        self.host = self
        self._bench = bench

    def now_us(self) -> int:
        return self._bench.now_us

    def peers(self) -> list[Any]:
        return []


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
    rig, publisher = rig_with(CROWD, False, octets_max=3000)
    for _ in range(3):
        fill(publisher, CROWD)
    rig.page()
    queue = queue_of(rig.bench)
    assert queue.message_list.ready.waiting_pages()
    consumers = [rig.bench.connect() for _ in range(count)]
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
    """Return how many messages the consumers got in a turn, and check the octets; ends the next turn, too."""
    received = 0
    for consumer in consumers:
        assert consumer.peer.output.octets() < octets_max + 1000
        received += len(consumer.bodies())
        consumer.peer.drained(consumer.bench.now_us)
    return received
