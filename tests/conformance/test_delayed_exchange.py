"""Exchanges of type x-delayed-message, as clients know them from RabbitMQ's plugin. These tests run on leveret only.

RabbitMQ does not include the plugin. Expected results follow its source, except for the differences that
docs/guides/delayed-exchange.md lists.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aio_pika
import pytest

from leveret.testing.processes import LeveretProcess

from .collect import answers, content, exclusive, take
from .raw import RawClient, Typed

DELAYED = "x-delayed-message"
DECLARE = (40, 10)
PUBLISH = (60, 40)


@pytest.fixture
def url(broker: str) -> str:
    return broker


def declare(client: RawClient, name: str, kind: str = "direct", **more: Any) -> str:
    arguments = {"x-delayed-type": kind, **more.pop("arguments", {})}
    client.call("exchange.declare", exchange=name, type=DELAYED, arguments=arguments, **{"auto_delete": True, **more})
    return name


def bound(client: RawClient, exchange: str, key: str = "k") -> str:
    queue = exclusive(client)
    client.call("queue.bind", queue=queue, exchange=exchange, routing_key=key)
    return queue


def refused(text: str, ids: tuple[int, int], code: str = "406 PRECONDITION_FAILED") -> tuple[int, str, int, int]:
    number, name = code.split()
    return int(number), f"{name} - {text}", *ids


NO_TYPE = "Invalid argument, 'x-delayed-type' must be an existing exchange type"
NOT_ITSELF = "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, NO_TYPE),
        ({"x-delayed-type": 5}, NO_TYPE),
        ({"x-delayed-type": None}, NO_TYPE),
        ({"x-delayed-type": DELAYED}, NOT_ITSELF),
        (
            {"x-delayed-type": "x-recent-history", "x-recent-history-length": 0},
            "Invalid argument 0, 'x-recent-history-length' must be a positive integer",
        ),
    ],
)
def test_it_needs_the_type_of_another_exchange(
    raw: RawClient, unique: str, arguments: dict[str, Any], text: str
) -> None:
    error = raw.fail("exchange.declare", exchange=unique, type=DELAYED, arguments=arguments)
    assert error == refused(text, DECLARE)


@pytest.mark.parametrize(("kind", "word"), [("x-nothing", "unknown"), ("Direct", "unknown"), ("", "invalid")])
def test_a_delayed_type_that_is_not_there_ends_the_connection(
    raw: RawClient, unique: str, kind: str, word: str
) -> None:
    error = raw.fail("exchange.declare", exchange=unique, type=DELAYED, arguments={"x-delayed-type": kind})
    assert error == refused(f"{word} exchange type '{kind}'", DECLARE, "503 COMMAND_INVALID")


def test_declaring_it_again_compares_what_other_exchanges_compare(raw: RawClient, unique: str) -> None:
    declare(raw, unique, "direct", auto_delete=False)
    # the plugin lets the other type compare, which ignores x-delayed-type
    declare(raw, unique, "topic", auto_delete=False)
    raw.call("exchange.declare", exchange=unique, type=DELAYED)
    error = raw.fail("exchange.declare", exchange=unique, type="direct")
    what = f"exchange '{unique}' in vhost '/'"
    text = f"inequivalent arg 'type' for {what}: received 'direct' but current is ''{DELAYED}''"
    assert error == refused(text, DECLARE)
    raw.call("exchange.delete", exchange=unique)


@pytest.mark.parametrize("delay", [300, "300", 300.9, Typed("l", 300), Typed("s", 300)])
def test_a_message_comes_when_its_delay_is_over_and_tells_it(raw: RawClient, unique: str, delay: object) -> None:
    queue = bound(raw, declare(raw, unique))
    raw.call("confirm.select")
    start = time.monotonic()
    raw.publish(b"later", unique, "k", headers={"x-delay": delay, "a": "b"}, content_type="text/plain")
    raw.publish(b"now", unique, "k", headers={"x-delay": 0})
    assert answers(raw, 2) == "aa"
    assert take(raw, queue).body == b"now"
    got = take(raw, queue)
    assert time.monotonic() - start >= 0.3
    assert (got.body, got["exchange"], got["routing_key"], got["redelivered"]) == (b"later", unique, "k", False)
    assert got.properties == {"headers": {"x-delay": -300, "a": "b"}, "content_type": "text/plain"}


@pytest.mark.parametrize("headers", [None, {}, {"x-delay": 0}, {"x-delay": -5}, {"x-delay": "-5"}, {"x-delay": True}])
def test_without_a_delay_it_is_as_any_exchange(raw: RawClient, unique: str, headers: dict[str, Any] | None) -> None:
    queue = bound(raw, declare(raw, unique))
    properties = {} if headers is None else {"headers": headers}
    raw.publish(b"x", unique, "k", mandatory=True, **properties)
    got = raw.call("basic.get", queue=queue, no_ack=True)
    assert (got.body, got.properties) == (b"x", properties)
    raw.publish(b"y", unique, "nobody", mandatory=True, **properties)
    returned = raw.read("basic.return")
    assert (returned["reply_code"], returned["reply_text"], returned.body) == (312, "NO_ROUTE", b"y")


@pytest.mark.parametrize(
    ("delay", "text"),
    [
        ("soon", "invalid x-delay 'soon': no_integer"),
        (315_360_000_001, "invalid x-delay '315360000001': {value_too_large,315360000001}"),
    ],
)
def test_a_delay_that_cannot_be_is_an_error(raw: RawClient, unique: str, delay: object, text: str) -> None:
    declare(raw, unique, auto_delete=False)
    raw.publish(b"x", unique, "k", headers={"x-delay": delay})
    assert raw.closed() == refused(text, PUBLISH)
    raw.call("exchange.delete", exchange=unique)


def test_messages_come_in_the_order_in_which_they_are_due(raw: RawClient, unique: str) -> None:
    queue = bound(raw, declare(raw, unique))
    raw.call("basic.consume", queue=queue, no_ack=True)
    for delay in (500, 100, 300, 200, 100, 400):
        raw.publish(b"%d" % delay, unique, "k", headers={"x-delay": delay})
    assert [got.body for got in raw.deliveries(6)] == [b"100", b"100", b"200", b"300", b"400", b"500"]


def test_what_is_held_is_not_returned(raw: RawClient, unique: str) -> None:
    declare(raw, unique, auto_delete=False)
    raw.call("confirm.select")
    raw.publish(b"x", unique, "nobody", mandatory=True, headers={"x-delay": 1})
    assert raw.read("basic.ack", "basic.return").name == "basic.ack"
    raw.call("exchange.delete", exchange=unique)


def test_a_rejected_message_tries_again_after_a_delay(raw: RawClient, unique: str) -> None:
    """The usual retry with a delayed exchange as dead letter exchange. The first delay is not applied again."""
    declare(raw, unique)
    work = exclusive(raw, x_dead_letter_exchange=unique, x_dead_letter_routing_key="retry")
    again = bound(raw, unique, "retry")
    start = time.monotonic()
    raw.publish(b"x", "", work, headers={"x-delay": 250})
    got = take(raw, work, no_ack=False)
    assert got.properties["headers"] == {"x-delay": 250}  # an ordinary queue does not delay
    raw.send("basic.reject", delivery_tag=got["delivery_tag"], requeue=False)
    got = take(raw, again)
    assert time.monotonic() - start >= 0.25
    assert got.properties["headers"]["x-delay"] == -250
    assert got.properties["headers"]["x-death"][0]["reason"] == "rejected"


def test_mass_transit(raw: RawClient, unique: str) -> None:
    """Redelivery by a delayed fanout exchange, bound to the endpoint's exchange; a header counts attempts."""
    queue = exclusive(raw)
    raw.call("exchange.declare", exchange=unique, type="fanout", auto_delete=True)
    raw.call("queue.bind", queue=queue, exchange=unique)
    delayed = declare(raw, f"{unique}_delay", "fanout", durable=True)
    raw.call("exchange.bind", destination=unique, source=delayed)
    for attempt in range(1, 4):
        start = time.monotonic()
        raw.publish(b"x", delayed, headers={"x-delay": 50, "MT-Redelivery-Count": str(attempt)}, delivery_mode=2)
        got = take(raw, queue)
        assert time.monotonic() - start >= 0.05
        assert got.properties["headers"] == {"x-delay": -50, "MT-Redelivery-Count": str(attempt)}
    raw.call("exchange.delete", exchange=delayed)


