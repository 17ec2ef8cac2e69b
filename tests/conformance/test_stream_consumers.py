"""Consumers of streams as in 3.10.8 over AMQP 0-9-1: where they start, what they get, credit, refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from .collect import answers
from .raw import Frame, RawClient, Typed
from .streams import END, STREAM, append, declare, numbers, offset_of, offsets_until_end, read, start


@pytest.fixture
def stream(raw: RawClient, url: str, unique: str) -> Iterator[str]:
    """An empty stream without further arguments."""
    declare(raw, unique)
    yield unique
    with RawClient.open(url) as last:
        last.call("queue.delete", queue=unique)


@pytest.fixture
def ten(raw: RawClient, stream: str) -> str:
    """A stream with ten messages in separate chunks, whose bodies are their offsets."""
    append(raw, stream, *numbers(10))
    return stream


# -- where it starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "first"), [
    ("first", 0),
    ("last", 9),
    ("next", 10),
    (Typed("x", b"first"), 0),
    (0, 0),
    (5, 5),
    (9, 9),
    (10, 10),
    (-1, 0),
    (Typed("b", 5), 5),
    (Typed("B", 5), 5),
    (Typed("s", 5), 5),
    (Typed("u", 5), 5),
    (Typed("i", 5), 5),
    (Typed("L", 5), 5),
    (Typed("l", -5), 0),
    ("1h", 0),
    ("5m", 0),
    ("99999999999999999999Y", 0),
    (Typed("T", 0), 0),
    (Typed("T", 1 << 40), 10),
    (Typed("T", (1 << 64) - 1), 10),
])
def test_an_offset(raw: RawClient, other: RawClient, ten: str, offset: object, first: int) -> None:
    assert offsets_until_end(raw, other, ten, offset) == list(range(first, 11))


def test_without_an_offset_it_begins_at_the_end(raw: RawClient, other: RawClient, ten: str) -> None:
    assert offsets_until_end(raw, other, ten) == [10]


@pytest.mark.parametrize("offset", ["first", "last", "next", 0, "1h", Typed("T", 0)])
def test_an_empty_stream(raw: RawClient, other: RawClient, stream: str, offset: object) -> None:
    assert offsets_until_end(raw, other, stream, offset, later=2) == [0, 1]


@pytest.mark.parametrize("count", [0, 10])
def test_an_offset_that_is_not_there_yet(raw: RawClient, other: RawClient, stream: str, count: int) -> None:
    """Messages with smaller offsets are not delivered."""
    append(raw, stream, *numbers(count))
    assert offsets_until_end(raw, other, stream, count + 3, later=6) == [count + 3, count + 4, count + 5]


def test_times(raw: RawClient, other: RawClient, stream: str) -> None:
    """A timestamp is in seconds, an age counts back from now. Singly published messages have known times."""
    before_s, after_s = [], []

    def publish() -> None:
        before_s.append(time.time())
        raw.publish(b"x", routing_key=stream)
        assert answers(raw, 1, len(before_s)) == "a"
        after_s.append(time.time())

    raw.call("confirm.select")
    began_s = time.time()
    while time.time() < began_s + 2:
        publish()
    for offset, from_s in ((Typed("T", int(began_s) + 1), int(began_s) + 1.0), ("1s", time.time() - 1)):
        found = start(other, stream, offset, prefetch=1, tag=f"at {from_s}")
        until_s = time.time() - 1 if offset == "1s" else from_s
        publish()  # even on a slow machine only this message is so young
        got = found[0] if found else other.read("basic.deliver")
        # RabbitMQ keeps milliseconds
        assert after_s[offset_of(got)] >= from_s - 0.001
        assert offset_of(got) == 0 or before_s[offset_of(got) - 1] <= until_s + 0.001


@pytest.mark.parametrize(("offset", "shown"), [
    ("0h", '{longstr,<<"0h">>}'),
    ("5", '{longstr,<<"5">>}'),
    ("12x", '{longstr,<<"12x">>}'),
    ("1h2m", '{longstr,<<"1h2m">>}'),
])
def test_no_offset(raw: RawClient, stream: str, offset: object, shown: str) -> None:
    """This is reported before other errors of the consumer, except arguments that are not for streams."""
    text = f"invalid arg 'x-stream-offset' for queue '{stream}' in vhost '/': {{invalid_stream_offset_arg,{shown}}}"
    refused = raw.fail("basic.consume", queue=stream, no_ack=True, arguments={"x-stream-offset": offset})
    assert refused == (406, f"PRECONDITION_FAILED - {text}", 60, 20)


@pytest.mark.parametrize(("offset", "shown"), [
    ("First", '{longstr,<<"First">>}'),
    ("", "{longstr,<<>>}"),
    ("-1h", '{longstr,<<"-1h">>}'),
    (Typed("x", b"5m"), '{binary,<<"5m">>}'),
    (True, "{bool,true}"),
    (1.5, "{double,1.5}"),
    (None, "{void,undefined}"),
    ([1], "{array,[{signedint,1}]}"),
    (Typed("D", b"\0\0\0\0\5"), "{decimal,{0,5}}"),
])
def test_what_rabbitmq_dies_of(raw: RawClient, stream: str, offset: object, shown: str, on_rabbitmq: bool) -> None:
    raw.call("basic.qos", prefetch_count=1)
    text = f"invalid arg 'x-stream-offset' for queue '{stream}' in vhost '/': {{invalid_stream_offset_arg,{shown}}}"
    refused = raw.fail("basic.consume", queue=stream, arguments={"x-stream-offset": offset})
    died = (541, "INTERNAL_ERROR", 0, 0)
    assert refused == (died if on_rabbitmq else (406, f"PRECONDITION_FAILED - {text}", 60, 20))


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [{}, {"no_ack": True}])
def test_it_must_say_how_much_it_takes(raw: RawClient, stream: str, flags: dict[str, bool]) -> None:
    """A limit for the whole channel is not a limit of the consumer."""
    text = f"PRECONDITION_FAILED - consumer prefetch count is not set for 'queue '{stream}' in vhost '/''"
    raw.call("basic.qos", prefetch_count=5, **{"global": True})
    assert raw.fail("basic.consume", queue=stream, **flags) == (406, text, 60, 20)


def test_it_must_acknowledge(raw: RawClient, stream: str) -> None:
    raw.call("basic.qos", prefetch_count=5)
    raw.call("basic.qos", prefetch_count=5, **{"global": True})
    where = f"queue '{stream}' in vhost '/'"
    text = f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queues {where}"
    assert raw.fail("basic.consume", queue=stream, no_ack=True) == (540, text, 60, 20)


def test_no_limit_for_the_whole_channel(raw: RawClient, stream: str) -> None:
    raw.call("basic.qos", prefetch_count=5)
    raw.call("basic.qos", prefetch_count=5, **{"global": True})
    text = f"NOT_IMPLEMENTED - queue '{stream}' in vhost '/' does not support global qos"
    assert raw.fail("basic.consume", queue=stream) == (540, text, 60, 20)


@pytest.mark.parametrize(("name", "value"), [
    ("x-priority", 5),
    ("x-priority", "high"),
    ("x-cancel-on-ha-failover", True),
    ("x-cancel-on-ha-failover", 1),
])
def test_arguments_of_other_types(raw: RawClient, stream: str, name: str, value: object) -> None:
    text = f"invalid arg '{name}' for queue '{stream}' in vhost '/' of queue type rabbit_stream_queue"
    assert raw.fail("basic.consume", queue=stream, arguments={name: value}) == (
        406, f"PRECONDITION_FAILED - {text}", 60, 20)
    wrong = {name: value, "x-stream-offset": "0h"}
    assert "'x-stream-offset'" in raw.fail("basic.consume", queue=stream, arguments=wrong)[1]


@pytest.mark.parametrize("arguments", [
    {"x-credit": 5},
    {"x-unknown": 1},
    {"x-stream-filter": "a"},
    {"x-stream-filter": ["a", "b"], "x-stream-match-unfiltered": True},
    {"x-stream-filter": []},
])
def test_arguments_that_it_takes(raw: RawClient, stream: str, arguments: dict[str, object]) -> None:
    raw.call("basic.qos", prefetch_count=5)
    raw.call("basic.consume", queue=stream, arguments={**arguments, "x-stream-offset": "first"})


@pytest.mark.parametrize(("name", "value", "kind"), [
    ("x-stream-filter", 5, "signedint"),
    ("x-stream-filter", ["a", 5], "array"),
    ("x-stream-match-unfiltered", "yes", "longstr"),
])
def test_filters_that_are_none(
    raw: RawClient, stream: str, name: str, value: object, kind: str, on_rabbitmq: bool
) -> None:
    """3.10 has no filters; later versions ignore such values, and deliver everything."""
    if on_rabbitmq:
        return
    text = f"invalid arg '{name}' for queue '{stream}' in vhost '/': {{unacceptable_type,{kind}}}"
    assert raw.fail("basic.consume", queue=stream, arguments={name: value}) == (
        406, f"PRECONDITION_FAILED - {text}", 60, 20)


@pytest.mark.parametrize("name", ["x-stream-filter", "x-stream-match-unfiltered"])
def test_filters_are_for_streams(raw: RawClient, name: str, on_rabbitmq: bool) -> None:
    """As from 3.13 on: otherwise a client would believe that the queue filters."""
    queue = str(raw.call("queue.declare", exclusive=True)["queue"])
    if on_rabbitmq:
        raw.call("basic.consume", queue=queue, arguments={name: "a"})
        return
    text = f"invalid arg '{name}' for queue '{queue}' in vhost '/' of queue type rabbit_classic_queue"
    assert raw.fail("basic.consume", queue=queue, arguments={name: "a"}) == (
        406, f"PRECONDITION_FAILED - {text}", 60, 20)


@pytest.mark.parametrize(("method", "arguments"), [
    ("basic.nack", {"requeue": True}),
    ("basic.nack", {"requeue": False}),
    ("basic.nack", {"multiple": True, "requeue": True}),
    ("basic.nack", {"multiple": True, "delivery_tag": 0}),
    ("basic.reject", {"requeue": True}),
    ("basic.reject", {"requeue": False}),
])
def test_nothing_comes_back(raw: RawClient, ten: str, method: str, arguments: dict[str, object]) -> None:
    read(raw, ten, 5, "first", prefetch=5)
    text = f"NOT_IMPLEMENTED - basic.nack and basic.reject not supported by stream queues queue '{ten}' in vhost '/'"
    refused = raw.fail(method, 2, **{"delivery_tag": 3, **arguments})
    assert refused == (540, text, 60, 120 if method == "basic.nack" else 90)


def test_nothing_comes_back_of_a_cancelled_consumer(raw: RawClient, ten: str) -> None:
    read(raw, ten, 5, "first", prefetch=5, tag="mine")
    raw.call("basic.cancel", 2, consumer_tag="mine")
    assert raw.fail("basic.nack", 2, delivery_tag=3)[0] == 540


def test_nothing_comes_back_in_a_transaction(raw: RawClient, ten: str) -> None:
    """It is refused at the commit."""
    raw.call("tx.select", 2)
    read(raw, ten, 5, "first", prefetch=5)
    raw.send("basic.nack", 2, delivery_tag=3, requeue=True)
    raw.call("tx.rollback", 2)
    raw.send("basic.reject", 2, delivery_tag=3)
    text = f"NOT_IMPLEMENTED - basic.nack and basic.reject not supported by stream queues queue '{ten}' in vhost '/'"
    assert raw.fail("tx.commit", 2) == (540, text, 90, 20)


@pytest.mark.parametrize("method", ["basic.recover", "basic.recover-async"])
def test_nothing_is_delivered_again(raw: RawClient, ten: str, method: str, on_rabbitmq: bool) -> None:
    """RabbitMQ's channel crashes."""
    read(raw, ten, 5, "first", prefetch=5)
    refused = raw.fail(method, 2, requeue=True)
    text = f"NOT_IMPLEMENTED - basic.recover not supported by stream queues queue '{ten}' in vhost '/'"
    ids = (60, 110 if method == "basic.recover" else 100)
    assert refused == ((541, "INTERNAL_ERROR", 0, 0) if on_rabbitmq else (540, text, *ids))


