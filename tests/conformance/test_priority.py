"""x-max-priority: which messages are delivered first, which expire, and which a full queue drops."""

from __future__ import annotations

import pytest

from .collect import confirmed, content, exclusive, take
from .raw import RawClient


def published(client: RawClient, queue: str, *priorities: int | None, **properties: object) -> None:
    """Publish messages numbered from 0 on, and wait for each confirm: RabbitMQ's queues have them then."""
    client.call("confirm.select")
    for number, priority in enumerate(priorities):
        given = properties if priority is None else {"priority": priority, **properties}
        assert confirmed(client, queue, b"%d" % number, first=number + 1, **given) == "a"


@pytest.mark.parametrize(("most", "order"), [
    (0, b"0123456"),
    (1, b"1234605"),
    (5, b"6423105"),
    (255, b"6423105"),
])
def test_the_highest_priority_first(raw: RawClient, most: int, order: bytes) -> None:
    queue = exclusive(raw, x_max_priority=most)
    published(raw, queue, None, 1, 3, 2, 4, 0, 200)
    assert b"".join(content(raw, queue)) == order


def test_without_the_argument_priorities_mean_nothing(raw: RawClient) -> None:
    queue = exclusive(raw)
    published(raw, queue, 1, 3, 2)
    assert content(raw, queue) == [b"0", b"1", b"2"]


def test_equals_in_the_order_of_their_arrival(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_priority=3)
    published(raw, queue, 1, 2, 1, 2, 1)
    assert content(raw, queue) == [b"1", b"3", b"0", b"2", b"4"]


def test_what_is_requeued_keeps_its_priority_and_its_place(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_priority=3)
    published(raw, queue, 1, 2, 1, 2)
    assert [take(raw, queue, no_ack=False).body for _ in range(3)] == [b"1", b"3", b"0"]
    raw.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    got = take(raw, queue)
    assert (got.body, got["redelivered"]) == (b"1", True)
    assert content(raw, queue) == [b"3", b"0", b"2"]


def test_a_consumer_gets_the_highest_that_is_there_when_it_can_take_more(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_priority=3)
    published(raw, queue, 1, 2)
    raw.call("basic.qos", prefetch_count=1)
    raw.call("basic.consume", queue=queue, consumer_tag="c")
    (first,) = raw.deliveries(1)
    assert first.body == b"1"
    raw.call("confirm.select", 2)
    raw.publish(b"late", routing_key=queue, channel=2, priority=3)
    raw.read("basic.ack")
    raw.send("basic.ack", delivery_tag=first["delivery_tag"])
    (second,) = raw.deliveries(1)
    assert second.body == b"late"


@pytest.mark.parametrize(("overflow", "left"), [("drop-head", [b"0", b"3"]), ("reject-publish", [b"1", b"0"])])
def test_a_full_queue(raw: RawClient, overflow: str, left: list[bytes]) -> None:
    queue = exclusive(raw, x_max_priority=3, x_max_length=2, x_overflow=overflow)
    raw.call("confirm.select")
    for tag, priority in enumerate((0, 3, 1, 0), 1):
        confirmed(raw, queue, b"%d" % (tag - 1), first=tag, priority=priority)
    assert content(raw, queue) == left


def test_only_what_is_next_expires(raw: RawClient) -> None:
    grave = exclusive(raw)
    queue = exclusive(raw, x_max_priority=3, x_dead_letter_exchange="", x_dead_letter_routing_key=grave)
    raw.call("confirm.select")
    for tag, (priority, expiration) in enumerate(((3, ""), (3, "1"), (1, "1"), (2, "1")), 1):
        more = {"expiration": expiration} if expiration else {}
        confirmed(raw, queue, b"%d" % tag, first=tag, priority=priority, **more)
    got = take(raw, queue)
    assert got.body == b"1"
    assert [take(raw, grave).body for _ in range(3)] == [b"2", b"4", b"3"]


@pytest.mark.parametrize(("given", "reason"), [
    (-1, "{value_negative,-1}"),
    (256, "{max_value_exceeded,256}"),
    ("1", '"expected integer, got longstr"'),
])
def test_priorities_that_are_none(raw: RawClient, unique: str, given: object, reason: str) -> None:
    refused = raw.fail("queue.declare", queue=unique, exclusive=True, arguments={"x-max-priority": given})
    text = f"PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue '{unique}' in vhost '/': {reason}"
    assert refused == (406, text, 50, 10)


def test_purging_takes_all_priorities(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_priority=3)
    published(raw, queue, 1, 3, 0)
    assert raw.call("queue.purge", queue=queue)["message_count"] == 3
    assert content(raw, queue) == []
