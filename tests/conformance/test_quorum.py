"""Queue type quorum as in 3.10.8: which arguments it accepts and refuses, and the delivery count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..waiting import until
from .collect import answers, confirmed, content, exclusive, ready, take
from .declaring import NOT_FOR_GOOD
from .raw import RawClient

QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture
def quorum(raw: RawClient, url: str, unique: str) -> Iterator[str]:
    """A quorum queue without further arguments."""
    raw.call("queue.declare", queue=unique, durable=True, arguments=QUORUM)
    yield unique
    with RawClient.open(url) as last:
        last.call("queue.delete", queue=unique)


# -- declaring ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flags", "word"), NOT_FOR_GOOD)
def test_it_is_there_for_good(raw: RawClient, unique: str, flags: dict[str, bool], word: str) -> None:
    text = f"PRECONDITION_FAILED - invalid property '{word}' for queue '{unique}' in vhost '/'"
    refused = raw.fail("queue.declare", queue=unique, arguments=QUORUM, **{"durable": True, **flags})
    assert refused == (406, text, 50, 10)


def test_it_has_a_name(raw: RawClient) -> None:
    """This is reported before any other error."""
    text = "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"
    arguments = {**QUORUM, "x-max-priority": 3}
    assert raw.fail("queue.declare", queue="", arguments=arguments) == (406, text, 50, 10)


@pytest.mark.parametrize(("kind", "name", "value"), [
    ("quorum", "x-max-priority", 5),
    ("quorum", "x-max-priority", "five"),
    ("quorum", "x-queue-mode", "lazy"),
    ("quorum", "x-queue-version", 2),
    ("quorum", "x-queue-master-locator", "min-masters"),
    ("quorum", "x-max-age", "1D"),
    ("quorum", "x-stream-max-segment-size-bytes", 100),
    ("quorum", "x-initial-cluster-size", 1),
    ("classic", "x-dead-letter-strategy", "at-least-once"),
    ("classic", "x-dead-letter-strategy", 1),
    ("classic", "x-max-in-memory-length", 5),
    ("classic", "x-max-in-memory-bytes", 5),
    ("classic", "x-quorum-initial-group-size", 1),
    ("classic", "x-queue-leader-locator", "client-local"),
    ("classic", "x-max-age", "1D"),
    ("classic", "x-stream-max-segment-size-bytes", 100),
    ("classic", "x-initial-cluster-size", 1),
    ("", "x-dead-letter-strategy", "at-least-once"),
])
def test_arguments_of_other_types(raw: RawClient, unique: str, kind: str, name: str, value: object) -> None:
    """They are refused whatever their values are."""
    arguments = {**({"x-queue-type": kind} if kind else {}), name: value}
    where = f"queue '{unique}' in vhost '/' of queue type rabbit_{kind or 'classic'}_queue"
    text = f"PRECONDITION_FAILED - invalid arg '{name}' for {where}"
    # a quorum queue must not have these flags, but arguments are checked first
    refused = raw.fail("queue.declare", queue=unique, auto_delete=True, arguments=arguments)
    assert refused == (406, text, 50, 10)


@pytest.mark.parametrize(("name", "value", "reason"), [
    ("x-dead-letter-strategy", "bogus", "invalid_dlx_strategy"),
    ("x-dead-letter-strategy", 1, "{unacceptable_type,signedint}"),
    ("x-quorum-initial-group-size", 0, "{value_zero,0}"),
    ("x-quorum-initial-group-size", -1, "{value_negative,-1}"),
    ("x-quorum-initial-group-size", "x", '"expected integer, got longstr"'),
    ("x-max-in-memory-length", -5, "{value_negative,-5}"),
    ("x-max-in-memory-length", True, '"expected integer, got bool"'),
    ("x-max-in-memory-bytes", "a", '"expected integer, got longstr"'),
    ("x-queue-leader-locator", "min-masters", "invalid_queue_locator_arg"),
    ("x-queue-leader-locator", 4, "{unacceptable_type,signedint}"),
    ("x-queue-type", 1, "{unacceptable_type,signedint}"),
    ("x-queue-type", "QUORUM", "\"unsupported queue type 'QUORUM'\""),
    ("x-overflow", "bogus", "invalid_overflow"),
    ("x-message-ttl", -1, "{value_negative,-1}"),
])
def test_values_that_are_wrong(raw: RawClient, unique: str, name: str, value: object, reason: str) -> None:
    """This is reported before arguments that the type does not accept."""
    arguments = {"x-initial-cluster-size": 1, **QUORUM, name: value}
    text = f"PRECONDITION_FAILED - invalid arg '{name}' for queue '{unique}' in vhost '/': {reason}"
    refused = raw.fail("queue.declare", queue=unique, durable=True, arguments=arguments)
    assert refused == (406, text, 50, 10)


@pytest.mark.parametrize("arguments", [
    {"x-message-ttl": 60_000, "x-expires": 60_000, "x-max-length": 5, "x-max-length-bytes": 5, "x-delivery-limit": 3},
    {"x-max-in-memory-length": 0, "x-max-in-memory-bytes": 0, "x-quorum-initial-group-size": 5},
    {"x-single-active-consumer": True, "x-queue-leader-locator": "balanced", "x-unknown": 1},
    {"x-dead-letter-strategy": "at-most-once", "x-overflow": "reject-publish-dlx"},
    {"x-dead-letter-strategy": "at-least-once"},
    {"x-delivery-limit": -1},
])
def test_what_it_takes(raw: RawClient, unique: str, arguments: dict[str, object]) -> None:
    given = {**QUORUM, **arguments}
    for _ in range(2):
        raw.call("queue.declare", queue=unique, durable=True, arguments=given)
    for name in arguments:
        if name == "x-unknown":
            continue
        less = {each: value for each, value in given.items() if each != name}
        code, text, _, _ = raw.fail("queue.declare", queue=unique, durable=True, arguments=less)
        assert (code, text.partition(" for ")[0]) == (406, f"PRECONDITION_FAILED - inequivalent arg '{name}'")
    raw.call("queue.delete", queue=unique)


def test_another_type_is_another_queue(raw: RawClient, quorum: str, unique: str) -> None:
    where = f"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue '{quorum}' in vhost '/': received"
    declared = {"queue": quorum, "durable": True}
    assert raw.fail("queue.declare", arguments={"x-queue-type": "classic"}, **declared) == (
        406, f"{where} 'classic' but current is 'quorum'", 50, 10)
    assert raw.fail("queue.declare", **declared) == (
        406, f"{where} none but current is the value 'quorum' of type 'longstr'", 50, 10)
    classic = f"{unique}-classic"
    raw.call("queue.declare", queue=classic, durable=True)
    text = f"inequivalent arg 'x-queue-type' for queue '{classic}' in vhost '/': received the value 'quorum' of type"
    assert raw.fail("queue.declare", queue=classic, durable=True, arguments=QUORUM) == (
        406, f"PRECONDITION_FAILED - {text} 'longstr' but current is none", 50, 10)
    raw.call("queue.delete", queue=classic)


# -- methods -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_it_is_not_deleted_on_a_condition(raw: RawClient, quorum: str, flag: str) -> None:
    text = f"NOT_IMPLEMENTED - cannot delete queue '{quorum}' in vhost '/'. queue.delete operations with "
    refused = raw.fail("queue.delete", queue=quorum, **{flag: True})
    assert refused == (540, f"{text}{flag.replace('_', '-')} flag set are not supported by quorum queues", 50, 40)


def test_no_consumer_on_a_channel_with_a_limit_for_all(raw: RawClient, quorum: str) -> None:
    raw.call("basic.qos", prefetch_count=5, **{"global": True})
    raw.call("basic.get", queue=quorum)
    text = f"NOT_IMPLEMENTED - queue '{quorum}' in vhost '/' does not support global qos"
    assert raw.fail("basic.consume", queue=quorum) == (540, text, 60, 20)


def test_a_limit_for_all_that_was_lifted(raw: RawClient, quorum: str) -> None:
    for count in (5, 0):
        raw.call("basic.qos", prefetch_count=count, **{"global": True})
    raw.call("basic.consume", queue=quorum)
    raw.call("basic.qos", prefetch_count=5, **{"global": True})
    raw.publish(b"x", routing_key=quorum)
    assert raw.read("basic.deliver").body == b"x"


def test_purge_and_delete_say_how_many(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, durable=True, arguments=QUORUM)
    raw.call("confirm.select")
    for _ in range(3):
        raw.publish(b"x", routing_key=unique)
    answers(raw, 3)
    assert raw.call("queue.purge", queue=unique)["message_count"] == 3
    raw.publish(b"x", routing_key=unique)
    answers(raw, 1, 4)
    assert raw.call("queue.delete", queue=unique)["message_count"] == 1


# -- counts ------------------------------------------------------------------------------------------------------------


def test_deliveries_are_counted_without_a_limit(raw: RawClient, quorum: str) -> None:
    """A get shows the count from the first delivery on, a consumer from the second on; by default there is no limit."""
    raw.publish(b"x", routing_key=quorum, headers={"mine": 1})
    for count in range(30):
        got = take(raw, quorum, no_ack=False)
        assert got.properties["headers"] == {"mine": 1, "x-delivery-count": count}
        assert got["redelivered"] == (count > 0)
        raw.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=True)
    raw.call("basic.consume", queue=quorum)
    assert raw.read("basic.deliver").properties["headers"] == {"mine": 1, "x-delivery-count": 30}


def test_a_consumer_sees_no_count_at_first(raw: RawClient, quorum: str) -> None:
    raw.call("basic.consume", queue=quorum)
    raw.publish(b"x", routing_key=quorum)
    got = raw.read("basic.deliver")
    assert "headers" not in got.properties
    raw.send("basic.nack", delivery_tag=got["delivery_tag"], requeue=True)
    assert raw.read("basic.deliver").properties["headers"] == {"x-delivery-count": 1}


def test_a_full_queue_that_would_dead_letter_drops_instead(raw: RawClient, unique: str) -> None:
    """reject-publish-dlx is for classic queues; for a quorum queue it means drop-head."""
    arguments = {**QUORUM, "x-max-length": 2, "x-overflow": "reject-publish-dlx"}
    raw.call("queue.declare", queue=unique, durable=True, arguments=arguments)
    raw.call("confirm.select")
    for number in range(4):
        raw.publish(b"%d" % number, routing_key=unique)
    assert answers(raw, 4) == "aaaa"
    assert content(raw, unique) == [b"2", b"3"]
    raw.call("queue.delete", queue=unique)


# -- undeliverable dead letters ----------------------------------------------------------------------------------------


@pytest.fixture
def sure(raw: RawClient, url: str, unique: str) -> Iterator[str]:
    """A queue whose dead letters go to the exchange "<its name>-x" at least once; its messages live for 1 ms."""
    arguments = {**QUORUM, "x-dead-letter-exchange": f"{unique}-x", "x-dead-letter-strategy": "at-least-once",
                 "x-overflow": "reject-publish", "x-max-length": 20, "x-message-ttl": 1}
    raw.call("queue.declare", queue=unique, durable=True, arguments=arguments)
    raw.call("confirm.select")
    yield unique
    with RawClient.open(url) as last:
        last.call("queue.delete", queue=unique)
        last.call("exchange.delete", exchange=f"{unique}-x")


def test_dead_letters_go_on_at_least_once(raw: RawClient, sure: str) -> None:
    grave = exclusive(raw)
    raw.call("exchange.declare", exchange=f"{sure}-x", type="fanout")
    raw.call("queue.bind", queue=grave, exchange=f"{sure}-x")
    for number in range(5):
        raw.publish(b"%d" % number, routing_key=sure, headers={"n": number})
    assert answers(raw, 5) == "aaaaa"
    for number in range(5):
        got = take(raw, grave)
        assert (got.body, got["exchange"], got["routing_key"]) == (b"%d" % number, f"{sure}-x", sure)
        (death,) = got.properties["headers"]["x-death"]
        assert (death["queue"], death["reason"], death["count"]) == (sure, "expired", 1)


def test_a_dead_letter_without_a_way_is_not_ready_and_takes_room(raw: RawClient, sure: str) -> None:
    """RabbitMQ's quorum queues accept one message more than their length allows."""
    assert confirmed(raw, sure, *[b"x"] * 25, first=1).rstrip("n") in ("a" * 20, "a" * 21)
    until(lambda: ready(raw, sure) == 0)
    assert raw.call("queue.purge", queue=sure)["message_count"] == 0
    assert confirmed(raw, sure, b"one more", first=26) == "n"


def test_a_dead_letter_without_a_way_waits_for_one(
    raw: RawClient, sure: str, unique: str, on_rabbitmq: bool
) -> None:
    """RabbitMQ retries after three minutes, leveret when a binding is made. It does not block others."""
    grave = exclusive(raw)
    raw.call("exchange.declare", exchange=f"{sure}-x", type="direct")
    raw.call("queue.bind", queue=grave, exchange=f"{sure}-x", routing_key="known")
    entry = f"{unique}-in"
    raw.call("exchange.declare", exchange=entry, type="fanout", auto_delete=True)
    raw.call("queue.bind", queue=sure, exchange=entry)
    for number in range(6):
        raw.publish(b"%d" % number, exchange=entry, routing_key="known" if number % 2 else "unknown")
    assert answers(raw, 6) == "aaaaaa"
    assert [take(raw, grave).body for _ in range(3)] == [b"1", b"3", b"5"]
    until(lambda: ready(raw, sure) == 0)
    raw.call("queue.bind", queue=grave, exchange=f"{sure}-x", routing_key="unknown")
    if not on_rabbitmq:
        assert [take(raw, grave).body for _ in range(3)] == [b"0", b"2", b"4"]
        assert content(raw, grave) == []
