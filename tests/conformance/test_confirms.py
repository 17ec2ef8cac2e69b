"""Publisher confirms and returns, frame by frame: numbers, order, and when a publish is confirmed."""

from __future__ import annotations

import pytest

from .raw import Frame, RawClient


def acks(client: RawClient, count: int) -> list[int]:
    """Read confirms until `count` publishes are answered, each number exactly once."""
    open_tags = set(range(1, count + 1))
    answered: list[int] = []
    while open_tags:
        got = client.read("basic.ack")
        tag = got["delivery_tag"]
        covered = {each for each in open_tags if each <= tag} if got["multiple"] else {tag}
        assert tag in open_tags
        assert covered <= open_tags
        open_tags -= covered
        answered += sorted(covered)
    return answered


def exclusive(client: RawClient, channel: int = 1, **arguments: object) -> str:
    given = {key.replace("_", "-"): item for key, item in arguments.items()}
    return str(client.call("queue.declare", channel, exclusive=True, arguments=given)["queue"])


def test_numbers_start_with_the_first_publish_after_select(raw: RawClient) -> None:
    queue = exclusive(raw)
    raw.publish(b"before", routing_key=queue)
    raw.call("confirm.select")
    raw.publish(b"first", routing_key=queue)
    assert raw.read("basic.ack").args == {"delivery_tag": 1, "multiple": False}


def test_selecting_again_goes_on_counting(raw: RawClient) -> None:
    queue = exclusive(raw)
    for number in (1, 2):
        raw.call("confirm.select")
        raw.publish(b"x", routing_key=queue)
        assert raw.read("basic.ack")["delivery_tag"] == number


def test_select_without_waiting(raw: RawClient) -> None:
    raw.send("confirm.select", no_wait=True)
    raw.publish(b"x", routing_key=exclusive(raw))
    assert raw.read("basic.ack")["delivery_tag"] == 1


def test_channels_count_by_themselves(raw: RawClient) -> None:
    queue = exclusive(raw)
    for channel in (1, 2):
        raw.call("confirm.select", channel)
        raw.publish(b"x", routing_key=queue, channel=channel)
        got = raw.read("basic.ack")
        assert (got.channel, got["delivery_tag"]) == (channel, 1)


def test_without_select_nothing_is_confirmed(raw: RawClient) -> None:
    raw.publish(b"x", routing_key=exclusive(raw))
    raw.quiet()


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("mode", [1, 2])
def test_every_publish_is_confirmed_once(raw: RawClient, unique: str, durable: bool, mode: int) -> None:
    raw.call("queue.declare", queue=unique, durable=durable)
    raw.call("confirm.select")
    for _ in range(500):
        raw.publish(b"x", routing_key=unique, delivery_mode=mode)
    assert sorted(acks(raw, 500)) == list(range(1, 501))
    assert raw.call("queue.delete", queue=unique)["message_count"] == 500
    raw.quiet()


def test_unroutable_is_confirmed(raw: RawClient, unique: str) -> None:
    raw.call("confirm.select")
    raw.publish(b"x", routing_key=unique, delivery_mode=2)
    assert raw.read("basic.ack").args == {"delivery_tag": 1, "multiple": False}


def returned(got: Frame) -> tuple[int, str, str, str]:
    return (got["reply_code"], got["reply_text"], got["exchange"], got["routing_key"])


def test_mandatory_is_returned(raw: RawClient, unique: str) -> None:
    properties = {"message_id": "m", "headers": {"a": [1, {"b": "c"}]}, "delivery_mode": 2}
    raw.publish(b"back", exchange="amq.direct", routing_key=unique, mandatory=True, **properties)
    got = raw.read("basic.return")
    assert returned(got) == (312, "NO_ROUTE", "amq.direct", unique)
    assert (got.body, got.properties) == (b"back", properties)


