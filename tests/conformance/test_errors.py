"""The errors that close a channel or connection when a client makes a mistake: code, text, class id, method id.

All texts are those of RabbitMQ 3.10.8, measured; client libraries and users' scripts match on them.
"""

from __future__ import annotations

from typing import Any

import pytest

from .raw import RawClient

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the original declaration."
)
DEFAULT_REFUSED = "ACCESS_REFUSED - operation not permitted on the default exchange"


def no_queue(name: str) -> str:
    return f"NOT_FOUND - no queue '{name}' in vhost '/'"


def no_exchange(name: str) -> str:
    return f"NOT_FOUND - no exchange '{name}' in vhost '/'"


# Things that do not exist


def test_missing_queue(raw: RawClient, unique: str) -> None:
    text = no_queue(unique)
    assert raw.fail("queue.declare", queue=unique, passive=True) == (404, text, 50, 10)
    assert raw.fail("queue.bind", queue=unique, exchange="amq.direct") == (404, text, 50, 20)
    assert raw.fail("queue.purge", queue=unique) == (404, text, 50, 30)
    assert raw.fail("basic.get", queue=unique) == (404, text, 60, 70)
    assert raw.fail("basic.consume", queue=unique) == (404, text, 60, 20)


def test_missing_exchange(raw: RawClient, unique: str) -> None:
    queue = raw.call("queue.declare", 2, exclusive=True)["queue"]
    text = no_exchange(unique)
    assert raw.fail("exchange.declare", exchange=unique, type="direct", passive=True) == (404, text, 40, 10)
    assert raw.fail("queue.bind", queue=queue, exchange=unique) == (404, text, 50, 20)
    assert raw.fail("exchange.bind", destination="amq.fanout", source=unique) == (404, text, 40, 30)
    assert raw.fail("exchange.bind", destination=unique, source="amq.fanout") == (404, text, 40, 30)
    raw.publish(b"", exchange=unique)
    assert raw.closed() == (404, text, 60, 40)


def test_missing_both_names_the_exchange(raw: RawClient, unique: str) -> None:
    assert raw.fail("queue.bind", queue=unique, exchange=f"{unique}x") == (404, no_exchange(f"{unique}x"), 50, 20)


def test_removing_what_is_missing_is_fine(raw: RawClient, unique: str) -> None:
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    assert raw.call("queue.delete", queue=unique)["message_count"] == 0
    raw.call("exchange.delete", exchange=unique)
    raw.call("queue.unbind", queue=queue, exchange=unique)
    raw.call("queue.unbind", queue=unique, exchange="amq.direct")
    raw.call("queue.unbind", queue=queue, exchange="amq.direct", routing_key="never")
    raw.call("exchange.unbind", destination="amq.fanout", source="amq.topic", routing_key="never")
    assert raw.call("basic.cancel", consumer_tag="never")["consumer_tag"] == "never"


def test_empty_name_without_a_last_queue(raw: RawClient) -> None:
    text = "NOT_FOUND - no previously declared queue"
    assert raw.fail("queue.bind", exchange="amq.direct") == (404, text, 50, 20)
    assert raw.fail("queue.delete") == (404, text, 50, 40)
    assert raw.fail("basic.consume") == (404, text, 60, 20)
    assert raw.fail("basic.get") == (404, text, 60, 70)
    assert raw.fail("queue.declare", passive=True) == (404, no_queue(""), 50, 10)


# Declared differently before

