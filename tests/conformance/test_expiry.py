"""Time to live of messages and queues, and dead letters with their x-death history (pika)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from ..waiting import until
from .support import Got, declare, drain, empty, get, listen, ready, serve


@pytest.fixture
def channel(channel: BlockingChannel) -> BlockingChannel:
    """A channel with confirms: when a publish returns, the message is in its queues."""
    channel.confirm_delivery()
    return channel


@pytest.fixture
def grave(channel: BlockingChannel) -> str:
    """A queue for dead letters."""
    return declare(channel)


def mortal(channel: BlockingChannel, grave: str, **arguments: object) -> str:
    """Declare a queue whose dead letters go to `grave` through the default exchange."""
    return declare(channel, x_dead_letter_exchange="", x_dead_letter_routing_key=grave, **arguments)


def deaths(got: Got) -> list[dict[str, Any]]:
    """Return x-death without the times, which must be seconds of today."""
    found = []
    for entry in got.properties.headers["x-death"]:
        rest = dict(entry)
        assert abs(rest.pop("time").timestamp() - time.time()) < 60 + 86400
        found.append(rest)
    return found


def settled(channel: BlockingChannel, queue: str, sent: float, at_least_ms: float) -> None:
    """Wait for a queue's only message to expire; it must not be early."""
    until(lambda: ready(channel, queue) == 0)
    assert time.monotonic() - sent >= at_least_ms / 1000


# Time to live


def test_queue_ttl(channel: BlockingChannel) -> None:
    queue = declare(channel, x_message_ttl=150)
    sent = time.monotonic()
    channel.basic_publish("", queue, b"x")
    settled(channel, queue, sent, 150)
    assert empty(channel, queue)


def test_message_ttl(channel: BlockingChannel) -> None:
    queue = declare(channel)
    sent = time.monotonic()
    channel.basic_publish("", queue, b"x", BasicProperties(expiration="150"))
    settled(channel, queue, sent, 150)


@pytest.mark.parametrize(("queue_ms", "message_ms"), [(150, 60_000), (60_000, 150)])
def test_the_shorter_ttl_wins(channel: BlockingChannel, queue_ms: int, message_ms: int) -> None:
    queue = declare(channel, x_message_ttl=queue_ms)
    sent = time.monotonic()
    channel.basic_publish("", queue, b"x", BasicProperties(expiration=str(message_ms)))
    settled(channel, queue, sent, 150)


def test_a_message_that_lives_holds_up_those_behind_it(channel: BlockingChannel, grave: str) -> None:
    """Per-message TTL only expires the head of the queue; nothing expired is ever delivered."""
    queue = mortal(channel, grave)
    channel.basic_publish("", queue, b"long", BasicProperties(expiration="60000"))
    channel.basic_publish("", queue, b"short", BasicProperties(expiration="1"))
    channel.basic_publish("", queue, b"forever")
    assert get(channel, queue).body == b"long"
    assert get(channel, grave).body == b"short"
    assert drain(channel, queue) == [b"forever"]


@pytest.mark.parametrize("how", ["queue", "message"])
def test_ttl_zero(channel: BlockingChannel, grave: str, how: str) -> None:
    """A TTL of zero means: deliver to a waiting consumer at once, or not at all."""
    arguments = {"x_message_ttl": 0} if how == "queue" else {}
    properties = BasicProperties(expiration="0" if how == "message" else None)
    queue = mortal(channel, grave, **arguments)
    channel.basic_publish("", queue, b"nobody", properties)
    assert get(channel, grave).body == b"nobody"
    assert empty(channel, queue)
    seen = listen(channel, queue, auto_ack=True)
    channel.basic_publish("", queue, b"somebody", properties)
    assert serve(channel, seen, 1)[0].body == b"somebody"


def test_held_messages_do_not_expire(channel: BlockingChannel, grave: str) -> None:
    queue = mortal(channel, grave, x_message_ttl=300)
    seen = listen(channel, queue, consumer_tag="holder")
    channel.basic_publish("", queue, b"held")
    [held] = serve(channel, seen, 1)
    channel.basic_cancel("holder")
    channel.basic_publish("", queue, b"other")
    assert get(channel, grave).body == b"other"
    assert empty(channel, grave)
    # when it is requeued, its TTL is long over
    channel.basic_nack(held.method.delivery_tag)
    assert get(channel, grave).body == b"held"


