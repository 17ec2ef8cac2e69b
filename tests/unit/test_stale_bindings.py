"""Stale bindings of deleted queues and exchanges: invisible to clients, before and after their removal."""

from __future__ import annotations

import gc

import pytest

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.table import KINDS
from leveret.broker.exchanges.binding import Binding, bindings_to, count_to
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.exchanges.stale_bindings import AT_ONCE_MAX, StaleBindings
from leveret.broker.queues.queue import Queue
from leveret.wire import grammar

from .support import Bench, Client, recovered

# headers that no binding matches
CONTENT = b"\2\0\1\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0\xce"
KEYS = ("1", "2", "3")


@pytest.fixture
def bench() -> Bench:
    """Return a bench that removes stale bindings only when the test calls for it."""
    bench = Bench()
    bench.broker.log.stale_bindings = StaleBindings(at_once_max=0, pace=0)
    return bench


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.connect()


def declare(client: Client, kind: str, **values: object) -> None:
    needed = {"x-federation-upstream": {"x-max-hops": 1 << 40}, "x-message-deduplication": {"x-cache-size": 10}}
    arguments = needed.get(kind, {})
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type=kind, durable=True, arguments=arguments, **values)


def bind(client: Client, queue: str, *keys: str) -> None:
    for key in keys:
        client.call(1, grammar.QUEUE_BIND, queue=queue, exchange="x", routing_key=key)


def reached(bench: Bench) -> set[str]:
    """Return the queues that messages with these keys reach, each tried often enough to see all random choices."""
    matcher = bench.broker.vhosts["/"].exchanges["x"].matcher
    found = [each for key in KEYS for _ in range(20) for each in matcher.match(Envelope([key], b"", CONTENT))]
    assert all(bench.broker.vhosts["/"].queues[each.destination.name] is each.destination for each in found)
    return {each.destination.name for each in found}


def cleared(bench: Bench) -> bool:
    """Remove one stale binding and return whether there was one."""
    was_left = bench.broker.log.stale_bindings.is_left
    bench.broker.log.stale_bindings.clear(1)
    return was_left


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_that_is_declared_anew_has_none_of_the_old_bindings(bench: Bench, client: Client, kind: str) -> None:
    declare(client, kind)
    for name in ("q", "other"):
        client.queue(name, durable=True)
        bind(client, name, *KEYS)
    exchange = bench.broker.vhosts["/"].exchanges["x"]
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    assert (reached(bench), exchange.binding_count) == ({"other"}, 3)
    client.queue("q", durable=True)
    assert (reached(bench), count_to(bench.broker.vhosts["/"].queues["q"])) == ({"other"}, 0)
    cleared(bench)
    bind(client, "q", KEYS[0])
    client.call(1, grammar.QUEUE_DELETE, queue="other")
    while cleared(bench):
        assert reached(bench) == {"q"}
        assert [(each.destination.name, each.key) for each in exchange.every()] == [("q", KEYS[0])]
    assert reached(bench) == {"q"}
    client.call(1, grammar.QUEUE_UNBIND, queue="q", exchange="x", routing_key=KEYS[0])
    assert reached(bench) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_an_exchange_that_is_declared_anew_has_none_of_the_old_bindings(
    bench: Bench, client: Client, kind: str
) -> None:
    declare(client, kind)
    client.queue("q", durable=True)
    bind(client, "q", *KEYS)
    vhost = bench.broker.vhosts["/"]
    client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    assert (list(bindings_to(vhost.queues["q"])), count_to(vhost.queues["q"]), vhost.binding_count) == ([], 0, 0)
    declare(client, kind)
    assert reached(bench) == set()
    cleared(bench)
    bind(client, "q", KEYS[0])
    while cleared(bench):
        assert reached(bench) == {"q"}
        assert [each.key for each in bindings_to(vhost.queues["q"])] == [KEYS[0]]
    client.call(1, grammar.QUEUE_UNBIND, queue="q", exchange="x", routing_key=KEYS[0])
    assert (reached(bench), vhost.queues["q"].incoming, vhost.binding_count) == (set(), {}, 0)


def test_an_exchange_and_its_queue_that_go_one_after_the_other(bench: Bench, client: Client) -> None:
    declare(client, "topic")
    client.queue("q", durable=True)
    bind(client, "q", *KEYS)
    old = bench.broker.vhosts["/"].exchanges["x"]
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    cleared(bench)
    client.queue("q", durable=True)
    bind(client, "q", *KEYS)
    client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    cleared(bench)
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    while cleared(bench):
        pass
    assert (old.matcher.stale_batches, old.matcher.match(Envelope([KEYS[0]], b"", b"")), old.outgoing) == (0, [], {})
    assert bench.broker.vhosts["/"].binding_count == 0