def test_what_else_was_rejected_with_it_is_not_lost(raw: RawClient, other: RawClient, ten: str, unique: str) -> None:
    """A message of another queue is requeued when the connection ends."""
    queue = f"{unique}-classic"
    other.call("queue.declare", queue=queue)
    raw.call("channel.open", 3)
    raw.publish(b"x", routing_key=queue, channel=3)
    raw.call("channel.close", 3)
    got = raw.call("basic.get", 2, queue=queue)
    assert got.name == "basic.get-ok"
    read(raw, ten, 5, "first", prefetch=5)
    assert raw.fail("basic.nack", 2, delivery_tag=0, multiple=True, requeue=False)[0] == 540
    again = other.call("basic.get", queue=queue, no_ack=True)
    while again.name == "basic.get-empty":
        again = other.call("basic.get", queue=queue, no_ack=True)
    assert (again.body, again["redelivered"]) == (b"x", True)
    other.call("queue.delete", queue=queue)


def test_unknown_tags(raw: RawClient, ten: str) -> None:
    read(raw, ten, 5, "first", prefetch=5)
    text = "PRECONDITION_FAILED - unknown delivery tag 77"
    assert raw.fail("basic.nack", 2, delivery_tag=77) == (406, text, 60, 120)
    assert raw.fail("basic.ack", 2, delivery_tag=77) == (406, text, 60, 80)


