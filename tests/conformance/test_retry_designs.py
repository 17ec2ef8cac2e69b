"""How frameworks delay and retry by TTL and dead letters, each as it does it on the wire (pika).

Celery and NServiceBus have their own tests; test_expiry.py and test_dead_letters.py test TTL and dead letters singly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pika
import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

from .support import Got, get, listen, ready, serve

Named = Callable[..., str]


@pytest.fixture
def named(channel: BlockingChannel, unique: str, url: str) -> Iterator[Named]:
    """Declares durable queues and exchanges: named("queue", ".work", x_message_ttl=5). They are deleted at the end."""
    made: list[tuple[str, str]] = []

    def make(kind: str, suffix: str, exchange_type: str = "direct", **arguments: object) -> str:
        name, given = unique + suffix, {key.replace("_", "-"): value for key, value in arguments.items()}
        if kind == "queue":
            channel.queue_declare(name, durable=True, arguments=given)
        else:
            channel.exchange_declare(name, exchange_type, durable=True, arguments=given)
        made.append((kind, name))
        return name

    yield make
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        last = connection.channel()
        for kind, name in made:
            last.queue_delete(name) if kind == "queue" else last.exchange_delete(name)


def deaths(got: Got) -> list[tuple[str, str, int]]:
    return [(each["queue"], each["reason"], each["count"]) for each in got.properties.headers["x-death"]]


def test_laravel(channel: BlockingChannel, named: Named) -> None:
    """later(): one queue for each length of delay, which expires if it was not used for twice that long."""
    work = named("queue", ".default")
    delay_ms = 1000  # as much again until the queue expires: enough for a slow machine
    delay = f"{work}.delay.{delay_ms}"
    arguments = {
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work, "x-message-ttl": delay_ms,
        "x-expires": 2 * delay_ms,
    }  # fmt: skip
    sent = time.monotonic()
    for _ in range(2):
        channel.queue_declare(delay, durable=True, arguments=arguments)
        channel.basic_publish("", delay, b"job", BasicProperties(delivery_mode=2, headers={"laravel": {"attempts": 0}}))
    got = [get(channel, work), get(channel, work)]
    assert time.monotonic() - sent >= delay_ms / 1000
    assert [deaths(each) for each in got] == [[(delay, "expired", 1)]] * 2
    assert got[0].properties.headers["laravel"] == {"attempts": 0}


def test_one_retry_queue_with_an_expiration_for_each_message(channel: BlockingChannel, named: Named) -> None:
    """Common with amqplib or Bunny. Only the head expires, so a short delay waits for a longer one before it."""
    work = named("queue", ".work")
    retry = named("queue", ".retry", x_dead_letter_exchange="", x_dead_letter_routing_key=work)
    sent = time.monotonic()
    for body, expiration in ((b"long", "300"), (b"short", "1")):
        channel.basic_publish("", retry, body, BasicProperties(expiration=expiration))
    got = [get(channel, work), get(channel, work)]
    assert time.monotonic() - sent >= 0.3
    assert [each.body for each in got] == [b"long", b"short"]
    assert [each.properties.expiration for each in got] == [None, None]
    assert [each.properties.headers["x-death"][0]["original-expiration"] for each in got] == ["300", "1"]


def test_sneakers(channel: BlockingChannel, named: Named) -> None:
    """Maxretry: rejected by a topic exchange to a retry queue, back by another one, finally to an error queue."""
    retry_exchange, requeue, error_exchange = (named("exchange", f"-{each}", "topic") for each in ("r", "q", "e"))
    work = named("queue", "", x_dead_letter_exchange=retry_exchange)
    retry = named("queue", "-retry", x_dead_letter_exchange=requeue, x_message_ttl=20)
    error = named("queue", "-error")
    channel.queue_bind(retry, retry_exchange, "#")
    channel.queue_bind(work, requeue, "#")
    channel.queue_bind(error, error_exchange, "#")
    channel.basic_publish("", work, b"job")
    for attempt in range(3):
        got = get(channel, work, auto_ack=False)
        headers = got.properties.headers or {}
        rejections = [death["count"] for death in headers.get("x-death", []) if death["queue"] == work]
        assert sum(rejections) == attempt
        if attempt < 2:
            channel.basic_reject(got.method.delivery_tag, requeue=False)
        else:
            channel.basic_publish(error_exchange, got.method.routing_key, got.body)
            channel.basic_ack(got.method.delivery_tag)
    assert get(channel, error).body == b"job"
    assert ready(channel, work) == ready(channel, retry) == 0


def test_spring_retry_topics(channel: BlockingChannel, named: Named) -> None:
    """A series of queues with growing delays, which all lead back to one queue; a header counts attempts."""
    back = named("exchange", ".back", "fanout")
    work = named("queue", ".work")
    channel.queue_bind(work, back)
    rungs = [named("queue", f".{ms}", x_message_ttl=ms, x_dead_letter_exchange=back) for ms in (30, 60, 120)]
    channel.basic_publish("", work, b"x", BasicProperties(headers={"attempt": 0}))
    for attempt, rung in enumerate([*rungs, None]):
        got = get(channel, work)
        assert got.properties.headers["attempt"] == attempt
        if rung is not None:
            channel.basic_publish("", rung, got.body, BasicProperties(headers={"attempt": attempt + 1}))
    assert deaths(got) == [(rungs[-1], "expired", 1)]


def test_celery_before_its_own_fix(channel: BlockingChannel, named: Named, url: str, on_rabbitmq: bool) -> None:
    """Celery 5.5 copied the x-death of a delayed task into its retry (celery#9867), so RabbitMQ before 4.0.1 drops it.

    For leveret the history that a publisher sends is an ordinary header, and the task comes again and again.
    """
    delivery = named("exchange", ".delivery", "topic")
    work = named("queue", ".work")
    channel.queue_bind(work, delivery, "#.work")
    low_exchange, high_exchange = named("exchange", ".0", "topic"), named("exchange", ".1", "topic")
    low = named("queue", ".0", x_message_ttl=10, x_dead_letter_exchange=delivery)
    high = named("queue", ".1", x_message_ttl=20, x_dead_letter_exchange=low_exchange)
    channel.queue_bind(high, high_exchange, "1.#")
    channel.queue_bind(low, low_exchange, "*.1.#")
    seen = listen(channel, work, auto_ack=True)
    channel.basic_publish(high_exchange, "1.1.work", b"task", BasicProperties(headers={"retries": 0}))
    for count in range(1, 2 if on_rabbitmq else 6):
        serve(channel, seen, count)
        assert deaths(seen[-1]) == [(low, "expired", 1), (high, "expired", 1)]
        headers = {**seen[-1].properties.headers, "retries": count}
        channel.basic_publish(high_exchange, "1.1.work", b"task", BasicProperties(headers=headers))
    if on_rabbitmq:
        channel.basic_publish(high_exchange, "1.1.work", b"marker", BasicProperties(headers={"retries": 99}))
        serve(channel, seen, 2)
        assert seen[-1].body == b"marker"  # the task was dropped on its way
    else:
        assert [each.properties.headers["retries"] for each in seen] == list(range(5))
