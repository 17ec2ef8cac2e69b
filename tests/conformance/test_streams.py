"""Queue type stream as in 3.10.8 over AMQP 0-9-1: what it accepts and refuses. Consumers: test_stream_consumers.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .administration import Administration
from .collect import answers, fanout
from .declaring import NOT_FOR_GOOD
from .raw import RawClient, Typed
from .streams import STREAM, append, declare, numbers, offset_of, read, start
from .support import until


@pytest.fixture
def stream(raw: RawClient, url: str, unique: str) -> Iterator[str]:
    """A stream without further arguments."""
    declare(raw, unique)
    yield unique
    with RawClient.open(url) as last:
        last.call("queue.delete", queue=unique)


# -- declaring ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flags", "word"), NOT_FOR_GOOD)
def test_it_is_there_for_good(raw: RawClient, unique: str, flags: dict[str, bool], word: str) -> None:
    """This is reported before a segment size that is too large."""
    text = f"PRECONDITION_FAILED - invalid property '{word}' for queue '{unique}' in vhost '/'"
    arguments = {**STREAM, "x-stream-max-segment-size-bytes": 1 << 40}
    refused = raw.fail("queue.declare", queue=unique, arguments=arguments, **{"durable": True, **flags})
    assert refused == (406, text, 50, 10)


def test_it_has_a_name(raw: RawClient) -> None:
    """This is reported before any other error."""
    text = "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_stream_queue"
    assert raw.fail("queue.declare", queue="", arguments={**STREAM, "x-max-length": 3}) == (406, text, 50, 10)


@pytest.mark.parametrize(("name", "value"), [
    ("x-expires", 60_000),
    ("x-message-ttl", 60_000),
    ("x-dead-letter-exchange", "amq.fanout"),
    ("x-dead-letter-routing-key", "k"),
    ("x-dead-letter-strategy", "at-least-once"),
    ("x-max-length", 5),
    ("x-max-length", "five"),
    ("x-max-in-memory-length", 5),
    ("x-max-in-memory-bytes", 5),
    ("x-max-priority", 5),
    ("x-overflow", "drop-head"),
    ("x-overflow", "bogus"),
    ("x-queue-mode", "lazy"),
    ("x-queue-version", 2),
    ("x-queue-master-locator", "min-masters"),
    ("x-single-active-consumer", True),
    ("x-quorum-initial-group-size", 1),
    ("x-delivery-limit", 5),
])
def test_arguments_of_other_types(raw: RawClient, unique: str, name: str, value: object) -> None:
    """They are refused whatever their values are."""
    where = f"queue '{unique}' in vhost '/' of queue type rabbit_stream_queue"
    text = f"PRECONDITION_FAILED - invalid arg '{name}' for {where}"
    # a stream must not have these flags, but arguments are checked first
    refused = raw.fail("queue.declare", queue=unique, auto_delete=True, arguments={**STREAM, name: value})
    assert refused == (406, text, 50, 10)


@pytest.mark.parametrize(("name", "value", "reason"), [
    ("x-max-age", "0D", "invalid_max_age"),
    ("x-max-age", "5", "invalid_max_age"),
    ("x-max-age", "1d", "invalid_max_age"),
    ("x-max-age", "1h2m", "invalid_max_age"),
    ("x-max-age", "2 D", "invalid_max_age"),
    ("x-max-age", 5, "{unacceptable_type,signedint}"),
    ("x-max-age", True, "{unacceptable_type,bool}"),
    ("x-max-age", Typed("x", b"1D"), "{unacceptable_type,binary}"),
    ("x-max-length-bytes", -1, "{value_negative,-1}"),
    ("x-max-length-bytes", "5", '"expected integer, got longstr"'),
    ("x-max-length-bytes", 5.0, '"expected integer, got double"'),
    ("x-stream-max-segment-size-bytes", -1, "{value_negative,-1}"),
    ("x-stream-max-segment-size-bytes", "5", '"expected integer, got longstr"'),
    ("x-stream-max-segment-size-bytes", True, '"expected integer, got bool"'),
    ("x-initial-cluster-size", 0, "{value_zero,0}"),
    ("x-initial-cluster-size", -1, "{value_negative,-1}"),
    ("x-initial-cluster-size", "1", '"expected integer, got longstr"'),
    ("x-queue-leader-locator", "min-masters", "invalid_queue_locator_arg"),
    ("x-queue-leader-locator", 4, "{unacceptable_type,signedint}"),
])
def test_values_that_are_wrong(raw: RawClient, unique: str, name: str, value: object, reason: str) -> None:
    """This is reported before arguments that the type does not accept."""
    arguments = {"x-max-length": 1, **STREAM, name: value}
    text = f"PRECONDITION_FAILED - invalid arg '{name}' for queue '{unique}' in vhost '/': {reason}"
    refused = raw.fail("queue.declare", queue=unique, durable=True, arguments=arguments)
    assert refused == (406, text, 50, 10)


def test_the_name_of_an_exchange_is_looked_at(raw: RawClient, unique: str) -> None:
    """This applies although the argument is not for streams."""
    where = f"queue '{unique}' in vhost '/'"
    refused = raw.fail("queue.declare", queue=unique, durable=True, arguments={**STREAM, "x-dead-letter-exchange": 1})
    text = f"PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in {where}"
    assert refused == (406, text, 50, 10)


@pytest.mark.parametrize("age", ["", "D", "-1h", "one hour", " 1D"])
def test_an_age_without_a_number(raw: RawClient, unique: str, age: str, on_rabbitmq: bool) -> None:
    """RabbitMQ's channel crashes."""
    text = f"PRECONDITION_FAILED - invalid arg 'x-max-age' for queue '{unique}' in vhost '/': invalid_max_age"
    refused = raw.fail("queue.declare", queue=unique, durable=True, arguments={**STREAM, "x-max-age": age})
    assert refused == ((541, "INTERNAL_ERROR", 0, 0) if on_rabbitmq else (406, text, 50, 10))