def test_requeueing_does_not_renew_the_time(channel: BlockingChannel) -> None:
    queue = declare(channel, x_message_ttl=400)
    sent = time.monotonic()
    channel.basic_publish("", queue, b"x")

    def is_gone() -> bool:
        method = channel.basic_get(queue)[0]
        if method is not None:
            channel.basic_nack(method.delivery_tag)
        return method is None

    until(is_gone)  # this would never happen if requeueing restarted the TTL
    assert time.monotonic() - sent >= 0.4


def test_many_expire_in_order_and_never_early(channel: BlockingChannel, grave: str) -> None:
    queue = mortal(channel, grave, x_message_ttl=100)
    seen = listen(channel, grave, auto_ack=True)
    sent: list[float] = []
    for number in range(50):
        sent.append(time.monotonic())
        channel.basic_publish("", queue, b"%d" % number)
    serve(channel, seen, 50)
    assert [int(each.body) for each in seen] == list(range(50))
    assert time.monotonic() - sent[-1] >= 0.1


def test_queue_expires_when_unused(channel: BlockingChannel, unique: str) -> None:
    started = time.monotonic()
    channel.queue_declare(unique, arguments={"x-expires": 200})

    def gone() -> bool:
        probe = channel.connection.channel()
        try:
            # The check must not keep the queue alive: purging does not count as use, declaring would.
            probe.queue_purge(unique)
        except ChannelClosedByBroker as error:
            return error.reply_code == 404
        probe.close()
        return False

    until(gone)
    assert time.monotonic() - started >= 0.2


def test_consumer_keeps_an_expiring_queue(channel: BlockingChannel, unique: str) -> None:
    channel.queue_declare(unique, arguments={"x-expires": 1500})
    tag = channel.basic_consume(unique, lambda *_: None)
    clock = declare(channel, x_message_ttl=2000)
    channel.basic_publish("", clock, b"tick")
    until(lambda: ready(channel, clock) == 0)
    assert channel.queue_declare(unique, passive=True).method.consumer_count == 1
    channel.basic_cancel(tag)
    probe = channel.connection.channel()
    with pytest.raises(ChannelClosedByBroker):
        until(lambda: probe.queue_purge(unique) is None)


# Dead letters


def test_expired(channel: BlockingChannel, grave: str, on_rabbitmq: bool) -> None:
    queue = mortal(channel, grave, x_message_ttl=5)
    channel.basic_publish("", queue, b"body", BasicProperties(
        headers={"mine": 1}, message_id="m", correlation_id="c", content_type="t/t", delivery_mode=2, priority=3))
    got = get(channel, grave)
    assert deaths(got) == [
        {"count": 1, "reason": "expired", "queue": queue, "exchange": "", "routing-keys": [queue]}]
    headers = got.properties.headers
    del headers["x-death"]
    milestones = {"exchange": "", "queue": queue, "reason": "expired"}
    last = {} if on_rabbitmq else {f"x-last-death-{name}": value for name, value in milestones.items()}
    assert headers == {"mine": 1, **last, **{f"x-first-death-{name}": value for name, value in milestones.items()}}
    assert (got.body, got.method.exchange, got.method.routing_key, got.method.redelivered) == (
        b"body", "", grave, False)
    kept = got.properties
    assert (kept.message_id, kept.correlation_id, kept.content_type, kept.delivery_mode, kept.priority) == (
        "m", "c", "t/t", 2, 3)


def test_expiration_is_taken_off_and_remembered(channel: BlockingChannel, grave: str) -> None:
    """Otherwise the dead letter would expire again in the next queue."""
    queue = mortal(channel, grave)
    channel.basic_publish("", queue, b"x", BasicProperties(expiration="5"))
    got = get(channel, grave)
    assert got.properties.expiration is None
    assert deaths(got) == [{"count": 1, "reason": "expired", "queue": queue, "exchange": "", "routing-keys": [queue],
                            "original-expiration": "5"}]


@pytest.mark.parametrize("how", ["reject", "nack"])
def test_rejected(channel: BlockingChannel, grave: str, how: str) -> None:
    queue = mortal(channel, grave)
    channel.basic_publish("", queue, b"x")
    tag = get(channel, queue, auto_ack=False).method.delivery_tag
    if how == "reject":
        channel.basic_reject(tag, requeue=False)
    else:
        channel.basic_nack(tag, requeue=False)
    got = get(channel, grave)
    assert deaths(got) == [
        {"count": 1, "reason": "rejected", "queue": queue, "exchange": "", "routing-keys": [queue]}]
    assert got.properties.headers["x-first-death-reason"] == "rejected"


