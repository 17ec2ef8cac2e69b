"""basic.qos as in RabbitMQ versions that have the channel's limit: per consumer, per channel, and both (raw)."""

from __future__ import annotations

import pytest

from .collect import exclusive, ready
from .raw import RawClient
from .test_single_active_consumer import consume, words


@pytest.fixture
def queue(raw: RawClient) -> str:
    return exclusive(raw)


def qos(client: RawClient, count: int, *, whole: bool = False) -> None:
    client.call("basic.qos", prefetch_count=count, **{"global": whole})


def publish(client: RawClient, queue: str, count: int) -> None:
    """Publish on channel 2, so that channel 1 gets nothing but deliveries."""
    for number in range(count):
        client.publish(b"%d" % number, routing_key=queue, channel=2)


def test_both_at_once(raw: RawClient, queue: str) -> None:
    qos(raw, 2)
    qos(raw, 3, whole=True)
    for tag in "ab":
        consume(raw, queue, tag)
    publish(raw, queue, 9)
    assert words(raw.deliveries(3)) == "a0 b1 a2"
    raw.quiet(2)
    raw.send("basic.ack", delivery_tag=2)
    assert words(raw.deliveries(1)) == "b3"
    raw.quiet(2)
    raw.send("basic.ack", delivery_tag=0, multiple=True)
    assert words(raw.deliveries(3)) in ("a4 b5 a6", "b4 a5 b6")
    assert ready(raw, queue) == 2


def test_a_limit_per_consumer_lifts_that_of_the_channel(raw: RawClient, queue: str) -> None:
    """To have both limits, set the channel's limit last."""
    qos(raw, 1, whole=True)
    consume(raw, queue, "a")
    publish(raw, queue, 4)
    assert words(raw.deliveries(1)) == "a0"
    qos(raw, 1)
    assert words(raw.deliveries(3)) == "a1 a2 a3"


def test_changes_of_the_channels_limit_act_at_once(raw: RawClient, queue: str) -> None:
    consume(raw, queue, "a")
    publish(raw, queue, 5)
    raw.deliveries(5)
    qos(raw, 3, whole=True)
    publish(raw, queue, 9)
    raw.quiet(2)
    raw.send("basic.ack", delivery_tag=3, multiple=True)
    raw.send("basic.ack", delivery_tag=4)
    assert words(raw.deliveries(2)) == "a0 a1"
    raw.quiet(2)
    qos(raw, 5, whole=True)
    assert words(raw.deliveries(2)) == "a2 a3"
    qos(raw, 2, whole=True)
    raw.send("basic.ack", delivery_tag=7, multiple=True)
    raw.quiet(2)
    qos(raw, 0, whole=True)
    assert words(raw.deliveries(5)) == "a4 a5 a6 a7 a8"


def test_the_channels_limit_is_of_all_its_queues(raw: RawClient) -> None:
    first, second = exclusive(raw), exclusive(raw)
    qos(raw, 2, whole=True)
    consume(raw, first, "a")
    consume(raw, second, "b")
    publish(raw, first, 2)
    assert words(raw.deliveries(2)) == "a0 a1"
    publish(raw, second, 2)
    raw.quiet(2)
    raw.send("basic.ack", delivery_tag=1)
    assert words(raw.deliveries(1)) == "b0"


def test_other_channels_have_limits_of_their_own(raw: RawClient, queue: str) -> None:
    qos(raw, 1, whole=True)
    consume(raw, queue, "a")
    consume(raw, queue, "b", channel=2)
    publish(raw, queue, 6)
    assert sorted(words(raw.deliveries(6)).split()) == ["a0", "b1", "b2", "b3", "b4", "b5"]


@pytest.mark.parametrize("whole", [False, True])
def test_automatic_acknowledgement_knows_no_limit(raw: RawClient, queue: str, whole: bool) -> None:
    qos(raw, 1, whole=whole)
    consume(raw, queue, "a", no_ack=True)
    publish(raw, queue, 5)
    assert words(raw.deliveries(5)) == "a0 a1 a2 a3 a4"