def test_of_several_wrong_values_one_is_named(raw: RawClient, unique: str) -> None:
    wrong = {"x-queue-leader-locator": "mine", "x-initial-cluster-size": 0, "x-stream-max-segment-size-bytes": -1,
             "x-max-age": "0D", "x-max-length-bytes": -1}
    for name in reversed(list(wrong)):
        code, text, _, _ = raw.fail("queue.declare", queue=unique, durable=True, arguments={**STREAM, **wrong})
        assert (code, text.partition(" for ")[0]) == (406, f"PRECONDITION_FAILED - invalid arg '{name}'")
        del wrong[name]


def test_segments_have_a_largest_size(raw: RawClient, unique: str) -> None:
    declared = {"queue": unique, "durable": True}
    text = "PRECONDITION_FAILED - Exceeded max value for x-stream-max-segment-size-bytes"
    too_large = {**STREAM, "x-stream-max-segment-size-bytes": 3_000_000_001}
    assert raw.fail("queue.declare", arguments=too_large, **declared) == (406, text, 50, 10)
    declare(raw, unique, x_stream_max_segment_size_bytes=3_000_000_000)
    raw.call("queue.delete", queue=unique)


@pytest.mark.parametrize("arguments", [
    {"x-max-length-bytes": 0, "x-max-age": "1Y", "x-stream-max-segment-size-bytes": 0},
    {"x-initial-cluster-size": 5, "x-queue-leader-locator": "least-leaders"},
    {"x-max-age": "99999999999999999999Y", "x-queue-leader-locator": "client-local", "x-unknown": 1},
    {"x-max-age": "007s", "x-max-length-bytes": 1 << 40},
])
def test_what_it_takes(raw: RawClient, unique: str, arguments: dict[str, object]) -> None:
    """A second declaration must have the same arguments."""
    given = {**STREAM, **arguments}
    for _ in range(2):
        raw.call("queue.declare", queue=unique, durable=True, arguments=given)
    for name in arguments:
        if name == "x-unknown":
            continue
        less = {each: value for each, value in given.items() if each != name}
        code, text, _, _ = raw.fail("queue.declare", queue=unique, durable=True, arguments=less)
        assert (code, text.partition(" for ")[0]) == (406, f"PRECONDITION_FAILED - inequivalent arg '{name}'")
    raw.call("queue.delete", queue=unique)


