"""The delay levels on a live broker: the same tests on leveret and on a RabbitMQ."""

from __future__ import annotations

import asyncio
import time

import pytest

from leveret.client import Channel, ChannelClosed, Delivery, Properties, Unroutable, connect
from leveret.delay import MILLISECONDS, NSERVICEBUS, Layout


async def endpoint(channel: Channel, layout: Layout, queue: str) -> None:
    """Declare what an endpoint declares at its start."""
    await layout.declare(channel)
    await channel.declare_queue(queue, durable=False, auto_delete=True)
    await layout.bind_destination(channel, queue)


async def test_messages_arrive_after_their_delay_and_never_before(url: str) -> None:
    delays_ms = [0, 1, 2, 3, 5, 10, 64, 100, 255, 300]
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await endpoint(channel, MILLISECONDS, "delay.arrivals")
        consumer = await channel.consume("delay.arrivals", no_ack=True)
        sent: dict[str, float] = {}
        for delay_ms in delays_ms:
            properties = Properties(message_id=str(delay_ms))
            sent[str(delay_ms)] = time.monotonic()
            await MILLISECONDS.send(channel, b"x", "delay.arrivals", delay_ms / 1000, properties)
        arrived: list[str] = []
        for _ in delays_ms:
            delivery = await asyncio.wait_for(anext(consumer), 60)
            message_id = str(delivery.properties.message_id)
            assert time.monotonic() - sent[message_id] >= int(message_id) / 1000, f"{message_id} ms: early"
            arrived.append(message_id)
        assert sorted(arrived) == sorted(sent)


async def test_a_message_keeps_its_key_and_properties_and_tells_of_its_hops(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await endpoint(channel, MILLISECONDS, "delay.kept")
        consumer = await channel.consume("delay.kept", no_ack=True)
        sent = Properties(message_id="m1", content_type="text/plain", headers={"mine": "yes"}, delivery_mode=2)
        await MILLISECONDS.send(channel, b"body", "delay.kept", 0.005, sent)
        delivery: Delivery = await asyncio.wait_for(anext(consumer), 60)
        assert delivery.body == b"body"
        assert delivery.exchange == "nsb.ms.delay-delivery"
        assert delivery.routing_key == MILLISECONDS.route(0.005, "delay.kept")[1]
        assert (delivery.properties.message_id, delivery.properties.content_type) == ("m1", "text/plain")
        headers = delivery.properties.headers or {}
        assert headers["mine"] == "yes"
        deaths = headers["x-death"]
        assert isinstance(deaths, list)
        assert [death["queue"] for death in deaths if isinstance(death, dict)] == [
            "nsb.ms.delay-level-00",
            "nsb.ms.delay-level-02",
        ]


async def test_a_delayed_message_can_be_delayed_again(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await endpoint(channel, MILLISECONDS, "delay.again")
        consumer = await channel.consume("delay.again", no_ack=True)
        await MILLISECONDS.send(channel, b"1", "delay.again", 0.003)
        for _ in range(3):
            delivery = await asyncio.wait_for(anext(consumer), 60)
            await MILLISECONDS.send(channel, b"2", "delay.again", 0.003, delivery.properties)


async def test_every_endpoint_may_declare_the_levels_again(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        for _ in range(2):
            await NSERVICEBUS.declare(await connection.channel())
        info = await (await connection.channel()).declare_queue("nsb.delay-level-27", passive=True)
        assert info.name == "nsb.delay-level-27"


async def test_levels_that_exist_with_another_unit_are_refused(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await Layout("delay.other", unit_ms=10, levels=2).declare(await connection.channel())
        with pytest.raises(ChannelClosed) as refused:
            await Layout("delay.other", unit_ms=20, levels=2).declare(await connection.channel())
        assert refused.value.code == 406


async def test_without_delay_an_unknown_destination_is_returned(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await MILLISECONDS.declare(channel)
        with pytest.raises(Unroutable):
            await MILLISECONDS.send(channel, b"x", "delay.nobody", 0)


@pytest.fixture
def on_rabbitmq(request: pytest.FixtureRequest) -> bool:
    """Whether `url` is RabbitMQ's."""
    return bool(request.node.callspec.params["url"] == "rabbitmq")


CLASSIC = Layout("nobody", unit_ms=1, levels=12, queue_arguments=(("x-queue-mode", "lazy"),))
QUORUM = Layout("nobody.v2", unit_ms=1, levels=12, queue_type="quorum")
# RabbitMQ has at most this many dead letters of a quorum queue under way (dead_letter_worker_consumer)
AT_A_TIME = 32


async def arrival(channel: Channel, layout: Layout, queue: str, delay: float) -> None:
    """Send a message and wait until it is in its queue: everything due before has been handled by then."""
    await channel.declare_queue(queue, durable=False)
    await layout.bind_destination(channel, queue)
    consumer = await channel.consume(queue, no_ack=True)
    await layout.send(channel, b"", queue, delay)
    await asyncio.wait_for(anext(consumer), 60)
    await channel.delete_queue(queue)


async def test_nobody_is_there_when_it_is_due(url: str, on_rabbitmq: bool) -> None:
    """In the layout of NServiceBus 1: RabbitMQ drops the message, leveret keeps it until the queue exists."""
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await CLASSIC.declare(channel)
        for number in range(3):
            await CLASSIC.send(channel, b"%d" % number, "delay.late", 0.005)
        await arrival(channel, CLASSIC, "delay.marker", 0.02)
        level = await channel.declare_queue(CLASSIC.level_name(0), passive=True)
        assert level.message_count == 0
        await endpoint(channel, CLASSIC, "delay.late")
        consumer = await channel.consume("delay.late", no_ack=True)
        expected = [] if on_rabbitmq else [b"0", b"1", b"2"]
        found = [(await asyncio.wait_for(anext(consumer), 10)).body for _ in expected]
        await CLASSIC.send(channel, b"new", "delay.late", 0.005)
        found.append((await asyncio.wait_for(anext(consumer), 10)).body)
        assert found == [*expected, b"new"]


async def test_who_is_not_there_stops_the_delays_of_others_on_rabbitmq_only(url: str, on_rabbitmq: bool) -> None:
    """In the layout of NServiceBus 2 (its issue 1407): RabbitMQ retries some of a level after three minutes."""
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await QUORUM.declare(channel)
        await CLASSIC.declare(channel)
        for _ in range(AT_A_TIME):
            await QUORUM.send(channel, b"gone", "delay.gone", 0.001)
        await endpoint(channel, QUORUM, "delay.here")
        consumer = await channel.consume("delay.here", no_ack=True)
        await QUORUM.send(channel, b"here", "delay.here", 0.001)
        arrived = asyncio.ensure_future(anext(consumer))
        if on_rabbitmq:
            await arrival(channel, CLASSIC, "delay.marker", 1)
            assert not arrived.done()
            arrived.cancel()
        else:
            assert (await asyncio.wait_for(arrived, 10)).body == b"here"
        # undeliverable messages are invisible: they are not ready, and a purge leaves them
        assert await channel.purge_queue(QUORUM.level_name(0)) == 0
        for level in range(QUORUM.levels):
            await channel.delete_queue(QUORUM.level_name(level))
