"""Direct reply-to: consuming from the pseudo-queue, the generated name, and what a reply does.

Requester and responder are two raw connections. Frames and texts as measured on RabbitMQ 3.10.8.
"""

from __future__ import annotations

import re

import pytest

from .raw import Frame, RawClient

BASE = "amq.rabbitmq.reply-to"
NOT_FOUND = "NOT_FOUND - no queue '{}' in vhost '/'"


def consume(client: RawClient, tag: str = "replies", channel: int = 1, **more: object) -> str:
    return str(client.call("basic.consume", channel, queue=BASE, consumer_tag=tag, no_ack=True, **more)["consumer_tag"])


def ask(client: RawClient, responder: RawClient, queue: str, channel: int = 1, **properties: object) -> str:
    """Send one request through a queue; return the reply name that the responder sees."""
    responder.call("queue.declare", queue=queue, exclusive=True)
    client.publish(b"request", routing_key=queue, channel=channel, reply_to=BASE, **properties)
    client.call("basic.qos", channel)
    got = fetch(responder, queue)
    return str(got.properties["reply_to"])


def fetch(client: RawClient, queue: str, channel: int = 1) -> Frame:
    """Poll for the next message of a queue."""
    for _ in range(2000):
        got = client.call("basic.get", channel, queue=queue, no_ack=True)
        if got.name == "basic.get-ok":
            return got
    raise AssertionError(f"no message in {queue}")


def alive(client: RawClient, name: str) -> bool:
    """Return whether a reply name resolves, by declaring it as a responder would."""
    client.send("queue.declare", queue=name, passive=True)
    got = client.read("queue.declare-ok", "channel.close")
    if got.name == "channel.close":
        assert got.error == (404, NOT_FOUND.format(name), 50, 10)
        client.send("channel.close-ok")
        client.call("channel.open")
        return False
    assert (got["message_count"], got["consumer_count"]) == (0, 1)
    return True


def dies(client: RawClient, name: str) -> None:
    """Wait until a name stops resolving; another connection may see that a moment later."""
    for _ in range(2000):
        if not alive(client, name):
            return
    raise AssertionError(f"{name} is still alive")


# Consuming


def test_consume_needs_no_declare(raw: RawClient) -> None:
    assert consume(raw, "mine") == "mine"


def test_empty_tag_gets_a_server_tag(raw: RawClient) -> None:
    assert consume(raw, "").startswith("amq.ctag-")


def test_exclusive_no_local_and_arguments_are_ignored(raw: RawClient, other: RawClient) -> None:
    consume(raw, exclusive=True, no_local=True, arguments={"x-priority": 3})
    consume(other, exclusive=True)


def test_no_wait_is_honoured(raw: RawClient, other: RawClient, unique: str) -> None:
    raw.send("basic.consume", queue=BASE, consumer_tag="quiet", no_ack=True, no_wait=True)
    name = ask(raw, other, unique)
    other.publish(b"answer", routing_key=name)
    assert raw.read("basic.deliver")["consumer_tag"] == "quiet"


def test_acknowledging_consumer_is_refused(raw: RawClient) -> None:
    assert raw.fail("basic.consume", queue=BASE) == (
        406, "PRECONDITION_FAILED - reply consumer cannot acknowledge", 60, 20)


def test_second_consumer_on_a_channel_is_refused(raw: RawClient) -> None:
    consume(raw, "one")
    assert raw.fail("basic.consume", queue=BASE, consumer_tag="two", no_ack=True) == (
        406, "PRECONDITION_FAILED - reply consumer already set", 60, 20)


def test_ack_mode_is_checked_before_the_second_consumer(raw: RawClient) -> None:
    consume(raw, "one")
    assert raw.fail("basic.consume", queue=BASE, consumer_tag="two")[1].endswith("reply consumer cannot acknowledge")


def test_tag_of_an_ordinary_consumer_cannot_be_reused(raw: RawClient) -> None:
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    raw.call("basic.consume", queue=queue, consumer_tag="t")
    # in acknowledgement mode, too: the tag is checked first
    assert raw.fail("basic.consume", queue=BASE, consumer_tag="t") == (
        530, "NOT_ALLOWED - attempt to reuse consumer tag 't'", 60, 20)