def test_another_declaration(raw: RawClient, unique: str) -> None:
    """Arguments are compared in this type's order; those that it does not accept are ignored."""
    mine = {"x-max-length-bytes": 5, "x-max-age": "1D", "x-queue-leader-locator": "balanced"}
    raw.call("queue.declare", queue=unique, durable=True, arguments={**STREAM, **mine})
    where = f"for queue '{unique}' in vhost '/'"
    for arguments, word in (
        ({**STREAM, **mine, "x-max-age": "24h"}, f"x-max-age' {where}: received '24h' but current is '1D'"),
        ({**STREAM}, f"x-max-length-bytes' {where}: received none but current is the value '5' of type 'signedint'"),
        ({}, f"x-max-length-bytes' {where}: received none but current is the value '5' of type 'signedint'"),
        ({**mine, "x-queue-type": "quorum"}, f"x-queue-type' {where}: received 'quorum' but current is 'stream'"),
        (mine, f"x-queue-type' {where}: received none but current is the value 'stream' of type 'longstr'"),
    ):
        refused = raw.fail("queue.declare", queue=unique, durable=True, arguments=arguments)
        assert refused == (406, f"PRECONDITION_FAILED - inequivalent arg '{word}", 50, 10)
    refused = raw.fail("queue.declare", queue=unique, arguments={**STREAM, **mine})
    text = f"PRECONDITION_FAILED - inequivalent arg 'durable' {where}: received 'false' but current is 'true'"
    assert refused == (406, text, 50, 10)
    raw.call("queue.declare", queue=unique, durable=True, arguments={**STREAM, **mine, "x-max-length": "much"})
    raw.call("queue.delete", queue=unique)


def test_what_is_no_argument_of_3_10(raw: RawClient, unique: str, on_rabbitmq: bool) -> None:
    """x-stream-filter-size-bytes came with 3.13, whose texts these are; the others are leveret's."""
    for name, value, text in (
        ("x-stream-filter-size-bytes", 15, "Invalid value for  x-stream-filter-size-bytes"),
        ("x-stream-filter-size-bytes", 256, "Invalid value for  x-stream-filter-size-bytes"),
        ("x-stream-filter-size-bytes", "16", "Invalid value for  x-stream-filter-size-bytes"),
        ("x-leveret-schema", 1, "{unacceptable_type,signedint}"),
        ("x-leveret-schema", '[{"name": "a", "type": "text"}]', 'field "a" has an unknown type "text"'),
        ("x-leveret-seal-after-ms", 0, "{value_zero,0}"),
        ("x-leveret-seal-after-ms", "1", '"expected integer, got longstr"'),
    ):
        arguments = {**STREAM, name: value}
        if on_rabbitmq:
            raw.call("queue.declare", queue=unique, durable=True, arguments=arguments)
            raw.call("queue.delete", queue=unique)
        else:
            refused = raw.fail("queue.declare", queue=unique, durable=True, arguments=arguments)
            assert refused[0] == 406
            assert refused[1].endswith(text)
    for size in (16, 255):
        declare(raw, unique, x_stream_filter_size_bytes=size)
        raw.call("queue.delete", queue=unique)


# -- methods -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [{}, {"no_ack": True}])
def test_it_is_not_fetched_from(raw: RawClient, stream: str, flags: dict[str, bool]) -> None:
    text = f"NOT_IMPLEMENTED - basic.get not supported by stream queues queue '{stream}' in vhost '/'"
    assert raw.fail("basic.get", queue=stream, **flags) == (540, text, 60, 70)


@pytest.mark.parametrize("flags", [{}, {"no_wait": True}])
def test_it_is_not_purged(raw: RawClient, stream: str, flags: dict[str, bool]) -> None:
    text = f"NOT_IMPLEMENTED - queue.purge not supported by stream queues queue '{stream}' in vhost '/'"
    assert raw.fail("queue.purge", queue=stream, **flags) == (540, text, 50, 30)


