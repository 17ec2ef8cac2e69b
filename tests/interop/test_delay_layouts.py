"""Layouts that other programs declare, too: theirs over ours, ours over theirs, and all of them on one broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import kombu
import pika
import pytest
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    calculate_routing_key,
    declare_native_delayed_delivery_exchanges_and_queues,
)

from leveret.client import BlockingConnection, Properties, connect
from leveret.delay import CELERY, CELERY_CLASSIC, NSERVICEBUS, NSERVICEBUS_V2, Layout
from leveret.delay.named import DELAY_HEADER

from .delayed import ANSWER_S, Ledger, counts, remove

LEVEL_MAX = 27


def nservicebus(url: str, version: int) -> None:
    """Declare what an endpoint of NServiceBus declares at its start, in the same order."""
    prefix = "nsb" if version == 1 else "nsb.v2"
    arguments: dict[str, object] = {"x-queue-mode": "lazy"}
    if version == 2:
        arguments = {
            "x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
        }  # fmt: skip
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        pattern = "1.#"
        for level in range(LEVEL_MAX, -1, -1):
            name = f"{prefix}.delay-level-{level:02d}"
            following = f"{prefix}.delay-level-{level - 1:02d}" if level else f"{prefix}.delay-delivery"
            channel.exchange_declare(name, "topic", durable=True)
            lasting = {"x-message-ttl": 1000 << level, "x-dead-letter-exchange": following}
            channel.queue_declare(name, durable=True, arguments={**arguments, **lasting})
            channel.queue_bind(name, name, pattern)
            pattern = "*." + pattern
        pattern = "0.#"
        for level in range(LEVEL_MAX, 0, -1):
            channel.exchange_bind(f"{prefix}.delay-level-{level - 1:02d}", f"{prefix}.delay-level-{level:02d}", pattern)
            pattern = "*." + pattern
        channel.exchange_declare(f"{prefix}.delay-delivery", "topic", durable=True)
        channel.exchange_bind(f"{prefix}.delay-delivery", f"{prefix}.delay-level-00", pattern)


def celery(url: str, queue_type: str) -> None:
    """Declare what a Celery worker declares at its start, with Celery's own code."""
    with kombu.Connection(url) as connection:
        declare_native_delayed_delivery_exchanges_and_queues(connection, queue_type)


THEIRS: dict[str, tuple[Layout, Callable[[str], None]]] = {
    "nservicebus": (NSERVICEBUS, lambda url: nservicebus(url, 1)),
    "nservicebus-v2": (NSERVICEBUS_V2, lambda url: nservicebus(url, 2)),
    "celery": (CELERY, lambda url: celery(url, "quorum")),
    "celery-classic": (CELERY_CLASSIC, lambda url: celery(url, "classic")),
}


@pytest.fixture
def clear_url(url: str) -> Iterator[str]:
    """A broker without the named layouts."""

    async def clear() -> None:
        async with await connect(url, reconnect=False) as connection:
            await remove(connection, NSERVICEBUS, NSERVICEBUS_V2, CELERY)

    asyncio.run(clear())
    yield url
    asyncio.run(clear())


@pytest.mark.parametrize("name", list(THEIRS))
def test_ours_over_theirs_and_theirs_over_ours(clear_url: str, name: str) -> None:
    """No 406 in either order, and the bindings are the same: no message is copied."""
    layout, theirs = THEIRS[name]
    with BlockingConnection(clear_url, reconnect=False) as connection, connection.channel() as channel:
        theirs(clear_url)
        layout.declare_blocking(channel)
        theirs(clear_url)
        channel.declare_queue("layouts.one")
        layout.bind_destination_blocking(channel, "layouts.one")
        channel.confirm_select()
        key = layout.routing_key(1, "layouts.one")
        channel.publish(b"x", layout.level_name(LEVEL_MAX), key, mandatory=True)
        channel.wait_for_confirms()
        channel.consume("layouts.one", no_ack=True)
        delivery = channel.next_delivery(ANSWER_S)
        assert delivery is not None
        channel.publish(b"y", layout.delivery_exchange, key, mandatory=True)
        second = channel.next_delivery(ANSWER_S)
        assert second is not None
        assert (delivery.body, second.body) == (b"x", b"y"), "the first one came once"
        channel.delete_queue("layouts.one")


