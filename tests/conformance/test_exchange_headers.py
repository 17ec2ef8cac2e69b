"""Headers exchanges: x-match, and which values RabbitMQ treats as equal (raw, because wire types matter)."""

from __future__ import annotations

from typing import Any

import pytest

from .collect import content
from .declaring import BIND, declare, delivered, refused
from .raw import RawClient, Typed

VALUES: dict[str, Any] = {
    "I1": 1, "l1": Typed("l", 1), "b1": Typed("b", 1), "B1": Typed("B", 1), "s1": Typed("s", 1), "u1": Typed("u", 1),
    "i1": Typed("i", 1), "d1": 1.0, "f1": Typed("f", 1.0), "T1": Typed("T", 1),
    "true": True, "false": False, "I0": 0, "S1": "1", "x1": Typed("x", b"1"), "Strue": "true", "S": "",
    "[]": [], "{}": {}, "[I1]": [1], "[l1]": [Typed("l", 1)], "[d1]": [1.0], "[S1]": ["1"], "[x1]": [Typed("x", b"1")],
    "{a:I1}": {"a": 1}, "{a:l1}": {"a": Typed("l", 1)}, "{a,b}": {"a": 1, "b": 2}, "{b,a}": {"b": 2, "a": 1},
    "[[I1]]": [[1]], "[{a:I1}]": [{"a": 1}],
    "D(0,1)": Typed("D", b"\0\0\0\0\1"), "D(2,100)": Typed("D", b"\2\0\0\0\x64"), "B255": Typed("B", 255), "I-1": -1,
}  # fmt: skip
# the values of a set are equal to each other and to no other value
EQUAL = [{"I1", "l1", "b1", "B1", "s1", "u1", "i1", "d1", "f1", "T1"}, {"S1", "x1"}, {"[]", "{}"}]


def test_values_are_compared_without_their_types_but_not_within_tables_and_arrays(
    raw: RawClient, unique: str
) -> None:
    """Numbers of all types are compared, strings with binaries; a boolean is no number. In a table the order counts."""
    declare(raw, unique, "headers")
    queues = {name: str(raw.call("queue.declare", exclusive=True)["queue"]) for name in VALUES}
    for name, queue in queues.items():
        raw.call("queue.bind", queue=queue, exchange=unique, arguments={"h": VALUES[name]})
    raw.call("confirm.select", 2)
    for name, value in VALUES.items():
        raw.publish(name.encode(), unique, channel=2, headers={"h": value})
        raw.read("basic.ack")
    for name, queue in queues.items():
        alike = next((each for each in EQUAL if name in each), {name})
        assert {body.decode() for body in content(raw, queue)} == alike, name
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize("value", VALUES)
def test_void_asks_for_presence(raw: RawClient, unique: str, value: str) -> None:
    declare(raw, unique, "headers")
    queue = str(raw.call("queue.declare", exclusive=True)["queue"])
    raw.call("queue.bind", queue=queue, exchange=unique, arguments={"h": None})
    assert delivered(raw, unique, "", queue, headers={"h": VALUES[value]}) == [b"x"]
    raw.call("exchange.delete", exchange=unique)


SENT: list[dict[str, Any] | None] = [
    None, {}, {"b": 2}, {"x-a": 1}, {"x-a": 1, "b": 2}, {"x-a": 2, "b": 2}, {"b": None}, {"b": 3, "c": 2},
]  # fmt: skip
# arguments -> the messages of SENT that match
MATCHES: list[tuple[dict[str, Any], str]] = [
    ({}, "yyyyyyyy"),
    ({"x-match": "all"}, "yyyyyyyy"),
    ({"x-match": "any"}, "nnnnnnnn"),
    ({"x-match": "all-with-x"}, "yyyyyyyy"),
    ({"x-match": "any-with-x"}, "nnnnnnnn"),
    ({"x-a": 1}, "yyyyyyyy"),
    ({"x-match": "any", "x-a": 1}, "nnnnnnnn"),
    ({"x-a": 1, "b": 2}, "nnynyynn"),
    ({"x-match": "all", "x-a": 1, "b": 2}, "nnynyynn"),
    ({"x-match": "any", "x-a": 1, "b": 2}, "nnynyynn"),
    ({"x-match": "all-with-x", "x-a": 1, "b": 2}, "nnnnynnn"),
    ({"x-match": "any-with-x", "x-a": 1, "b": 2}, "nnyyyynn"),
    ({"b": 2, "c": 2}, "nnnnnnnn"),
    ({"x-match": "any", "b": 2, "c": 2}, "nnynyyny"),
    ({"b": None}, "nnynyyyy"),
    ({"x-match": "any", "b": None, "c": 1}, "nnynyyyy"),
]