# -- credit ------------------------------------------------------------------------------------------------------------


def _tags(deliveries: list[Frame]) -> list[tuple[int, int]]:
    assert not any(each["redelivered"] for each in deliveries)
    return [(each["delivery_tag"], offset_of(each)) for each in deliveries]


def test_an_acknowledgement_is_credit(raw: RawClient, ten: str) -> None:
    assert _tags(read(raw, ten, 4, "first", prefetch=4)) == [(1, 0), (2, 1), (3, 2), (4, 3)]
    raw.send("basic.ack", 2, delivery_tag=2)
    assert _tags(raw.deliveries(1)) == [(5, 4)]
    raw.quiet(2)
    raw.send("basic.ack", 2, delivery_tag=4, multiple=True)
    assert _tags(raw.deliveries(3)) == [(6, 5), (7, 6), (8, 7)]
    raw.quiet(2)
    raw.send("basic.ack", 2, delivery_tag=0, multiple=True)
    assert _tags(raw.deliveries(2)) == [(9, 8), (10, 9)]


def test_a_commit_is_credit(raw: RawClient, ten: str) -> None:
    raw.call("tx.select", 2)
    read(raw, ten, 5, "first", prefetch=5)
    raw.send("basic.ack", 2, delivery_tag=5, multiple=True)
    raw.quiet(2)
    raw.send("tx.commit", 2)
    got = [raw.read("basic.deliver", "tx.commit-ok") for _ in range(6)]
    assert sorted(each.name for each in got) == ["basic.deliver"] * 5 + ["tx.commit-ok"]