QUEUE_CASES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"durable": True}, {}, "durable", "received 'false' but current is 'true'"),
    ({}, {"durable": True}, "durable", "received 'true' but current is 'false'"),
    ({}, {"auto_delete": True}, "auto_delete", "received 'true' but current is 'false'"),
    ({}, {"arguments": {"x-message-ttl": 5}}, "x-message-ttl",
     "received the value '5' of type 'signedint' but current is none"),
    ({"arguments": {"x-message-ttl": 5000}}, {}, "x-message-ttl",
     "received none but current is the value '5000' of type 'signedint'"),
    ({"arguments": {"x-message-ttl": 5000}}, {"arguments": {"x-message-ttl": 6000}}, "x-message-ttl",
     "received '6000' but current is '5000'"),
    ({"arguments": {"x-dead-letter-exchange": "a"}}, {"arguments": {"x-dead-letter-exchange": "b"}},
     "x-dead-letter-exchange", "received 'b' but current is 'a'"),
    ({}, {"arguments": {"x-max-length": 5}}, "x-max-length",
     "received the value '5' of type 'signedint' but current is none"),
    ({}, {"arguments": {"x-message-ttl": 5, "x-expires": 60000}}, "x-expires",
     "received the value '60000' of type 'signedint' but current is none"),
    ({"durable": True}, {"durable": True, "arguments": {"x-queue-type": "quorum"}}, "x-queue-type",
     "received the value 'quorum' of type 'longstr' but current is none"),
]


@pytest.mark.parametrize(("first", "second", "arg", "text"), QUEUE_CASES)
def test_queue_declared_differently(
    *, raw: RawClient, unique: str, first: dict[str, Any], second: dict[str, Any], arg: str, text: str
) -> None:
    raw.call("queue.declare", 2, queue=unique, **first)
    assert raw.fail("queue.declare", queue=unique, **second) == (
        406, f"PRECONDITION_FAILED - inequivalent arg '{arg}' for queue '{unique}' in vhost '/': {text}", 50, 10)
    raw.call("queue.delete", 2, queue=unique)


def test_queue_declared_the_same(raw: RawClient, unique: str) -> None:
    arguments = {"x-message-ttl": 5000, "x-dead-letter-exchange": "", "x-queue-type": "classic", "x-expires": 60000}
    for _ in range(2):
        assert raw.call("queue.declare", queue=unique, arguments=arguments)["queue"] == unique
    # A number equals itself in any integer type, and unknown arguments are not compared.
    arguments["x-message-ttl"] = 5000
    raw.call("queue.declare", queue=unique, arguments=arguments | {"x-of-my-own": "anything"})
    raw.call("queue.delete", queue=unique)


def test_passive_declare_compares_nothing(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, auto_delete=True)
    raw.call("queue.declare", queue=unique, passive=True, durable=True, arguments={"x-message-ttl": 1})
    raw.call("exchange.declare", exchange="amq.topic", type="no such type", passive=True)
    raw.call("queue.delete", queue=unique)


EXCHANGE_CASES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"type": "topic"}, "type", "received 'topic' but current is 'direct'"),
    ({}, {"durable": True}, "durable", "received 'true' but current is 'false'"),
    ({}, {"auto_delete": True}, "auto_delete", "received 'true' but current is 'false'"),
    ({}, {"internal": True}, "internal", "received 'true' but current is 'false'"),
    ({}, {"arguments": {"alternate-exchange": "foo"}}, "alternate-exchange",
     "received the value 'foo' of type 'longstr' but current is none"),
    ({"arguments": {"alternate-exchange": "foo"}}, {"arguments": {"alternate-exchange": "bar"}},
     "alternate-exchange", "received 'bar' but current is 'foo'"),
]


@pytest.mark.parametrize(("first", "second", "arg", "text"), EXCHANGE_CASES)
def test_exchange_declared_differently(
    *, raw: RawClient, unique: str, first: dict[str, Any], second: dict[str, Any], arg: str, text: str
) -> None:
    raw.call("exchange.declare", 2, exchange=unique, **{"type": "direct"} | first)
    assert raw.fail("exchange.declare", exchange=unique, **{"type": "direct"} | second) == (
        406, f"PRECONDITION_FAILED - inequivalent arg '{arg}' for exchange '{unique}' in vhost '/': {text}", 40, 10)
    raw.call("exchange.delete", 2, exchange=unique)


# Invalid arguments

