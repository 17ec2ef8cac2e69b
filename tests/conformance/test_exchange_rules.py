"""Declaring, binding and deleting exchanges: what is refused and how, and what else a deletion deletes (raw)."""

from __future__ import annotations

from typing import Any

import pytest

from .declaring import BIND, DECLARE, EXCHANGE_BIND, declare, delivered, exists, refused
from .raw import RawClient, Typed


@pytest.fixture
def queue(raw: RawClient) -> str:
    """An exclusive queue of the first connection."""
    return str(raw.call("queue.declare", exclusive=True)["queue"])


@pytest.mark.parametrize(
    ("kind", "text"),
    [("", "invalid exchange type ''"), *((k, f"unknown exchange type '{k}'") for k in ("nope", "Direct", "direct "))],
)
@pytest.mark.parametrize("name", ["some", "", "amq.some"])
def test_a_type_that_is_not_there_comes_before_all_else(raw: RawClient, kind: str, text: str, name: str) -> None:
    error = raw.fail("exchange.declare", exchange=name, type=kind)
    assert error == refused(text, DECLARE, "503 COMMAND_INVALID")


REDECLARED: list[tuple[dict[str, Any], str]] = [
    ({"type": "fanout"}, "'type' for {}: received 'fanout' but current is 'direct'"),
    ({"durable": True}, "'durable' for {}: received 'true' but current is 'false'"),
    ({"auto_delete": True}, "'auto_delete' for {}: received 'true' but current is 'false'"),
    ({"internal": True}, "'internal' for {}: received 'true' but current is 'false'"),
    ({"type": "fanout", "durable": True, "internal": True}, "'type' for {}: received 'fanout' but current is 'direct'"),
]


@pytest.mark.parametrize(("changes", "text"), REDECLARED)
def test_redeclared_otherwise(raw: RawClient, unique: str, changes: dict[str, Any], text: str) -> None:
    declare(raw, unique)
    error = raw.fail("exchange.declare", **{"exchange": unique, "type": "direct"} | changes)
    assert error == refused("inequivalent arg " + text.format(f"exchange '{unique}' in vhost '/'"), DECLARE)
    raw.call("exchange.delete", exchange=unique)


ALTERNATES: list[tuple[Any, Any, str]] = [
    (..., "a", "received the value 'a' of type 'longstr' but current is none"),
    ("a", ..., "received none but current is the value 'a' of type 'longstr'"),
    ("a", "b", "received 'b' but current is 'a'"),
    ("é", "ü", "received 'ü' but current is 'é'"),
    ("a", 5, "received '5' but current is 'a'"),
    ("a", None, "received none but current is 'a'"),
    (..., 5, "received the value '5' of type 'signedint' but current is none"),
    (..., Typed("l", 5), "received the value '5' of type 'long' but current is none"),
    (..., None, "received the value 'undefined' of type 'void' but current is none"),
    (..., [1, "x"], 'received the value \'[{signedint,1},{longstr,<<"x">>}]\' of type \'array\' but current is none'),
]


def alternate(value: Any) -> dict[str, Any]:
    return {} if value is ... else {"alternate-exchange": value}


@pytest.mark.parametrize(("old", "new", "text"), ALTERNATES)
def test_redeclared_with_another_alternate_exchange(raw: RawClient, unique: str, old: Any, new: Any, text: str) -> None:
    declare(raw, unique, arguments=alternate(old))
    error = raw.fail("exchange.declare", exchange=unique, type="direct", arguments=alternate(new))
    what = f"exchange '{unique}' in vhost '/'"
    assert error == refused(f"inequivalent arg 'alternate-exchange' for {what}: {text}", DECLARE)
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize(
    ("old", "new"),
    [("a", "a"), ("", ""), ("a", Typed("x", b"a")), (..., ...)],
    ids=["same", "empty", "binary", "none"],
)
def test_redeclared_alike(raw: RawClient, unique: str, old: Any, new: Any) -> None:
    """Only the alternate exchange is compared, and a binary equals a string; other arguments do not count."""
    declare(raw, unique, arguments=alternate(old) | {"x-mine": 1})
    declare(raw, unique, arguments=alternate(new) | {"x-mine": 2})
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize(
    ("value", "name"),
    [(5, "signedint"), (Typed("l", 1), "long"), (Typed("B", 1), "unsignedbyte"), (None, "void"), (True, "bool"),
     ([1], "array"), ({"a": 1}, "table"), (1.5, "double"), (Typed("x", b"a"), "binary")],
)
def test_an_alternate_exchange_is_a_string(raw: RawClient, unique: str, value: Any, name: str) -> None:
    error = raw.fail("exchange.declare", exchange=unique, type="direct", arguments={"alternate-exchange": value})
    what = f"exchange '{unique}' in vhost '/'"
    assert error == refused(f"invalid type '{name}' for arg 'alternate-exchange' in {what}", DECLARE)


