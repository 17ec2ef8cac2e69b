"""x-message-deduplication, exchanges and queues, as clients know them from the plugin. These tests run on leveret only.

RabbitMQ does not include the plugin (rabbitmq-message-deduplication). Expected results follow its source and its own
tests, except for the differences that docs/guides/deduplication.md lists.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from leveret.control.refusal import Refused
from leveret.testing.processes import LeveretProcess

from ..waiting import until
from .administration import Administration, ControlAdministration
from .collect import answers, confirmed, content, exclusive
from .declaring import DECLARE, declare, refused
from .raw import RawClient, Typed

TYPE = "x-message-deduplication"
SIZE = "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"
TTL = "Invalid argument, 'x-cache-ttl' must be an integer greater than 0"
PERSISTENCE = "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'"
NOT_ON_DISK = "Invalid argument, 'x-cache-persistence' must be 'memory': this broker keeps no cache on disk"


@pytest.fixture
def url(broker: str) -> str:
    return broker


@pytest.fixture
def administration(leveret_process: LeveretProcess) -> Administration:
    return ControlAdministration(str(leveret_process.data_dir))


def key(value: Any, **more: Any) -> dict[str, Any]:
    """Return the properties of a message with this key."""
    return {"headers": {"x-deduplication-header": value, **more.pop("headers", {})}, **more}


@pytest.mark.parametrize(
    "arguments",
    [*({"x-cache-size": Typed(kind, 10), "x-cache-ttl": Typed(kind, 100)} for kind in "bBsuIil"),
     {"x-cache-size": "10", "x-cache-ttl": "1000", "x-cache-persistence": "memory"}],
)
def test_valid_arguments(raw: RawClient, unique: str, arguments: dict[str, Any]) -> None:
    declare(raw, unique, TYPE, arguments=arguments)
    declare(raw, unique, TYPE, arguments={})  # as in RabbitMQ only alternate-exchange is compared
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, SIZE),
        *(({"x-cache-size": size}, SIZE) for size in (0, -1, "foo", "-1", "", 1.5, True, None)),
        *(({"x-cache-size": 1, "x-cache-ttl": ttl}, TTL) for ttl in (0, -1, "bar", 1.5, None, [1])),
        *(({"x-cache-size": 1, "x-cache-persistence": word}, PERSISTENCE) for word in ("tape", 1, None)),
        ({"x-cache-size": 1, "x-cache-persistence": "disk"}, NOT_ON_DISK),
        ({"x-cache-size": 0, "x-cache-ttl": 0}, SIZE),
    ],
)
def test_invalid_arguments(raw: RawClient, unique: str, arguments: dict[str, Any], text: str) -> None:
    assert raw.fail("exchange.declare", exchange=unique, type=TYPE, arguments=arguments) == refused(text, DECLARE)


def test_other_types_do_not_look_at_its_arguments(raw: RawClient, unique: str) -> None:
    declare(raw, unique, "fanout", arguments={"x-cache-size": 0}, auto_delete=True)
    raw.call("exchange.delete", exchange=unique)


def deduplicating(raw: RawClient, name: str, **arguments: Any) -> str:
    """Declare a deduplication exchange with a queue; return the queue."""
    given = {key.replace("_", "-"): value for key, value in ({"x_cache_size": 10} | arguments).items()}
    declare(raw, name, TYPE, arguments=given, auto_delete=True)
    queue = exclusive(raw)
    raw.call("queue.bind", queue=queue, exchange=name, routing_key="#")
    return queue


def test_an_exchange_routes_each_key_once(raw: RawClient, unique: str) -> None:
    queue = deduplicating(raw, unique)
    raw.call("confirm.select")
    for number in range(5):
        raw.publish(b"%d" % number, unique, "any", **key("deduplicate-this"))
    raw.publish(b"5", unique, "any")
    raw.publish(b"6", unique, "any")
    assert answers(raw, 7) == "aaaaaaa"
    assert content(raw, queue) == [b"0", b"5", b"6"]


def test_a_key_has_its_time(raw: RawClient, unique: str) -> None:
    queue = deduplicating(raw, unique, x_cache_ttl=100)
    raw.publish(b"1", unique, **key("a"))
    raw.publish(b"2", unique, **key("b", headers={"x-cache-ttl": 60_000}))
    began = time.monotonic()

    def came_again() -> bool:
        raw.publish(b"3", unique, **key("a"))
        raw.publish(b"4", unique, **key("b"))
        return b"3" in content(raw, queue)

    until(came_again)
    assert time.monotonic() - began >= 0.09
    assert content(raw, queue) == []


def test_a_full_cache_forgets(raw: RawClient, unique: str) -> None:
    queue = deduplicating(raw, unique, x_cache_size=1)
    raw.call("confirm.select")
    for body, value in ((b"1", "this"), (b"2", "that"), (b"3", "this")):
        raw.publish(body, unique, **key(value))
    assert answers(raw, 3) == "aaa"
    assert content(raw, queue) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("value", ["deduplicate-this", 42, 4.2, None, True])
def test_a_queue_has_each_key_once(raw: RawClient, value: Any) -> None:
    queue = exclusive(raw, x_message_deduplication=True)
    raw.call("confirm.select")
    assert confirmed(raw, queue, b"1", b"2", first=1, **key(value)) == "aa"
    assert confirmed(raw, queue, b"3", b"4", first=3) == "aa"
    assert content(raw, queue) == [b"1", b"3", b"4"]
    assert confirmed(raw, queue, b"5", first=5, **key(value)) == "a"
    assert content(raw, queue) == [b"5"]


def test_a_message_that_is_not_acknowledged_keeps_its_key(raw: RawClient, administration: Administration) -> None:
    queue = exclusive(raw, x_message_deduplication=True)
    raw.call("confirm.select")
    assert confirmed(raw, queue, b"1", first=1, **key("a")) == "a"
    got = raw.call("basic.get", queue=queue)
    assert confirmed(raw, queue, b"2", first=2, **key("a")) == "a"
    assert content(raw, queue) == []
    status = administration.call("get_queue", vhost="/", name=queue)["backing_queue_status"]
    assert status["message_deduplication_cache_info"]["entries"] == 1
    raw.send("basic.ack", delivery_tag=got["delivery_tag"])
    assert confirmed(raw, queue, b"3", first=3, **key("a")) == "a"
    assert content(raw, queue) == [b"3"]


def test_the_keys_of_dropped_and_rejected_messages_are_free(raw: RawClient) -> None:
    queue = exclusive(raw, x_message_deduplication=True, x_max_length=1)
    raw.call("confirm.select")
    for tag, (body, value) in enumerate(((b"1", "this"), (b"2", "that"), (b"3", "this")), 1):
        assert confirmed(raw, queue, body, first=tag, **key(value)) == "a"
    got = raw.call("basic.get", queue=queue)
    assert got.body == b"3"
    raw.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=False)
    assert confirmed(raw, queue, b"4", first=4, **key("this")) == "a"
    assert content(raw, queue) == [b"4"]


@pytest.mark.parametrize(("value", "kind"), [("true", "longstr"), (1, "signedint"), (None, "void")])
def test_the_argument_of_a_queue_is_a_boolean(raw: RawClient, unique: str, value: Any, kind: str) -> None:
    arguments = {"x-message-deduplication": value}
    text = f"invalid arg 'x-message-deduplication' for queue '{unique}' in vhost '/': {{unacceptable_type,{kind}}}"
    assert raw.fail("queue.declare", queue=unique, arguments=arguments) == refused(text, (50, 10))


def test_policies(raw: RawClient, unique: str, administration: Administration) -> None:
    queue = deduplicating(raw, unique, x_cache_size=1)
    definition = {"x-cache-size": 5}
    administration.call("set_policy", vhost="/", name=unique, pattern=f"^{unique}$", definition=definition)
    raw.call("confirm.select")
    for body, value in ((b"1", "this"), (b"2", "that"), (b"3", "this")):
        raw.publish(body, unique, **key(value))
    assert answers(raw, 3) == "aaa"
    assert content(raw, queue) == [b"1", b"2"]
    info = administration.call("get_exchange", vhost="/", name=unique)["cache_info"]
    assert (info["size"], info["entries"]) == (5, 2)
    administration.call("clear_policy", vhost="/", name=unique)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"x-message-deduplication": "yes"}, '<<"yes">> is not a valid x-message-deduplication value'),
        ({"x-cache-size": 0}, "0 is not a valid x-cache-size"),
        ({"x-cache-ttl": "1"}, '<<"1">> is not a valid x-cache-ttl'),
        (
            {"x-cache-persistence": "disk"},
            '<<"disk">> is not a valid x-cache-persistence: this broker has "memory" only',
        ),
    ],
)
def test_policies_with_other_values(
    unique: str, administration: Administration, definition: dict[str, Any], text: str
) -> None:
    with pytest.raises(Refused) as refusal:
        administration.call("set_policy", vhost="/", name=unique, pattern="^$", definition=definition)
    assert text in str(refusal.value)
