"""When queues are deleted: with their last consumer, after x-expires, by queue.delete; and who is notified (raw)."""

from __future__ import annotations

import pytest

from ..waiting import until
from .collect import exclusive, take
from .raw import METHOD, RawClient, encode_method, frame


def exists(client: RawClient, queue: str, channel: int = 2) -> bool:
    """Return whether a queue exists, asked on a separate channel because a negative answer closes it."""
    client.send("queue.declare", channel, queue=queue, passive=True)
    got = client.read("queue.declare-ok", "channel.close")
    if got.name == "channel.close":
        assert got.error[0] == 404
        client.send("channel.close-ok", channel)
        client.call("channel.open", channel)
    return got.name == "queue.declare-ok"


# Auto-delete

@pytest.mark.parametrize("end", ["basic.cancel", "channel.close"])
def test_auto_delete_with_the_last_consumer(raw: RawClient, other: RawClient, unique: str, end: str) -> None:
    raw.call("queue.declare", queue=unique, auto_delete=True)
    raw.call("basic.consume", queue=unique, consumer_tag="a")
    other.call("basic.consume", queue=unique, consumer_tag="b")
    raw.call("basic.cancel", consumer_tag="a")
    assert exists(raw, unique)
    other.call(end, **({"consumer_tag": "b"} if end == "basic.cancel" else {}))
    until(lambda: not exists(raw, unique))


def test_auto_delete_with_the_connection(url: str, raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, auto_delete=True)
    with RawClient.open(url) as lost:
        lost.call("basic.consume", queue=unique)
    until(lambda: not exists(raw, unique))


def test_auto_delete_needs_a_consumer_first(raw: RawClient, unique: str) -> None:
    """Fetching, asking for the queue and a failed basic.consume do not count."""
    raw.call("queue.declare", queue=unique, auto_delete=True)
    raw.publish(b"x", routing_key=unique)
    assert take(raw, unique).body == b"x"
    raw.call("basic.get", queue=unique)
    assert raw.fail("basic.consume", queue=unique, arguments={"x-priority": "1"})[0] == 406
    raw.call("channel.close")
    assert exists(raw, unique)
    raw.call("queue.delete", 2, queue=unique)


def test_auto_delete_takes_what_is_unacknowledged_along(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, auto_delete=True)
    raw.call("basic.consume", queue=unique, consumer_tag="a")
    raw.publish(b"x", routing_key=unique)
    tag = raw.read("basic.deliver")["delivery_tag"]
    raw.call("basic.cancel", consumer_tag="a")
    assert not exists(raw, unique)
    raw.send("basic.nack", delivery_tag=tag, requeue=True)
    raw.call("queue.declare", queue=unique, auto_delete=True, exclusive=True)
    assert raw.call("basic.get", queue=unique).name == "basic.get-empty"


# x-expires. Asking for the queue by its name counts as use; publishing to it does not.

def gone(client: RawClient, queue: str) -> bool:
    """Return whether a queue is gone, by publishing to it on channel 2, which does not count as use."""
    client.publish(b"?", routing_key=queue, mandatory=True, channel=2)
    client.send("queue.declare", 2, queue="amq.rabbitmq.reply-to", passive=True)
    return client.read("basic.return", "queue.declare-ok").name == "basic.return" and bool(
        client.read("queue.declare-ok"))


def pipelined(client: RawClient, *parts: bytes) -> None:
    """Write frames of channel 1 in one piece, so that the broker reads them together even on a busy machine."""
    client.socket.sendall(b"".join(parts))


def method(name: str, **fields: object) -> bytes:
    return frame(METHOD, 1, encode_method(name, **fields))


def test_an_unused_queue_expires(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, arguments={"x-expires": 100})
    raw.call("queue.bind", queue=unique, exchange="amq.fanout")
    until(lambda: gone(raw, unique))