def test_predeclared_exchanges(raw: RawClient) -> None:
    for name, kind in (("direct", "direct"), ("fanout", "fanout"), ("topic", "topic"), ("headers", "headers"),
                       ("match", "headers")):
        declare(raw, f"amq.{name}", kind, durable=True)
    declare(raw, "amq.rabbitmq.trace", "topic", durable=True, internal=True)
    error = raw.fail("exchange.declare", exchange="amq.direct", type="direct")
    what = "exchange 'amq.direct' in vhost '/'"
    assert error == refused(f"inequivalent arg 'durable' for {what}: received 'false' but current is 'true'", DECLARE)
    error = raw.fail("exchange.delete", exchange="amq.direct")
    text = "deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    assert error == refused(text, (40, 20), "403 ACCESS_REFUSED")


def test_the_reserved_prefix(raw: RawClient, unique: str) -> None:
    error = raw.fail("exchange.declare", exchange=f"amq.{unique}", type="direct")
    text = f"exchange name 'amq.{unique}' contains reserved prefix 'amq.*'"
    assert error == refused(text, DECLARE, "403 ACCESS_REFUSED")
    assert not exists(raw, f"amq.{unique}")
    error = raw.fail("exchange.delete", exchange=f"amq.{unique}")
    text = f"deletion of system exchange 'amq.{unique}' in vhost '/' not allowed"
    assert error == refused(text, (40, 20), "403 ACCESS_REFUSED")
    declare(raw, f"amq{unique}")
    raw.call("exchange.delete", exchange=f"amq{unique}")


def test_a_passive_declaration_asks_for_the_name_only(raw: RawClient, unique: str) -> None:
    raw.call("exchange.declare", exchange="amq.direct", type="nope", passive=True, internal=True)
    assert not exists(raw, unique)


def test_names_lose_their_line_ends_but_not_in_a_publish(raw: RawClient, unique: str, queue: str) -> None:
    declare(raw, f"{unique}\r\nx")
    assert exists(raw, f"{unique}x")
    raw.call("queue.bind", queue=f"{queue}\n", exchange=f"{unique}\rx")
    raw.call("exchange.bind", destination=f"{unique}\nx", source="amq\r.fanout")
    raw.publish(b"x", f"{unique}\nx")
    assert raw.closed() == (404, f"NOT_FOUND - no exchange '{unique}\nx' in vhost '/'", 60, 40)
    raw.call("queue.unbind", queue=f"{queue}\n", exchange=f"{unique}\rx")
    raw.call("exchange.delete", exchange=f"{unique}x\n", if_unused=True)
    assert not exists(raw, f"{unique}x")


def test_a_long_name_is_shown_as_far_as_it_fits(raw: RawClient, unique: str) -> None:
    name = unique.ljust(255, "x")
    declare(raw, name)
    error = raw.fail("exchange.declare", exchange=name, type="fanout")
    whole = f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{name}"
    assert error == (406, whole[:252] + "...", *DECLARE)
    raw.call("exchange.delete", exchange=name)