def test_the_conditions_of_a_deletion(raw: RawClient, other: RawClient, unique: str, on_rabbitmq: bool) -> None:
    """RabbitMQ ignores the conditions; leveret checks them, as a client that sends one expects."""
    declare(raw, unique)
    append(raw, unique, b"x")
    start(other, unique, "first")
    for flag, word in (("if_unused", "in use"), ("if_empty", "not empty")):
        if on_rabbitmq:
            raw.call("queue.delete", queue=unique, **{flag: True})
        else:
            text = f"PRECONDITION_FAILED - queue '{unique}' in vhost '/' {word}"
            assert raw.fail("queue.delete", queue=unique, **{flag: True}) == (406, text, 50, 40)
    raw.call("queue.delete", queue=unique)


def test_it_says_how_many_messages_there_are(raw: RawClient, stream: str, on_rabbitmq: bool) -> None:
    """RabbitMQ reports it some seconds later, and does not count consumers."""
    append(raw, stream, *numbers(3))
    start(raw, stream, "next")
    if on_rabbitmq:
        return
    declared = raw.call("queue.declare", queue=stream, passive=True)
    assert (declared["message_count"], declared["consumer_count"]) == (3, 1)


def test_a_deletion_tells_consumers(raw: RawClient, other: RawClient, unique: str, on_rabbitmq: bool) -> None:
    declare(raw, unique)
    append(raw, unique, b"x")
    start(other, unique, "next", tag="mine")
    # RabbitMQ does not count messages when it deletes a stream
    assert raw.call("queue.delete", queue=unique)["message_count"] == (0 if on_rabbitmq else 1)
    assert other.read("basic.cancel").args == {"consumer_tag": "mine", "no_wait": True}


def test_another_of_the_same_name_begins_at_0(raw: RawClient, unique: str) -> None:
    for body in (b"old", b"new"):
        declare(raw, unique)
        append(raw, unique, body)
        [got] = read(raw, unique, 1, "first", tag=body.decode())
        assert (got.body, offset_of(got)) == (body, 0)
        raw.call("queue.delete", queue=unique)
        raw.read("basic.cancel")


# -- publishing --------------------------------------------------------------------------------------------------------


def test_publishing_with_confirms(raw: RawClient, stream: str) -> None:
    raw.call("confirm.select")
    for body in numbers(50):
        raw.publish(body, routing_key=stream, mandatory=True)
    assert answers(raw, 50) == "a" * 50
    got = read(raw, stream, 50, "first")
    assert [(each.body, offset_of(each)) for each in got] == [(b"%d" % number, number) for number in range(50)]


def test_publishing_in_a_transaction(raw: RawClient, stream: str) -> None:
    raw.call("tx.select")
    raw.publish(b"rolled back", routing_key=stream)
    raw.call("tx.rollback")
    raw.publish(b"a", routing_key=stream)
    raw.publish(b"b", routing_key=stream)
    raw.call("tx.commit")
    assert [each.body for each in read(raw, stream, 2, "first")] == [b"a", b"b"]


def test_one_of_several_queues(raw: RawClient, stream: str, unique: str) -> None:
    """A message keeps the exchange and key that it was published with, and each queue gets it once."""
    queue = str(raw.call("queue.declare", exclusive=True)["queue"])
    exchange = fanout(raw, f"{unique}-x", stream, queue)
    append(raw, "the.key", b"x", exchange=exchange)
    [got] = read(raw, stream, 1, "first")
    assert (got["exchange"], got["routing_key"], got.body) == (exchange, "the.key", b"x")
    assert raw.call("basic.get", queue=queue, no_ack=True).body == b"x"


def test_as_an_alternate(raw: RawClient, stream: str, unique: str) -> None:
    last = fanout(raw, f"{unique}-last", stream)
    raw.call("exchange.declare", exchange=f"{unique}-x", type="topic", arguments={"alternate-exchange": last})
    append(raw, "no.way", b"x", exchange=f"{unique}-x", mandatory=True)
    [got] = read(raw, stream, 1, "first")
    assert (got["exchange"], got["routing_key"], got.body) == (f"{unique}-x", "no.way", b"x")
    raw.call("exchange.delete", exchange=f"{unique}-x")