def test_what_a_cancelled_consumer_holds_counts_for_its_channel(raw: RawClient, queue: str) -> None:
    qos(raw, 2, whole=True)
    consume(raw, queue, "a")
    publish(raw, queue, 5)
    assert words(raw.deliveries(2)) == "a0 a1"
    raw.call("basic.cancel", consumer_tag="a")
    consume(raw, queue, "b")
    raw.quiet(2)
    raw.send("basic.ack", delivery_tag=1)
    assert words(raw.deliveries(1)) == "b2"


def test_what_a_cancelled_consumer_holds_does_not_count_for_the_next(raw: RawClient, queue: str) -> None:
    qos(raw, 2)
    consume(raw, queue, "a")
    publish(raw, queue, 5)
    assert words(raw.deliveries(2)) == "a0 a1"
    raw.call("basic.cancel", consumer_tag="a")
    consume(raw, queue, "a")
    assert words(raw.deliveries(2)) == "a2 a3"


def test_fetching_is_not_limited_and_does_not_count(raw: RawClient, queue: str) -> None:
    qos(raw, 2)
    qos(raw, 2, whole=True)
    publish(raw, queue, 8)
    raw.quiet(2)
    for number in range(3):
        assert raw.call("basic.get", queue=queue).body == b"%d" % number
    consume(raw, queue, "a")
    assert words(raw.deliveries(2)) == "a3 a4"
    assert raw.call("basic.get", queue=queue).body == b"5"
    raw.send("basic.ack", delivery_tag=1)
    raw.quiet(2)
    raw.send("basic.ack", delivery_tag=4)
    assert words(raw.deliveries(1)) == "a6"


@pytest.mark.parametrize("method", ["basic.nack", "basic.reject"])
@pytest.mark.parametrize("requeue", [False, True])
def test_refused_messages_make_room(raw: RawClient, queue: str, method: str, requeue: bool) -> None:
    qos(raw, 2)
    consume(raw, queue, "a")
    publish(raw, queue, 4)
    assert words(raw.deliveries(2)) == "a0 a1"
    raw.send(method, delivery_tag=1, requeue=requeue)
    assert words(raw.deliveries(1)) == ("a0r" if requeue else "a2")
    raw.quiet(2)


def test_zero_means_no_limit(raw: RawClient, queue: str) -> None:
    qos(raw, 1)
    qos(raw, 0)
    consume(raw, queue, "a")
    publish(raw, queue, 50)
    raw.deliveries(50)


def test_no_limit_in_octets(raw: RawClient) -> None:
    assert raw.fail("basic.qos", prefetch_size=1) == (540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)", 60, 10)


def test_automatic_acknowledgement_waits_for_the_channel(raw: RawClient, queue: str) -> None:
    """Its deliveries do not count as unacknowledged, but it gets none while others have used up the channel's limit."""
    second = exclusive(raw)
    qos(raw, 1, whole=True)
    consume(raw, queue, "a")
    consume(raw, second, "n", no_ack=True)
    publish(raw, second, 2)
    assert words(raw.deliveries(2)) == "n0 n1"
    publish(raw, queue, 1)
    assert words(raw.deliveries(1)) == "a0"
    publish(raw, second, 3)
    raw.quiet(2)
    raw.send("basic.ack", delivery_tag=3)
    assert words(raw.deliveries(3)) == "n0 n1 n2"


def test_queues_share_the_channels_limit(raw: RawClient) -> None:
    """No queue is left out permanently."""
    queues = [exclusive(raw) for _ in range(3)]
    for queue in queues:
        publish(raw, queue, 100)
    qos(raw, 1, whole=True)
    for queue, tag in zip(queues, "abc", strict=True):
        consume_and_hold(raw, queue, tag)
    seen = ""
    while set(seen[-60:]) != set("abc"):
        assert len(seen) < 290, seen
        got = raw.read("basic.deliver")
        seen += got["consumer_tag"]
        raw.send("basic.ack", delivery_tag=got["delivery_tag"])


def consume_and_hold(client: RawClient, queue: str, tag: str) -> None:
    """Deliveries that arrive before the answer are not lost."""
    client.send("basic.consume", queue=queue, consumer_tag=tag)
    unread = []
    while (got := client.read("basic.consume-ok", "basic.deliver")).name == "basic.deliver":
        unread.append(got)
    for each in unread:
        client.send("basic.ack", delivery_tag=each["delivery_tag"])