def test_what_is_not_there_cannot_be_bound(raw: RawClient, unique: str, queue: str) -> None:
    """The source is checked first, then the destination, then the arguments."""
    no_exchange, no_queue = (f"no {kind} '{unique}' in vhost '/'" for kind in ("exchange", "queue"))
    missing = "404 NOT_FOUND"
    assert raw.fail("queue.bind", queue=queue, exchange=unique) == refused(no_exchange, BIND, missing)
    assert raw.fail("queue.bind", queue=unique, exchange=unique) == refused(no_exchange, BIND, missing)
    error = raw.fail("queue.bind", queue=unique, exchange="amq.headers", arguments={"x-match": 5})
    assert error == refused(no_queue, BIND, missing)
    error = raw.fail("exchange.bind", destination=f"{unique}d", source=unique)
    assert error == refused(no_exchange, EXCHANGE_BIND, missing)
    error = raw.fail("exchange.bind", destination=unique, source="amq.direct")
    assert error == refused(no_exchange, EXCHANGE_BIND, missing)


def test_the_default_exchange_has_no_bindings(raw: RawClient, unique: str) -> None:
    text, code = "operation not permitted on the default exchange", "403 ACCESS_REFUSED"
    assert raw.fail("queue.bind", queue=unique, exchange="") == refused(text, BIND, code)
    assert raw.fail("queue.unbind", queue=unique, exchange="") == refused(text, (50, 50), code)
    for name, ids in (("exchange.bind", EXCHANGE_BIND), ("exchange.unbind", (40, 40))):
        assert raw.fail(name, destination="", source=unique) == refused(text, ids, code)
        assert raw.fail(name, destination=unique, source="") == refused(text, ids, code)
    for passive in (False, True):
        error = raw.fail("exchange.declare", exchange="", type="direct", passive=passive)
        assert error == refused(text, DECLARE, code)
    assert raw.fail("exchange.delete", exchange="") == refused(text, (40, 20), code)


def test_without_a_queue_name_before_a_queue_was_declared(raw: RawClient) -> None:
    for name, ids in (("queue.bind", BIND), ("queue.unbind", (50, 50))):
        error = raw.fail(name, exchange="amq.direct")
        assert error == refused("no previously declared queue", ids, "404 NOT_FOUND")


def test_the_queue_declared_last_is_meant_by_no_name(raw: RawClient, unique: str) -> None:
    declare(raw, unique)
    name = raw.call("queue.declare", exclusive=True)["queue"]
    raw.call("queue.bind", exchange=unique)
    assert delivered(raw, unique, name, name) == [b"x"]
    raw.call("queue.unbind", exchange=unique)
    assert delivered(raw, unique, name, name) == []
    raw.call("queue.bind", exchange=unique, routing_key="key")
    assert delivered(raw, unique, "key", name) == [b"x"]
    raw.call("exchange.delete", exchange=unique)


def test_unbinding_what_is_not_bound_or_not_there_succeeds(raw: RawClient, unique: str, queue: str) -> None:
    raw.call("queue.unbind", queue=queue, exchange="amq.direct", routing_key=unique)
    raw.call("queue.unbind", queue=unique, exchange="amq.direct")
    raw.call("queue.unbind", queue=queue, exchange=unique)
    raw.call("exchange.unbind", destination=unique, source="amq.direct")
    raw.call("exchange.unbind", destination="amq.direct", source=unique)
    raw.call("exchange.unbind", destination="amq.direct", source="amq.fanout", routing_key=unique)
    raw.call("exchange.delete", exchange=unique)
    raw.call("exchange.delete", exchange=unique, if_unused=True)


def test_another_connections_exclusive_queue(raw: RawClient, other: RawClient, unique: str, queue: str) -> None:
    """It can be neither bound nor unbound; an error in the arguments is reported first."""
    declare(raw, unique)
    locked = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. It could be "
        "originally declared on another connection or the exclusive property value does not match that of the original "
        "declaration."
    )
    other.call("queue.unbind", queue=queue, exchange=unique)
    assert other.fail("queue.bind", queue=queue, exchange=unique) == (405, locked, *BIND)
    raw.call("queue.bind", queue=queue, exchange=unique)
    assert other.fail("queue.unbind", queue=queue, exchange=unique) == (405, locked, 50, 50)
    error = other.fail("queue.bind", queue=queue, exchange="amq.headers", arguments={"x-match": "no"})
    text = 'Invalid x-match field value <<"no">>; expected all, any, all-with-x, or any-with-x'
    assert error == refused(text, BIND)
    raw.call("exchange.delete", exchange=unique)


