"""x-priority of basic.consume, and the order in which consumers of equal priority get messages (raw)."""

from __future__ import annotations

import pytest

from .collect import exclusive
from .raw import RawClient, Typed
from .test_single_active_consumer import consume, told, words


@pytest.fixture
def queue(raw: RawClient) -> str:
    return exclusive(raw)


def publish(client: RawClient, queue: str, count: int) -> None:
    for number in range(count):
        client.publish(b"%d" % number, routing_key=queue)


def test_the_highest_gets_everything(raw: RawClient, queue: str) -> None:
    for tag, priority in (("a", None), ("b", 1), ("c", -1)):
        consume(raw, queue, tag, no_ack=True, arguments={} if priority is None else {"x-priority": priority})
    assert told(raw, queue, 3) == "b0 b1 b2"
    raw.call("basic.cancel", consumer_tag="b")
    assert told(raw, queue, 3) == "a0 a1 a2"
    raw.call("basic.cancel", consumer_tag="a")
    assert told(raw, queue, 3) == "c0 c1 c2"


def test_a_higher_one_may_come_later(raw: RawClient, queue: str) -> None:
    consume(raw, queue, "a", no_ack=True)
    assert told(raw, queue, 2) == "a0 a1"
    consume(raw, queue, "b", no_ack=True, arguments={"x-priority": 1})
    assert told(raw, queue, 2) == "b0 b1"


def test_lower_ones_get_what_the_highest_cannot_take(raw: RawClient, queue: str) -> None:
    raw.call("basic.qos", prefetch_count=2)
    for tag, priority in (("a", 0), ("b", 1), ("c", 1), ("d", -1)):
        consume(raw, queue, tag, arguments={"x-priority": priority})
    publish(raw, queue, 12)
    assert words(raw.deliveries(8)) == "b0 c1 b2 c3 a4 a5 d6 d7"
    raw.send("basic.ack", delivery_tag=6)
    assert words(raw.deliveries(1)) == "a8"
    raw.send("basic.ack", delivery_tag=2)
    assert words(raw.deliveries(1)) == "c9"
    raw.send("basic.ack", delivery_tag=8)
    assert words(raw.deliveries(1)) == "d10"
    raw.quiet()


def test_equals_of_a_high_priority_take_turns(raw: RawClient, queue: str) -> None:
    for tag, priority in (("a", 0), ("b", 3), ("c", 3), ("d", 3)):
        consume(raw, queue, tag, no_ack=True, arguments={"x-priority": priority})
    assert told(raw, queue, 6) == "b0 c1 d2 b3 c4 d5"


def test_nobody_loses_a_turn_when_another_goes(raw: RawClient, queue: str) -> None:
    for tag in "abcd":
        consume(raw, queue, tag, no_ack=True)
    assert told(raw, queue, 6) == "a0 b1 c2 d3 a4 b5"
    raw.call("basic.cancel", consumer_tag="a")
    assert told(raw, queue, 4) == "c0 d1 b2 c3"
    consume(raw, queue, "a", no_ack=True)
    assert told(raw, queue, 6) == "d0 b1 c2 a3 d4 b5"


def test_who_was_full_stands_last(raw: RawClient, queue: str) -> None:
    """Consumers are served in the order in which they got room again, not in the order in which they started."""
    raw.call("basic.qos", prefetch_count=1)
    for tag in "abcd":
        consume(raw, queue, tag)
    publish(raw, queue, 8)
    assert words(raw.deliveries(4)) == "a0 b1 c2 d3"
    raw.send("basic.ack", delivery_tag=3)
    assert words(raw.deliveries(1)) == "c4"
    raw.send("basic.ack", delivery_tag=1)
    assert words(raw.deliveries(1)) == "a5"
    raw.send("basic.ack", delivery_tag=4)
    assert words(raw.deliveries(1)) == "d6"
    raw.send("basic.nack", delivery_tag=2, requeue=True)
    assert words(raw.deliveries(1)) == "b1r"


@pytest.mark.parametrize(
    "priority", [5, -5, 2**40, 2**63 - 1, -(2**63), Typed("b", 3), Typed("B", 200), Typed("s", -3), Typed("u", 3),
                 Typed("i", 3_000_000_000), Typed("L", 3)])
def test_any_integer(raw: RawClient, queue: str, priority: object) -> None:
    consume(raw, queue, "a", no_ack=True)
    consume(raw, queue, "b", no_ack=True, arguments={"x-priority": priority})
    number = priority.value if isinstance(priority, Typed) else priority
    assert told(raw, queue, 1) == ("b0" if number > 0 else "a0")


@pytest.mark.parametrize(
    ("priority", "kind"),
    [("5", "longstr"), (None, "void"), (True, "bool"), (1.5, "double"), (Typed("f", 1.0), "float"),
     (Typed("x", b"5"), "binary"), ([1], "array"), ({}, "table"), (Typed("T", 5), "timestamp"),
     (Typed("D", b"\0\0\0\0\5"), "decimal")])
def test_what_is_no_integer(raw: RawClient, queue: str, priority: object, kind: str) -> None:
    assert raw.fail("basic.consume", queue=queue, arguments={"x-priority": priority}) == (
        406,
        f"PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{queue}' in vhost '/': "
        f'"expected integer, got {kind}"',
        60, 20)


def test_arguments_are_looked_at_before_exclusivity(raw: RawClient, queue: str) -> None:
    consume(raw, queue, "a", channel=2)
    error = raw.fail("basic.consume", queue=queue, exclusive=True, arguments={"x-priority": "1"})
    assert error[0] == 406
    assert raw.fail("basic.consume", queue=queue, exclusive=True)[0] == 403
    assert raw.fail("basic.consume", queue=f"{queue}0", arguments={"x-priority": "1"})[0] == 404


def test_other_arguments(raw: RawClient, queue: str) -> None:
    what = f"for queue '{queue}' in vhost '/'"
    consume(raw, queue, "a", arguments={"x-cancel-on-ha-failover": True, "x-unknown": [1]})
    raw.call("channel.close")
    raw.call("channel.open")
    assert raw.fail("basic.consume", queue=queue, arguments={"x-cancel-on-ha-failover": 1}) == (
        406, f"PRECONDITION_FAILED - invalid arg 'x-cancel-on-ha-failover' {what}: {{unacceptable_type,signedint}}",
        60, 20)
    assert raw.fail("basic.consume", queue=queue, arguments={"x-stream-offset": "first"}) == (
        406, f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' {what} of queue type rabbit_classic_queue", 60, 20)