def test_credit_is_a_matter_of_each_consumer(raw: RawClient, ten: str) -> None:
    """A later basic.qos applies to later consumers."""
    read(raw, ten, 2, "first", prefetch=2, tag="a")
    assert _tags(read(raw, ten, 3, "first", prefetch=3, tag="b")) == [(3, 0), (4, 1), (5, 2)]
    raw.send("basic.ack", 2, delivery_tag=1)
    [got] = raw.deliveries(1)
    assert (got["consumer_tag"], offset_of(got)) == ("a", 2)
    raw.quiet(2)


def test_all_get_everything(raw: RawClient, other: RawClient, url: str, ten: str) -> None:
    """Exclusive consumers do, too: consumers of a stream do not exclude each other."""
    for client in (raw, other):
        assert [offset_of(each) for each in read(client, ten, 10, "first", exclusive=True)] == list(range(10))
    with RawClient.open(url) as publisher:
        append(publisher, ten, END)
    assert [offset_of(client.read("basic.deliver")) for client in (raw, other)] == [10, 10]


def test_once_more_after_a_cancel(raw: RawClient, ten: str) -> None:
    """It may start anywhere again, and what it had before is not marked as redelivered."""
    read(raw, ten, 5, "first", prefetch=5, tag="mine")
    raw.call("basic.cancel", 2, consumer_tag="mine")
    assert _tags(read(raw, ten, 5, 3, prefetch=5, tag="mine")) == [(6, 3), (7, 4), (8, 5), (9, 6), (10, 7)]