def test_deleting_a_used_exchange(raw: RawClient, unique: str, queue: str) -> None:
    """if-unused checks only bindings of which the exchange is the source."""
    declare(raw, unique)
    raw.call("exchange.bind", destination=unique, source="amq.fanout")
    raw.call("queue.bind", queue=queue, exchange=unique)
    error = raw.fail("exchange.delete", exchange=unique, if_unused=True)
    assert error == refused(f"exchange '{unique}' in vhost '/' in use", (40, 20))
    raw.call("queue.unbind", queue=queue, exchange=unique)
    raw.call("exchange.delete", exchange=unique, if_unused=True)
    assert not exists(raw, unique)


def test_a_deleted_exchange_forgets_its_bindings(raw: RawClient, unique: str, queue: str) -> None:
    source = declare(raw, f"{unique}s", "fanout")
    declare(raw, unique, "fanout")
    raw.call("exchange.bind", destination=unique, source=source)
    raw.call("queue.bind", queue=queue, exchange=unique)
    assert delivered(raw, source, "", queue) == [b"x"]
    raw.call("exchange.delete", exchange=unique)
    declare(raw, unique, "fanout")
    raw.call("queue.bind", queue=queue, exchange=unique)
    assert delivered(raw, source, "", queue) == []
    raw.call("exchange.delete", exchange=source, if_unused=True)
    raw.call("exchange.delete", exchange=unique)


def test_an_internal_exchange_is_reached_through_others_only(raw: RawClient, unique: str, queue: str) -> None:
    declare(raw, unique, "fanout", internal=True)
    raw.call("queue.bind", queue=queue, exchange=unique)
    raw.publish(b"x", unique)
    text = f"cannot publish to internal exchange '{unique}' in vhost '/'"
    assert raw.closed() == refused(text, (60, 40), "403 ACCESS_REFUSED")
    source = declare(raw, f"{unique}s", arguments={"alternate-exchange": unique})
    assert delivered(raw, source, "", queue) == [b"x"]
    raw.call("exchange.bind", destination=unique, source=source, routing_key="key")
    assert delivered(raw, source, "key", queue) == [b"x"]
    for name in (source, unique):
        raw.call("exchange.delete", exchange=name)


def test_alternates_of_alternates(raw: RawClient, unique: str, queue: str) -> None:
    """A cycle ends, and an alternate exchange that is declared later is used from then on."""
    names = [f"{unique}{letter}" for letter in "abc"]
    for at, name in enumerate(names[:2]):
        declare(raw, name, arguments={"alternate-exchange": names[at + 1]})
    assert delivered(raw, names[0], "k", queue) == []
    declare(raw, names[2], arguments={"alternate-exchange": names[0]})
    assert delivered(raw, names[0], "k", queue) == []
    raw.call("queue.bind", queue=queue, exchange=names[2], routing_key="k")
    assert delivered(raw, names[0], "k", queue) == [b"x"]
    raw.call("exchange.delete", exchange=names[2])
    assert delivered(raw, names[0], "k", queue) == []
    for name in names[:2]:
        raw.call("exchange.delete", exchange=name)


def test_a_binding_to_an_exchange_that_routes_nowhere_counts_as_taken(
    raw: RawClient, unique: str, queue: str
) -> None:
    """The alternate exchange is for messages that no binding matches, not for those that reach no queue."""
    dead_end, spare = declare(raw, f"{unique}d"), declare(raw, f"{unique}s", "fanout")
    declare(raw, unique, arguments={"alternate-exchange": spare})
    raw.call("queue.bind", queue=queue, exchange=spare)
    raw.call("exchange.bind", destination=dead_end, source=unique, routing_key="k")
    assert delivered(raw, unique, "k", queue) == []
    assert delivered(raw, unique, "other", queue) == [b"x"]
    for name in (unique, dead_end, spare):
        raw.call("exchange.delete", exchange=name)


