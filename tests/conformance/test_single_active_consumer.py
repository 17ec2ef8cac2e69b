"""x-single-active-consumer: one consumer gets everything until it is cancelled, then the next one (raw).

RabbitMQ 3.10.8 does not serve the next active consumer before something else happens on the queue; if the last one was
full when it was cancelled, the next publish even crashes the queue. leveret serves it at once, so these tests publish
or acknowledge something where RabbitMQ needs it, and cancel consumers that are not full.
"""

from __future__ import annotations

import pytest

from ..waiting import until
from .collect import exclusive, ready
from .raw import Frame, RawClient


def consume(client: RawClient, queue: str, tag: str, channel: int = 1, **more: object) -> None:
    client.call("basic.consume", channel, queue=queue, consumer_tag=tag, **more)


def told(client: RawClient, queue: str, count: int, first: int = 0) -> str:
    """Publish this many messages and return their deliveries, as "a0 a1"."""
    for number in range(first, first + count):
        client.publish(b"%d" % number, routing_key=queue)
    return words(client.deliveries(count))


def words(frames: list[Frame]) -> str:
    return " ".join(
        each["consumer_tag"] + each.body.decode() + ("r" if each["redelivered"] else "") for each in frames)


@pytest.fixture
def queue(raw: RawClient) -> str:
    return exclusive(raw, x_single_active_consumer=True)


@pytest.mark.parametrize("no_ack", [False, True])
def test_the_first_one_gets_everything(raw: RawClient, queue: str, no_ack: bool) -> None:
    for tag in "abc":
        consume(raw, queue, tag, no_ack=no_ack)
    assert told(raw, queue, 5) == "a0 a1 a2 a3 a4"
    assert raw.call("queue.declare", queue=queue, passive=True)["consumer_count"] == 3


def test_the_next_one_is_the_oldest(raw: RawClient, queue: str) -> None:
    for tag in "abcd":
        consume(raw, queue, tag, no_ack=True)
    assert told(raw, queue, 2) == "a0 a1"
    raw.call("basic.cancel", consumer_tag="b")
    assert told(raw, queue, 2) == "a0 a1"
    consume(raw, queue, "b", no_ack=True)
    raw.call("basic.cancel", consumer_tag="a")
    assert told(raw, queue, 2) == "c0 c1"
    consume(raw, queue, "a", no_ack=True)
    raw.call("basic.cancel", consumer_tag="c")
    assert told(raw, queue, 2) == "d0 d1"
    raw.call("basic.cancel", consumer_tag="d")
    assert told(raw, queue, 2) == "b0 b1"


def test_priorities_choose_the_next_one_only(raw: RawClient, queue: str) -> None:
    """The active consumer stays active, whatever the priorities of others are."""
    for tag, priority in (("a", 0), ("b", 1), ("c", 5), ("d", 5), ("e", -1)):
        consume(raw, queue, tag, no_ack=True, arguments={"x-priority": priority})
    order = ""
    for _ in range(5):
        active = told(raw, queue, 2).split()
        assert active[0][0] == active[1][0]
        order += active[0][0]
        raw.call("basic.cancel", consumer_tag=order[-1])
    assert order == "acdbe"


