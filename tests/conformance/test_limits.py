"""x-max-length, x-max-length-bytes, x-overflow and x-delivery-limit: what is dropped, refused or dead-lettered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..waiting import until
from .collect import answers, confirmed, content, deaths, exclusive, fanout, ready, take
from .raw import RawClient, Typed

OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")


@pytest.fixture
def grave(raw: RawClient) -> str:
    """A queue for dead letters."""
    return exclusive(raw)


def limited(client: RawClient, grave: str, **arguments: object) -> str:
    return exclusive(client, x_dead_letter_exchange="", x_dead_letter_routing_key=grave, **arguments)


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x-max-length", "x-max-length-bytes"])
@pytest.mark.parametrize(("given", "reason"), [
    (-1, "{value_negative,-1}"),
    ("1", '"expected integer, got longstr"'),
    (True, '"expected integer, got bool"'),
    (1.5, '"expected integer, got double"'),
    (None, '"expected integer, got void"'),
    ([1], '"expected integer, got array"'),
    ({"a": 1}, '"expected integer, got table"'),
    (Typed("T", 5), '"expected integer, got timestamp"'),
])
def test_limits_that_are_none(raw: RawClient, unique: str, name: str, given: object, reason: str) -> None:
    refused = raw.fail("queue.declare", queue=unique, exclusive=True, arguments={name: given})
    text = f"PRECONDITION_FAILED - invalid arg '{name}' for queue '{unique}' in vhost '/': {reason}"
    assert refused == (406, text, 50, 10)


@pytest.mark.parametrize(("given", "reason"), [
    ("drop-tail", "invalid_overflow"),
    ("", "invalid_overflow"),
    (1, "{unacceptable_type,signedint}"),
    (None, "{unacceptable_type,void}"),
    (["drop-head"], "{unacceptable_type,array}"),
])
def test_overflows_that_are_none(raw: RawClient, unique: str, given: object, reason: str) -> None:
    refused = raw.fail("queue.declare", queue=unique, exclusive=True, arguments={"x-overflow": given})
    text = f"PRECONDITION_FAILED - invalid arg 'x-overflow' for queue '{unique}' in vhost '/': {reason}"
    assert refused == (406, text, 50, 10)


@pytest.mark.parametrize(("second", "difference"), [
    ({"x-max-length": 6, "x-overflow": "drop-head"}, "'x-max-length' for {}: received '6' but current is '5'"),
    ({"x-max-length": 5, "x-overflow": "reject-publish"},
     "'x-overflow' for {}: received 'reject-publish' but current is 'drop-head'"),
    ({"x-max-length": 5, "x-overflow": "drop-head", "x-max-length-bytes": 1},
     "'x-max-length-bytes' for {}: received the value '1' of type 'signedint' but current is none"),
    ({"x-max-length": 5},
     "'x-overflow' for {}: received none but current is the value 'drop-head' of type 'longstr'"),
])
def test_limits_declared_differently(raw: RawClient, unique: str, second: dict[str, Any], difference: str) -> None:
    first = {"x-max-length": 5, "x-overflow": "drop-head"}
    raw.call("queue.declare", queue=unique, exclusive=True, arguments=first)
    refused = raw.fail("queue.declare", queue=unique, exclusive=True, arguments=second)
    what = difference.format(f"queue '{unique}' in vhost '/'")
    assert refused == (406, f"PRECONDITION_FAILED - inequivalent arg {what}", 50, 10)


@pytest.mark.parametrize("name", ["x-max-length", "x-max-length-bytes"])
def test_large_limits(raw: RawClient, unique: str, name: str) -> None:
    raw.call("queue.declare", queue=unique, exclusive=True, arguments={name: 1 << 62})
    raw.call("confirm.select")
    assert confirmed(raw, unique, b"x", first=1) == "a"
    assert content(raw, unique) == [b"x"]


# -- drop-head ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("mode", [1, 2])
def test_the_oldest_go_to_the_dead_letters(raw: RawClient, grave: str, named: bool, mode: int) -> None:
    """Each publish is acked, also those that displace others; drop-head is the default overflow behaviour."""
    queue = limited(raw, grave, x_max_length=2, **({"x_overflow": "drop-head"} if named else {}))
    raw.call("confirm.select")
    for number in range(5):
        raw.publish(b"%d" % number, routing_key=queue, delivery_mode=mode)
    assert answers(raw, 5) == "aaaaa"
    assert deaths(raw, grave, 3) == [(b"%d" % number, "maxlen") for number in range(3)]
    assert content(raw, queue) == [b"3", b"4"]


def test_death_of_a_dropped_message(raw: RawClient, grave: str) -> None:
    queue = limited(raw, grave, x_max_length=0)
    raw.publish(b"x", routing_key=queue, expiration="100000")
    got = take(raw, grave)
    (death,) = got.properties["headers"]["x-death"]
    assert death.pop("time") > 0
    assert death == {"count": 1, "reason": "maxlen", "queue": queue, "exchange": "", "routing-keys": [queue],
                     "original-expiration": "100000"}
    assert "expiration" not in got.properties
    assert got.properties["headers"]["x-first-death-reason"] == "maxlen"


@pytest.mark.parametrize(("sizes", "left"), [
    ([4, 4, 4], [4, 4]), ([5, 5], [5, 5]), ([5, 20, 1], [1]), ([11], []), ([10, 0, 0], [10, 0, 0]),
    ([10, 0, 1], [0, 1]),
])
def test_octets_of_bodies(raw: RawClient, sizes: list[int], left: list[int]) -> None:
    queue = exclusive(raw, x_max_length_bytes=10)
    raw.call("confirm.select")
    confirmed(raw, queue, *[b"x" * size for size in sizes], first=1, message_id="not counted")
    assert [len(body) for body in content(raw, queue)] == left


def test_both_limits_hold(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_length=3, x_max_length_bytes=10)
    raw.call("confirm.select")
    confirmed(raw, queue, b"a", b"b", b"c", b"d", first=1)
    assert content(raw, queue) == [b"b", b"c", b"d"]
    confirmed(raw, queue, b"a" * 6, b"b" * 6, first=5)
    assert content(raw, queue) == [b"b" * 6]


def test_what_is_unacknowledged_does_not_count_until_it_returns(raw: RawClient, grave: str) -> None:
    queue = limited(raw, grave, x_max_length_bytes=10)
    raw.call("confirm.select")
    confirmed(raw, queue, b"aaaa", b"bbbb", first=1)
    for _ in range(2):
        raw.call("basic.get", queue=queue)
    confirmed(raw, queue, b"cccc", b"dddd", b"ee", first=3)
    assert ready(raw, queue) == 3
    confirmed(raw, queue, b"f", first=6)
    assert deaths(raw, grave, 1) == [(b"cccc", "maxlen")]
    raw.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    assert deaths(raw, grave, 2) == [(b"aaaa", "maxlen"), (b"bbbb", "maxlen")]
    assert content(raw, queue) == [b"dddd", b"ee", b"f"]


@pytest.mark.parametrize("how", ["nack", "recover", "channel", "connection"])
def test_returned_messages_are_the_oldest(raw: RawClient, other: RawClient, unique: str, grave: str, how: str) -> None:
    """Requeued messages over the limit are dropped before they can be delivered again."""
    arguments = {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
    raw.call("queue.declare", queue=unique, arguments=arguments)
    raw.call("confirm.select")
    confirmed(raw, unique, b"0", b"1", first=1)
    for _ in range(2):
        other.call("basic.get", queue=unique)
    confirmed(raw, unique, b"2", b"3", first=3)
    if how == "nack":
        other.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    elif how == "recover":
        other.call("basic.recover", requeue=True)
    elif how == "channel":
        other.call("channel.close")
    else:
        other.socket.close()
    assert deaths(raw, grave, 2) == [(b"0", "maxlen"), (b"1", "maxlen")]
    assert content(raw, unique) == [b"2", b"3"]
    raw.call("queue.delete", queue=unique)


def test_a_queue_of_no_length_is_for_waiting_consumers_only(raw: RawClient, grave: str) -> None:
    queue = limited(raw, grave, x_max_length=0)
    raw.call("confirm.select")
    raw.publish(b"nobody", routing_key=queue)
    assert answers(raw, 1) == "a"
    assert deaths(raw, grave, 1) == [(b"nobody", "maxlen")]
    raw.call("basic.consume", 2, queue=queue, no_ack=True)
    for _ in range(3):
        raw.publish(b"somebody", routing_key=queue)
    delivered, answered = 0, set[int]()
    while delivered < 3 or len(answered) < 3:
        got = raw.read("basic.deliver", "basic.ack")
        if got.name == "basic.deliver":
            delivered += 1
        else:
            answered |= set(range(2, got["delivery_tag"] + 1)) if got["multiple"] else {got["delivery_tag"]}
    assert answered == {2, 3, 4}


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_messages_without_time_to_live_do_not_count(raw: RawClient, grave: str, overflow: str) -> None:
    queue = limited(raw, grave, x_max_length=1, x_overflow=overflow, x_message_ttl=0)
    raw.call("confirm.select")
    for number in range(3):
        raw.publish(b"%d" % number, routing_key=queue)
    assert answers(raw, 3) == "aaa"
    assert deaths(raw, grave, 3) == [(b"0", "expired"), (b"1", "expired"), (b"2", "expired")]


def test_what_is_dropped_may_fill_the_next_queue(raw: RawClient, grave: str) -> None:
    second = limited(raw, grave, x_max_length=1)
    first = limited(raw, second, x_max_length=1)
    raw.call("confirm.select")
    confirmed(raw, first, b"1", b"2", b"3", b"4", first=1)
    assert deaths(raw, grave, 2) == [(b"1", "maxlen"), (b"2", "maxlen")]
    assert content(raw, second) == [b"3"]
    assert content(raw, first) == [b"4"]


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_what_is_dropped_does_not_come_back_to_its_queue(raw: RawClient, unique: str, overflow: str) -> None:
    arguments = {"x-max-length": 1, "x-overflow": overflow, "x-dead-letter-exchange": "",
                 "x-dead-letter-routing-key": unique}
    raw.call("queue.declare", queue=unique, exclusive=True, arguments=arguments)
    raw.call("confirm.select")
    assert confirmed(raw, unique, b"0", b"1", b"2", first=1) == ("aaa" if overflow == "drop-head" else "ann")
    got = take(raw, unique)
    assert got.body == (b"2" if overflow == "drop-head" else b"0")
    assert "headers" not in got.properties
    assert content(raw, unique) == []


# -- refusing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overflow", OVERFLOWS[1:])
@pytest.mark.parametrize("length", [0, 2])
@pytest.mark.parametrize("mode", [1, 2])
def test_a_full_queue_refuses(raw: RawClient, unique: str, grave: str, overflow: str, length: int, mode: int) -> None:
    arguments = {"x-max-length": length, "x-overflow": overflow, "x-dead-letter-exchange": "",
                 "x-dead-letter-routing-key": grave}
    raw.call("queue.declare", queue=unique, durable=True, arguments=arguments)
    raw.call("confirm.select")
    for number in range(5):
        raw.publish(b"%d" % number, routing_key=unique, delivery_mode=mode)
    assert answers(raw, 5) == "a" * length + "n" * (5 - length)
    if overflow == "reject-publish-dlx":
        assert deaths(raw, grave, 5 - length) == [(b"%d" % number, "maxlen") for number in range(length, 5)]
    assert content(raw, unique) == [b"%d" % number for number in range(length)]
    assert content(raw, grave) == []
    raw.call("queue.delete", queue=unique)


def test_a_full_queue_refuses_by_octets(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_length_bytes=10, x_overflow="reject-publish")
    raw.call("confirm.select")
    bodies = [b"x" * size for size in (4, 4, 4, 2, 0, 1, 40)]
    assert confirmed(raw, queue, *bodies, first=1) == "aanaann"
    assert [len(body) for body in content(raw, queue)] == [4, 4, 2, 0]
    assert confirmed(raw, queue, b"x" * 10, first=8) == "a"


def test_a_waiting_consumer_makes_room_but_no_length(raw: RawClient) -> None:
    """The limit is checked before delivery: a queue of length 0 refuses although its consumer waits."""
    roomy = exclusive(raw, x_max_length=1, x_overflow="reject-publish")
    none = exclusive(raw, x_max_length=0, x_overflow="reject-publish")
    for queue in (roomy, none):
        raw.call("basic.consume", 2, queue=queue, no_ack=True)
    raw.call("confirm.select")
    for number in range(3):
        raw.publish(b"x", routing_key=roomy)
        got = {raw.read().name, raw.read().name}
        assert got == {"basic.ack", "basic.deliver"}, number
    assert confirmed(raw, none, b"x", first=4) == "n"


def test_room_is_made_by_get_ack_and_purge(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_length=1, x_max_length_bytes=4, x_overflow="reject-publish")
    raw.call("confirm.select")
    assert confirmed(raw, queue, b"1234", b"1", first=1) == "an"
    raw.call("basic.get", queue=queue, no_ack=True)
    assert confirmed(raw, queue, b"1234", b"1", first=3) == "an"
    raw.call("queue.purge", queue=queue)
    assert confirmed(raw, queue, b"1234", b"1", first=5) == "an"
    tag = raw.call("basic.get", queue=queue)["delivery_tag"]
    assert confirmed(raw, queue, b"4321", b"1", first=7) == "an"
    raw.send("basic.reject", delivery_tag=tag, requeue=True)
    until(lambda: ready(raw, queue) == 2)
    assert confirmed(raw, queue, b"1", first=9) == "n"
    assert content(raw, queue) == [b"1234", b"4321"]
    assert confirmed(raw, queue, b"1234", first=10) == "a"


def test_messages_expired_behind_others_count(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_length=2, x_overflow="reject-publish")
    raw.call("confirm.select")
    confirmed(raw, queue, b"head", first=1)
    confirmed(raw, queue, b"behind", first=2, expiration="0")
    assert confirmed(raw, queue, b"refused", first=3) == "n"
    assert content(raw, queue) == [b"head"]


def test_overflow_without_a_limit(raw: RawClient) -> None:
    queue = exclusive(raw, x_overflow="reject-publish")
    raw.call("confirm.select")
    assert confirmed(raw, queue, b"1", b"2", first=1) == "aa"


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("durable", [False, True])
def test_the_other_queues_take_what_one_refuses(raw: RawClient, unique: str, mode: int, durable: bool) -> None:
    full = exclusive(raw, x_max_length=1, x_overflow="reject-publish")
    raw.call("queue.declare", queue=unique, durable=durable)
    exchange = fanout(raw, f"{unique}-x", full, unique)
    raw.call("confirm.select")
    for number in range(4):
        raw.publish(b"%d" % number, exchange=exchange, delivery_mode=mode, mandatory=True)
    assert answers(raw, 4) == "annn"
    assert content(raw, full) == [b"0"]
    assert content(raw, unique) == [b"0", b"1", b"2", b"3"]
    raw.call("queue.delete", queue=unique)


def test_a_refused_mandatory_message_is_not_returned(raw: RawClient) -> None:
    queue = exclusive(raw, x_max_length=0, x_overflow="reject-publish")
    raw.call("confirm.select")
    raw.publish(b"x", routing_key=queue, mandatory=True)
    assert answers(raw, 1) == "n"
    raw.quiet()


@pytest.mark.parametrize("overflow", OVERFLOWS[1:])
def test_a_dead_letter_that_is_refused_is_gone(raw: RawClient, unique: str, grave: str, overflow: str) -> None:
    """Unless it is dead-lettered again. The witness queue shows that it has been routed."""
    full = limited(raw, grave, x_max_length=0, x_overflow=overflow)
    witness = exclusive(raw)
    source = exclusive(raw, x_dead_letter_exchange=fanout(raw, unique, full, witness))
    raw.publish(b"x", routing_key=source)
    raw.send("basic.reject", delivery_tag=take(raw, source, no_ack=False)["delivery_tag"], requeue=False)
    assert take(raw, witness).body == b"x"
    if overflow == "reject-publish-dlx":
        assert deaths(raw, grave, 1) == [(b"x", "maxlen")]
    assert content(raw, full) == []
    assert content(raw, grave) == []


def test_each_tag_is_answered_once(raw: RawClient, other: RawClient, unique: str) -> None:
    """The queue is full and has room by turns while hundreds of publishes are unconfirmed."""
    arguments = {"x-max-length": 20, "x-overflow": "reject-publish"}
    raw.call("queue.declare", queue=unique, durable=True, arguments=arguments)
    other.call("basic.consume", queue=unique, no_ack=True)
    raw.call("confirm.select")
    for number in range(600):
        raw.publish(b"x", routing_key=unique, delivery_mode=1 + number % 2)
    said = answers(raw, 600)
    assert len(other.deliveries(said.count("a"))) == said.count("a")
    raw.quiet()
    other.quiet()
    raw.call("queue.delete", queue=unique)


# -- delivery limit ----------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(raw: RawClient, url: str, unique: str, grave: str) -> Iterator[str]:
    """A queue with x-delivery-limit 2, which RabbitMQ accepts on quorum queues only."""
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": "",
                 "x-dead-letter-routing-key": grave}
    raw.call("queue.declare", queue=unique, durable=True, arguments=arguments)
    yield unique
    with RawClient.open(url) as last:
        last.call("queue.delete", queue=unique)


def test_a_message_that_comes_back_too_often(raw: RawClient, grave: str, counted: str) -> None:
    """Delivered once and then twice more; a get shows the count from the first delivery on."""
    raw.publish(b"x", routing_key=counted, headers={"mine": 1})
    for returns in range(3):
        got = take(raw, counted, no_ack=False)
        assert got.properties["headers"] == {"mine": 1, "x-delivery-count": returns}
        assert got["redelivered"] == (returns > 0)
        name = "basic.reject" if returns % 2 else "basic.nack"
        raw.send(name, delivery_tag=got["delivery_tag"], requeue=True)
    got = take(raw, grave)
    assert got.properties["headers"]["x-death"][0]["reason"] == "delivery_limit"
    assert got.properties["headers"]["mine"] == 1
    assert "x-delivery-count" not in got.properties["headers"]
    assert content(raw, counted) == []


def test_consumers_see_the_count_from_the_second_delivery_on(raw: RawClient, grave: str, counted: str) -> None:
    raw.call("basic.qos", prefetch_count=10)
    raw.call("basic.consume", queue=counted)
    raw.publish(b"x", routing_key=counted, headers={"x-delivery-count": 77})
    for count in (77, 1, 2):
        got = raw.read("basic.deliver")
        assert got.properties["headers"] == {"x-delivery-count": count}
        raw.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=True)
    assert take(raw, grave).properties["headers"]["x-delivery-count"] == 77


@pytest.mark.parametrize("how", ["recover", "channel", "connection"])
def test_every_way_back_counts(raw: RawClient, url: str, grave: str, counted: str, how: str) -> None:
    raw.publish(b"x", routing_key=counted)
    for _ in range(3):
        with RawClient.open(url) as reader:
            take(reader, counted, no_ack=False)
            if how == "recover":
                reader.call("basic.recover", requeue=True)
            elif how == "channel":
                reader.call("channel.close")
    assert deaths(raw, grave, 1) == [(b"x", "delivery_limit")]


def test_rejected_for_good_before_the_limit(raw: RawClient, grave: str, counted: str) -> None:
    raw.publish(b"x", routing_key=counted)
    for requeue in (True, False):
        tag = take(raw, counted, no_ack=False)["delivery_tag"]
        raw.send("basic.reject", delivery_tag=tag, requeue=requeue)
    assert deaths(raw, grave, 1) == [(b"x", "rejected")]


def test_a_delivery_limit_declared_differently(raw: RawClient, grave: str, counted: str) -> None:
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 3, "x-dead-letter-exchange": "",
                 "x-dead-letter-routing-key": grave}
    refused = raw.fail("queue.declare", queue=counted, durable=True, arguments=arguments)
    text = f"inequivalent arg 'x-delivery-limit' for queue '{counted}' in vhost '/': received '3' but current is '2'"
    assert refused == (406, f"PRECONDITION_FAILED - {text}", 50, 10)


def test_a_delivery_limit_on_a_classic_queue(raw: RawClient, unique: str, on_rabbitmq: bool) -> None:
    """RabbitMQ refuses it on a classic queue; leveret accepts it on any queue."""
    if on_rabbitmq:
        refused = raw.fail("queue.declare", queue=unique, exclusive=True, arguments={"x-delivery-limit": 0})
        assert refused[0] == 406
        return
    queue = exclusive(raw, x_delivery_limit=0)
    raw.publish(b"x", routing_key=queue)
    raw.send("basic.reject", delivery_tag=take(raw, queue, no_ack=False)["delivery_tag"], requeue=True)
    assert content(raw, queue) == []


def test_a_delivery_limit_that_is_none(raw: RawClient, unique: str, on_rabbitmq: bool) -> None:
    """RabbitMQ 3.10 accepts any value, with undefined results if it is not a number."""
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": "2"}
    if on_rabbitmq:
        raw.call("queue.declare", queue=unique, durable=True, arguments=arguments)
        raw.call("queue.delete", queue=unique)
        return
    refused = raw.fail("queue.declare", queue=unique, durable=True, arguments=arguments)
    reason = f"invalid arg 'x-delivery-limit' for queue '{unique}' in vhost '/': \"expected integer, got longstr\""
    assert refused == (406, f"PRECONDITION_FAILED - {reason}", 50, 10)