def test_auto_delete_goes_on_from_exchange_to_exchange(raw: RawClient, unique: str) -> None:
    """q <- c <- b <- a: with the queue, each exchange goes that has no other binding."""
    a, b, c = (declare(raw, f"{unique}{letter}", auto_delete=True) for letter in "abc")
    first, second = (str(raw.call("queue.declare")["queue"]) for _ in range(2))
    raw.call("exchange.bind", destination=b, source=a)
    raw.call("exchange.bind", destination=c, source=b)
    raw.call("queue.bind", queue=first, exchange=c)
    raw.call("queue.bind", queue=second, exchange=b)
    raw.call("queue.delete", queue=first)
    assert [exists(raw, name) for name in (a, b, c)] == [True, True, False]
    raw.call("queue.delete", queue=second)
    assert [exists(raw, name) for name in (a, b, c)] == [False, False, False]


def test_auto_delete_with_the_destination_exchange(raw: RawClient, unique: str) -> None:
    a, b = declare(raw, f"{unique}a", auto_delete=True), declare(raw, f"{unique}b")
    raw.call("exchange.bind", destination=b, source=a)
    raw.call("exchange.delete", exchange=b)
    assert not exists(raw, a)


def test_auto_delete_is_for_what_was_bound_once(raw: RawClient, unique: str, queue: str) -> None:
    """Unbinding what is not bound, or losing a source, deletes nothing; exchanges in a cycle keep each other."""
    a = declare(raw, f"{unique}a", "fanout", auto_delete=True)
    raw.call("queue.unbind", queue=queue, exchange=a)
    raw.call("exchange.bind", destination=a, source="amq.fanout")
    raw.call("exchange.unbind", destination=a, source="amq.fanout")
    assert exists(raw, a)
    b = declare(raw, f"{unique}b", "fanout", auto_delete=True)
    raw.call("exchange.bind", destination=a, source=b)
    raw.call("exchange.bind", destination=b, source=a)
    raw.call("queue.bind", queue=queue, exchange=a)
    raw.call("queue.unbind", queue=queue, exchange=a)
    assert [exists(raw, name) for name in (a, b)] == [True, True]
    raw.call("exchange.unbind", destination=a, source=b)
    assert [exists(raw, name) for name in (a, b)] == [False, False]


def test_a_binding_is_told_by_its_key_and_its_typed_arguments(raw: RawClient, unique: str, queue: str) -> None:
    """The order of arguments makes no difference, another type of a value does."""
    declare(raw, unique)
    raw.call("queue.bind", queue=queue, exchange=unique, arguments={"a": 1, "b": [1, {"c": "d"}]})
    raw.call("queue.bind", queue=queue, exchange=unique, arguments={"b": [1, {"c": "d"}], "a": 1})
    for arguments in ({"b": [1, {"c": "d"}], "a": Typed("l", 1)}, {"a": 1, "b": [1, {"c": Typed("x", b"d")}]}, {}):
        raw.call("queue.unbind", queue=queue, exchange=unique, arguments=arguments)
    raw.call("queue.unbind", queue=queue, exchange=unique, routing_key="k", arguments={"a": 1, "b": [1, {"c": "d"}]})
    raw.fail("exchange.delete", exchange=unique, if_unused=True)
    raw.call("queue.unbind", queue=queue, exchange=unique, arguments={"b": [1, {"c": "d"}], "a": 1})
    raw.call("exchange.delete", exchange=unique, if_unused=True)


def test_octets_that_are_no_text(raw: RawClient, queue: str) -> None:
    """Errors quote them as they are where they are printable in Latin-1."""
    for octets, shown in ((b"\x01\xff", "1,255"), (b"\xe9", '"\udce9"'), (b"\xc3\xa9", '"é"')):
        error = raw.fail("queue.bind", queue=queue, exchange="amq.headers", arguments={"x-match": Typed("x", octets)})
        assert error == refused(f"Invalid x-match field type binary (value <<{shown}>>); expected longstr", BIND)