def test_who_lists_bindings_meanwhile_sees_none_that_are_gone(bench: Bench, client: Client) -> None:
    declare(client, "direct")
    for name in ("q", "other"):
        client.queue(name)
        bind(client, name, *KEYS)
    exchange = bench.broker.vhosts["/"].exchanges["x"]
    listed = exchange.every()
    assert next(listed).destination.name == "q"
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    cleared(bench)
    assert [each.destination.name for each in listed] == ["other"] * 3
    listed = exchange.every()
    next(listed)
    client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    assert list(listed) == []


def test_what_is_looked_for_in_steps_is_not_disturbed(bench: Bench, client: Client) -> None:
    """A lookup in steps continues while stale bindings are removed, since no route changes."""
    declare(client, "headers")
    for name in ("q", "other"):
        client.queue(name)
        bind(client, name, *KEYS)
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    found: list[object] = []
    for _ in bench.broker.vhosts["/"].exchanges["x"].matcher.trial(Envelope([KEYS[0]], b"", CONTENT), found):  # type: ignore[arg-type]
        assert cleared(bench)
    assert len(found) == 3


@pytest.mark.parametrize("what", ["queue", "exchange"])
def test_a_crash_meanwhile_brings_nothing_back(bench: Bench, client: Client, what: str) -> None:
    declare(client, "direct", auto_delete=True)
    client.queue("q", durable=True)
    bind(client, "q", *[str(number) for number in range(2 * AT_ONCE_MAX)])
    if what == "queue":
        client.call(1, grammar.QUEUE_DELETE, queue="q")
    else:
        client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    cleared(bench)
    bench.sync()
    for batches in (bench.batches, [b"".join(bench.broker.snapshot())]):
        again = recovered(batches)
        vhost = again.broker.vhosts["/"]
        assert ("x" in vhost.exchanges, "q" in vhost.queues) == (False, what == "exchange")
        assert (vhost.binding_count, again.broker.log.has_waste) == (0, False)
        assert all(not queue.incoming for queue in vhost.queues.values())


def test_what_is_little_is_cleared_away_at_once() -> None:
    bench = Bench()
    client = bench.connect()
    declare(client, "direct")
    for count in (AT_ONCE_MAX - 1, AT_ONCE_MAX):  # the queue counts, too
        client.queue("q")
        bind(client, "q", *[str(number) for number in range(count)])
        client.call(1, grammar.QUEUE_DELETE, queue="q")
        assert bench.broker.log.has_waste == (count == AT_ONCE_MAX)


def test_queues_that_come_and_go_with_very_many_bindings_do_not_pile_up() -> None:
    """However little time is left for removal, since adding bindings removes stale ones."""
    bench = Bench()
    client = bench.connect()
    declare(client, "direct")
    for _ in range(10):
        client.queue("q")
        bind(client, "q", *[str(number) for number in range(2 * AT_ONCE_MAX)])
        assert not bench.broker.log.has_waste
        client.call(1, grammar.QUEUE_DELETE, queue="q")
        assert bench.broker.log.has_waste


def living() -> int:
    return sum(isinstance(each, (Exchange, Binding, Queue)) for each in gc.get_objects())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_stays_in_memory(bench: Bench, client: Client, kind: str) -> None:
    """The broker's garbage collector is off, so deleted objects must not form cycles."""
    gc.collect()
    gc.disable()
    try:
        before = living()
        declare(client, kind)
        client.call(1, grammar.EXCHANGE_DECLARE, exchange="y", type="topic")
        client.queue("q")
        bind(client, "q", *KEYS)
        for source, destination in (("x", "x"), ("x", "y"), ("y", "x")):
            client.call(1, grammar.EXCHANGE_BIND, source=source, destination=destination, routing_key=KEYS[0])
        client.publish(KEYS[0], exchange="x")
        assert living() > before
        for name in ("x", "y"):
            client.call(1, grammar.EXCHANGE_DELETE, exchange=name)
        client.call(1, grammar.QUEUE_DELETE, queue="q")
        client.publish("nowhere")  # the connection caches the route of its last message
        while cleared(bench):
            pass
        assert living() == before
    finally:
        gc.enable()