def test_second_death_in_another_queue_comes_first(channel: BlockingChannel, grave: str) -> None:
    """The newest death is first in the list; the x-first-death headers stay those of the first."""
    second = mortal(channel, grave, x_message_ttl=5)
    first = mortal(channel, second)
    channel.basic_publish("", first, b"x")
    channel.basic_reject(get(channel, first, auto_ack=False).method.delivery_tag, requeue=False)
    got = get(channel, grave)
    assert [(each["queue"], each["reason"], each["count"]) for each in deaths(got)] == [
        (second, "expired", 1), (first, "rejected", 1)]
    headers = got.properties.headers
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == (first, "rejected")


def test_rejection_round_trips_forever(channel: BlockingChannel) -> None:
    """A message is dropped from a cycle only if nothing rejected it on the way."""
    queue = declare(channel, x_dead_letter_exchange="")
    channel.basic_publish("", queue, b"x")
    for _ in range(3):
        channel.basic_reject(get(channel, queue, auto_ack=False).method.delivery_tag, requeue=False)
    got = get(channel, queue)
    assert [(each["reason"], each["count"]) for each in deaths(got)] == [("rejected", 3)]


def test_automatic_cycle_is_cut(channel: BlockingChannel, unique: str) -> None:
    one, two = f"{unique}1", f"{unique}2"
    for name, target in ((one, two), (two, one)):
        channel.queue_declare(name, exclusive=True, arguments={
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": target, "x-message-ttl": 5})
    channel.basic_publish("", one, b"round")
    until(lambda: not ready(channel, one) and not ready(channel, two))
    # if it were still in the cycle, it would be there after another message has waited for ten of its rounds
    clock = declare(channel, x_message_ttl=100)
    channel.basic_publish("", clock, b"tick")
    until(lambda: ready(channel, clock) == 0)
    assert (drain(channel, one), drain(channel, two)) == ([], [])


def test_key_is_kept_without_another_one(channel: BlockingChannel, unique: str) -> None:
    channel.exchange_declare(unique, "direct", auto_delete=True)
    source = declare(channel, x_dead_letter_exchange=unique, x_message_ttl=5)
    graves = {key: declare(channel) for key in ("a", "b")}
    for key, queue in graves.items():
        channel.queue_bind(queue, unique, key)
        channel.queue_bind(source, "amq.direct", f"{unique}{key}")
    channel.queue_bind(graves["a"], unique, f"{unique}a")
    channel.basic_publish("amq.direct", f"{unique}a", b"x")
    got = get(channel, graves["a"])
    assert (got.method.exchange, got.method.routing_key) == (unique, f"{unique}a")
    assert deaths(got)[0]["exchange"] == "amq.direct"
    assert deaths(got)[0]["routing-keys"] == [f"{unique}a"]


def test_missing_dead_letter_exchange_drops(channel: BlockingChannel, unique: str) -> None:
    queue = declare(channel, x_dead_letter_exchange=unique, x_message_ttl=5)
    channel.basic_publish("", queue, b"x")
    until(lambda: ready(channel, queue) == 0)
    assert channel.is_open


def test_acknowledged_purged_and_deleted_messages_are_no_dead_letters(channel: BlockingChannel, grave: str) -> None:
    queue = mortal(channel, grave)
    for _ in range(3):
        channel.basic_publish("", queue, b"x")
    channel.basic_ack(get(channel, queue, auto_ack=False).method.delivery_tag)
    assert channel.queue_purge(queue).method.message_count == 2
    channel.basic_publish("", queue, b"x")
    assert channel.queue_delete(queue).method.message_count == 1
    marker = mortal(channel, grave, x_message_ttl=1)
    channel.basic_publish("", marker, b"marker")
    assert get(channel, grave).body == b"marker"
    assert empty(channel, grave)


def test_requeued_is_not_dead(channel: BlockingChannel, grave: str) -> None:
    queue = mortal(channel, grave)
    channel.basic_publish("", queue, b"x")
    channel.basic_nack(get(channel, queue, auto_ack=False).method.delivery_tag, requeue=True)
    got = get(channel, queue)
    assert (got.method.redelivered, got.properties.headers) == (True, None)


def test_a_get_does_not_count_what_expired_behind_its_message(channel: BlockingChannel, grave: str) -> None:
    queue = mortal(channel, grave)
    for expiration in (None, "0", "0", None):
        channel.basic_publish("", queue, b"", BasicProperties(expiration=expiration))
    assert ready(channel, queue) == 4
    method, _, _ = channel.basic_get(queue)
    assert method.message_count == 1
    assert ready(channel, queue) == 1
    assert [deaths(get(channel, grave))[0]["reason"] for _ in range(2)] == ["expired"] * 2
