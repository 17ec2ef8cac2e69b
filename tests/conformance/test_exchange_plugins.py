"""x-consistent-hash, x-modulus-hash, x-random, x-recent-history: exchange types of RabbitMQ's plugins (raw).

RabbitMQ needs the plugins rabbitmq_consistent_hash_exchange, rabbitmq_sharding, rabbitmq_random_exchange and
rabbitmq_recent_history_exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .collect import answers, content
from .declaring import BIND, DECLARE, declare, refused
from .raw import RawClient, Typed

Sender = Callable[[int], tuple[str, dict[str, Any]]]
NO_STORE = "x-recent-history-no-store"


def queues_of(raw: RawClient, count: int) -> list[str]:
    return [str(raw.call("queue.declare", exclusive=True)["queue"]) for _ in range(count)]


def publish(raw: RawClient, exchange: str, count: int, sender: Sender) -> None:
    """Publish messages with their number as body, and wait for all confirms."""
    raw.call("channel.open", 3)
    raw.call("confirm.select", 3)
    for number in range(count):
        key, properties = sender(number)
        raw.publish(str(number).encode(), exchange, key, channel=3, **properties)
    assert answers(raw, count) == "a" * count
    raw.call("channel.close", 3, reply_code=200)


def spread(raw: RawClient, exchange: str, queues: list[str], count: int, sender: Sender) -> list[list[int]]:
    """Publish, and return the numbers of the messages that each queue got."""
    publish(raw, exchange, count, sender)
    return [[int(body) for body in content(raw, queue)] for queue in queues]


def by_key(number: int) -> tuple[str, dict[str, Any]]:
    return f"key {number}", {}


SENDERS: dict[str, tuple[dict[str, Any], Sender]] = {
    "routing key": ({}, by_key),
    "header": ({"hash-header": "h"}, lambda n: ("same", {"headers": {"h": f"value {n}"}})),
    "header of numbers": ({"hash-header": "h"}, lambda n: ("same", {"headers": {"h": n}})),
    "header of tables": ({"hash-header": "h"}, lambda n: ("same", {"headers": {"h": {"a": [n]}}})),
    "correlation_id": ({"hash-property": "correlation_id"}, lambda n: ("same", {"correlation_id": f"value {n}"})),
    "message_id": ({"hash-property": "message_id"}, lambda n: ("same", {"message_id": f"value {n}"})),
    "timestamp": ({"hash-property": "timestamp"}, lambda n: ("same", {"timestamp": n})),
}


@pytest.mark.parametrize("what", SENDERS)
def test_a_hash_spreads_evenly_and_stays(raw: RawClient, unique: str, what: str) -> None:
    """Each value always goes to the same queue; the binding keys are weights."""
    arguments, sender = SENDERS[what]
    declare(raw, unique, "x-consistent-hash", arguments=arguments)
    queues = queues_of(raw, 3)
    for queue, weight in zip(queues, ("10", "10", "20"), strict=True):
        raw.call("queue.bind", queue=queue, exchange=unique, routing_key=weight)
    found = spread(raw, unique, queues, 800, sender)
    sizes = [len(numbers) for numbers in found]
    assert sum(sizes) == 800
    # five standard deviations or more
    assert 135 < sizes[0] < 265
    assert 135 < sizes[1] < 265
    assert 325 < sizes[2] < 475
    assert spread(raw, unique, queues, 800, sender) == found
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize("what", ["header", "message_id"])
def test_messages_without_what_is_hashed_go_one_way(raw: RawClient, unique: str, what: str) -> None:
    declare(raw, unique, "x-consistent-hash", arguments=SENDERS[what][0])
    queues = queues_of(raw, 2)
    for queue in queues:
        raw.call("queue.bind", queue=queue, exchange=unique, routing_key="10")
    assert sorted(len(numbers) for numbers in spread(raw, unique, queues, 30, by_key)) == [0, 30]
    raw.call("exchange.delete", exchange=unique)


def test_the_last_queue_takes_only_its_share_along(raw: RawClient, unique: str) -> None:
    declare(raw, unique, "x-consistent-hash")
    queues = queues_of(raw, 3)
    for queue in queues:
        raw.call("queue.bind", queue=queue, exchange=unique, routing_key="1")
    before = spread(raw, unique, queues, 300, by_key)
    raw.call("queue.unbind", queue=queues[2], exchange=unique, routing_key="1")
    after = spread(raw, unique, queues, 300, by_key)
    assert set(before[0]) < set(after[0])
    assert set(before[1]) < set(after[1])
    assert after[2] == []
    raw.call("queue.bind", queue=queues[2], exchange=unique, routing_key="1")
    assert spread(raw, unique, queues, 300, by_key) == before
    raw.call("exchange.delete", exchange=unique)


def test_a_destination_counts_once(raw: RawClient, unique: str) -> None:
    """A second binding has no weight, and unbinding either removes the whole share (as measured)."""
    declare(raw, unique, "x-consistent-hash")
    queues = queues_of(raw, 2)
    for queue in queues:
        raw.call("queue.bind", queue=queue, exchange=unique, routing_key="10")
    before = spread(raw, unique, queues, 300, by_key)
    raw.call("queue.bind", queue=queues[0], exchange=unique, routing_key="90")
    assert spread(raw, unique, queues, 300, by_key) == before
    raw.call("queue.unbind", queue=queues[0], exchange=unique, routing_key="90")
    assert spread(raw, unique, queues, 300, by_key) == [[], list(range(300))]
    raw.call("queue.bind", queue=queues[0], exchange=unique, routing_key="90")
    sizes = [len(numbers) for numbers in spread(raw, unique, queues, 300, by_key)]
    assert 240 < sizes[0] < 295
    raw.call("exchange.delete", exchange=unique)


def test_a_hash_may_choose_an_exchange(raw: RawClient, unique: str) -> None:
    """The first of several routing keys is hashed; all of them are passed on."""
    declare(raw, unique, "x-consistent-hash")
    fans = [declare(raw, f"{unique}{number}", "fanout") for number in range(2)]
    queues = queues_of(raw, 2)
    for fan, queue in zip(fans, queues, strict=True):
        raw.call("exchange.bind", destination=fan, source=unique, routing_key="5")
        raw.call("queue.bind", queue=queue, exchange=fan)
    sizes = [len(numbers) for numbers in spread(raw, unique, queues, 200, by_key)]
    assert sum(sizes) == 200
    assert min(sizes) > 50
    copies = spread(raw, unique, queues, 20, lambda n: ("same", {"headers": {"CC": [f"other {n}"]}}))
    assert sorted(len(numbers) for numbers in copies) == [0, 20]
    for name in (unique, *fans):
        raw.call("exchange.delete", exchange=name)


@pytest.mark.parametrize("key", ["0", "-1", "-0", "+0"])
def test_a_weight_is_positive(raw: RawClient, unique: str, key: str) -> None:
    declare(raw, unique, "x-consistent-hash")
    queue = queues_of(raw, 1)[0]
    error = raw.fail("queue.bind", queue=queue, exchange=unique, routing_key=key)
    assert error == refused("The binding key must be greater than 0", BIND)
    raw.call("exchange.delete", exchange=unique, if_unused=True)


@pytest.mark.parametrize(
    ("key", "shown"),
    [("", "<<>>"), *((key, f'<<"{key}">>') for key in ("abc", " 3", "3 ", "1.5", "1e3", "1_0", "0x10", "+", "é")),
     ("١", '<<"١">>'), ("\n", '<<"\\n">>'), ('"', '<<"\\"">>'), ("À", "<<195,128>>"), ("\0", "<<0>>")],
)
def test_a_weight_is_an_integer(raw: RawClient, unique: str, key: str, shown: str) -> None:
    declare(raw, unique, "x-consistent-hash")
    queue = queues_of(raw, 1)[0]
    error = raw.fail("queue.bind", queue=queue, exchange=unique, routing_key=key)
    assert error == refused(f"The binding key must be an integer: {shown}", BIND)
    for fine in ("1", "+2", "007"):
        raw.call("queue.bind", queue=queue, exchange=unique, routing_key=fine)
    raw.call("exchange.delete", exchange=unique)


BOTH = "hash-header and hash-property are mutually exclusive"
REFUSED_HASHES: list[tuple[dict[str, Any], str]] = [
    ({"hash-property": "nope"}, "Unsupported property: nope"),
    ({"hash-property": "type"}, "Unsupported property: type"),
    ({"hash-property": ""}, "Unsupported property: "),
    ({"hash-header": "a", "hash-property": "message_id"}, BOTH),
    ({"hash-header": "a", "hash-property": "nope"}, BOTH),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSED_HASHES)
def test_what_cannot_be_hashed(raw: RawClient, unique: str, arguments: dict[str, Any], text: str) -> None:
    error = raw.fail("exchange.declare", exchange=unique, type="x-consistent-hash", arguments=arguments)
    assert error == refused(text, DECLARE)


@pytest.mark.parametrize("value", [5, None, Typed("x", b"abc")])
def test_what_is_hashed_is_named_by_a_string(raw: RawClient, unique: str, on_rabbitmq: bool, value: Any) -> None:
    """RabbitMQ fails with an internal error and closes the connection."""
    error = raw.fail("exchange.declare", exchange=unique, type="x-consistent-hash", arguments={"hash-header": value})
    if on_rabbitmq:
        assert error == (541, "INTERNAL_ERROR", 0, 0)
    else:
        assert error == refused("hash-header must be a longstr", DECLARE)


@pytest.mark.parametrize("kind", ["x-modulus-hash", "x-random"])
def test_one_of_the_bindings(raw: RawClient, unique: str, kind: str) -> None:
    """A routing key has one queue, if any is bound; a queue that is bound three times gets three times as much."""
    declare(raw, unique, kind)
    queues = queues_of(raw, 2)
    assert spread(raw, unique, queues, 3, by_key) == [[], []]
    for key in ("x", "y", "z"):
        raw.call("queue.bind", queue=queues[0], exchange=unique, routing_key=key)
    assert spread(raw, unique, queues, 5, by_key) == [list(range(5)), []]
    raw.call("queue.bind", queue=queues[1], exchange=unique, routing_key="w")
    found = spread(raw, unique, queues, 800, by_key)
    assert sum(len(numbers) for numbers in found) == 800
    assert 135 < len(found[1]) < 265
    same = [len(numbers) for numbers in spread(raw, unique, queues, 100, lambda _: ("key", {}))]
    if kind == "x-random":
        assert min(same) > 0
    else:
        assert sorted(same) == [0, 100]
        assert spread(raw, unique, queues, 800, by_key) == found
    raw.call("exchange.delete", exchange=unique)


def history(raw: RawClient, name: str, length: Any = ...) -> str:
    return declare(raw, name, "x-recent-history",
                   arguments={} if length is ... else {"x-recent-history-length": length})


@pytest.mark.parametrize(("length", "count"), [(..., 20), (3, 3), (Typed("b", 1), 1), (Typed("l", 1 << 40), 25)])
def test_the_last_messages_come_with_a_binding(raw: RawClient, unique: str, length: Any, count: int) -> None:
    """Oldest first, and again for each new binding; after that, the exchange works as a fanout."""
    history(raw, unique, length)
    publish(raw, unique, 25, by_key)
    queue = queues_of(raw, 1)[0]
    expected = [str(number).encode() for number in range(25 - count, 25)]
    raw.call("queue.bind", queue=queue, exchange=unique)
    assert content(raw, queue) == expected
    raw.call("queue.bind", queue=queue, exchange=unique)
    assert content(raw, queue) == []
    raw.call("queue.bind", queue=queue, exchange=unique, routing_key="other")
    assert content(raw, queue) == expected
    assert spread(raw, unique, [queue], 2, by_key) == [[0, 1]]
    raw.call("exchange.delete", exchange=unique)


def test_the_history_keeps_whole_messages(raw: RawClient, unique: str) -> None:
    """They keep the exchange that they were published to, keys and properties, but not BCC. Their TTL starts again."""
    outer = declare(raw, f"{unique}o", "fanout")
    history(raw, unique)
    raw.call("exchange.bind", destination=unique, source=outer)
    headers = {"CC": ["copy"], "BCC": ["blind"], "n": 1}
    raw.call("confirm.select", 2)
    raw.publish(b"one", outer, "key", channel=2, headers=headers, delivery_mode=2, expiration="60000", message_id="m")
    raw.read("basic.ack")
    queue = queues_of(raw, 1)[0]
    raw.call("queue.bind", queue=queue, exchange=unique)
    got = raw.call("basic.get", queue=queue, no_ack=True)
    assert (got.body, got["exchange"], got["routing_key"], got["redelivered"]) == (b"one", outer, "key", False)
    assert got.properties == {
        "headers": {"CC": ["copy"], "n": 1}, "delivery_mode": 2, "expiration": "60000", "message_id": "m",
    }  # fmt: skip
    for name in (outer, unique):
        raw.call("exchange.delete", exchange=name)


def test_no_store(raw: RawClient, unique: str) -> None:
    history(raw, unique)
    values: list[Any] = [True, False, "true", 1, None, Typed("x", b"true")]
    publish(raw, unique, 7, lambda n: ("", {"headers": {NO_STORE: values[n]} if n < 6 else {}}))
    queue = queues_of(raw, 1)[0]
    raw.call("queue.bind", queue=queue, exchange=unique)
    assert content(raw, queue) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert spread(raw, unique, [queue], 1, lambda _: ("", {"headers": {NO_STORE: True}})) == [[0]]
    raw.call("exchange.delete", exchange=unique)


def test_the_history_goes_through_an_exchange_newest_first(raw: RawClient, unique: str) -> None:
    """The order is as measured on RabbitMQ."""
    history(raw, unique)
    publish(raw, unique, 3, by_key)
    topic = declare(raw, f"{unique}t", "topic")
    queue = queues_of(raw, 1)[0]
    raw.call("queue.bind", queue=queue, exchange=topic, routing_key="#")
    raw.call("exchange.bind", destination=topic, source=unique)
    assert content(raw, queue) == [b"2", b"1", b"0"]
    for name in (unique, topic):
        raw.call("exchange.delete", exchange=name)


def test_history_that_an_exchange_takes_nowhere(raw: RawClient, unique: str, on_rabbitmq: bool) -> None:
    """RabbitMQ fails with an internal error; leveret makes the binding."""
    history(raw, unique)
    publish(raw, unique, 1, by_key)
    raw.send("exchange.bind", destination="amq.direct", source=unique, routing_key=unique)
    if on_rabbitmq:
        assert raw.closed() == (541, "INTERNAL_ERROR", 0, 0)
    else:
        raw.read("exchange.bind-ok")
        raw.call("exchange.delete", exchange=unique)


def test_the_history_and_limits_transactions_and_returns(raw: RawClient, unique: str) -> None:
    """A full queue keeps the newest. Unroutable and rolled back messages are kept in the history, too (as measured)."""
    history(raw, unique)
    raw.call("tx.select", 2)
    raw.publish(b"held", unique, channel=2, mandatory=True)
    raw.call("tx.rollback", 2)
    raw.publish(b"returned", unique, mandatory=True)
    assert raw.read("basic.return").body == b"returned"
    publish(raw, unique, 2, by_key)
    queues = queues_of(raw, 1)
    queues.append(str(raw.call("queue.declare", exclusive=True, arguments={"x-max-length": 3})["queue"]))
    for queue in queues:
        raw.call("queue.bind", queue=queue, exchange=unique)
    assert content(raw, queues[0]) == [b"held", b"returned", b"0", b"1"]
    assert content(raw, queues[1]) == [b"returned", b"0", b"1"]
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (-1, "-1"), (True, "true"), (None, "undefined"), (1.5, "1.5"), ("abc", '<<"abc">>'), ("", "<<>>"),
     *((Typed(kind, 3), "3") for kind in "BuiT"), ([1], "[{signedint,1}]"), ({"a": 1}, '[{<<"a">>,signedint,1}]'),
     (Typed("x", b"\xff\1"), "<<255,1>>"), ('a"b\\', '<<"a\\"b\\\\">>')],
)
def test_a_length_is_a_positive_integer(raw: RawClient, unique: str, value: Any, shown: str) -> None:
    arguments = {"x-recent-history-length": value}
    error = raw.fail("exchange.declare", exchange=unique, type="x-recent-history", arguments=arguments)
    text = f"Invalid argument {shown}, 'x-recent-history-length' must be a positive integer"
    assert error == refused(text, DECLARE)


def test_redeclared_as_another_type(raw: RawClient, unique: str) -> None:
    """RabbitMQ puts quotes around names with hyphens."""
    declare(raw, unique, "x-random")
    for received, shown in (("direct", "direct"), ("x-modulus-hash", "'x-modulus-hash'")):
        error = raw.fail("exchange.declare", exchange=unique, type=received)
        what = f"exchange '{unique}' in vhost '/'"
        text = f"inequivalent arg 'type' for {what}: received '{shown}' but current is ''x-random''"
        assert error == refused(text, DECLARE)
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [("x-consistent-hash", {"hash-header": "a"}, {"hash-property": "nope"}),
     ("x-recent-history", {"x-recent-history-length": 2}, {"x-recent-history-length": -3})],
)
def test_other_arguments_do_not_count_when_it_is_there(
    raw: RawClient, unique: str, kind: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    declare(raw, unique, kind, arguments=first)
    declare(raw, unique, kind, arguments=second)
    raw.call("exchange.delete", exchange=unique)