def test_dead_letters(raw: RawClient, stream: str, on_rabbitmq: bool) -> None:
    """RabbitMQ 3.10 loses them: its queues cannot write into a stream."""
    if on_rabbitmq:
        return
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": stream}
    queue = str(raw.call("queue.declare", exclusive=True, arguments=arguments)["queue"])
    raw.publish(b"x", routing_key=queue, message_id="m")
    got = until(lambda: (found := raw.call("basic.get", queue=queue)).name == "basic.get-ok" and found)
    raw.send("basic.reject", delivery_tag=got["delivery_tag"])
    [dead] = read(raw, stream, 1, "first")
    assert (dead.body, dead.properties["message_id"]) == (b"x", "m")
    assert dead.properties["headers"]["x-death"][0]["reason"] == "rejected"
    assert offset_of(dead) == 0


# -- retention ---------------------------------------------------------------------------------------------------------


def _oldest(url: str, stream: str, *offset: object) -> int:
    with RawClient.open(url, channels=2) as client:
        return offset_of(read(client, stream, 1, *offset, prefetch=1)[0])


def test_the_oldest_segments_go(raw: RawClient, url: str, unique: str) -> None:
    """The last segment stays. A consumer that asks for a deleted offset starts at the oldest one."""
    declare(raw, unique, x_max_length_bytes=1_000_000, x_stream_max_segment_size_bytes=1_000_000)
    append(raw, unique, *[bytes(100_000)] * 55)
    assert until(lambda: _oldest(url, unique, "first") > 30)
    assert _oldest(url, unique, 3) == _oldest(url, unique, "first")
    raw.call("queue.delete", queue=unique)


def test_what_a_policy_says_goes_before_arguments(
    raw: RawClient, url: str, unique: str, administration: Administration
) -> None:
    """This is so even if the policy keeps more: it is not the smaller number that counts."""
    policies = [{"max-length-bytes": 1_000_000, "stream-max-segment-size-bytes": 1_000_000},
                {"max-length-bytes": 100_000_000, "stream-max-segment-size-bytes": 10_000_000}]
    for policy, declared in (policies, reversed(policies)):
        administration.call("set_policy", vhost="/", name=unique, pattern=f"^{unique}", definition=policy, priority=9,
                            apply_to="queues")
        declare(raw, unique, **{f"x-{key}": value for key, value in declared.items()})
        append(raw, unique, *[bytes(100_000)] * 55)
        if policy is policies[0]:
            assert until(lambda: _oldest(url, unique, "first") > 30)
        else:
            assert _oldest(url, unique, "first") == 0
        raw.call("queue.delete", queue=unique)
    administration.call("clear_policy", vhost="/", name=unique)


# policy keys that are not for streams, and those that are
NOT_OF_STREAMS: dict[str, object] = {
    "expires": 1000, "message-ttl": 1000, "dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": "k",
    "dead-letter-strategy": "at-least-once", "max-length": 5, "max-in-memory-length": 5, "max-in-memory-bytes": 5,
    "overflow": "drop-head", "delivery-limit": 5, "queue-mode": "lazy", "queue-master-locator": "random",
    "ha-mode": "all",
}
OF_STREAMS: dict[str, object] = {
    "max-length-bytes": 1000, "stream-max-segment-size-bytes": 1000, "initial-cluster-size": 1,
    "queue-leader-locator": "random", "queue-version": 2, "alternate-exchange": "amq.fanout",
}


def test_which_policies_are_for_streams(raw: RawClient, unique: str, administration: Administration) -> None:
    """A policy with a key that is not for streams does not match them; the next policy applies."""
    given = {"vhost": "/", "apply_to": "all"}
    plain = f"{unique}-plain"
    administration.call("set_policy", name=plain, pattern=f"^{unique}", definition={"max-length-bytes": 5}, priority=1,
                        **given)
    expected = {}
    for key, value in {**NOT_OF_STREAMS, **OF_STREAMS}.items():
        stream = f"{unique}-{key}"
        administration.call("set_policy", name=stream, pattern=f"^{stream}$", definition={key: value}, priority=2,
                            **given)
        declare(raw, stream)
        expected[stream] = plain if key in NOT_OF_STREAMS else stream
    found = {stream: until(lambda name=stream: administration.call("get_queue", vhost="/", name=name).get("policy"))
             for stream in expected}
    for stream in expected:
        raw.call("queue.delete", queue=stream)
        administration.call("clear_policy", vhost="/", name=stream)
    administration.call("clear_policy", vhost="/", name=plain)
    assert found == expected