def test_it_does_not_expire_while_it_is_consumed(raw: RawClient, unique: str) -> None:
    """A second queue with the same time expires meanwhile; the first one follows when its consumer is cancelled."""
    declare = method("queue.declare", queue=unique, arguments={"x-expires": 100})
    pipelined(raw, declare, method("basic.consume", queue=unique, consumer_tag="a"))
    raw.read("queue.declare-ok")
    raw.read("basic.consume-ok")
    raw.call("queue.declare", queue=f"{unique}-2", arguments={"x-expires": 100})
    until(lambda: gone(raw, f"{unique}-2"))
    assert exists(raw, unique)
    raw.call("basic.cancel", consumer_tag="a")
    until(lambda: gone(raw, unique))


def test_expiry_does_not_wait_for_acknowledgements(raw: RawClient, unique: str) -> None:
    declare = method("queue.declare", queue=unique, arguments={"x-expires": 200})
    publish = raw.content(1, encode_method("basic.publish", routing_key=unique), b"x", {})
    pipelined(raw, declare, publish, method("basic.get", queue=unique))
    raw.read("queue.declare-ok")
    assert raw.read("basic.get-ok").body == b"x"
    until(lambda: gone(raw, unique))
    raw.send("basic.ack", delivery_tag=1)
    raw.quiet()


# queue.delete

def test_unused_and_empty_are_about_consumers_and_ready_messages(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique)
    raw.publish(b"x", routing_key=unique)
    assert take(raw, unique, no_ack=False).body == b"x"
    assert raw.call("queue.delete", queue=unique, if_unused=True, if_empty=True)["message_count"] == 0
    raw.send("basic.nack", delivery_tag=1, requeue=True)
    raw.quiet()


def test_not_empty_is_named_before_in_use(raw: RawClient) -> None:
    queue = exclusive(raw)
    raw.publish(b"x", routing_key=queue)
    raw.call("basic.qos", prefetch_count=1)
    raw.call("basic.consume", queue=queue)
    raw.read("basic.deliver")
    raw.publish(b"y", routing_key=queue)
    assert raw.fail("queue.delete", 2, queue=queue, if_unused=True, if_empty=True) == (
        406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty", 50, 40)


# Consumers are notified

def test_told_when_it_is_deleted_elsewhere(raw: RawClient, other: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique)
    for channel, tag in ((1, "a"), (1, "b"), (2, "c")):
        raw.call("basic.consume", channel, queue=unique, consumer_tag=tag)
    other.call("queue.delete", queue=unique)
    frames = [raw.read("basic.cancel") for _ in range(3)]
    assert sorted((each.channel, each["consumer_tag"], each["no_wait"]) for each in frames) == [
        (1, "a", True), (1, "b", True), (2, "c", True)]
    raw.call("basic.consume", queue=exclusive(raw), consumer_tag="a")


def test_not_told_without_the_capability(url: str, other: RawClient, unique: str) -> None:
    with RawClient.open(url, properties={}) as deaf:
        deaf.call("queue.declare", queue=unique)
        deaf.call("basic.consume", queue=unique, consumer_tag="a")
        other.call("queue.delete", queue=unique)
        deaf.quiet()
        deaf.call("basic.cancel", consumer_tag="a")


def test_what_it_holds_may_still_be_acknowledged(raw: RawClient, other: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique)
    raw.call("basic.consume", queue=unique, consumer_tag="a")
    raw.publish(b"x", routing_key=unique)
    raw.publish(b"y", routing_key=unique)
    raw.deliveries(2)
    other.call("queue.delete", queue=unique)
    raw.read("basic.cancel")
    raw.send("basic.ack", delivery_tag=1)
    raw.send("basic.nack", delivery_tag=2, requeue=True)
    raw.quiet()


def test_cancelling_what_the_broker_has_cancelled(raw: RawClient, other: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique)
    raw.call("basic.consume", queue=unique, consumer_tag="a")
    other.call("queue.delete", queue=unique)
    raw.read("basic.cancel")
    raw.call("basic.cancel", consumer_tag="a")
