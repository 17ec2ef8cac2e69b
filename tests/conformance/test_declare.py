"""queue.declare: which arguments are refused, and how a second declaration is compared with the first (raw)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from .raw import RawClient, Typed

INTEGERS = ("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority")
WORDS = ("x-overflow", "x-queue-mode", "x-queue-type", "x-dead-letter-routing-key")
# RabbitMQ's name of a type -> a value of this type
VALUES: dict[str, Any] = {
    "longstr": "5", "binary": Typed("x", b"5"), "void": None, "bool": True, "double": 5.0, "float": Typed("f", 5.0),
    "array": [5], "table": {"a": 5}, "timestamp": Typed("T", 5), "decimal": Typed("D", b"\0\0\0\0\5"),
}
WIDTHS: dict[str, Any] = {
    "byte": Typed("b", 5), "unsignedbyte": Typed("B", 5), "short": Typed("s", 5), "unsignedshort": Typed("u", 5),
    "signedint": 5, "unsignedint": Typed("i", 5), "long": Typed("l", 5),
}


def refused(client: RawClient, queue: str, **arguments: Any) -> str:
    """Return the error of a first declaration with these arguments (underscores stand for hyphens)."""
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    code, text, *ids = client.fail("queue.declare", queue=queue, arguments=given)
    assert (code, ids) == (406, [50, 10])
    return text.removeprefix("PRECONDITION_FAILED - ").replace(f"queue '{queue}' in vhost '/'", "Q")


# What is refused

@pytest.mark.parametrize("name", INTEGERS)
def test_what_is_no_integer(raw: RawClient, unique: str, name: str) -> None:
    for kind, value in VALUES.items():
        text = refused(raw, unique, **{name: value})
        assert text == f"invalid arg '{name}' for Q: \"expected integer, got {kind}\""


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_all_widths(raw: RawClient, unique: str, name: str) -> None:
    for value in WIDTHS.values():
        raw.call("queue.declare", queue=unique, arguments={name: value})
        raw.call("queue.delete", queue=unique)


@pytest.mark.parametrize("name", WORDS)
def test_what_is_no_text(raw: RawClient, unique: str, name: str) -> None:
    for kind, value in (VALUES | WIDTHS).items():
        if kind != "longstr":
            text = refused(raw, unique, **{"x-dead-letter-exchange": "x", name: value})
            assert text == f"invalid arg '{name}' for Q: {{unacceptable_type,{kind}}}"


def test_what_is_no_bool(raw: RawClient, unique: str) -> None:
    for kind, value in (VALUES | WIDTHS).items():
        if kind != "bool":
            text = refused(raw, unique, x_single_active_consumer=value)
            assert text == f"invalid arg 'x-single-active-consumer' for Q: {{unacceptable_type,{kind}}}"


def test_what_is_no_exchange_name(raw: RawClient, unique: str) -> None:
    for kind, value in (VALUES | WIDTHS).items():
        if kind != "longstr":
            text = refused(raw, unique, x_dead_letter_exchange=value)
            assert text == f"invalid type '{kind}' for arg 'x-dead-letter-exchange' in Q"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x_message_ttl": -1}, "invalid arg 'x-message-ttl' for Q: {value_negative,-1}"),
        ({"x_expires": 0}, "invalid arg 'x-expires' for Q: {value_zero,0}"),
        ({"x_expires": -1}, "invalid arg 'x-expires' for Q: {value_negative,-1}"),
        ({"x_expires": 2**40}, "invalid arg 'x-expires' for Q: {value_too_large,1099511627776}"),
        ({"x_max_priority": 256}, "invalid arg 'x-max-priority' for Q: {max_value_exceeded,256}"),
        ({"x_max_length": -7}, "invalid arg 'x-max-length' for Q: {value_negative,-7}"),
        ({"x_overflow": "foo"}, "invalid arg 'x-overflow' for Q: invalid_overflow"),
        ({"x_queue_mode": "foo"}, "invalid arg 'x-queue-mode' for Q: \"unsupported queue mode 'foo'\""),
        ({"x_queue_type": "foo"}, "invalid arg 'x-queue-type' for Q: \"unsupported queue type 'foo'\""),
        ({"x_queue_version": 3}, "invalid arg 'x-queue-version' for Q: \"unsupported queue version '3'\""),
        ({"x_queue_version": -3}, "invalid arg 'x-queue-version' for Q: {value_negative,-3}"),
        ({"x_queue_version": "2"}, "invalid arg 'x-queue-version' for Q: \"expected integer, got longstr\""),
        ({"x_dead_letter_routing_key": "k"},
         "invalid arg 'x-dead-letter-routing-key' for Q: routing_key_but_no_dlx_defined"),
        ({"x_max_age": "1D"}, "invalid arg 'x-max-age' for Q of queue type rabbit_classic_queue"),
        ({"x_initial_cluster_size": 1},
         "invalid arg 'x-initial-cluster-size' for Q of queue type rabbit_classic_queue"),
    ],
)
def test_values(raw: RawClient, unique: str, arguments: dict[str, Any], text: str) -> None:
    assert refused(raw, unique, **arguments) == text


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"x_overflow": "foo", "x_expires": -1}, "x-expires"),
        ({"x_expires": -1, "x_queue_type": "foo"}, "x-queue-type"),
        ({"x_single_active_consumer": 1, "x_overflow": 1}, "x-overflow"),
        ({"x_queue_version": 7, "x_queue_mode": 1}, "x-queue-mode"),
        ({"x_overflow": 1, "x_max_priority": 1000}, "x-max-priority"),
        ({"x_max_length_bytes": -1, "x_max_length": -1, "x_dead_letter_routing_key": "k"},
         "x-dead-letter-routing-key"),
        ({"x_max_age": 1, "x_dead_letter_exchange": 1, "x_expires": -1}, "x-dead-letter-exchange"),
        ({"x_max_age": 1, "x_expires": -1}, "x-expires"),
        ({"x_max_age": 1, "x_queue_leader_locator": 1}, "x-max-age"),
        ({"x_queue_leader_locator": 1, "x_max_age": 1}, "x-queue-leader-locator"),
    ],
)
def test_which_of_several_is_named(raw: RawClient, unique: str, arguments: dict[str, Any], name: str) -> None:
    assert f"arg '{name}'" in refused(raw, unique, **arguments)


def test_which_of_several_of_a_quorum_queue_is_named(raw: RawClient, unique: str) -> None:
    """RabbitMQ 3.10.8 names the argument that it checks first, whatever their order in the declaration."""
    wrong = {
        "x_expires": "a", "x_message_ttl": "a", "x_dead_letter_routing_key": 1, "x_dead_letter_strategy": 1,
        "x_max_length": "a", "x_max_length_bytes": "a", "x_max_in_memory_length": "a", "x_max_in_memory_bytes": "a",
        "x_overflow": 1, "x_single_active_consumer": 1, "x_quorum_initial_group_size": "a",
        "x_queue_leader_locator": 1, "x_delivery_limit": "a",
    }  # fmt: skip
    for one, other in pairwise(wrong):
        text = refused(raw, unique, **{other: wrong[other], one: wrong[one]}, x_queue_type="quorum")
        assert f"arg '{one.replace('_', '-')}'" in text


def test_unknown_ones_are_ignored(raw: RawClient, unique: str) -> None:
    given = {"x-unknown": [1], "x-ha-policy": 7, "anything": {"a": None}}
    raw.call("queue.declare", queue=unique, exclusive=True, arguments=given)
    raw.call("queue.declare", queue=unique, exclusive=True, arguments={"x-other": True})


# A second declaration

def differs(client: RawClient, queue: str, first: dict[str, Any], second: dict[str, Any]) -> str:
    """Return the error of the second declaration, "" if there is none."""
    client.call("queue.declare", queue=queue, arguments=first)
    client.send("queue.declare", queue=queue, arguments=second)
    got = client.read("queue.declare-ok", "channel.close")
    text = ""
    if got.name == "channel.close":
        assert (got["reply_code"], got["class_id"], got["method_id"]) == (406, 50, 10)
        text = got["reply_text"].removeprefix("PRECONDITION_FAILED - inequivalent arg ")
        client.send("channel.close-ok")
        client.call("channel.open")
    client.call("queue.delete", queue=queue)
    return str(text.replace(f" for queue '{queue}' in vhost '/'", ""))


def test_the_width_of_an_integer_is_no_difference(raw: RawClient, unique: str) -> None:
    for first in WIDTHS.values():
        for second in WIDTHS.values():
            assert differs(raw, unique, {"x-max-length": first}, {"x-max-length": second}) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [("5", "'5'"), (Typed("x", b"5"), "'5'"), (5.0, "'5.0'"), (Typed("f", 5.0), "'5.0'"), (True, "'true'"),
     (None, "none"), (6, "'6'"), (-5, "'-5'"), ([5, "a"], "'[{signedint,5},{longstr,<<\"a\">>}]'"),
     ({"a": 5}, "'[{<<\"a\">>,signedint,5}]'")])
def test_other_values_are(raw: RawClient, unique: str, value: Any, shown: str) -> None:
    assert differs(raw, unique, {"x-max-length": 5}, {"x-max-length": value}) == (
        f"'x-max-length': received {shown} but current is '5'")


def test_one_is_not_true(raw: RawClient, unique: str) -> None:
    assert differs(raw, unique, {"x-max-length": 1}, {"x-max-length": True}) == (
        "'x-max-length': received 'true' but current is '1'")


def test_octets_are_text(raw: RawClient, unique: str) -> None:
    for name, value in (("x-dead-letter-exchange", "x"), ("x-overflow", "drop-head")):
        assert differs(raw, unique, {name: value}, {name: Typed("x", value.encode())}) == ""


def test_types_of_what_is_on_one_side_only(raw: RawClient, unique: str) -> None:
    for kind, value in WIDTHS.items():
        there = f"the value '5' of type '{kind}'"
        assert differs(raw, unique, {}, {"x-max-length": value}) == (
            f"'x-max-length': received {there} but current is none")
        assert differs(raw, unique, {"x-max-length": value}, {}) == (
            f"'x-max-length': received none but current is {there}")
    assert differs(raw, unique, {}, {"x-max-length": None}) == (
        "'x-max-length': received the value 'undefined' of type 'void' but current is none")
    assert differs(raw, unique, {"x-single-active-consumer": True}, {}) == (
        "'x-single-active-consumer': received none but current is the value 'true' of type 'bool'")


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("x-expires", 50000, 60000), ("x-message-ttl", 5, 6), ("x-max-length", 5, 6), ("x-max-length-bytes", 5, 6),
        ("x-max-priority", 5, 6), ("x-dead-letter-exchange", "a", "b"), ("x-overflow", "drop-head", "reject-publish"),
        ("x-queue-mode", "lazy", "default"), ("x-queue-version", 1, 2), ("x-single-active-consumer", True, False),
        ("x-queue-master-locator", "min-masters", "client-local"),
    ],
)
def test_every_argument_that_matters(raw: RawClient, unique: str, name: str, one: Any, other: Any) -> None:
    assert differs(raw, unique, {name: one}, {name: one}) == ""
    assert differs(raw, unique, {name: one}, {name: other}) == (
        f"'{name}': received '{str(other).lower()}' but current is '{str(one).lower()}'")
    assert differs(raw, unique, {name: one}, {}).startswith(f"'{name}': received none but current is the value ")
    assert differs(raw, unique, {}, {name: other}).endswith(" but current is none")


def test_classic_is_what_a_queue_is_anyway(raw: RawClient, unique: str) -> None:
    assert differs(raw, unique, {}, {"x-queue-type": "classic"}) == ""
    assert differs(raw, unique, {"x-queue-type": "classic"}, {}) == ""
    assert differs(raw, unique, {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}) == (
        "'x-queue-type': received 'quorum' but current is 'classic'")
    assert differs(raw, unique, {}, {"x-queue-type": "foo"}) == (
        "'x-queue-type': received the value 'foo' of type 'longstr' but current is none")


def test_flags_come_before_arguments_and_arguments_have_an_order(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", 2, queue=unique, durable=True, arguments={"x-expires": 50000, "x-message-ttl": 1})
    what = f"for queue '{unique}' in vhost '/': received"
    for given, text in (
        ({"auto_delete": True}, f"'durable' {what} 'false' but current is 'true'"),
        ({"durable": True, "auto_delete": True}, f"'auto_delete' {what} 'true' but current is 'false'"),
        ({"durable": True, "arguments": {"x-message-ttl": 2, "x-expires": 60000}},
         f"'x-expires' {what} '60000' but current is '50000'"),
    ):
        assert raw.fail("queue.declare", queue=unique, **given)[1] == (
            f"PRECONDITION_FAILED - inequivalent arg {text}")
    raw.call("queue.declare", 2, queue=unique, passive=True, auto_delete=True, arguments={"x-expires": "x"})
    raw.call("queue.delete", 2, queue=unique)


def test_a_name_that_the_broker_gave_cannot_be_declared_again(raw: RawClient) -> None:
    """A passive declaration is allowed."""
    name = raw.call("queue.declare", 2, exclusive=True)["queue"]
    for given in ({"exclusive": True}, {"durable": True}, {"exclusive": True, "arguments": {"x-expires": -1}}):
        assert raw.fail("queue.declare", queue=name, **given) == (
            403, f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'", 50, 10)
    assert raw.call("queue.declare", queue=name, passive=True)["queue"] == name
    assert raw.fail("queue.declare", queue="", passive=True) == (404, "NOT_FOUND - no queue '' in vhost '/'", 50, 10)


def test_transient_queues_are_accepted(raw: RawClient, other: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique)
    other.call("queue.declare", queue=unique)
    other.call("queue.delete", queue=unique)