def test_deleting_the_exchange_drops_what_it_holds(raw: RawClient, unique: str) -> None:
    queue = bound(raw, declare(raw, unique, auto_delete=False))
    raw.publish(b"gone", unique, "k", headers={"x-delay": 50})
    raw.call("exchange.delete", exchange=unique)
    declare(raw, unique)
    raw.call("queue.bind", queue=queue, exchange=unique, routing_key="k")
    raw.publish(b"new", unique, "k", headers={"x-delay": 100})
    assert take(raw, queue).body == b"new"
    assert content(raw, queue) == []


def test_what_it_holds_survives_a_kill() -> None:
    with LeveretProcess() as broker:
        with RawClient.open(broker.url) as client:
            declare(client, "later", durable=True, auto_delete=False)
            client.call("queue.declare", queue="q", durable=True)
            client.call("queue.bind", queue="q", exchange="later", routing_key="k")
            client.call("confirm.select")
            for number in range(10):
                # the plugin's table is on disk, too, whatever the delivery mode
                client.publish(
                    b"%d" % number, "later", "k", headers={"x-delay": 2000 + 10 * number}, delivery_mode=1 + number % 2
                )
            assert answers(client, 10) == "a" * 10
            broker.kill()
        broker.start()
        with RawClient.open(broker.url) as client:
            assert [take(client, "q").body for _ in range(10)] == [b"%d" % number for number in range(10)]
            assert content(client, "q") == []


def test_aio_pika(url: str, unique: str) -> None:
    """aio-pika's usual way to declare and publish."""

    async def run() -> tuple[bytes, Any]:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(
                unique, aio_pika.ExchangeType.X_DELAYED_MESSAGE, auto_delete=True, arguments={"x-delayed-type": "topic"}
            )
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(exchange, "a.*")
            message = aio_pika.Message(b"body", headers={"x-delay": 100})
            await exchange.publish(message, "a.b")
            async with queue.iterator(no_ack=True) as messages:
                async for got in messages:
                    return got.body, got.headers["x-delay"]
        raise AssertionError

    assert asyncio.run(run()) == (b"body", -100)
