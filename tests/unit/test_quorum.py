"""Quorum queues where only the core can be tested: restarts, and undeliverable dead letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.dead_letters.undeliverable_retry import NEXT_US, PAUSE_MAX_US, PAUSE_MIN_US, SOON_US, STEP_MAX
from leveret.broker.messages.contents import body_of, header_of
from leveret.broker.messages.entry import Entry
from leveret.broker.queues.queue import Queue
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.properties import decode_header
from leveret.wire.table import Value

from .rig import Rig
from .support import Bench, Client
from .test_dead_letters import history, kill, revived
from .test_limits import publishes

QUORUM: dict[str, Value] = {"x-queue-type": "quorum"}
SURE: dict[str, Value] = {
    **QUORUM, "x-dead-letter-exchange": "x", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
}  # fmt: skip


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.connect()


def queue_of(bench: Bench, name: str) -> Queue:
    return bench.broker.vhosts["/"].queues[name]


def bodies(bench: Bench, name: str) -> list[bytes]:
    """Return the bodies of the ready messages of a queue."""
    return [body_of(entry.content) for each in queue_of(bench, name).message_lists for entry in each.ready.in_memory()]


def kept(bench: Bench, name: str) -> list[bytes]:
    """Return the bodies of the undeliverable messages of a queue that are in memory."""
    undeliverable = queue_of(bench, name).undeliverable
    message_lists = undeliverable.message_lists.values() if undeliverable is not None else []
    return [body_of(entry.content) for message_list in message_lists for entry in message_list.ready.in_memory()]


def strand(bench: Bench, client: Client, *bodies: bytes, name: str = "q") -> None:
    """Publish messages and dead-letter them at once."""
    for body in bodies:
        client.publish(name, body, delivery_mode=2)
        assert kill(bench.broker.vhosts["/"], name, "rejected", bench.now_us)


def traffic(rig: Rig, client: Client) -> None:
    """Send messages through queue "busy" until every removable journal file is removed."""
    first = rig.journal.files()[-1]
    while rig.journal.files()[0] <= first:
        client.publish("busy", b"b" * 1000, delivery_mode=2)
        client.send(1, grammar.BASIC_GET, queue="busy", no_ack=True)
        rig.write()
        rig.page()


def way(client: Client, *queues: str, exchange: str = "x") -> None:
    """Declare an exchange for dead letters and bind the queues to it."""
    client.call(1, grammar.EXCHANGE_DECLARE, exchange=exchange, type="fanout", durable=True)
    for queue in queues:
        client.call(1, grammar.QUEUE_BIND, queue=queue, exchange=exchange)


# -- transient messages ------------------------------------------------------------------------------------------------


def test_transient_messages_outlive_a_restart(bench: Bench, client: Client) -> None:
    """In quorum queues only; alone, in a message batch and in a transaction. Confirms wait for the sync."""
    for name, arguments in (("q", QUORUM), ("classic", {})):
        client.queue(name, durable=True, arguments=arguments)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.call(1, grammar.CONFIRM_SELECT)
    client.publish("", b"alone", exchange="amq.fanout")
    assert client.methods() == []
    bench.sync()
    assert [method.name for method in client.methods()] == ["basic.ack"]
    client.raw(publishes("q", b"1", b"2", b"3"))
    other = bench.connect()
    other.call(1, grammar.TX_SELECT)
    other.publish("", b"tx", exchange="amq.fanout", delivery_mode=1)
    other.call(1, grammar.TX_COMMIT)
    before = bodies(bench, "q")
    assert (len(before), bodies(bench, "classic")) == (5, [b"alone", b"tx"])
    bench.sync()
    again = revived(bench)
    assert (bodies(again, "q"), bodies(again, "classic")) == (before, [])


def test_a_transient_message_beside_a_persistent_one(bench: Bench, client: Client) -> None:
    for name, arguments in (("q", QUORUM), ("classic", {})):
        client.queue(name, durable=True, arguments=arguments)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.publish("", b"transient", exchange="amq.fanout", delivery_mode=1)
    client.publish("", b"persistent", exchange="amq.fanout", delivery_mode=2)
    for name in ("q", "classic"):
        client.send(1, grammar.BASIC_GET, queue=name, no_ack=True)
    bench.sync()
    again = revived(bench)
    assert (bodies(again, "q"), bodies(again, "classic")) == ([b"persistent"], [b"persistent"])
    assert again.broker.log.next_id == bench.broker.log.next_id


# -- undeliverable dead letters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_dead_letter_without_a_way_outlives_a_restart(bench: Bench, client: Client, is_clean: bool) -> None:
    """It stays undeliverable; once a route exists it is delivered, with its time of death."""
    told: list[str] = []
    bench.broker.on_event = told.append
    client.queue("grave", durable=True)
    client.queue("q", durable=True, arguments=SURE)
    strand(bench, client, b"1", b"2")
    assert (bodies(bench, "q"), kept(bench, "q")) == ([], [b"1", b"2"])
    text = "dead letter exchange missing: the message for 'q' is kept until a queue accepts it"
    assert told == [f"queue 'q' in vhost '/': {text} (logged once; all are counted)"]
    if is_clean:
        bench.broker.stop()
    bench.sync()
    again = revived(bench)
    assert (bodies(again, "q"), kept(again, "q")) == ([], [b"1", b"2"])
    way(again.connect(), "grave")
    again.pass_time(int(SOON_US))
    assert (bodies(again, "grave"), kept(again, "q")) == ([b"1", b"2"], [])
    assert [history(entry) for entry in queue_of(again, "grave").in_memory()] == [[("q", "rejected", 1)]] * 2
    again.sync()
    last = revived(again)
    assert (bodies(last, "grave"), bodies(last, "q")) == ([b"1", b"2"], [])


def test_a_delivered_one_is_new_to_the_queue_that_takes_it(bench: Bench, client: Client) -> None:
    """The consumer that rejected it does not get it again; the next consumer gets it as published."""
    client.queue("q", durable=True, arguments=SURE)
    client.publish("q", b"rejected")
    client.send(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=True)
    client.send(1, grammar.BASIC_GET, queue="q")
    client.send(1, grammar.BASIC_REJECT, delivery_tag=2, requeue=False)
    client.publish("q", b"behind")
    assert kept(bench, "q") == [b"rejected"]
    bench.broker.stop()
    bench.sync()
    again = revived(bench)
    assert (bodies(again, "q"), kept(again, "q")) == ([b"behind"], [b"rejected"])
    client = again.connect()
    client.queue("grave")
    way(client, "grave")
    again.pass_time(int(SOON_US))
    (entry,) = queue_of(again, "grave").in_memory()
    headers = decode_header(header_of(entry.content))[0].headers or {}
    assert (entry.redelivered, "x-delivery-count" in headers) == (False, False)


@pytest.mark.parametrize("reason", ["no binding", "circle", "full"])
def test_whatever_stands_in_the_way(bench: Bench, client: Client, reason: str) -> None:
    arguments: dict[str, Value] = {"x-max-length": 0, "x-overflow": "reject-publish"}
    client.queue("full", arguments=arguments)
    client.queue("q", durable=True, arguments=SURE)
    way(client, *{"no binding": [], "circle": ["q"], "full": ["full"]}[reason])
    client.publish("q", b"stuck")
    kill(bench.broker.vhosts["/"], "q", "expired", bench.now_us)
    assert (kept(bench, "q"), bodies(bench, "q")) == ([b"stuck"], [])
    client.queue("grave")
    client.call(1, grammar.QUEUE_BIND, queue="grave", exchange="x")
    client.call(1, grammar.QUEUE_UNBIND, queue="full", exchange="x")
    bench.pass_time(int(SOON_US))
    assert (kept(bench, "q"), bodies(bench, "grave")) == ([], [b"stuck"])
    assert bench.broker.vhosts["/"].discards.get("dead letter without a route") is None


def test_a_full_queue_gets_it_later_and_the_others_once(bench: Bench, client: Client) -> None:
    client.queue("full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.queue("other", durable=True)
    client.queue("q", durable=True, arguments=SURE)
    way(client, "full", "other")
    strand(bench, client, b"1", b"2", b"3")
    assert (bodies(bench, "full"), bodies(bench, "other"), kept(bench, "q")) == (
        [b"1"], [b"1", b"2", b"3"], [b"2", b"3"])
    bench.sync()
    again = revived(bench)
    assert (bodies(again, "q"), kept(again, "q")) == ([], [b"2", b"3"])
    for expected in ([b"2"], [b"3"], []):
        client.send(1, grammar.BASIC_GET, queue="full", no_ack=True)
        bench.pass_time(int(PAUSE_MIN_US))
        assert bodies(bench, "full") == expected
    assert (bodies(bench, "other"), kept(bench, "q")) == ([b"1", b"2", b"3"], [])
    bench.sync()
    assert revived(bench).broker.log.next_id == bench.broker.log.next_id
    assert bodies(revived(bench), "q") == []


def test_a_queue_that_refused_it_may_go(bench: Bench, client: Client) -> None:
    """The other queue has the message then, and no copy is left."""
    client.queue("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.queue("other")
    client.queue("q", durable=True, arguments=SURE)
    way(client, "full", "other")
    strand(bench, client, b"1")
    assert kept(bench, "q") == [b"1"]
    client.call(1, grammar.QUEUE_DELETE, queue="full")
    bench.pass_time(int(SOON_US))
    assert (kept(bench, "q"), bodies(bench, "other")) == ([], [b"1"])


def test_many_are_tried_a_part_at_a_time(bench: Bench, client: Client) -> None:
    """In order: messages that die meanwhile do not overtake earlier ones."""
    client.queue("grave")
    client.queue("q", durable=True, arguments=SURE)
    count = 2 * STEP_MAX + 10
    strand(bench, client, *[b"%d" % number for number in range(count)])
    way(client, "grave")
    assert bodies(bench, "grave") == []
    bench.pass_time(int(SOON_US))
    assert len(bodies(bench, "grave")) == STEP_MAX - 1  # looking up the route counts as one step
    strand(bench, client, b"new")
    for _ in range(2):
        bench.pass_time(int(NEXT_US))
    assert bodies(bench, "grave") == [*[b"%d" % number for number in range(count)], b"new"]
    assert kept(bench, "q") == []


def test_the_pauses_double_up_to_three_minutes(bench: Bench, client: Client) -> None:
    client.queue("q", durable=True, arguments=SURE)
    strand(bench, client, b"1")
    vhost = bench.broker.vhosts["/"]
    times = []
    while len(times) < 12:
        next_us = bench.broker.timers.next_us()
        times.append(next_us - bench.now_us)
        bench.pass_time(next_us - bench.now_us)
        assert kept(bench, "q") == [b"1"]
    assert times == [min(PAUSE_MIN_US * 2**number, PAUSE_MAX_US) for number in range(12)]
    assert list(vhost.undeliverable_retry.queues.values()) == [queue_of(bench, "q")]


def test_a_way_is_looked_for_once_for_many_declarations(bench: Bench, client: Client) -> None:
    client.queue("q", durable=True, arguments=SURE)
    strand(bench, client, b"1")
    first_us = bench.now_us + int(SOON_US)
    for number in range(5):
        client.queue(f"other-{number}")
        bench.pass_time(1_000)
    assert bench.broker.timers.next_us() == first_us


def test_a_deleted_queue_takes_them_along(bench: Bench, client: Client) -> None:
    client.queue("q", durable=True, arguments=SURE)
    strand(bench, client, b"1", b"2")
    assert bench.broker.log.live() == 2
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    assert bench.broker.log.live() == 0
    way(client)
    bench.pass_time(int(PAUSE_MAX_US))
    assert (bench.broker.vhosts["/"].undeliverable_retry.queues, bench.broker.timers.next_us()) == ({}, 0)


def test_they_hold_no_journal_file(client: Client) -> None:
    """They are paged out like any message that stays long, and read back."""
    rig = Rig(MemoryDisk())
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=SURE)
    client.send(1, grammar.QUEUE_DECLARE, queue="busy", durable=True)
    strand(rig.bench, client, b"1", b"2")
    traffic(rig, client)
    assert len(rig.journal.files()) <= 4
    rig.disk.crash()
    again = Rig(rig.disk)
    queue = queue_of(again.bench, "q")
    assert queue.undeliverable is not None
    assert (queue.count(), queue.undeliverable.count(), queue.in_memory()) == (0, 2, [])
    client = again.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="grave")
    client.send(1, grammar.EXCHANGE_DECLARE, exchange="x", type="fanout")
    client.send(1, grammar.QUEUE_BIND, queue="grave", exchange="x")
    again.bench.pass_time(int(SOON_US))
    assert (bodies(again.bench, "grave"), queue.undeliverable.count()) == ([b"1", b"2"], 0)


# -- counts of deliveries ----------------------------------------------------------------------------------------------

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["return", "return", "hold", "take"]), st.integers(1, 6)),
        st.tuples(st.sampled_from(["page", "page", "write", "crash", "stop"]), st.just(0)),
    ),
    max_size=25,
)


def counts_of(rig: Rig) -> list[tuple[bytes, Value]]:
    """Return (body, x-delivery-count as basic.get reports it) of each message of "q", without consuming it."""
    rig.write()
    client = rig.bench.connect()
    found: list[tuple[bytes, Value]] = []
    while True:
        client.send(1, grammar.BASIC_GET, queue="q")
        frames = client.frames()
        if len(frames) == 1:
            break
        headers = decode_header(frames[1].payload)[0].headers or {}
        found.append((frames[2].payload, headers["x-delivery-count"]))
    # put them back without counting a return, so that looking changes nothing
    queue = queue_of(rig.bench, "q")
    for entry in reversed(client.peer.channels[1].unacked.take_some(0, 100)):
        assert isinstance(entry, Entry)
        queue.unacked -= 1
        entry.message_list.ready.requeue(entry)
    return found


@pytest.mark.parametrize("is_held", [False, True])
def test_a_count_outlives_the_journal_file_that_it_stands_in(is_held: bool) -> None:
    """The message is paged out and came back once more: ready, held, or not read since the start."""
    rig = Rig(MemoryDisk())
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=QUORUM)
    client.send(1, grammar.QUEUE_DECLARE, queue="busy", durable=True)
    client.publish("q", b"x")
    client.send(1, grammar.BASIC_GET, queue="q")
    traffic(rig, client)
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=True)
    if is_held:
        client.send(1, grammar.BASIC_GET, queue="q")
    for _ in range(3):
        traffic(rig, client)
        rig.disk.crash()
        rig = Rig(rig.disk)
        client = rig.bench.connect()
    assert counts_of(rig) == [(b"x", 1)]


def test_pages_know_how_often_their_messages_came_back() -> None:
    rig = Rig(MemoryDisk())
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=QUORUM)
    client.raw(publishes("q", *[b"%02d" % number for number in range(40)]))
    for _ in range(2):
        for _ in range(20):
            client.send(1, grammar.BASIC_GET, queue="q")
        client.send(1, grammar.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True)
    expected = [(b"%02d" % number, 2 if number < 20 else 0) for number in range(40)]
    for octets_max in (3000, 1 << 30):
        rig.write()
        rig.disk.crash()
        rig = Rig(rig.disk, octets_max=octets_max)
        rig.page()
        if octets_max == 3000:
            assert len(queue_of(rig.bench, "q").in_memory()) < 20
        assert counts_of(rig) == expected


@given(moves=MOVES)
def test_counts_survive_pages_new_files_and_restarts(moves: list[tuple[str, int]]) -> None:
    """Every return that is on disk counts, wherever the message and its count were since."""
    rig = Rig(MemoryDisk(), octets_max=3000)
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True, arguments=QUORUM)
    model: list[tuple[bytes, int]] = []
    number = 0
    for move, count in moves:
        if move == "publish":
            made = [b"%08d" % (number + each) for each in range(count)]
            number += count
            client.raw(publishes("q", *made))
            model += [(body, 0) for body in made]
        elif move in ("return", "hold", "take"):
            for _ in range(count):
                client.send(1, grammar.BASIC_GET, queue="q")
            if move == "hold":
                rig.page()
            if move == "take":
                client.send(1, grammar.BASIC_ACK, delivery_tag=0, multiple=True)
                del model[:count]
            else:
                client.send(1, grammar.BASIC_NACK, delivery_tag=0, multiple=True, requeue=True)
                model[:count] = [(body, returns + 1) for body, returns in model[:count]]
        elif move == "page":
            rig.page()
        else:
            if move == "stop":
                rig.bench.broker.stop()
            rig.write()
            if move != "write":
                rig.disk.crash()
                rig = Rig(rig.disk, octets_max=3000)
                client = rig.bench.connect()
    assert counts_of(rig) == model
    rig.write()
    rig.disk.crash()
    assert counts_of(Rig(rig.disk, octets_max=3000)) == model


# -- random operations -------------------------------------------------------------------------------------------------

NAMES = ["a", "b", "full"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(["a", "b"]), st.just("")),
        st.tuples(st.just("kill"), st.sampled_from(["a", "b"]), st.sampled_from(["rejected", "expired"])),
        st.tuples(st.sampled_from(["bind", "unbind"]), st.sampled_from(["a", "b"]), st.sampled_from(NAMES)),
        st.tuples(st.just("take"), st.just("full"), st.just("")),
        st.tuples(st.just("time"), st.just(""), st.sampled_from(["soon", "late"])),
        st.tuples(st.just("restart"), st.just(""), st.just("")),
        st.tuples(st.just("stop"), st.just(""), st.just("")),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_no_dead_letter_vanishes(steps: list[tuple[str, str, str]]) -> None:
    """Routes come and go, queues are full, the broker crashes: each message is kept and ends up where it belongs."""
    bench = Bench()
    client = bench.connect()
    full: dict[str, Value] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    for name in ("a", "b"):
        client.call(1, grammar.EXCHANGE_DECLARE, exchange=f"x-{name}", type="fanout", durable=True)
        client.queue(name, durable=True, arguments={**SURE, "x-dead-letter-exchange": f"x-{name}"})
    client.queue("full", durable=True, arguments=full)
    published: set[bytes] = set()
    taken: set[bytes] = set()
    for step, name, what in [*steps, ("unbind", "a", "a"), ("unbind", "b", "b")]:
        if step == "publish":
            published.add(body := b"%d" % len(published))
            client.publish(name, body, delivery_mode=2)
        elif step == "kill":
            kill(bench.broker.vhosts["/"], name, what, bench.now_us)
        elif step in ("bind", "unbind"):
            spec = grammar.QUEUE_BIND if step == "bind" else grammar.QUEUE_UNBIND
            client.call(1, spec, queue=what, exchange=f"x-{name}")
        elif step == "take":
            taken.update(bodies(bench, "full"))
            client.call(1, grammar.QUEUE_PURGE, queue="full")
        elif step == "time":
            bench.pass_time(int(SOON_US if what == "soon" else PAUSE_MAX_US))
        else:
            if step == "stop":
                bench.broker.stop()
            bench.sync()
            bench = revived(bench)
            client = bench.connect()
        present = {body for name in NAMES for body in bodies(bench, name) + kept(bench, name)}
        assert present | taken == published
        alive = sum(int(queue_of(bench, name).count()) + len(kept(bench, name)) for name in NAMES)
        assert bench.broker.log.live() == alive
    client.queue("grave", durable=True)
    for name in ("a", "b"):
        for target in NAMES:
            client.call(1, grammar.QUEUE_UNBIND, queue=target, exchange=f"x-{name}")
        client.call(1, grammar.QUEUE_BIND, queue="grave", exchange=f"x-{name}")
        while kill(bench.broker.vhosts["/"], name, "expired", bench.now_us):
            pass
    bench.pass_time(int(SOON_US))
    assert [kept(bench, name) for name in NAMES] == [[], [], []]
    assert set(bodies(bench, "grave")) | taken | set(bodies(bench, "full")) == published