QUEUE_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"x-message-ttl": -1}, "{value_negative,-1}"),
    ({"x-message-ttl": "abc"}, '"expected integer, got longstr"'),
    ({"x-message-ttl": 5.0}, '"expected integer, got double"'),
    ({"x-message-ttl": 2**40}, "{value_too_large,1099511627776}"),
    ({"x-expires": 0}, "{value_zero,0}"),
    ({"x-expires": -1}, "{value_negative,-1}"),
    ({"x-expires": "x"}, '"expected integer, got longstr"'),
    ({"x-max-length": "x"}, '"expected integer, got longstr"'),
    ({"x-max-length": -1}, "{value_negative,-1}"),
    ({"x-dead-letter-routing-key": "alone"}, "routing_key_but_no_dlx_defined"),
    ({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": 1}, "{unacceptable_type,signedint}"),
    ({"x-overflow": "bad"}, "invalid_overflow"),
    ({"x-queue-type": "bad"}, '"unsupported queue type \'bad\'"'),
    ({"x-max-priority": -1}, "{value_negative,-1}"),
    ({"x-max-priority": 256}, "{max_value_exceeded,256}"),
    ({"x-single-active-consumer": "yes"}, "{unacceptable_type,longstr}"),
]


@pytest.mark.parametrize(("arguments", "reason"), QUEUE_ARGUMENTS, ids=lambda each: str(each)[:48])
def test_invalid_queue_argument(raw: RawClient, unique: str, arguments: dict[str, Any], reason: str) -> None:
    arg = list(arguments)[-1]
    assert raw.fail("queue.declare", queue=unique, arguments=arguments) == (
        406, f"PRECONDITION_FAILED - invalid arg '{arg}' for queue '{unique}' in vhost '/': {reason}", 50, 10)
    assert raw.fail("queue.declare", queue=unique, passive=True)[0] == 404


def test_exchange_names_of_the_wrong_type(raw: RawClient, unique: str) -> None:
    assert raw.fail("queue.declare", queue=unique, arguments={"x-dead-letter-exchange": 5}) == (
        406, "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue "
        f"'{unique}' in vhost '/'", 50, 10)
    assert raw.fail("exchange.declare", exchange=unique, type="direct", arguments={"alternate-exchange": 5}) == (
        406, "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange "
        f"'{unique}' in vhost '/'", 40, 10)


@pytest.mark.parametrize(("kind", "text"), [("nope", "unknown exchange type 'nope'"), ("", "invalid exchange type ''")])
def test_unknown_exchange_type(raw: RawClient, unique: str, kind: str, text: str) -> None:
    assert raw.fail("exchange.declare", exchange=unique, type=kind) == (503, f"COMMAND_INVALID - {text}", 40, 10)


# Names and things that belong to the broker


def test_reserved_names(raw: RawClient, unique: str) -> None:
    name = f"amq.{unique}"
    assert raw.fail("queue.declare", queue=name) == (
        403, f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'", 50, 10)
    assert raw.fail("exchange.declare", exchange=name, type="direct") == (
        403, f"ACCESS_REFUSED - exchange name '{name}' contains reserved prefix 'amq.*'", 40, 10)
    assert raw.fail("queue.declare", queue=name, passive=True) == (404, no_queue(name), 50, 10)
    assert raw.fail("exchange.declare", exchange=name, passive=True) == (404, no_exchange(name), 40, 10)


def test_predeclared_exchanges(raw: RawClient) -> None:
    kinds = {"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic", "amq.headers": "headers",
             "amq.match": "headers"}
    for name, kind in kinds.items():
        raw.call("exchange.declare", exchange=name, type=kind, durable=True)
        assert raw.fail("exchange.delete", exchange=name) == (
            403, f"ACCESS_REFUSED - deletion of system exchange '{name}' in vhost '/' not allowed", 40, 20)
    assert raw.fail("exchange.declare", exchange="amq.direct", type="topic", durable=True) == (
        406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
        "received 'topic' but current is 'direct'", 40, 10)


@pytest.mark.parametrize(("method", "args", "ids"), [
    ("exchange.declare", {"type": "direct"}, (40, 10)),
    ("exchange.declare", {"type": "direct", "passive": True}, (40, 10)),
    ("exchange.delete", {}, (40, 20)),
    ("exchange.bind", {"destination": "amq.fanout"}, (40, 30)),
    ("exchange.bind", {"source": "amq.fanout"}, (40, 30)),
    ("exchange.unbind", {"destination": "amq.fanout"}, (40, 40)),
])
def test_default_exchange_is_closed(raw: RawClient, method: str, args: dict[str, Any], ids: tuple[int, int]) -> None:
    assert raw.fail(method, **args) == (403, DEFAULT_REFUSED, *ids)


@pytest.mark.parametrize(("method", "ids"), [("queue.bind", (50, 20)), ("queue.unbind", (50, 50))])
def test_default_exchange_takes_no_bindings(raw: RawClient, method: str, ids: tuple[int, int]) -> None:
    queue = raw.call("queue.declare", 2, exclusive=True)["queue"]
    assert raw.fail(method, queue=queue, routing_key="k") == (403, DEFAULT_REFUSED, *ids)


def test_internal_exchange(raw: RawClient, unique: str) -> None:
    raw.call("exchange.declare", 2, exchange=unique, type="fanout", internal=True)
    for name in (unique, "amq.rabbitmq.trace"):
        raw.publish(b"", exchange=name)
        assert raw.closed() == (
            403, f"ACCESS_REFUSED - cannot publish to internal exchange '{name}' in vhost '/'", 60, 40)
    raw.call("exchange.delete", 2, exchange=unique)


# In use, exclusive, taken


def test_exchange_in_use(raw: RawClient, unique: str) -> None:
    queue = raw.call("queue.declare", 2, exclusive=True)["queue"]
    raw.call("exchange.declare", 2, exchange=unique, type="direct")
    raw.call("queue.bind", 2, queue=queue, exchange=unique)
    assert raw.fail("exchange.delete", exchange=unique, if_unused=True) == (
        406, f"PRECONDITION_FAILED - exchange '{unique}' in vhost '/' in use", 40, 20)
    raw.call("queue.unbind", 2, queue=queue, exchange=unique)
    raw.call("exchange.delete", exchange=unique, if_unused=True)


def test_queue_in_use_or_not_empty(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", 2, queue=unique)
    raw.call("confirm.select", 2)
    raw.publish(b"one", routing_key=unique, channel=2)
    raw.read("basic.ack")
    assert raw.fail("queue.delete", queue=unique, if_empty=True) == (
        406, f"PRECONDITION_FAILED - queue '{unique}' in vhost '/' not empty", 50, 40)
    raw.call("basic.consume", 2, queue=unique, no_ack=True)
    raw.read("basic.deliver")
    assert raw.fail("queue.delete", queue=unique, if_unused=True) == (
        406, f"PRECONDITION_FAILED - queue '{unique}' in vhost '/' in use", 50, 40)
    raw.send("queue.delete", queue=unique, if_empty=True)
    # the consumer on the other channel is cancelled, before or after the answer
    assert {raw.read().name, raw.read().name} == {"queue.delete-ok", "basic.cancel"}


@pytest.mark.parametrize(("method", "args", "ids"), [
    ("queue.declare", {}, (50, 10)),
    ("queue.declare", {"passive": True}, (50, 10)),
    ("queue.declare", {"exclusive": True}, (50, 10)),
    ("queue.bind", {"exchange": "amq.direct"}, (50, 20)),
    ("queue.purge", {}, (50, 30)),
    ("queue.delete", {}, (50, 40)),
    ("basic.consume", {}, (60, 20)),
    ("basic.get", {}, (60, 70)),
])
def test_exclusive_queue_of_another_connection(
    *, raw: RawClient, other: RawClient, unique: str, method: str, args: dict[str, Any], ids: tuple[int, int]
) -> None:
    other.call("queue.declare", queue=unique, exclusive=True)
    assert raw.fail(method, queue=unique, **args) == (405, LOCKED.format(unique), *ids)


def test_exclusive_flag_must_agree(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", 2, queue=unique, exclusive=True)
    assert raw.fail("queue.declare", queue=unique) == (405, LOCKED.format(unique), 50, 10)
    raw.call("queue.declare", 2, queue=f"{unique}b", auto_delete=True)
    assert raw.fail("queue.declare", queue=f"{unique}b", auto_delete=True, exclusive=True) == (
        405, LOCKED.format(f"{unique}b"), 50, 10)
    raw.call("queue.delete", 2, queue=f"{unique}b")


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_exclusive_consumer(raw: RawClient, other: RawClient, unique: str, first: bool, second: bool) -> None:
    other.call("queue.declare", queue=unique, auto_delete=True)
    other.call("basic.consume", queue=unique, exclusive=first)
    assert raw.fail("basic.consume", queue=unique, exclusive=second) == (
        403, f"ACCESS_REFUSED - queue '{unique}' in vhost '/' in exclusive use", 60, 20)


def test_consumer_tag_in_use(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, auto_delete=True)
    raw.call("basic.consume", queue=unique, consumer_tag="mine")
    raw.call("basic.consume", 2, queue=unique, consumer_tag="mine")
    assert raw.fail("basic.consume", queue=unique, consumer_tag="mine") == (
        530, "NOT_ALLOWED - attempt to reuse consumer tag 'mine'", 60, 20)


# Acknowledgements


@pytest.mark.parametrize(("method", "args", "ids"), [
    ("basic.ack", {"delivery_tag": 7}, (60, 80)),
    ("basic.ack", {"delivery_tag": 7, "multiple": True}, (60, 80)),
    ("basic.ack", {"delivery_tag": 0}, (60, 80)),
    ("basic.ack", {"delivery_tag": 2**64 - 1}, (60, 80)),
    ("basic.nack", {"delivery_tag": 7}, (60, 120)),
    ("basic.nack", {"delivery_tag": 2**63, "multiple": True}, (60, 120)),
    ("basic.reject", {"delivery_tag": 7}, (60, 90)),
])
def test_unknown_delivery_tag(raw: RawClient, method: str, args: dict[str, Any], ids: tuple[int, int]) -> None:
    tag = args["delivery_tag"]
    assert raw.fail(method, **args) == (406, f"PRECONDITION_FAILED - unknown delivery tag {tag}", *ids)


def test_acknowledging_everything_when_there_is_nothing(raw: RawClient) -> None:
    raw.send("basic.ack", delivery_tag=0, multiple=True)
    raw.quiet()


def test_acknowledging_twice(raw: RawClient) -> None:
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    raw.publish(b"one", routing_key=queue)
    assert raw.call("basic.get", queue=queue)["delivery_tag"] == 1
    raw.send("basic.ack", delivery_tag=1)
    assert raw.fail("basic.ack", delivery_tag=1) == (406, "PRECONDITION_FAILED - unknown delivery tag 1", 60, 80)


# Publishing

EXPIRATIONS = {
    "abc": "no_integer", "": "no_integer", " 5": "no_integer", "-1": "{value_negative,-1}",
    "1.5": '{leftover_string,".5"}', "999999999999999": "{value_too_large,999999999999999}",
}


@pytest.mark.parametrize("given", EXPIRATIONS)
def test_invalid_expiration(raw: RawClient, unique: str, given: str) -> None:
    raw.publish(b"", routing_key=unique, expiration=given)
    assert raw.closed() == (406, f"PRECONDITION_FAILED - invalid expiration '{given}': {EXPIRATIONS[given]}", 60, 40)


def test_signed_expiration_is_a_number(raw: RawClient, unique: str) -> None:
    raw.publish(b"", routing_key=unique, expiration="+10")
    raw.quiet()


@pytest.mark.parametrize("mode", [0, 3])
def test_unknown_delivery_mode(raw: RawClient, unique: str, mode: int) -> None:
    raw.publish(b"", routing_key=unique, delivery_mode=mode)
    assert raw.closed() == (406, f"PRECONDITION_FAILED - invalid message: {{delivery_mode_unknown,{mode}}}", 60, 40)


def test_user_id_of_somebody_else(raw: RawClient, unique: str) -> None:
    raw.publish(b"", routing_key=unique, user_id="bob")
    assert raw.closed() == (
        406, "PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'", 60, 40)


def test_immediate_is_not_implemented(raw: RawClient, unique: str) -> None:
    raw.publish(b"", routing_key=unique, immediate=True)
    assert raw.closed() == (540, "NOT_IMPLEMENTED - immediate=true", 60, 40)


@pytest.mark.parametrize(("method", "args", "text", "ids"), [
    ("basic.qos", {"prefetch_size": 10}, "prefetch_size!=0 (10)", (60, 10)),
    ("basic.recover", {"requeue": False}, "requeue=false", (60, 110)),
    ("channel.flow", {"active": False}, "active=false", (20, 20)),
])
def test_not_implemented(
    raw: RawClient, method: str, args: dict[str, Any], text: str, ids: tuple[int, int]
) -> None:
    assert raw.fail(method, **args) == (540, f"NOT_IMPLEMENTED - {text}", *ids)


def test_flow_on_is_accepted(raw: RawClient) -> None:
    assert raw.call("channel.flow", active=True)["active"] is True


# After an error


def test_a_closing_channel_ignores_everything(raw: RawClient, unique: str) -> None:
    for number in range(3):
        raw.send("queue.declare", queue=f"{unique}{number}", passive=True)
    raw.send("queue.declare", queue=unique)
    raw.publish(b"ignored too", exchange=f"{unique}x")
    assert raw.read("channel.close").error == (404, no_queue(f"{unique}0"), 50, 10)
    raw.call("basic.qos", 2)
    raw.send("channel.close-ok")
    raw.call("channel.open")
    assert raw.fail("queue.declare", queue=unique, passive=True)[0] == 404


def test_of_several_mistakes_in_a_publish_the_first_is_told(raw: RawClient) -> None:
    mistakes: dict[str, tuple[Any, str]] = {
        "reply_to": ("amq.rabbitmq.reply-to", "fast reply consumer does not exist"),
        "user_id": ("bob", "user_id property set to 'bob' but authenticated user was 'guest'"),
        "expiration": ("x", "invalid expiration 'x': no_integer"),
        "headers": ({"CC": "x"}, 'invalid message: {unacceptable_type_in_header,"CC",longstr}'),
        "delivery_mode": (3, "invalid message: {delivery_mode_unknown,3}"),
    }
    while mistakes:
        raw.publish(b"", **{name: item for name, (item, _) in mistakes.items()})
        first = next(iter(mistakes))
        assert raw.closed() == (406, f"PRECONDITION_FAILED - {mistakes.pop(first)[1]}", 60, 40)


def test_reserved_names_cannot_be_declared_even_if_they_are_there(raw: RawClient) -> None:
    name = raw.call("queue.declare", exclusive=True)["queue"]
    text = f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"
    assert raw.fail("queue.declare", queue=name, exclusive=True) == (403, text, 50, 10)
    assert raw.fail("queue.declare", queue=name, durable=True) == (403, text, 50, 10)
    assert raw.call("queue.declare", queue=name, passive=True)["queue"] == name


def test_an_empty_name_is_told_before_the_consumer_tag(raw: RawClient) -> None:
    queue = raw.call("queue.declare", 2, exclusive=True)["queue"]
    raw.call("basic.consume", queue=queue, consumer_tag="c")
    assert raw.fail("basic.consume", consumer_tag="c") == (404, "NOT_FOUND - no previously declared queue", 60, 20)


def test_line_ends_in_names_are_left_out_where_queues_are_declared_and_deleted(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=f"{unique}\r\n1")
    assert raw.fail("basic.get", queue=f"{unique}1\n") == (404, no_queue(f"{unique}1\n"), 60, 70)
    raw.call("queue.delete", queue=f"{unique}1\n")
    assert raw.fail("queue.declare", queue=f"{unique}1", passive=True) == (404, no_queue(f"{unique}1"), 50, 10)
