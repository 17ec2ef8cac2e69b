"""x-expires: what counts as use of a queue, to the millisecond (as RabbitMQ 3.10.8, measured)."""

from __future__ import annotations

import pytest

from leveret.broker.timers import DELETED_MIN
from leveret.wire import grammar
from leveret.wire.grammar import MethodSpec

from .support import Bench, Client

IDLE_MS = 500
ARGUMENTS = {"x-expires": IDLE_MS}


def is_there(client: Client) -> bool:
    return "q" in client.bench.broker.vhosts["/"].queues


def pass_ms(client: Client, ms: int) -> None:
    client.bench.pass_time(ms * 1000)


@pytest.fixture
def client() -> Client:
    client = Bench().connect()
    client.queue("q", arguments=ARGUMENTS)
    return client


USES: list[tuple[MethodSpec, dict[str, object]]] = [
    (grammar.QUEUE_DECLARE, {"arguments": ARGUMENTS}),
    (grammar.QUEUE_DECLARE, {"passive": True}),
    (grammar.BASIC_GET, {}),
]


@pytest.mark.parametrize(("spec", "values"), USES)
def test_a_use_begins_the_time_anew(client: Client, spec: MethodSpec, values: dict[str, object]) -> None:
    for _ in range(3):
        pass_ms(client, IDLE_MS - 1)
        assert is_there(client)
        client.send(1, spec, queue="q", **values)
    pass_ms(client, IDLE_MS - 1)
    assert is_there(client)
    pass_ms(client, 1)
    assert not is_there(client)


NO_USES: list[tuple[MethodSpec, dict[str, object]]] = [
    (grammar.QUEUE_BIND, {"queue": "q", "exchange": "amq.fanout"}),
    (grammar.QUEUE_PURGE, {"queue": "q"}),
    (grammar.BASIC_ACK, {"delivery_tag": 1}),
    (grammar.BASIC_NACK, {"delivery_tag": 1, "requeue": True}),
]


@pytest.mark.parametrize(("spec", "values"), NO_USES)
def test_what_is_no_use(client: Client, spec: MethodSpec, values: dict[str, object]) -> None:
    client.publish("q")
    client.send(1, grammar.BASIC_GET, queue="q")
    pass_ms(client, IDLE_MS - 1)
    client.publish("q")
    client.send(1, spec, **values)
    assert is_there(client)
    pass_ms(client, 1)
    assert not is_there(client)


def test_consumers_keep_it_and_the_last_one_begins_the_time_anew(client: Client) -> None:
    for tag in "ab":
        client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag=tag)
    pass_ms(client, 10 * IDLE_MS)
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="a")
    pass_ms(client, 10 * IDLE_MS)
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="b")
    pass_ms(client, IDLE_MS - 1)
    assert is_there(client)
    pass_ms(client, 1)
    assert not is_there(client)


def test_an_exclusive_queue_expires_and_may_be_declared_by_another(client: Client) -> None:
    """The end of the first connection does not affect the new queue."""
    bench = client.bench
    client.queue("mine", exclusive=True, arguments=ARGUMENTS)
    pass_ms(client, IDLE_MS)
    other = bench.connect()
    other.queue("mine", exclusive=True)
    client.peer.lost(bench.now_us)
    assert other.call(1, grammar.QUEUE_DECLARE, queue="mine", passive=True).spec is grammar.QUEUE_DECLARE_OK


def test_a_connection_remembers_only_the_exclusive_queues_that_are_there() -> None:
    client = Bench().connect()
    for _ in range(3):
        client.queue("", exclusive=True, auto_delete=True)
        client.send(1, grammar.BASIC_CONSUME, queue="", consumer_tag="c")
        client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
        assert client.peer.exclusive == {}


def test_many_uses_need_one_timer(client: Client) -> None:
    for _ in range(100):
        client.send(1, grammar.BASIC_GET, queue="q")
        pass_ms(client, 1)
    assert len(client.bench.broker.timers._heap) == 1
    pass_ms(client, IDLE_MS - 2)
    assert is_there(client)
    pass_ms(client, 1)
    assert not is_there(client)


def test_deleted_queues_leave_no_timers_behind(client: Client) -> None:
    """Celery's result queues: an expiry of a day, and deleted with their client."""
    timers = client.bench.broker.timers
    for number in range(2000):
        client.queue(f"q{number}", arguments={"x-expires": 86_400_000})
        client.call(1, grammar.QUEUE_DELETE, queue=f"q{number}")
        assert len(timers._heap) <= 2 * DELETED_MIN + 1
    pass_ms(client, IDLE_MS)
    assert not is_there(client)


def test_messages_with_a_time_to_live_need_one_timer(client: Client) -> None:
    """However many messages come and go; and the next one expires on time."""
    arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    client.queue("short", arguments=arguments)
    client.send(1, grammar.BASIC_CONSUME, queue="q")
    for _ in range(500):
        client.publish("short")
        client.publish("short")
        client.send(1, grammar.BASIC_GET, queue="short", no_ack=True)
        pass_ms(client, 1)
    assert len(client.bench.broker.timers._heap) <= 3
    client.send(1, grammar.QUEUE_PURGE, queue="short")
    client.publish("short", b"last")
    client.frames()
    pass_ms(client, 999)
    assert client.bodies() == []
    pass_ms(client, 1)
    assert client.bodies() == [b"last"]
