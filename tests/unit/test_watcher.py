"""Watchers of exchanges are notified of each change once, when it takes effect."""

from __future__ import annotations

import pytest

from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.exchanges.stale_bindings import StaleBindings
from leveret.broker.storage.definitions import POLICY, VHOST
from leveret.broker.vhost import VHost
from leveret.broker.watcher import Watcher
from leveret.wire import grammar

from .support import Bench, Client, recovered


class Diary(Watcher):
    """Records its notifications; watches every exchange it is notified of."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def exchange_changed(self, vhost: VHost, exchange: Exchange) -> None:
        self.lines.append(f"{vhost.name} {exchange.name} {exchange.effect.settings.get('federation-upstream', '-')}")
        exchange.watch = 1

    def exchange_deleted(self, vhost: VHost, exchange: Exchange) -> None:
        assert vhost.exchanges.get(exchange.name) is not exchange
        self.lines.append(f"{vhost.name} {exchange.name} gone")

    def bound(self, vhost: VHost, binding: Binding) -> None:
        assert binding.standing() is binding
        self.lines.append(f"{binding.source.name} -{binding.key}-> {binding.destination.name}")

    def unbound(self, vhost: VHost, binding: Binding) -> None:
        assert binding.standing() is None
        self.lines.append(f"{binding.source.name} -{binding.key}x {binding.destination.name}")

    def heard(self) -> list[str]:
        """Return the notifications since the last call."""
        lines = self.lines
        self.lines = []
        return lines


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def diary(bench: Bench) -> Diary:
    diary = Diary()
    bench.broker.watch(diary)
    return diary


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.connect()


def exchange(client: Client, name: str, **values: object) -> None:
    client.call(1, grammar.EXCHANGE_DECLARE, exchange=name, type="fanout", **values)


def policy(bench: Bench, upstream: str, pattern: str = "x") -> None:
    definition = {"federation-upstream": upstream}
    bench.broker.definitions.put(
        POLICY,
        {"vhost": "/", "name": "p", "pattern": pattern, "apply-to": "all", "definition": definition, "priority": 0},
    )
    bench.broker.end_turn(bench.now_us)


def test_declarations_and_bindings(client: Client, diary: Diary) -> None:
    for _ in range(2):
        exchange(client, "x")
    exchange(client, "y")
    client.queue("q")
    assert diary.heard() == ["/ x -", "/ y -"]
    for _ in range(2):
        client.call(1, grammar.QUEUE_BIND, queue="q", exchange="x", routing_key="k")
        client.call(1, grammar.EXCHANGE_BIND, source="x", destination="y", routing_key="l")
    assert diary.heard() == ["x -k-> q", "x -l-> y"]
    for _ in range(2):
        client.call(1, grammar.QUEUE_UNBIND, queue="q", exchange="x", routing_key="k")
    assert diary.heard() == ["x -kx q"]


def test_bindings_go_with_their_destinations(client: Client, diary: Diary) -> None:
    for name in ("x", "y"):
        exchange(client, name)
    client.queue("q")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="x")
    client.call(1, grammar.EXCHANGE_BIND, source="x", destination="y")
    diary.heard()
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    client.call(1, grammar.EXCHANGE_DELETE, exchange="y")
    assert diary.heard() == ["x -x q", "/ y gone", "x -x y"]


def test_bindings_of_an_exchange_that_goes_go_without_a_word(client: Client, diary: Diary) -> None:
    exchange(client, "x")
    client.queue("q")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="x")
    diary.heard()
    client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    assert diary.heard() == ["/ x gone"]


def test_an_exchange_that_goes_with_its_last_binding(client: Client, diary: Diary) -> None:
    exchange(client, "x", auto_delete=True)
    client.queue("q")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="x")
    diary.heard()
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    assert diary.heard() == ["x -x q", "/ x gone"]


def test_of_very_many_bindings_it_hears_by_and_by(bench: Bench, client: Client, diary: Diary) -> None:
    stale_bindings = bench.broker.log.stale_bindings = StaleBindings(at_once_max=0, pace=0)
    exchange(client, "x")
    client.queue("q")
    for key in ("a", "b"):
        client.call(1, grammar.QUEUE_BIND, queue="q", exchange="x", routing_key=key)
    diary.heard()
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    assert diary.heard() == []
    stale_bindings.clear(2)
    assert diary.heard() == ["x -bx q"]
    stale_bindings.clear(2)
    assert diary.heard() == ["x -ax q"]


def test_who_came_later_does_not_hear_of_bindings_that_were_gone(bench: Bench, client: Client, diary: Diary) -> None:
    stale_bindings = bench.broker.log.stale_bindings = StaleBindings(at_once_max=0, pace=0)
    exchange(client, "x")
    for name in ("p", "q"):
        client.queue(name)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="x")
    diary.heard()
    source = bench.broker.vhosts["/"].exchanges["x"]
    client.call(1, grammar.QUEUE_DELETE, queue="p")
    source.watch = 2
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    stale_bindings.clear(4)
    assert diary.heard() == ["x -x q"]


def test_policies(bench: Bench, client: Client, diary: Diary) -> None:
    """A policy without effect is not reported; an existing policy is reported with the declaration."""
    exchange(client, "x")
    exchange(client, "other")
    diary.heard()
    policy(bench, "up", "^x")
    assert diary.heard() == ["/ x up"]
    exchange(client, "xx")
    assert diary.heard() == ["/ xx up"]
    policy(bench, "another", "^xx")
    assert sorted(diary.heard()) == ["/ x -", "/ xx another"]
    bench.broker.definitions.remove(POLICY, "/", "p")
    bench.broker.end_turn(bench.now_us)
    assert diary.heard() == ["/ xx -"]


def test_a_policy_that_comes_too_late_for_an_exchange_is_not_told(bench: Bench, client: Client, diary: Diary) -> None:
    """A policy takes effect on some exchanges per turn, and one may be deleted before its turn."""
    for number in range(300):
        exchange(client, f"x{number}")
    diary.heard()
    policy(bench, "up")
    told = diary.heard()
    assert 0 < len(told) < 300
    gone = next(name for name in (f"x{number}" for number in range(300)) if f"/ {name} up" not in told)
    client.send(1, grammar.EXCHANGE_DELETE, exchange=gone)
    while bench.broker.enforce_policies(bench.now_us):
        pass
    told += diary.heard()
    assert sorted(line for line in told if line.endswith(" up")) == sorted(
        f"/ x{number} up" for number in range(300) if f"x{number}" != gone
    )


def test_virtual_hosts_that_come_and_go(bench: Bench, diary: Diary) -> None:
    bench.broker.definitions.put(VHOST, {"name": "v"})
    vhost = bench.broker.vhosts["v"]
    vhost.add_exchange("x", "fanout", True, False, False, {})
    assert diary.heard() == ["v x -"]
    bench.broker.delete_vhost("v")
    heard = diary.heard()
    assert "v x gone" in heard
    assert len(heard) == 7


def test_what_the_journal_brings_back_is_not_told(bench: Bench, client: Client) -> None:
    """A watcher is registered after recovery."""
    exchange(client, "x", durable=True)
    client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    exchange(client, "x", durable=True)
    again = recovered(bench.batches)
    diary = Diary()
    again.broker.watch(diary)
    again.broker.end_turn(again.now_us)
    assert diary.heard() == []
    exchange(again.connect(), "y")
    assert diary.heard() == ["/ y -"]
