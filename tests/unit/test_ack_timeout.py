"""The consumer timeout is never early and little late, set by consumer, queue or broker."""

from __future__ import annotations

import pytest

from leveret.broker.broker import Settings
from leveret.broker.queues.ack_timeout import NOTES_MAX
from leveret.wire import grammar

from .support import SECOND_US, Bench, Client

MINUTE_US = 60 * SECOND_US
TIMED_OUT = (
    "PRECONDITION_FAILED - delivery acknowledgement on channel {} timed out. Timeout value used: {} ms. This timeout "
    "value can be configured, see consumers doc guide to learn more"
)


def tick(client: Client, us: int, step_us: int = SECOND_US) -> str | None:
    """Let time pass, with a tick of the connection every `step_us`; return the reply text of channel.close, if it
    came."""
    for _ in range(us // step_us):
        client.bench.now_us += step_us
        client.peer.check_ack_timeouts(client.bench.now_us)
    closes = [method for method in client.methods() if method.spec is grammar.CHANNEL_CLOSE]
    assert len(closes) < 2
    if not closes:
        return None
    assert [closes[0].number(key) for key in ("reply_code", "class_id", "method_id")] == [406, 0, 0]
    return closes[0].text("reply_text")


def holding(bench: Bench, bodies: int = 1, **arguments: int) -> Client:
    """A client with deliveries of queue "q" on channel 1; `arguments`: x-consumer-timeout of `queue` and `consumer`."""
    client = bench.connect()
    given = {who: {"x-consumer-timeout": ms} for who, ms in arguments.items()}
    client.queue("q", arguments=given.get("queue", {}))
    client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", arguments=given.get("consumer", {}))
    for number in range(bodies):
        client.publish("q", b"%d" % number)
    assert len(client.bodies()) == bodies
    return client


def test_half_an_hour_is_the_default() -> None:
    client = holding(Bench())
    assert tick(client, 30 * MINUTE_US - SECOND_US) is None
    assert tick(client, 1 * MINUTE_US + SECOND_US) == TIMED_OUT.format(1, 1_800_000)


def test_what_was_not_acknowledged_is_ready_again() -> None:
    client = holding(Bench(Settings(consumer_timeout_ms=60_000)), 3)
    client.send(1, grammar.BASIC_ACK, delivery_tag=2)
    other = client.bench.connect()
    assert tick(client, 2 * MINUTE_US) == TIMED_OUT.format(1, 60_000)
    other.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    assert other.bodies() == [b"0", b"2"]


def test_another_consumer_gets_it_at_once() -> None:
    client = holding(Bench(Settings(consumer_timeout_ms=60_000)))
    other = client.bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    assert other.bodies() == []
    assert tick(client, 2 * MINUTE_US) is not None
    assert other.bodies() == [b"0"]


def test_only_the_channel_that_is_late_is_closed() -> None:
    client = holding(Bench(Settings(consumer_timeout_ms=60_000)))
    client.call(2, grammar.CHANNEL_OPEN)
    assert tick(client, 2 * MINUTE_US) == TIMED_OUT.format(1, 60_000)
    assert client.call(2, grammar.QUEUE_DECLARE, queue="q", passive=True).number("message_count") == 1


def test_who_acknowledges_in_time_is_left_alone() -> None:
    client = holding(Bench(Settings(consumer_timeout_ms=60_000)))
    for tag in range(1, 20):
        client.publish("q")
        assert tick(client, 29 * SECOND_US) is None
        client.send(1, grammar.BASIC_ACK, delivery_tag=tag)


def test_acknowledging_others_does_not_help() -> None:
    client = holding(Bench(Settings(consumer_timeout_ms=60_000)))
    for tag in range(2, 7):
        assert tick(client, 10 * SECOND_US - SECOND_US) is None
        client.publish("q")
        client.send(1, grammar.BASIC_ACK, delivery_tag=tag)
    assert tick(client, 20 * SECOND_US) == TIMED_OUT.format(1, 60_000)


@pytest.mark.parametrize("first_s", range(0, 20, 3))
def test_never_early_and_late_by_a_thirtieth(first_s: int) -> None:
    """The right one of deliveries at different times is overdue, however they fall between checks, which are 10 s
    apart."""
    client = holding(Bench(Settings(consumer_timeout_ms=600_000)))
    assert tick(client, first_s * SECOND_US) is None
    client.publish("q")
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    assert tick(client, 599 * SECOND_US) is None
    assert tick(client, 21 * SECOND_US) == TIMED_OUT.format(1, 600_000)


def test_fetched_messages_count() -> None:
    bench = Bench(Settings(consumer_timeout_ms=60_000))
    client = bench.connect()
    client.queue("q")
    client.publish("q")
    assert client.call(1, grammar.BASIC_GET, queue="q").spec is grammar.BASIC_GET_OK
    assert tick(client, 2 * MINUTE_US) == TIMED_OUT.format(1, 60_000)


def test_what_a_transaction_has_settled_does_not_count() -> None:
    client = holding(Bench(Settings(consumer_timeout_ms=60_000)))
    client.call(1, grammar.TX_SELECT)
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    assert tick(client, 5 * MINUTE_US) is None
    client.send(1, grammar.TX_ROLLBACK)
    assert tick(client, 2 * MINUTE_US) == TIMED_OUT.format(1, 60_000)


@pytest.mark.parametrize(
    ("arguments", "timeout_ms"),
    [
        ({"queue": 20_000}, 20_000),
        ({"consumer": 20_000}, 20_000),
        ({"queue": 20_000, "consumer": 40_000}, 40_000),
        ({"queue": 120_000}, 120_000),
        ({"queue": -1}, 60_000),
    ],
)
def test_timeouts_of_their_own(arguments: dict[str, int], timeout_ms: int) -> None:
    client = holding(Bench(Settings(consumer_timeout_ms=60_000)), **arguments)
    assert tick(client, timeout_ms * 1000 - SECOND_US) is None
    assert tick(client, timeout_ms * 1000 // 20 + 3 * SECOND_US) == TIMED_OUT.format(1, timeout_ms)


def test_a_younger_delivery_with_a_shorter_timeout() -> None:
    bench = Bench(Settings(consumer_timeout_ms=60_000))
    client = holding(bench)
    client.queue("short", arguments={"x-consumer-timeout": 10_000})
    client.call(1, grammar.BASIC_CONSUME, queue="short")
    client.publish("short")
    assert tick(client, 13 * SECOND_US) == TIMED_OUT.format(1, 10_000)


@pytest.mark.parametrize("arguments", [{}, {"queue": 0}, {"consumer": 0}])
def test_zero_means_never(arguments: dict[str, int]) -> None:
    client = holding(Bench(Settings(consumer_timeout_ms=60_000 if arguments else 0)), **arguments)
    assert tick(client, 24 * 60 * MINUTE_US, MINUTE_US) is None


def test_what_is_noted_has_a_limit() -> None:
    """The notes stay bounded however many deliveries come while the oldest waits."""
    client = holding(Bench(Settings(consumer_timeout_ms=60_000)), consumer=0)
    channel = client.peer.channels[1]
    for _ in range(NOTES_MAX + 10):
        client.publish("q")
        assert tick(client, SECOND_US) is None
    assert len(channel.notes) == NOTES_MAX
    client.send(1, grammar.BASIC_ACK, delivery_tag=0, multiple=True)
    tick(client, MINUTE_US)
    assert channel.notes == []