@pytest.mark.parametrize("exclusive_first", [False, True])
def test_no_exclusive_consumers(raw: RawClient, queue: str, exclusive_first: bool) -> None:
    if not exclusive_first:
        consume(raw, queue, "a", channel=2)
    assert raw.fail("basic.consume", queue=queue, exclusive=True) == (
        403, f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use", 60, 20)
    consume(raw, queue, "b")


def test_a_full_one_is_waited_for(raw: RawClient, queue: str) -> None:
    """The others get nothing while the active one has as many messages as it may have."""
    raw.call("basic.qos", prefetch_count=2)
    for tag in "ab":
        consume(raw, queue, tag)
    for number in range(5):
        raw.publish(b"%d" % number, routing_key=queue)
    assert words(raw.deliveries(2)) == "a0 a1"
    raw.quiet()
    assert ready(raw, queue) == 3
    raw.send("basic.ack", delivery_tag=1)
    assert words(raw.deliveries(1)) == "a2"
    raw.quiet()


def test_order_is_kept_when_the_channel_of_the_active_one_closes(raw: RawClient, queue: str) -> None:
    raw.call("channel.open", 3)
    raw.call("basic.qos", 3, prefetch_count=3)
    consume(raw, queue, "x", channel=3)
    consume(raw, queue, "a", no_ack=True)
    for number in range(5):
        raw.publish(b"%d" % number, routing_key=queue)
    assert words(raw.deliveries(3)) == "x0 x1 x2"
    raw.send("channel.close", 3)
    frames = [raw.read("channel.close-ok", "basic.deliver") for _ in range(6)]
    assert words([each for each in frames if each.name == "basic.deliver"]) == "a0r a1r a2r a3 a4"


def test_order_is_kept_when_the_connection_of_the_active_one_is_lost(url: str, raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, arguments={"x-single-active-consumer": True})
    with RawClient.open(url) as lost:
        consume(lost, unique, "x")
        consume(raw, unique, "a", no_ack=True)
        for number in range(3):
            raw.publish(b"%d" % number, routing_key=unique)
        lost.deliveries(3)
    assert words(raw.deliveries(3)) == "a0r a1r a2r"
    raw.call("basic.cancel", consumer_tag="a")
    raw.call("queue.delete", queue=unique)


def test_what_a_cancelled_one_holds_comes_back_to_the_next(raw: RawClient, queue: str) -> None:
    for tag in "ab":
        consume(raw, queue, tag)
    assert told(raw, queue, 3) == "a0 a1 a2"
    raw.call("basic.cancel", consumer_tag="a")
    raw.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    assert words(raw.deliveries(3)) == "b0r b1r b2r"


def test_get_does_not_ask_who_is_active(raw: RawClient, queue: str) -> None:
    raw.call("basic.qos", prefetch_count=1)
    consume(raw, queue, "a")
    for number in range(3):
        raw.publish(b"%d" % number, routing_key=queue)
    raw.deliveries(1)
    assert raw.call("basic.get", queue=queue).body == b"1"


def test_coming_back(raw: RawClient, queue: str) -> None:
    """After all have been cancelled, the next consumer is active."""
    consume(raw, queue, "a", no_ack=True)
    raw.call("basic.cancel", consumer_tag="a")
    raw.publish(b"0", routing_key=queue)
    until(lambda: ready(raw, queue) == 1)
    consume(raw, queue, "b", no_ack=True)
    assert words(raw.deliveries(1)) == "b0"
    consume(raw, queue, "c", no_ack=True)
    assert told(raw, queue, 1, 1) == "b1"


def test_false_means_no(raw: RawClient) -> None:
    queue = exclusive(raw, x_single_active_consumer=False)
    for tag in "ab":
        consume(raw, queue, tag, no_ack=True)
    assert told(raw, queue, 4) == "a0 b1 a2 b3"


def test_the_next_one_is_served_at_once(broker: str, unique: str) -> None:
    """On leveret only; see the module's docstring."""
    with RawClient.open(broker, channels=2) as raw:
        raw.call("queue.declare", queue=unique, exclusive=True, arguments={"x-single-active-consumer": True})
        raw.call("basic.qos", prefetch_count=1)
        for tag in "ab":
            consume(raw, unique, tag)
        for number in range(3):
            raw.publish(b"%d" % number, routing_key=unique)
        assert words(raw.deliveries(1)) == "a0"
        raw.send("basic.cancel", consumer_tag="a")
        frames = [raw.read("basic.cancel-ok", "basic.deliver") for _ in range(2)]
        assert words([each for each in frames if each.name == "basic.deliver"]) == "b1"
