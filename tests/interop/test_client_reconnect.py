"""Both clients behind a proxy that breaks their connections, on leveret and on RabbitMQ."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import uuid
from collections.abc import AsyncIterator

import pytest

from leveret.client import (
    BlockingChannel,
    BlockingConnection,
    Connection,
    ConnectionClosed,
    PublisherReferencesMissing,
    PublishTimeout,
    Reconnect,
    RpcInterrupted,
    connect,
)

from ..cutting_proxy import CuttingProxy

SEEDS = int(os.environ.get("LEVERET_RECONNECT_SEEDS", "6"))
"""How many random runs each API makes on each broker; more in `make soak`."""
MESSAGES = 400
CUTS = 6
SOON = Reconnect(first_delay_s=0.0, max_delay_s=0.05)


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[CuttingProxy]:
    async with CuttingProxy(url, random.Random(0)) as proxy:
        yield proxy


@pytest.fixture
async def connection(proxy: CuttingProxy) -> AsyncIterator[Connection]:
    async with await connect(proxy.url, reconnect=SOON) as connection:
        yield connection


@pytest.fixture
async def queue(url: str) -> AsyncIterator[str]:
    """The name of a queue that the test has for itself."""
    name = f"reconnect.{uuid.uuid4().hex[:12]}"
    async with await connect(url, reconnect=False) as direct:
        channel = await direct.channel()
        await channel.declare_queue(name)
        yield name
        await channel.delete_queue(name)


async def messages(url: str, queue: str) -> list[bytes]:
    """Take what is in the queue."""
    async with await connect(url, reconnect=False) as direct, await direct.channel() as channel:
        found = []
        while (delivery := await channel.get(queue, no_ack=True)) is not None:
            found.append(delivery.body)
        return found


class Events:
    """What a connection tells of its losses; wait for it by `restored`."""

    def __init__(self, connection: Connection) -> None:
        self.lost: list[ConnectionClosed] = []
        self.restored = asyncio.Event()
        connection.on_disconnected(self._disconnected)
        connection.on_reconnected(self.restored.set)

    def _disconnected(self, error: ConnectionClosed) -> None:
        self.lost.append(error)
        self.restored.clear()


async def publish_asyncio(url: str, queue: str, publisher: str | None) -> None:
    async with await connect(url, reconnect=SOON, heartbeat_s=1) as connection:
        channel = await connection.channel(confirms=True, publisher=publisher)
        for number in range(MESSAGES):
            channel.publish(str(number).encode(), "", queue, mandatory=True)
            if number % 20 == 0:
                await channel.drain()
                await asyncio.sleep(0)
        await channel.wait_for_confirms()


def publish_blocking(url: str, queue: str, publisher: str | None) -> None:
    with BlockingConnection(url, reconnect=SOON, heartbeat_s=1) as connection:
        channel = connection.channel(confirms=True, publisher=publisher)
        channel.confirm_window = 50
        for number in range(MESSAGES):
            channel.publish(str(number).encode(), "", queue, mandatory=True)
        channel.wait_for_confirms()


@pytest.mark.parametrize("api", ["asyncio", "blocking"])
async def test_publishes_over_a_line_that_breaks_are_all_there_and_on_leveret_once(
    url: str, broker: str, queue: str, api: str
) -> None:
    expected = [str(number).encode() for number in range(MESSAGES)]
    for seed in range(SEEDS):
        reference = f"{queue}-{api}-{seed}" if url == broker else None
        async with CuttingProxy(url, random.Random(seed), CUTS, 8_000) as proxy:
            if api == "asyncio":
                await publish_asyncio(proxy.url, queue, reference)
            else:
                await asyncio.to_thread(publish_blocking, proxy.url, queue, reference)
        found = await messages(url, queue)
        if reference is None:
            assert set(found) == set(expected), seed  # at least once
        else:
            assert found == expected, seed


async def consume_asyncio(url: str, queue: str, count: int) -> set[bytes]:
    seen: set[bytes] = set()
    async with await connect(url, reconnect=SOON, heartbeat_s=1) as connection:
        channel = await connection.channel()
        await channel.qos(10)
        async for delivery in await channel.consume(queue):
            channel.ack(delivery.delivery_tag)
            seen.add(delivery.body)
            if len(seen) == count:
                break
    return seen


def consume_blocking(url: str, queue: str, count: int) -> set[bytes]:
    seen: set[bytes] = set()
    with BlockingConnection(url, reconnect=SOON, heartbeat_s=1) as connection:
        channel = connection.channel()
        channel.consume(queue, prefetch_count=10)
        while len(seen) < count:
            delivery = channel.next_delivery()
            assert delivery is not None
            channel.ack(delivery.delivery_tag)
            seen.add(delivery.body)
    return seen


@pytest.mark.parametrize("api", ["asyncio", "blocking"])
async def test_a_consumer_over_a_line_that_breaks_gets_everything(url: str, queue: str, api: str) -> None:
    for seed in range(SEEDS):
        await publish_asyncio(url, queue, None)
        async with CuttingProxy(url, random.Random(seed), CUTS, 8_000) as proxy:
            if api == "asyncio":
                seen = await consume_asyncio(proxy.url, queue, MESSAGES)
            else:
                seen = await asyncio.to_thread(consume_blocking, proxy.url, queue, MESSAGES)
        assert len(seen) == MESSAGES
        await messages(url, queue)  # acknowledgements that were under way at the end


async def test_a_handler_learns_that_its_acknowledgement_came_too_late(
    proxy: CuttingProxy, connection: Connection, queue: str
) -> None:
    events = Events(connection)
    channel = await connection.channel(confirms=True)
    await channel.publish(b"work", "", queue)
    consumer = await channel.consume(queue)
    first = await anext(consumer)
    proxy.cut()
    again = await anext(consumer)
    assert (again.body, again.redelivered) == (b"work", True)
    assert channel.ack(first.delivery_tag) is first.ack() is first.nack() is first.reject() is False
    assert again.ack() is True
    await events.restored.wait()
    assert len(events.lost) == 1
    assert connection.is_connected
    info = await channel.declare_queue(queue, passive=True)
    assert info.message_count == 0


async def test_requests_over_a_reconnect(url: str, proxy: CuttingProxy, connection: Connection, queue: str) -> None:
    async with await connect(url, reconnect=False) as direct:
        server = await direct.channel()
        asked = await server.consume(queue)
        for reply_queue in (False, True):
            rpc = await connection.rpc(reply_queue)
            plain = asyncio.create_task(rpc.call(b"once", "", queue))
            repeated = asyncio.create_task(rpc.call(b"often", "", queue, idempotent=True))
            requests = [await anext(asked), await anext(asked)]
            assert {each.body for each in requests} == {b"once", b"often"}
            proxy.cut()
            with pytest.raises(RpcInterrupted, match="may have been carried out"):
                await plain
            again = await anext(asked)
            assert again.body == b"often"
            properties = again.properties
            assert properties.reply_to is not None
            server.publish(b"answer", "", properties.reply_to, properties)
            assert (await repeated).body == b"answer"
            for each in (*requests, again):
                server.ack(each.delivery_tag)


async def test_a_blocking_request_over_a_reconnect(url: str, proxy: CuttingProxy, queue: str) -> None:
    with contextlib.ExitStack() as stack:
        connection = await asyncio.to_thread(BlockingConnection, proxy.url, reconnect=SOON)
        stack.callback(connection.close)
        rpc = await asyncio.to_thread(connection.rpc)
        async with await connect(url, reconnect=False) as direct:
            server = await direct.channel()
            asked = await server.consume(queue, no_ack=True)
            call = asyncio.create_task(asyncio.to_thread(rpc.call, b"once", "", queue))
            await anext(asked)
            proxy.cut()
            with pytest.raises(RpcInterrupted):
                await call
            call = asyncio.create_task(asyncio.to_thread(rpc.call, b"often", "", queue, idempotent=True))
            await anext(asked)
            proxy.cut()
            properties = (await anext(asked)).properties
            assert properties.reply_to is not None
            server.publish(b"answer", "", properties.reply_to, properties)
            assert (await call).body == b"answer"
        await asyncio.to_thread(stack.close)


async def test_a_deadline_and_a_limit_of_attempts(proxy: CuttingProxy, queue: str) -> None:
    few = Reconnect(first_delay_s=0.0, max_delay_s=0.0, attempts_max=3)
    connection = await connect(proxy.url, reconnect=few)
    channel = await connection.channel(confirms=True)
    proxy.is_refusing = True
    ended = channel.publish(b"kept", "", queue)
    proxy.cut()
    with pytest.raises(ConnectionClosed, match="all attempts to reconnect have failed, the last: "):
        await ended
    assert proxy.connections == 4
    assert connection.is_closed

    proxy.is_refusing = False
    connection = await connect(proxy.url, reconnect=Reconnect(first_delay_s=60, max_delay_s=60))
    channel = await connection.channel(confirms=True)
    lost = asyncio.Event()
    connection.on_disconnected(lambda error: lost.set())
    proxy.cut()
    await lost.wait()
    with pytest.raises(PublishTimeout, match=r"not confirmed within 0\.01 s; it was not sent"):
        await channel.publish(b"late", "", queue, timeout_s=0.01)
    await connection.close()
    with pytest.raises(ConnectionClosed, match="closed by this client"):
        channel.publish(b"x", "", queue)


def test_rabbitmq_keeps_no_publisher_references(rabbitmq: str) -> None:
    with (
        BlockingConnection(rabbitmq, reconnect=False) as connection,
        pytest.raises(PublisherReferencesMissing, match="the broker keeps no publisher references"),
    ):
        connection.channel(publisher="till")


def the_only_message(channel: BlockingChannel, queue: str) -> bytes:
    delivery = channel.get(queue, no_ack=True)
    assert delivery is not None
    assert channel.get(queue) is None
    return delivery.body


async def test_an_idle_blocking_connection_comes_back_by_itself(proxy: CuttingProxy) -> None:
    restored = asyncio.Event()
    loop = asyncio.get_running_loop()
    connection = await asyncio.to_thread(BlockingConnection, proxy.url, heartbeat_s=1, reconnect=SOON)
    try:
        connection.on_reconnected(lambda: loop.call_soon_threadsafe(restored.set))
        channel = await asyncio.to_thread(connection.channel)
        name = (await asyncio.to_thread(channel.declare_queue, exclusive=True)).name
        proxy.cut()
        await restored.wait()
        assert connection.queue_name(name) != name
        channel.publish(b"by its first name", "", name)
        assert await asyncio.to_thread(the_only_message, channel, name) == b"by its first name"
    finally:
        await asyncio.to_thread(connection.close)