async def test_all_of_them_on_one_broker(clear_url: str) -> None:
    """A destination that is bound in three layouts gets each message once, and none early."""
    layouts = [NSERVICEBUS, NSERVICEBUS_V2, CELERY]
    async with await connect(clear_url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await channel.declare_queue("layouts.all")
        for layout in layouts:
            await layout.declare(channel)
            await layout.bind_destination(channel, "layouts.all")
        ledger = Ledger()
        await asyncio.gather(
            *(ledger.send(channel, layout, "layouts.all", delay_s) for layout in layouts for delay_s in (0, 1, 1.5, 3))
        )
        for layout in layouts:
            assert sum((await counts(connection, layout)).values()) <= 3
        await ledger.collect(connection, "layouts.all")
        assert ledger.early == []
        assert sorted(ledger.arrived) == sorted(ledger.due)
        await channel.delete_queue("layouts.all")


def test_we_understand_what_nservicebus_sends(clear_url: str) -> None:
    """It publishes to the first level, with the whole delay in seconds, a 32-bit number, in a header."""
    nservicebus(clear_url, 2)
    with BlockingConnection(clear_url, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue("layouts.theirs")
        NSERVICEBUS_V2.bind_destination_blocking(channel, "layouts.theirs")
        start = time.time()
        with pika.BlockingConnection(pika.URLParameters(clear_url)) as theirs:
            publishing = theirs.channel()
            publishing.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=2, message_id="n1", headers={DELAY_HEADER: 2})
            key = "0." * 26 + "1.0." + "layouts.theirs"
            publishing.basic_publish("nsb.v2.delay-level-01", key, b"timeout", properties, mandatory=True)
        channel.consume("layouts.theirs", no_ack=True)
        delivery = channel.next_delivery(ANSWER_S)
        assert delivery is not None
        assert time.time() - start >= 2
        assert NSERVICEBUS_V2.address(delivery.routing_key) == (2, "layouts.theirs")
        channel.delete_queue("layouts.theirs")


def test_nservicebus_understands_what_we_send(clear_url: str) -> None:
    """Key, exchange and header are those that it would send itself, octet by octet."""
    with BlockingConnection(clear_url, reconnect=False) as connection, connection.channel() as channel:
        NSERVICEBUS_V2.declare_blocking(channel)
        channel.confirm_select()
        NSERVICEBUS_V2.publish_blocking(channel, b"x", "layouts.ours", 9.5, Properties(message_id="m1"))
        channel.wait_for_confirms()
        with pika.BlockingConnection(pika.URLParameters(clear_url)) as theirs:
            reading = theirs.channel()
            method, properties, _ = reading.basic_get("nsb.v2.delay-level-03", auto_ack=True)
            assert method is not None
            assert method.exchange == "nsb.v2.delay-level-03"
            assert method.routing_key == "0." * 24 + "1.0.1.0." + "layouts.ours"
            assert properties.headers[DELAY_HEADER] == 10
            assert (properties.delivery_mode, properties.message_id) == (2, "m1")


def test_celery_and_we_read_each_others_messages(clear_url: str) -> None:
    """kombu's own binding of a queue, and its own key; the worker's queue gets our messages, and we get its."""
    celery(clear_url, "quorum")
    with kombu.Connection(clear_url) as theirs:
        exchange = kombu.Exchange("layouts.tasks", type="topic")
        queue = kombu.Queue("layouts.worker", exchange, routing_key="layouts.worker")
        queue.bind(theirs.channel()).declare()
        bind_queue_to_native_delayed_delivery_exchange(theirs, queue)
        with BlockingConnection(clear_url, reconnect=False) as connection, connection.channel() as channel:
            CELERY.declare_blocking(channel)
            channel.confirm_select()
            CELERY.publish_blocking(channel, b"ours", "layouts.worker", 1, Properties(content_type="text/plain"))
            channel.wait_for_confirms()
            with theirs.Producer() as producer:
                producer.publish(
                    "theirs", exchange="celery_delayed_27", routing_key=calculate_routing_key(2, "layouts.worker")
                )
            channel.consume("layouts.worker", no_ack=True)
            bodies = []
            for _ in range(2):
                delivery = channel.next_delivery(ANSWER_S)
                assert delivery is not None
                address = CELERY.address(delivery.routing_key)
                assert address is not None
                bodies.append((delivery.body, address[0]))
            assert bodies == [(b"ours", 1), (b"theirs", 2)]
            channel.delete_queue("layouts.worker")
            channel.delete_exchange("layouts.tasks")
