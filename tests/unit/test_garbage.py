"""The garbage collector is off while the broker runs, so freed objects must not be part of a reference cycle."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header

from .support import SECOND_US, Bench, Client

KINDS = {
    "BrokerChannel", "Consumer", "Queue", "PriorityQueue", "MessageList", "Ready", "Entry", "Run", "Stretch", "Page",
    "Binding", "Exchange", "Schedule", "Slice", "Route", "Limits", "Transaction", "Assembly", "Confirms", "Unacked",
}  # fmt: skip


@pytest.fixture
def client() -> Iterator[Client]:
    yield Bench().connect()
    gc.enable()


def alive() -> Counter[str]:
    return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in KINDS)


def fill(client: Client, queue: str, mode: int) -> None:
    """Publish equal messages in one segment and single ones; have one delivered and one requeued."""
    method = method_frame(1, grammar.BASIC_PUBLISH, routing_key=queue)
    header = encode_header(Properties(delivery_mode=mode), 1)
    client.raw((method + content_frames(1, header, b"x", 4096)) * 5)
    client.publish(queue, b"other", delivery_mode=mode, priority=1)
    for _ in range(2):
        client.send(1, grammar.BASIC_GET, queue=queue)
    client.send(1, grammar.BASIC_NACK, delivery_tag=1, requeue=True)


def hold(client: Client, durable: bool) -> None:
    """Delete a delayed exchange that holds near and far messages, after one that was due."""
    client.send(1, grammar.QUEUE_DECLARE, queue="held", durable=durable)
    arguments = {"x-delayed-type": "fanout"}
    client.send(
        1, grammar.EXCHANGE_DECLARE, exchange="later", type="x-delayed-message", durable=durable, arguments=arguments
    )
    client.send(1, grammar.QUEUE_BIND, queue="held", exchange="later")
    for delay_ms in (1, 700, 1_500, 50_000):
        client.publish("", b"x", exchange="later", headers={"x-delay": delay_ms})
    client.bench.pass_time(1000)
    client.bench.pass_time(600_000)
    client.send(1, grammar.EXCHANGE_DELETE, exchange="later")
    client.send(1, grammar.QUEUE_DELETE, queue="held")


def life(client: Client, arguments: dict[str, object], mode: int, cancels: bool) -> None:
    client.send(1, grammar.EXCHANGE_DECLARE, exchange="e", type="topic")
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=mode == 2, arguments=arguments)
    client.send(1, grammar.QUEUE_BIND, queue="q", exchange="e", routing_key="a.#")
    client.send(1, grammar.CONFIRM_SELECT)
    fill(client, "q", mode)
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    client.send(1, grammar.BASIC_PUBLISH, exchange="e", routing_key="a.b")
    client.raw(content_frames(1, encode_header(Properties(), 3), b"abc", 4096))
    client.bench.sync()
    if cancels:
        client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
    client.send(1, grammar.QUEUE_DELETE, queue="q")
    client.send(1, grammar.EXCHANGE_DELETE, exchange="e")
    hold(client, mode == 2)
    client.send(1, grammar.CHANNEL_CLOSE)
    client.bench.sync()
    assert {method.name for method in client.methods()} >= {"channel.close-ok", "queue.delete-ok", "basic.deliver"}
    client.send(1, grammar.CHANNEL_OPEN)
    client.frames()
    client.bench.pass_time(61 * SECOND_US)  # a queue stays until its timer runs
    client.bench.broker.dirty.clear()


@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("arguments", [
    {}, {"x-max-length": 100}, {"x-max-priority": 3}, {"x-delivery-limit": 5},
    {"x-dead-letter-exchange": "e", "x-message-ttl": 60_000},
], ids=str)  # fmt: skip
def test_what_is_deleted_is_gone_at_once(
    client: Client, arguments: dict[str, object], mode: int, cancels: bool
) -> None:
    life(client, arguments, mode, cancels)
    gc.collect()
    gc.disable()
    before = alive()
    for _ in range(10):
        life(client, arguments, mode, cancels)
    left = alive()
    left.subtract(before)
    assert {name: count for name, count in left.items() if count >= 10} == {}


def test_messages_do_not_keep_a_broker_that_nobody_has() -> None:
    """Holds in a process with a garbage collector that goes on, as with the test kit."""

    def queues() -> int:
        gc.collect()
        return alive()["Queue"]

    def live() -> None:
        client = Bench().connect()
        for name in ("waits", "gives"):
            client.queue(name, durable=True)
            for _ in range(4):
                client.publish(name, delivery_mode=2)
        client.send(1, grammar.BASIC_CONSUME, queue="gives", consumer_tag="late")

    live()
    before = queues()
    for _ in range(3):
        live()
    assert queues() == before
