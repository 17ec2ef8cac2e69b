"""Publishing along very many bindings takes several turns, in which other clients are served: lookup.py.

These tests count turns; other tests check that the right queues are found.
"""

from __future__ import annotations

import random

import pytest

from leveret.broker.exchanges import routing
from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.route import QUEUES_MAX
from leveret.broker.queues.queue import Queue
from leveret.broker.vhost import VHost
from leveret.wire import grammar
from leveret.wire.method import method_frame
from leveret.wire.table import encode_value, join_table

from .support import STREAM, Bench, Client, recovered

NO_ARGUMENTS = b"\0\0\0\0"


def turns(client: Client) -> int:
    """Let a client's peer finish its work; return how many turns that took."""
    count = 0
    while client.peer.has_more:
        client.raw(b"")
        count += 1
        assert count < 100
    return count


# headers that one binding requires; MANY such bindings are three times more than a turn handles
WANTED = join_table([(b"x-match", encode_value("any")), *((b"h%d" % number, b"V") for number in range(1000))])
MANY = int(3 * routing.WORK_MAX // 1000)


def laid(bench: Bench, kind: str) -> tuple[Client, VHost]:
    """Return a client in confirm mode, with an exchange x of this type and the queues first, last and dead."""
    client = bench.connect()
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type=kind)
    for name in ("first", "last", "dead"):
        client.queue(name)
    client.call(1, grammar.CONFIRM_SELECT)
    return client, bench.broker.vhosts["/"]


def bind(vhost: VHost, name: str, key: str, arguments: bytes = NO_ARGUMENTS) -> None:
    vhost.bind(Binding(vhost.exchanges["x"], vhost.queues[name], key, arguments))


def crowded(bench: Bench) -> tuple[Client, VHost]:
    """Add very many bindings to the exchange; the first and the last of them match messages with the header n."""
    client, vhost = laid(bench, "headers")
    wanted = join_table([(b"n", encode_value(1))])
    bind(vhost, "first", "", wanted)
    for number in range(MANY):
        bind(vhost, "dead", str(number), WANTED)
    bind(vhost, "last", "", wanted)
    return client, vhost


def counts(vhost: VHost, *names: str) -> list[int]:
    return [int(vhost.queues[name].count()) for name in names]


def test_a_message_past_very_many_headers_bindings_takes_several_turns() -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    other = bench.connect()
    client.raw(client.encoded("", b"1", exchange="x", headers={"n": 1}) + client.encoded("last", b"2"))
    assert (client.peer.has_more, counts(vhost, "first", "last")) == (True, [0, 0])
    other.publish("last", b"other")
    assert counts(vhost, "last") == [1]
    assert 3 <= turns(client) <= 5
    assert counts(vhost, "first", "last", "dead") == [1, 3, 0]
    ready = vhost.queues["last"].in_memory()
    assert [entry.content[-2:-1] for entry in ready] == [b"r", b"1", b"2"]
    assert [method.number("delivery_tag") for method in client.methods()] == [2]
    client.publish("", b"3", exchange="x")  # it is unroutable
    assert turns(client) >= 3
    assert counts(vhost, "first", "last", "dead") == [1, 3, 0]
    assert [method.number("delivery_tag") for method in client.methods()] == [3]


def test_a_large_message_that_came_in_pieces_waits_as_well() -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    data = client.encoded("", bytes(300_000), exchange="x", headers={"n": 1}) + client.encoded("last", b"2")
    for at in range(0, len(data), 70_000):
        client.raw(data[at : at + 70_000])
    turns(client)
    assert counts(vhost, "first", "last") == [1, 2]
    assert len(vhost.queues["first"].in_memory()[0].content) > 300_000


def test_a_channel_that_closes_and_a_client_that_dies_meanwhile_leave_nothing() -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    client.publish("", b"1", exchange="x", headers={"n": 1})
    client.peer.close_channel(client.peer.channels[1], 406, "closed by the test")
    turns(client)
    assert (client.peer.is_suspended, client.peer.seeker.is_idle) == (False, True)
    again = bench.connect()
    again.publish("", b"1", exchange="x", headers={"n": 1})
    assert again.peer.is_suspended
    again.peer.lost(bench.now_us)
    assert (again.peer.is_suspended, again.peer.seeker.is_idle) == (False, True)
    assert counts(vhost, "first", "last", "dead") == [0, 0, 0]


def test_an_exchange_that_goes_meanwhile_is_missed_and_only_its_channel_closes() -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    client.send(2, grammar.CHANNEL_OPEN)
    client.raw(client.encoded("", b"1", exchange="x", headers={"n": 1}) + method_frame(2, grammar.CHANNEL_CLOSE))
    bench.connect().call(1, grammar.EXCHANGE_DELETE, exchange="x")
    turns(client)
    closed, answered = client.methods()[1:]
    assert (closed.name, closed.number("reply_code")) == ("channel.close", 404)
    assert answered.name == "channel.close-ok"
    assert not client.peer.is_suspended
    assert counts(vhost, "first", "last", "dead") == [0, 0, 0]