@pytest.mark.parametrize(("arguments", "hits"), MATCHES)
def test_which_headers_a_binding_takes(raw: RawClient, unique: str, arguments: dict[str, Any], hits: str) -> None:
    declare(raw, unique, "headers")
    queue = str(raw.call("queue.declare", exclusive=True)["queue"])
    raw.call("queue.bind", queue=queue, exchange=unique, routing_key="any", arguments=arguments)
    raw.call("confirm.select", 2)
    for index, headers in enumerate(SENT):
        given = {} if headers is None else {"headers": headers}
        raw.publish(str(index).encode(), unique, "other", channel=2, **given)
        raw.read("basic.ack")
    expected = [str(index).encode() for index, hit in enumerate(hits) if hit == "y"]
    assert content(raw, queue) == expected
    raw.call("exchange.delete", exchange=unique)


INVALID: list[tuple[Any, str]] = [
    *((text, f'value <<"{text}">>') for text in ("nope", "ALL", "é", "all ")),
    ("", "value <<>>"),
    ("a\nb\"c\\", 'value <<"a\\nb\\"c\\\\">>'),
    (5, "type signedint (value 5)"),
    (Typed("l", 5), "type long (value 5)"),
    (Typed("T", 5), "type timestamp (value 5)"),
    (Typed("D", b"\x02\0\0\0\5"), "type decimal (value {2,5})"),
    (True, "type bool (value true)"),
    (None, "type void (value undefined)"),
    (1.5, "type double (value 1.5)"),
    ([1], "type array (value [{signedint,1}])"),
    ({"a": "b"}, 'type table (value [{<<"a">>,longstr,<<"b">>}])'),
    (Typed("x", b"all"), 'type binary (value <<"all">>)'),
]


@pytest.mark.parametrize(("value", "text"), INVALID)
def test_x_match_that_is_none(raw: RawClient, value: Any, text: str) -> None:
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    expected = "all, any, all-with-x, or any-with-x" if text.startswith("value") else "longstr"
    error = raw.fail("queue.bind", queue=queue, exchange="amq.headers", arguments={"x-match": value})
    assert error == refused(f"Invalid x-match field {text}; expected {expected}", BIND)


def test_bindings_with_equal_arguments(raw: RawClient, unique: str) -> None:
    """Several queues with the same arguments, and one queue with several matching bindings: each gets one copy."""
    declare(raw, unique, "headers")
    queues = [str(raw.call("queue.declare", exclusive=True)["queue"]) for _ in range(2)]
    for queue in queues:
        for key in ("", "key"):
            raw.call("queue.bind", queue=queue, exchange=unique, routing_key=key, arguments={"a": 1})
    raw.call("queue.bind", queue=queues[0], exchange=unique, arguments={"x-match": "any", "a": 1})
    assert delivered(raw, unique, "", queues[0], headers={"a": 1}) == [b"x"]
    assert content(raw, queues[1]) == [b"x"]
    raw.call("queue.unbind", queue=queues[1], exchange=unique, arguments={"a": 1})
    assert delivered(raw, unique, "", queues[1], headers={"a": 1}) == [b"x"]
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize("way", ["binding", "alternate"])
def test_a_headers_exchange_behind_others(raw: RawClient, unique: str, way: str) -> None:
    """Messages with the same routing key take different routes, although their first exchange only uses the key."""
    last = declare(raw, f"{unique}h", "headers")
    more = {"arguments": {"alternate-exchange": last}} if way == "alternate" else {}
    declare(raw, unique, "direct", **more)
    if way == "binding":
        raw.call("exchange.bind", destination=last, source=unique, routing_key="k")
    queues = [str(raw.call("queue.declare", exclusive=True)["queue"]) for _ in range(2)]
    for number, queue in enumerate(queues):
        raw.call("queue.bind", queue=queue, exchange=last, arguments={"n": number})
    for number in (0, 1, 1, 0):
        assert delivered(raw, unique, "k", queues[number], headers={"n": number}) == [b"x"]
        assert content(raw, queues[1 - number]) == []
    for name in (unique, last):
        raw.call("exchange.delete", exchange=name)
