"""Dead letters, delayed messages and the firehose take several turns through very many bindings, as publishes do.

The tests count the headers that a turn compares, and check that nothing is lost and the order is kept.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.exchange_types.headers import Headers
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.binding import Binding
from leveret.broker.vhost import VHost
from leveret.wire import grammar
from leveret.wire.table import Value, encode_value, join_table

from .support import SECOND_US, Bench, Client, recovered

# headers of one binding; MANY such bindings are three times what a turn may compare
WANTED = join_table([(b"x-match", encode_value("any")), *((b"h%d" % number, b"V") for number in range(1000))])
MANY = int(3 * routing.WORK_MAX // 1000)


class Work:
    """Counts the headers that headers exchanges compare."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = 0
        match, trial = Headers.match, Headers.trial

        def counted_match(matcher: Headers, envelope: Any) -> Any:
            self.done += int(matcher.weight(envelope))
            return match(matcher, envelope)

        def counted_trial(matcher: Headers, envelope: Any, found: Any) -> Any:
            for step in trial(matcher, envelope, found):
                self.done += 128
                yield step

        monkeypatch.setattr(Headers, "match", counted_match)
        monkeypatch.setattr(Headers, "trial", counted_trial)

    def take(self) -> int:
        done, self.done = self.done, 0
        return done


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def crowded(bench: Bench) -> tuple[Client, VHost]:
    """Add very many bindings to exchange x; the binding for messages with header n is the last one."""
    client = bench.connect()
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="headers", durable=True)
    for name in ("end", "never"):
        client.queue(name, durable=True)
    vhost = bench.broker.vhosts["/"]
    exchange = vhost.exchanges["x"]
    for number in range(MANY):
        vhost.bind(Binding(exchange, vhost.queues["never"], str(number), WANTED))
    vhost.bind(Binding(exchange, vhost.queues["end"], "", join_table([(b"n", encode_value(1))])))
    return client, vhost


def turns(bench: Bench, work: Work, vhost: VHost, count: int) -> int:
    """Pass time until this many messages have reached "end"; return the number of turns, none of which may be long."""
    number = 0
    while vhost.queues["end"].count() < count:
        assert work.take() <= 2 * routing.WORK_MAX + 1000
        bench.pass_time(10)
        number += 1
        assert number < 500
    return number


def bodies(vhost: VHost) -> list[bytes]:
    return [entry.content[-2:-1] for entry in vhost.queues["end"].in_memory()]


def grave(client: Client, **arguments: Value) -> None:
    client.queue("q", durable=True, arguments={"x-dead-letter-exchange": "x", **arguments})


SAFE: dict[str, Value] = {
    "x-queue-type": "quorum",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


@pytest.mark.parametrize("arguments", [{}, SAFE], ids=["once", "at least once"])
def test_dead_letters_past_very_many_bindings_take_several_turns_and_keep_their_order(
    work: Work, arguments: dict[str, Value]
) -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    grave(client, **arguments)
    other = bench.connect()
    to_far = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "far"}
    other.queue("near", arguments={"x-message-ttl": 1000, **to_far})
    other.queue("far")
    for number in range(5):
        # the last two die while others are being routed
        expiration = "1000" if number < 3 else "1001"
        client.publish("q", b"%d" % number, headers={"n": 1}, expiration=expiration, delivery_mode=2)
    other.publish("near")
    bench.pass_time(SECOND_US)
    assert vhost.queues["far"].count() == 1  # a dead letter with a short route is not delayed
    assert vhost.queues["end"].count() == 0
    assert turns(bench, work, vhost, 5) >= 5 * 3
    assert bodies(vhost) == [b"0", b"1", b"2", b"3", b"4"]
    assert vhost.queues["never"].count() == vhost.queues["q"].count() == vhost.queues["q"].undeliverable_count() == 0
    bench.pass_time(SECOND_US)
    assert not vhost.queues["q"].is_dead_lettering_slowly


@pytest.mark.parametrize("arguments", [{}, SAFE], ids=["once", "at least once"])
@pytest.mark.parametrize("steps", [0, 1, 5, 10, 16])
def test_a_crash_while_dead_letters_are_looked_up_loses_none(arguments: dict[str, Value], steps: int) -> None:
    bench = Bench()
    bench.batches.append(b"".join(bench.broker.snapshot()))
    client, _ = crowded(bench)
    grave(client, **arguments)
    for number in range(4):
        client.publish("q", b"%d" % number, headers={"n": 1}, expiration="1000", delivery_mode=2)
    bench.sync()
    bench.pass_time(SECOND_US)
    for _ in range(steps):
        bench.pass_time(10)
    bench.sync()
    after = recovered(bench.batches)
    found = after.broker.vhosts["/"]
    for _ in range(600):
        after.pass_time(SECOND_US)
    assert sorted(bodies(found)) == [b"0", b"1", b"2", b"3"]