def test_an_alarm_meanwhile_keeps_back_only_what_comes_behind() -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    client.publish("", b"1", exchange="x", headers={"n": 1})
    bench.broker.block_reason = "low on memory"
    client.publish("last", b"2")
    client.publish("last", b"3")
    assert client.peer.is_blocked
    turns(client)
    assert counts(vhost, "first", "last") == [1, 1]
    bench.broker.block_reason = ""
    client.raw(client.peer.release())
    turns(client)
    assert counts(vhost, "first", "last") == [1, 3]


def test_what_comes_and_goes_meanwhile_is_no_obstacle_and_the_way_is_not_kept() -> None:
    """The queue of a matched binding is deleted, another binding is added; the result is used for one message only.

    The first turn handles all bindings of the first exchange, the next one those of the second, x.
    """
    bench = Bench()
    client, vhost = laid(bench, "topic")
    chance = random.Random(1)
    for _ in range(300):
        bind(vhost, "dead", ".".join(["b", *chance.choices("#*a", k=120)]))
        bind(vhost, "dead", ".".join(["#", *chance.choices("#*a", k=60), "b"]))
    client.call(1, grammar.EXCHANGE_BIND, source="amq.fanout", destination="x")
    for name in ("first", "last"):
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.publish("k", b"1", exchange="amq.fanout")
    assert client.peer.is_suspended
    other = bench.connect()
    other.call(1, grammar.QUEUE_DELETE, queue="first")
    other.queue("new")
    other.call(1, grammar.QUEUE_BIND, queue="new", exchange="amq.fanout")
    turns(client)
    assert counts(vhost, "last", "new", "dead") == [1, 0, 0]
    client.publish("k", b"2", exchange="amq.fanout")
    assert turns(client) > 0
    assert counts(vhost, "last", "new", "dead") == [2, 1, 0]
    client.publish("k", b"3", exchange="amq.fanout")
    assert not client.peer.has_more  # this route is cached
    assert counts(vhost, "last", "new", "dead") == [3, 2, 0]


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_very_many_copies_past_many_patterns_take_several_turns(header: str) -> None:
    bench = Bench()
    client, vhost = laid(bench, "topic")
    for number in range(400):
        bind(vhost, "first", f"#.{number}.#")
    bind(vhost, "last", "#.copy.399")
    client.publish("399", b"1", exchange="x", headers={header: [f"copy.{number}" for number in range(600)]})
    assert turns(client) > 3
    assert counts(vhost, "first", "last", "dead") == [1, 1, 0]


def test_a_history_keeps_such_a_message_once_and_its_confirm_waits_for_that() -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="history", type="x-recent-history", durable=True)
    client.call(1, grammar.EXCHANGE_BIND, source="history", destination="x")
    for is_being_synced in (False, True):
        client.publish("k", b"1", exchange="history")
        assert client.peer.is_suspended
        batch = bench.broker.log.batch
        if is_being_synced:
            bench.broker.log.close_batch()
        turns(client)
        assert client.methods() == []
        if not is_being_synced:
            bench.broker.log.close_batch()
        bench.broker.log.on_disk(batch)
        assert [method.name for method in client.methods()] == ["basic.ack"]
    history = vhost.exchanges["history"].history
    assert history is not None
    assert len(history.history) == 2


def test_bindings_that_come_while_those_of_a_fanout_are_followed_lose_none_of_them() -> None:
    bench = Bench()
    client, vhost = laid(bench, "fanout")
    for number in range(routing.WORK_MAX + 1):
        bind(vhost, "first", str(number))
    bind(vhost, "last", "")
    client.publish("k", b"1", exchange="x")
    while client.peer.has_more:
        bind(vhost, "dead", str(bench.now_us))
        bench.now_us += 1
        client.raw(b"")
    client.publish("k", b"2", exchange="x")
    while client.peer.has_more:
        client.raw(b"")
        bind(vhost, "dead", str(bench.now_us))
        bench.now_us += 1
    assert counts(vhost, "first", "last") == [2, 2]


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_very_many_bindings_with_one_key_are_followed_in_several_turns(kind: str) -> None:
    bench = Bench()
    client, vhost = laid(bench, kind)
    for number in range(3 * routing.WORK_MAX):
        bind(vhost, "first", "k", join_table([(b"n", encode_value(number))]))
    bind(vhost, "last", "k")
    client.publish("k", b"1", exchange="x")
    assert turns(client) >= 3
    assert counts(vhost, "first", "last") == [1, 1]


# -- very many queues --------------------------------------------------------------------------------------------------

ALL = join_table([(b"x-match", encode_value("all"))])
WIDE = 2 * QUEUES_MAX + 10