def test_acknowledgements_of_a_cancelled_consumer(raw: RawClient, ten: str) -> None:
    """They give no credit to a new consumer with the same tag."""
    read(raw, ten, 5, "first", prefetch=5, tag="mine")
    raw.call("basic.cancel", 2, consumer_tag="mine")
    raw.send("basic.ack", 2, delivery_tag=5, multiple=True)
    assert _tags(read(raw, ten, 5, "first", prefetch=5, tag="mine"))[0] == (6, 0)
    raw.quiet(2)


def test_what_was_not_acknowledged_is_still_there(raw: RawClient, ten: str) -> None:
    read(raw, ten, 5, "first", prefetch=5)
    raw.call("channel.close", 2)
    raw.call("channel.open", 2)
    assert _tags(read(raw, ten, 5, "first", prefetch=5)) == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]


# -- what is delivered -------------------------------------------------------------------------------------------------


def _delivered(client: RawClient, stream: str, body: bytes = b"x", **properties: object) -> Frame:
    append(client, stream, body, **properties)
    [got] = read(client, stream, 1, "first", prefetch=1)
    return got


def test_a_plain_message(raw: RawClient, stream: str) -> None:
    got = _delivered(raw, stream)
    assert (got["exchange"], got["routing_key"], got["redelivered"]) == ("", stream, False)
    assert (got.body, got.properties) == (b"x", {"headers": {"x-stream-offset": 0}})


PROPERTIES = {
    "content_type": "text/plain", "content_encoding": "gzip", "delivery_mode": 1, "priority": 7, "correlation_id": "c",
    "reply_to": "r", "expiration": "1", "message_id": "m" * 255, "timestamp": 1_700_000_000, "type": "t",
    "user_id": "guest", "app_id": "",
}
HEADERS = {
    "b": Typed("b", -3), "B": Typed("B", 3), "s": Typed("s", -4), "u": Typed("u", 4), "I": 5, "i": Typed("i", 6),
    "l": 1 << 40, "f": Typed("f", 1.5), "d": 2.5, "t": True, "S": "text", "x": Typed("x", b"\xff"),
    "T": Typed("T", 1_700_000_000), "V": None,
}


def test_properties_and_headers_are_kept(raw: RawClient, stream: str) -> None:
    """A transient message that would have expired stays, too."""
    got = _delivered(raw, stream, headers=HEADERS, **PROPERTIES)
    shown = {key: item.value if isinstance(item, Typed) else item for key, item in HEADERS.items()}
    assert got.properties.pop("headers") == {**shown, "x-stream-offset": 0}
    assert got.properties == PROPERTIES


def test_the_offset_is_the_brokers(raw: RawClient, stream: str) -> None:
    """RabbitMQ replaces a publisher's header of this name.

    leveret puts its own header at the end, where clients that make a dictionary of the table see it.
    """
    got = _delivered(raw, stream, headers={"a": 1, "x-stream-offset": "mine", "z": 2})
    assert got.properties["headers"] == {"a": 1, "x-stream-offset": 0, "z": 2}