def test_dead_letters_that_reach_no_queue_after_all_are_dropped_or_kept(work: Work) -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    grave(client)
    client.queue("safe", durable=True, arguments={"x-dead-letter-exchange": "x", **SAFE})
    for name in ("q", "safe"):
        client.publish(name, b"1", expiration="1000", delivery_mode=2)  # without the header
    bench.pass_time(SECOND_US)
    for _ in range(30):
        bench.pass_time(10)
        assert work.take() <= 2 * routing.WORK_MAX + 1000
    assert (vhost.queues["q"].undeliverable_count(), vhost.queues["safe"].undeliverable_count()) == (0, 1)
    assert vhost.discards == {"dead letter without a route": 1}
    vhost.bind(Binding(vhost.exchanges["x"], vhost.queues["end"], "k", join_table([(b"x-match", encode_value("all"))])))
    for _ in range(300):
        bench.pass_time(SECOND_US)
        assert work.take() <= 2 * routing.WORK_MAX + 1000
    assert bodies(vhost) == [b"1"]


def test_a_queue_that_goes_takes_its_dead_letters_along() -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    grave(client)
    client.publish("q", b"1", headers={"n": 1}, expiration="1000", delivery_mode=2)
    bench.pass_time(SECOND_US)
    bench.pass_time(1)
    client.call(1, grammar.QUEUE_DELETE, queue="q")
    for _ in range(20):
        bench.pass_time(10)
    bench.sync()
    assert vhost.queues["end"].count() == 0
    assert bench.broker.log.live() == 0
    bench.pass_time(SECOND_US)
    assert bench.broker.timers.next_us() == 0


def test_very_many_dead_letters_of_one_turn_are_not_all_looked_up_in_it(work: Work) -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="y", type="headers")
    vhost.bind(Binding(vhost.exchanges["y"], vhost.queues["end"], "", join_table([(b"n", encode_value(1))])))
    for number in range(4):
        vhost.bind(Binding(vhost.exchanges["y"], vhost.queues["never"], str(number), WANTED))
    client.queue("q", arguments={"x-dead-letter-exchange": "y"})
    for _ in range(100):
        client.publish("q", b"1", headers={"n": 1}, expiration="1000")
    work.take()
    bench.pass_time(SECOND_US)
    assert turns(bench, work, vhost, 100) >= 100 * 4000 // (2 * routing.WORK_MAX)


def test_delayed_messages_past_very_many_bindings_take_several_turns_and_keep_their_order(work: Work) -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    client.call(
        1, grammar.EXCHANGE_DECLARE, exchange="d", type="x-delayed-message", arguments={"x-delayed-type": "fanout"}
    )
    client.call(1, grammar.EXCHANGE_BIND, source="d", destination="x")
    for number in range(4):
        client.publish(f"k{number}", b"%d" % number, exchange="d", headers={"n": 1, "x-delay": 1000})
    bench.pass_time(SECOND_US)
    assert vhost.queues["end"].count() == 0
    assert turns(bench, work, vhost, 4) >= 4 * 3
    assert bodies(vhost) == [b"0", b"1", b"2", b"3"]


def test_events_of_the_firehose_past_very_many_bindings_take_several_turns_and_keep_their_order(work: Work) -> None:
    bench = Bench()
    client, vhost = crowded(bench)
    trace = vhost.exchanges["amq.rabbitmq.trace"]
    vhost.bind(Binding(trace, vhost.exchanges["x"], "#", b"\0\0\0\0"))
    all_of_them = join_table([(b"x-match", encode_value("all"))])
    vhost.bind(Binding(vhost.exchanges["x"], vhost.queues["end"], "", all_of_them))
    bench.broker.trace("/", True)
    for number in range(4):
        client.publish("never", b"%d" % number)
        assert work.take() <= 2 * routing.WORK_MAX
    assert vhost.queues["end"].count() == 0
    assert turns(bench, work, vhost, 4) >= 4 * 2
    assert bodies(vhost) == [b"0", b"1", b"2", b"3"]


def test_what_a_connection_publishes_in_one_read_is_looked_up_in_several_turns(work: Work) -> None:
    """This holds however short each lookup is."""
    bench = Bench()
    client, vhost = crowded(bench)
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="y", type="headers")
    for number in range(4):
        vhost.bind(Binding(vhost.exchanges["y"], vhost.queues["never"], str(number), WANTED))
    vhost.bind(Binding(vhost.exchanges["y"], vhost.queues["end"], "", join_table([(b"n", encode_value(1))])))
    work.take()
    client.raw(client.encoded("", b"1", exchange="y", headers={"n": 1}) * 50)
    while client.peer.has_more:
        assert work.take() <= 2 * routing.WORK_MAX
        client.raw(b"")
    assert vhost.queues["end"].count() == 50