def test_ordinary_consumer_may_take_the_tag_of_the_reply_consumer(raw: RawClient) -> None:
    consume(raw, "t")
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    assert raw.call("basic.consume", queue=queue, consumer_tag="t")["consumer_tag"] == "t"


def test_generated_name_cannot_be_consumed(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    assert other.fail("basic.consume", queue=name, no_ack=True) == (404, NOT_FOUND.format(name), 60, 20)


def test_every_channel_has_its_own_consumer_and_name(raw: RawClient, other: RawClient, unique: str) -> None:
    for channel in (1, 2):
        consume(raw, f"c{channel}", channel)
    names = [ask(raw, other, unique, channel) for channel in (1, 2)]
    assert names[0] != names[1]
    for name in reversed(names):
        other.publish(name.encode(), routing_key=name)
    got = {frame.channel: frame for frame in raw.deliveries(2)}
    assert {channel: (each["consumer_tag"], each.body.decode()) for channel, each in got.items()} == {
        1: ("c1", names[0]), 2: ("c2", names[1])}


def test_prefetch_does_not_limit_replies(raw: RawClient, other: RawClient, unique: str) -> None:
    raw.call("basic.qos", prefetch_count=1)
    raw.call("basic.qos", **{"prefetch_count": 1, "global": True})
    consume(raw)
    other.call("queue.declare", queue=unique, exclusive=True)
    raw.publish(b"request", routing_key=unique, reply_to=BASE)
    name = fetch(other, unique).properties["reply_to"]
    for number in range(5):
        other.publish(b"%d" % number, routing_key=name)
    assert [each.body for each in raw.deliveries(5)] == [b"0", b"1", b"2", b"3", b"4"]


# Requests


def test_request_without_consumer_is_refused(raw: RawClient, unique: str) -> None:
    raw.publish(b"request", routing_key=unique, reply_to=BASE)
    assert raw.closed() == (406, "PRECONDITION_FAILED - fast reply consumer does not exist", 60, 40)


def test_consumer_on_another_channel_does_not_help(raw: RawClient, unique: str) -> None:
    consume(raw, channel=2)
    raw.publish(b"request", routing_key=unique, reply_to=BASE)
    assert raw.closed() == (406, "PRECONDITION_FAILED - fast reply consumer does not exist", 60, 40)


def test_name_is_stable_printable_and_short(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    names = {ask(raw, other, unique, correlation_id=str(each)) for each in range(3)}
    assert len(names) == 1
    name = names.pop()
    assert re.fullmatch(r"amq\.rabbitmq\.reply-to\.[A-Za-z0-9+/=_-]+(\.[A-Za-z0-9+/=_-]+)*", name)
    assert len(name) <= 127


def test_names_share_no_guessable_part(raw: RawClient, other: RawClient, unique: str) -> None:
    """The key after the last dot has at least 128 random bits: 22 characters of base64, all different."""
    keys = []
    for _ in range(4):
        tag = consume(raw)
        keys.append(ask(raw, other, unique).rsplit(".", 1)[1])
        raw.call("basic.cancel", consumer_tag=tag)
    assert len(set(keys)) == 4
    assert min(len(key) for key in keys) >= 22


@pytest.mark.parametrize("reply_to", ["elsewhere", f"{BASE}.abc", f"{BASE}x", ""])
def test_other_reply_to_is_untouched(raw: RawClient, reply_to: str) -> None:
    queue = raw.call("queue.declare", exclusive=True)["queue"]
    raw.publish(b"request", routing_key=queue, reply_to=reply_to)
    assert fetch(raw, queue).properties["reply_to"] == reply_to


def test_request_keeps_its_other_properties(raw: RawClient, other: RawClient, unique: str) -> None:
    properties = {"content_type": "text/plain", "headers": {"k": "v", "n": 7}, "correlation_id": "c-1", "priority": 3,
                  "message_id": "m-1", "timestamp": 1234567890, "type": "ask", "app_id": "test"}
    consume(raw)
    other.call("queue.declare", queue=unique, exclusive=True)
    raw.publish(b"request", routing_key=unique, reply_to=BASE, **properties)
    got = fetch(other, unique).properties
    assert got.pop("reply_to").startswith(BASE + ".")
    assert got == properties


def test_reply_to_is_rewritten_on_any_exchange(raw: RawClient, other: RawClient, unique: str) -> None:
    queue = other.call("queue.declare", exclusive=True)["queue"]
    other.call("queue.bind", queue=queue, exchange="amq.fanout")
    consume(raw)
    raw.publish(unique.encode(), exchange="amq.fanout", routing_key=unique, reply_to=BASE)
    got = fetch(other, queue)
    while got.body != unique.encode():
        got = fetch(other, queue)
    assert got.properties["reply_to"].startswith(BASE + ".")


# Replies


def test_reply_as_delivered(raw: RawClient, other: RawClient, unique: str) -> None:
    properties = {"content_type": "a/b", "content_encoding": "utf-8", "headers": {"h": "x", "n": {"deep": [1, True]}},
                  "delivery_mode": 2, "priority": 7, "correlation_id": "c", "reply_to": "back", "expiration": "60000",
                  "message_id": "m", "timestamp": 99, "type": "t", "user_id": "guest", "app_id": "a",
                  "cluster_id": "z"}
    consume(raw)
    name = ask(raw, other, unique)
    other.publish(b"answer", routing_key=name, **properties)
    got = raw.read("basic.deliver")
    assert got.channel == 1
    assert (got["consumer_tag"], got["redelivered"], got["exchange"], got["routing_key"]) == (
        "replies", False, "", name)
    assert (got.body, got.properties) == (b"answer", properties)


def test_expiration_zero_is_delivered(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    other.publish(b"at once", routing_key=ask(raw, other, unique), expiration="0")
    assert raw.read("basic.deliver").body == b"at once"


@pytest.mark.parametrize("size", [0, 1, 131064, 131065, 500_000])
def test_body_sizes(raw: RawClient, other: RawClient, unique: str, size: int) -> None:
    consume(raw)
    body = bytes(range(256)) * (size // 256 + 1)
    other.publish(body[:size], routing_key=ask(raw, other, unique))
    assert raw.read("basic.deliver").body == body[:size]
    assert raw.largest_frame <= raw.frame_max


def test_order_of_one_responder(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    for number in range(100):
        other.publish(b"%d" % number, routing_key=name)
    assert [int(each.body) for each in raw.deliveries(100)] == list(range(100))


def test_reply_from_the_same_channel(raw: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, raw, unique)
    raw.publish(b"to myself", routing_key=name)
    assert raw.read("basic.deliver").body == b"to myself"


def test_any_number_of_replies_and_later(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    for channel in (1, 2):
        other.publish(b"again", routing_key=name, channel=channel)
    assert [each.body for each in raw.deliveries(2)] == [b"again", b"again"]


def test_through_another_exchange_the_name_means_nothing(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    other.publish(b"lost", exchange="amq.direct", routing_key=name, mandatory=True)
    got = other.read("basic.return")
    assert (got["reply_code"], got["reply_text"], got["exchange"], got["routing_key"]) == (
        312, "NO_ROUTE", "amq.direct", name)
    other.publish(b"next", routing_key=name)
    assert raw.read("basic.deliver").body == b"next"


def test_live_reply_is_confirmed(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    other.call("confirm.select")
    other.publish(b"answer", routing_key=name, delivery_mode=2)
    assert other.read("basic.ack").args == {"delivery_tag": 1, "multiple": False}
    assert raw.read("basic.deliver").body == b"answer"


@pytest.mark.parametrize("suffix", ["", ".", ".garbage", ".a.b.c", "x"])
def test_reply_to_no_name_is_dropped_and_confirmed(raw: RawClient, suffix: str) -> None:
    raw.call("confirm.select")
    raw.publish(b"lost", routing_key=BASE + suffix)
    assert raw.read("basic.ack")["delivery_tag"] == 1


def test_reply_to_garbage_with_a_dot(raw: RawClient, on_rabbitmq: bool) -> None:
    raw.call("confirm.select")
    raw.publish(b"lost", routing_key=f"{BASE}.garbage.x")
    if on_rabbitmq:
        # RabbitMQ cannot decode the name and closes the connection; leveret drops the message as for any dead name
        assert raw.closed()[0] == 541
    else:
        assert raw.read("basic.ack")["delivery_tag"] == 1


def test_reply_to_a_dead_name_is_dropped_and_confirmed(raw: RawClient, other: RawClient, unique: str) -> None:
    tag = consume(raw)
    name = ask(raw, other, unique)
    raw.call("basic.cancel", consumer_tag=tag)
    other.call("confirm.select")
    other.publish(b"lost", routing_key=name)
    assert other.read("basic.ack")["delivery_tag"] == 1
    raw.quiet()


def test_mandatory_reply_is_delivered_and_returned(raw: RawClient, other: RawClient, unique: str) -> None:
    """The name is not a queue, so the responder gets NO_ROUTE although the requester got the message."""
    consume(raw)
    name = ask(raw, other, unique)
    other.publish(b"answer", routing_key=name, mandatory=True, correlation_id="7")
    back = other.read("basic.return")
    assert (back["reply_code"], back["reply_text"], back["exchange"], back["routing_key"]) == (
        312, "NO_ROUTE", "", name)
    assert (back.body, back.properties) == (b"answer", {"correlation_id": "7"})
    assert raw.read("basic.deliver").body == b"answer"


def test_mandatory_reply_return_comes_before_the_confirm(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    other.call("confirm.select")
    other.publish(b"answer", routing_key=name, mandatory=True)
    assert [other.read().name, other.read().name] == ["basic.return", "basic.ack"]
    assert raw.read("basic.deliver").body == b"answer"


@pytest.mark.parametrize("name", [BASE, f"{BASE}.garbage"])
def test_mandatory_to_no_name_is_returned(raw: RawClient, name: str) -> None:
    consume(raw)
    raw.publish(b"lost", routing_key=name, mandatory=True)
    got = raw.read("basic.return")
    assert (got["reply_code"], got["reply_text"], got["routing_key"]) == (312, "NO_ROUTE", name)
    raw.quiet()


def test_dead_letters_reach_the_requester(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    grave = other.call("queue.declare", exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name, "x-message-ttl": 1})["queue"]
    other.publish(b"late", routing_key=grave)
    got = raw.read("basic.deliver")
    assert (got.body, got["exchange"], got["routing_key"]) == (b"late", "", name)
    assert got.properties["headers"]["x-death"][0]["reason"] == "expired"


def test_rejected_request_dead_letters_to_the_requester(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    grave = other.call("queue.declare", exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name})["queue"]
    other.publish(b"refused", routing_key=grave)
    other.send("basic.reject", delivery_tag=other.call("basic.get", queue=grave)["delivery_tag"])
    assert raw.read("basic.deliver").body == b"refused"


# Names where a queue name is expected


@pytest.mark.parametrize("ending", ["", "\r\n"])
@pytest.mark.parametrize("passive", [True, False])
def test_declare_base_name(raw: RawClient, passive: bool, ending: str) -> None:
    """The answer always counts one consumer; line ends are removed from the name first."""
    assert raw.call("queue.declare", queue=BASE + ending, passive=passive).args == {
        "queue": BASE, "message_count": 0, "consumer_count": 1}


@pytest.mark.parametrize("flags", [
    {"passive": True},
    {},
    {"durable": True, "exclusive": True, "auto_delete": True, "arguments": {"x-message-ttl": 5}},
])
def test_declare_live_name(raw: RawClient, other: RawClient, unique: str, flags: dict[str, object]) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    assert other.call("queue.declare", queue=name, **flags).args == {
        "queue": name, "message_count": 0, "consumer_count": 1}


@pytest.mark.parametrize("passive", [True, False])
@pytest.mark.parametrize("name", [f"{BASE}.garbage", f"{BASE}x", f"{BASE}."])
def test_declare_garbage_name(raw: RawClient, name: str, passive: bool) -> None:
    assert raw.fail("queue.declare", queue=name, passive=passive) == (404, NOT_FOUND.format(name), 50, 10)


@pytest.mark.parametrize("passive", [True, False])
def test_declare_garbage_name_with_a_dot(raw: RawClient, on_rabbitmq: bool, passive: bool) -> None:
    name = f"{BASE}.garbage.x"
    got = raw.fail("queue.declare", queue=name, passive=passive)
    # RabbitMQ 3.10 fails to decode the name and closes the connection; leveret answers as for any missing queue
    assert got[0] == 541 if on_rabbitmq else got == (404, NOT_FOUND.format(name), 50, 10)


def test_declare_dead_name(raw: RawClient, other: RawClient, unique: str) -> None:
    tag = consume(raw)
    name = ask(raw, other, unique)
    raw.call("basic.cancel", consumer_tag=tag)
    for passive in (True, False):
        assert other.fail("queue.declare", queue=name, passive=passive) == (404, NOT_FOUND.format(name), 50, 10)


def test_delete_answers_zero_and_kills_nothing(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    for each in (BASE, name, f"{BASE}.garbage"):
        assert other.call("queue.delete", queue=each)["message_count"] == 0
    other.publish(b"still here", routing_key=name)
    assert raw.read("basic.deliver").body == b"still here"


@pytest.mark.parametrize("which", ["base", "live", "garbage"])
def test_purge_bind_and_get_find_no_queue(raw: RawClient, other: RawClient, unique: str, which: str) -> None:
    consume(raw)
    name = {"base": BASE, "live": ask(raw, other, unique), "garbage": f"{BASE}.garbage"}[which]
    text = NOT_FOUND.format(name)
    assert other.fail("queue.purge", queue=name) == (404, text, 50, 30)
    assert other.fail("queue.bind", queue=name, exchange="amq.direct", routing_key="k") == (404, text, 50, 20)
    assert other.fail("basic.get", queue=name) == (404, text, 60, 70)


# Lifetime


def test_cancel_kills_the_name_and_a_new_consumer_has_a_new_one(raw: RawClient, other: RawClient, unique: str) -> None:
    tag = consume(raw)
    old = ask(raw, other, unique)
    assert raw.call("basic.cancel", consumer_tag=tag)["consumer_tag"] == tag
    assert not alive(other, old)
    consume(raw)
    new = ask(raw, other, unique)
    assert new != old
    other.publish(b"to the old", routing_key=old)
    other.publish(b"to the new", routing_key=new)
    assert raw.read("basic.deliver").body == b"to the new"


def test_request_after_cancel_is_refused(raw: RawClient, unique: str) -> None:
    raw.call("basic.cancel", consumer_tag=consume(raw))
    raw.publish(b"request", routing_key=unique, reply_to=BASE)
    assert raw.closed()[:2] == (406, "PRECONDITION_FAILED - fast reply consumer does not exist")


def test_channel_close_kills_the_name(raw: RawClient, other: RawClient, unique: str) -> None:
    consume(raw)
    name = ask(raw, other, unique)
    assert alive(other, name)
    raw.call("channel.close")
    dies(other, name)


def test_channel_error_kills_the_name_and_its_sibling_lives(raw: RawClient, other: RawClient, unique: str) -> None:
    for channel in (1, 2):
        consume(raw, channel=channel)
    first, second = (ask(raw, other, unique, channel) for channel in (1, 2))
    assert raw.fail("queue.declare", queue=f"{unique}-missing", passive=True)[0] == 404
    dies(other, first)
    assert alive(other, second)


def test_connection_close_kills_the_name(url: str, raw: RawClient, unique: str) -> None:
    requester = RawClient.open(url)
    consume(requester)
    name = ask(requester, raw, unique)
    assert alive(raw, name)
    requester.call("connection.close", 0, reply_code=200)
    requester.socket.close()
    dies(raw, name)


def test_lost_connection_kills_the_name(url: str, raw: RawClient, unique: str) -> None:
    requester = RawClient.open(url)
    consume(requester)
    name = ask(requester, raw, unique)
    requester.socket.close()
    dies(raw, name)


def test_nothing_waits_for_the_next_consumer(raw: RawClient, other: RawClient, unique: str) -> None:
    """A reply sent without a consumer is lost, also for a later consumer with the same tag."""
    tag = consume(raw)
    name = ask(raw, other, unique)
    raw.call("basic.cancel", consumer_tag=tag)
    other.publish(b"too late", routing_key=name)
    other.quiet()
    consume(raw)
    new = ask(raw, other, unique)
    other.publish(b"in time", routing_key=new)
    assert raw.read("basic.deliver").body == b"in time"


def test_capability_is_advertised(raw: RawClient) -> None:
    assert raw.server_properties["capabilities"]["direct_reply_to"] is True