def test_headers_that_rabbitmq_does_not_keep(raw: RawClient, stream: str, on_rabbitmq: bool) -> None:
    """RabbitMQ's streams store AMQP 1.0, which has no place for arrays and tables; leveret keeps what was published."""
    headers = {"array": [1, "2"], "table": {"a": {"b": 1}}, "CC": [f"{stream}-1"], "z": 1}
    got = _delivered(raw, stream, headers=headers, cluster_id="c")
    kept = {"z": 1} if on_rabbitmq else headers
    assert got.properties == {"headers": {**kept, "x-stream-offset": 0}, **({} if on_rabbitmq else {"cluster_id": "c"})}


def test_blind_carbon_copies(raw: RawClient, stream: str, unique: str) -> None:
    """A stream may be the destination of one of several copies; consumers do not see BCC."""
    others = [f"{unique}-{name}" for name in ("to", "bcc")]
    for name in others:
        raw.call("queue.declare", queue=name, exclusive=True)
    append(raw, others[0], b"x", headers={"BCC": [stream, others[1]], "a": 1})
    [got] = read(raw, stream, 1, "first", prefetch=1)
    assert (got["routing_key"], got.properties) == (others[0], {"headers": {"a": 1, "x-stream-offset": 0}})
    assert [raw.call("basic.get", queue=name, no_ack=True).body for name in others] == [b"x", b"x"]


def test_what_kills_a_stream_of_rabbitmq(raw: RawClient, stream: str, on_rabbitmq: bool) -> None:
    """A decimal, which has no place in AMQP 1.0, either."""
    if on_rabbitmq:
        return
    got = _delivered(raw, stream, headers={"price": Typed("D", b"\2\0\0\0\5")})
    assert got.properties["headers"] == {"price": Typed("D", b"\2\0\0\0\5"), "x-stream-offset": 0}


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 300_000])
def test_bodies_of_any_size(raw: RawClient, url: str, stream: str, size: int) -> None:
    """Also for consumers whose frame size differs from the publisher's."""
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    append(raw, stream, body, headers={"a": "b" * 1000})
    with RawClient.open(url, channels=2, frame_max=4096) as small:
        for client in (raw, small):
            [got] = read(client, stream, 1, "first", prefetch=1)
            assert got.body == body
            assert got.properties["headers"]["x-stream-offset"] == 0
        assert small.largest_frame <= 4096


def test_a_consumer_gets_what_comes(raw: RawClient, other: RawClient, stream: str) -> None:
    start(raw, stream, "next")
    other.call("confirm.select")
    for body in [*numbers(20), END]:
        other.publish(body, routing_key=stream)
    assert answers(other, 21) == "a" * 21
    assert [(each.body, offset_of(each)) for each in raw.deliveries(21)] == [
        *[(b"%d" % number, number) for number in range(20)], (END, 20)]


def test_a_stream_among_other_queues(raw: RawClient, other: RawClient, ten: str) -> None:
    """One channel may consume both; delivery tags are one sequence, and an ack with multiple covers both."""
    queue = str(raw.call("queue.declare", 2, exclusive=True)["queue"])
    read(raw, ten, 4, "first", prefetch=4)
    raw.call("basic.consume", 2, queue=queue)
    raw.publish(b"classic", routing_key=queue)
    assert (got := raw.read("basic.deliver"))["delivery_tag"] == 5
    raw.send("basic.ack", 2, delivery_tag=5, multiple=True)
    assert [offset_of(each) for each in raw.deliveries(4)] == [4, 5, 6, 7]
    raw.call("channel.close", 2)
    assert got.body == b"classic"
    assert raw.call("basic.get", queue=queue).name == "basic.get-empty"
    assert other.fail("queue.declare", queue=ten, durable=True)[1].endswith("of type 'longstr'")
    other.call("queue.declare", queue=ten, durable=True, arguments=STREAM)