def test_return_comes_before_its_confirm(raw: RawClient, unique: str) -> None:
    raw.call("confirm.select")
    queue = exclusive(raw)
    for number in range(1, 21):
        raw.publish(b"x", routing_key=unique, mandatory=True)
        raw.publish(b"x", routing_key=queue, mandatory=True)
        seen = [raw.read()]
        while not acked(seen, 2 * number):
            seen.append(raw.read())
        names = [each.name for each in seen]
        assert names[0] == "basic.return"
        assert names.count("basic.return") == 1


def acked(seen: list[Frame], tag: int) -> bool:
    answered = {each["delivery_tag"] for each in seen if each.name == "basic.ack"}
    return tag in answered and (tag - 1 in answered or any(
        each.name == "basic.ack" and each["multiple"] and each["delivery_tag"] == tag for each in seen))


def test_routed_mandatory_is_not_returned(raw: RawClient) -> None:
    raw.call("confirm.select")
    raw.publish(b"x", routing_key=exclusive(raw), mandatory=True)
    assert raw.read().name == "basic.ack"


def test_large_return(raw: RawClient, unique: str) -> None:
    raw.publish(b"x" * 300_000, routing_key=unique, mandatory=True)
    assert raw.read("basic.return").body == b"x" * 300_000


def test_several_queues_give_one_confirm(raw: RawClient) -> None:
    raw.call("confirm.select")
    for _ in range(3):
        raw.call("queue.bind", queue=exclusive(raw), exchange="amq.fanout")
    for number in (1, 2):
        raw.publish(b"x", exchange="amq.fanout")
        assert raw.read("basic.ack")["delivery_tag"] == number
    raw.quiet()


@pytest.mark.parametrize("how", ["queue", "message"])
def test_expiring_at_once_is_confirmed(raw: RawClient, how: str) -> None:
    queue = exclusive(raw, **({"x_message_ttl": 0} if how == "queue" else {}))
    raw.call("confirm.select")
    raw.publish(b"x", routing_key=queue, **({"expiration": "0"} if how == "message" else {}))
    assert raw.read("basic.ack")["delivery_tag"] == 1


def test_consumed_at_once_is_confirmed(raw: RawClient) -> None:
    """The confirm and the delivery may come in either order."""
    queue = exclusive(raw)
    raw.call("basic.consume", queue=queue, no_ack=True)
    raw.call("confirm.select")
    raw.publish(b"x", routing_key=queue, delivery_mode=2)
    assert {raw.read().name, raw.read().name} == {"basic.ack", "basic.deliver"}


def test_deleting_the_queue_settles_what_is_open(raw: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, durable=True)
    raw.call("confirm.select")
    for _ in range(50):
        raw.publish(b"x", routing_key=unique, delivery_mode=2)
    raw.send("queue.delete", 2, queue=unique)
    open_tags = set(range(1, 51))
    deleted = False
    while open_tags or not deleted:
        got = raw.read("basic.ack", "queue.delete-ok")
        if got.name == "queue.delete-ok":
            deleted = True
            continue
        open_tags -= set(range(1, got["delivery_tag"] + 1)) if got["multiple"] else {got["delivery_tag"]}


def test_error_on_publish_ends_the_channel_and_its_numbers(raw: RawClient, unique: str) -> None:
    raw.call("confirm.select")
    raw.publish(b"x", exchange=unique)
    assert raw.closed()[0] == 404
    raw.call("confirm.select")
    raw.publish(b"x", routing_key=unique)
    assert raw.read("basic.ack")["delivery_tag"] == 1


def test_confirmed_persistent_message_is_there(raw: RawClient, other: RawClient, unique: str) -> None:
    raw.call("queue.declare", queue=unique, durable=True)
    raw.call("confirm.select")
    raw.publish(b"kept", routing_key=unique, delivery_mode=2)
    raw.read("basic.ack")
    assert other.call("queue.declare", queue=unique, passive=True)["message_count"] == 1
    assert other.call("basic.get", queue=unique, no_ack=True).body == b"kept"
    other.call("queue.delete", queue=unique)
