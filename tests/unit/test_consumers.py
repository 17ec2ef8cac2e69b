"""Consumers that stand aside because they can't take more; tests/unit/test_consumers_model.py does it at random."""

from __future__ import annotations

import pytest

from leveret.wire import grammar

from .support import Bench, Client


@pytest.fixture
def client() -> Client:
    """Consumers "a" and "b" of queue "q", each with a prefetch of 1 and one message, standing aside."""
    client = Bench().connect()
    client.queue("q")
    client.call(1, grammar.BASIC_QOS, prefetch_count=1)
    for tag in "ab":
        client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag=tag)
    for number in range(3):
        client.publish("q", b"%d" % number)
    assert tags(client) == "ab"
    return client


def tags(client: Client) -> str:
    """Return the tags of the consumers that got something since the last call."""
    delivered = [method for method in client.methods() if method.spec is grammar.BASIC_DELIVER]
    return "".join(method.text("consumer_tag") for method in delivered)


def test_a_cancelled_one_that_stood_aside_stays_away(client: Client) -> None:
    client.call(1, grammar.BASIC_CANCEL, consumer_tag="a")
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    assert tags(client) == ""
    client.send(1, grammar.BASIC_ACK, delivery_tag=2)
    client.publish("q")
    assert tags(client) == "b"
    assert client.bench.broker.vhosts["/"].queues["q"].consumers.count == 1


def test_one_that_is_alone_now_goes_on(client: Client) -> None:
    client.call(1, grammar.BASIC_CANCEL, consumer_tag="b")
    client.send(1, grammar.BASIC_ACK, delivery_tag=1)
    assert tags(client) == "a"
    client.call(1, grammar.BASIC_QOS, prefetch_count=0)
    client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
    client.send(1, grammar.BASIC_ACK, delivery_tag=3)
    for _ in range(2):
        client.publish("q")
    assert sorted(tags(client)) == ["a", "c"]


def test_a_whole_connection_that_takes_nothing_for_a_while(client: Client) -> None:
    """Its consumers stand aside until its socket takes data again."""
    other = client.bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="x")
    other.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="y")
    other.peer.is_full = True
    client.send(1, grammar.BASIC_ACK, delivery_tag=0, multiple=True)
    for _ in range(4):
        client.publish("q")
    assert tags(other) == "x"  # message 2, at once
    assert tags(client) == "ab"
    other.peer.drained(client.bench.now_us)
    assert tags(other) == "xy"


def test_levels_go_with_their_last_consumer() -> None:
    """Whatever priorities clients choose, a queue keeps only those that are in use."""
    client = Bench().connect()
    client.queue("q")
    for priority in range(50):
        arguments = {"x-priority": priority}
        client.send(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", arguments=arguments)
        client.send(1, grammar.BASIC_CANCEL, consumer_tag="c")
    assert client.bench.broker.vhosts["/"].queues["q"].consumers._levels == []