def wide(bench: Bench, durable: bool, kind: str = "fanout") -> tuple[Client, list[Queue]]:
    """Bind very many queues to an exchange x; return a client in confirm mode, and the queues."""
    client, vhost = laid(bench, kind)
    queues = []
    for number in range(WIDE):
        queue = Queue(vhost, f"q{number}", durable, False, {})
        vhost.add_queue(queue, 0, bench.now_us)
        bind(vhost, queue.name, "", ALL if kind == "headers" else NO_ARGUMENTS)
        queues.append(queue)
    client.publish("", b"0", exchange="x")  # finds the route
    while client.peer.has_more:
        client.raw(b"")
    bench.broker.log.close_batch()
    bench.broker.log.on_disk(bench.broker.log.batch - 1)
    client.methods()
    return client, queues


def in_order(queue: Queue) -> list[bytes]:
    return [entry.content[-2:-1] for entry in queue.in_memory()][1:]


@pytest.mark.parametrize("kind", ["fanout", "headers"])
def test_a_message_for_very_many_queues_comes_to_them_in_several_turns(kind: str) -> None:
    bench = Bench()
    client, queues = wide(bench, True, kind)
    other = bench.connect()
    data = client.encoded("", b"1", exchange="x", delivery_mode=2) + client.encoded("q0", b"2", delivery_mode=2)
    client.raw(data + client.encoded("", b"3", exchange="x", delivery_mode=2))
    had = 0
    interrupted = False
    while client.peer.has_more:
        client.raw(b"")
        now = sum(int(queue.count()) - 1 for queue in queues)
        assert now - had <= 2 * QUEUES_MAX + 1
        had = now
        if had >= QUEUES_MAX and not interrupted:
            interrupted = True
            other.publish("q0", b"x")
            assert client.methods() == []
            had += 1
    assert in_order(queues[0]) == [b"1", b"x", b"2", b"3"]
    assert in_order(queues[-1]) == [b"1", b"3"]
    assert client.methods() == []
    batch = bench.broker.log.batch
    bench.broker.log.close_batch()
    bench.broker.log.on_disk(batch)
    assert [method.number("delivery_tag") for method in client.methods()] == [4]


def test_streams_among_very_many_queues_look_at_the_number_of_a_message() -> None:
    bench = Bench()
    client, queues = wide(bench, True)
    client.queue("s", durable=True, arguments=STREAM)
    vhost = bench.broker.vhosts["/"]
    bind(vhost, "s", "")
    numbered = {"x-leveret-publisher": "p", "x-leveret-sequence": 7}
    for _ in range(2):
        client.publish("", b"1", exchange="x", headers=numbered, delivery_mode=2)
        had = sum(int(queue.count()) for queue in queues)
        while client.peer.has_more:
            client.raw(b"")
            now = sum(int(queue.count()) for queue in queues)
            assert now - had <= QUEUES_MAX
            had = now
    assert (queues[0].count(), queues[-1].count(), vhost.queues["s"].count()) == (3, 3, 1)


def test_the_confirm_of_such_a_message_waits_for_what_an_earlier_turn_has_recorded() -> None:
    bench = Bench()
    client, queues = wide(bench, True)
    for queue in queues[QUEUES_MAX:]:
        queue.is_journalled = False
    log = bench.broker.log
    client.publish("", b"1", exchange="x", delivery_mode=2)
    client.raw(b"")
    assert queues[0].count() == 2
    batch = log.batch
    log.close_batch()
    while client.peer.has_more:
        client.raw(b"")
    assert client.methods() == []
    log.on_disk(batch)
    assert [method.number("delivery_tag") for method in client.methods()] == [2]


def test_no_record_names_more_queues_than_its_number_has_room_for() -> None:
    """A dead letter is routed to all queues in one turn."""
    bench = Bench()
    bench.batches.append(b"".join(bench.broker.snapshot()))
    client, vhost = laid(bench, "fanout")
    for number in range(70_000):
        vhost.add_queue(Queue(vhost, f"q{number}", True, False, {}), 0, bench.now_us)
        bind(vhost, f"q{number}", "")
    client.queue("grave", durable=True, arguments={"x-dead-letter-exchange": "x", "x-message-ttl": 1000})
    client.publish("grave", b"1", delivery_mode=2)
    bench.sync()
    bench.pass_time(2_000_000)
    for _ in range(100):
        bench.pass_time(10)
    bench.sync()
    after = recovered(bench.batches).broker.vhosts["/"]
    assert sum(int(queue.count()) for queue in after.queues.values()) == 70_000


def test_a_client_that_dies_while_its_message_is_spread_leaves_it_to_those_that_have_it() -> None:
    bench = Bench()
    client, queues = wide(bench, False)
    client.publish("", b"1", exchange="x")
    client.raw(b"")
    client.peer.lost(bench.now_us)
    assert (client.peer.is_suspended, client.peer.seeker.spread) == (False, None)
    assert (queues[0].count(), queues[-1].count()) == (2, 1)


def test_very_many_copies_for_the_default_exchange_are_a_turn_of_their_own() -> None:
    bench = Bench()
    client, vhost = laid(bench, "fanout")
    client.raw(client.encoded("last", b"1", headers={"CC": [""] * 20_000}) * 3)
    assert [counts(vhost, "last")] + [(client.raw(b""), counts(vhost, "last"))[1] for _ in range(2)] == [[1], [2], [3]]
