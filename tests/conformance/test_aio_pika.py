"""Round trips with aio-pika, as an asyncio application would write them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from aio_pika.patterns import RPC

from ..waiting import DEADLINE_S


@pytest.fixture
async def aio(url: str) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect_robust(url) as connection, connection.channel(
            on_return_raises=True) as channel:
        yield channel


async def test_publish_and_consume(aio: AbstractChannel, unique: str) -> None:
    exchange = await aio.declare_exchange(unique, aio_pika.ExchangeType.TOPIC, auto_delete=True)
    queue = await aio.declare_queue(exclusive=True)
    await queue.bind(exchange, "order.*")
    await aio.set_qos(prefetch_count=10)
    await asyncio.gather(*(
        exchange.publish(aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                                          message_id=f"m-{number}", headers={"number": number}), f"order.{number}")
        for number in range(200)))
    seen = []
    async with asyncio.timeout(DEADLINE_S), queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                assert message.headers == {"number": int(message.body)}
                assert message.message_id == f"m-{int(message.body)}"
                seen.append(int(message.body))
            if len(seen) == 200:
                break
    assert sorted(seen) == list(range(200))


async def test_rpc_over_direct_reply_to(aio: AbstractChannel, unique: str) -> None:
    queue = await aio.declare_queue(unique, auto_delete=True)

    async def serve(request: AbstractIncomingMessage) -> None:
        assert request.reply_to is not None
        await aio.default_exchange.publish(
            aio_pika.Message(request.body.upper(), correlation_id=request.correlation_id), request.reply_to,
            mandatory=False)

    await queue.consume(serve, no_ack=True)
    answers: asyncio.Queue[tuple[str | None, bytes]] = asyncio.Queue()

    async def answered(message: AbstractIncomingMessage) -> None:
        await answers.put((message.correlation_id, message.body))

    replies = await aio.get_queue("amq.rabbitmq.reply-to", ensure=False)
    await replies.consume(answered, no_ack=True)
    for word in ("one", "two"):
        await aio.default_exchange.publish(
            aio_pika.Message(word.encode(), correlation_id=word, reply_to="amq.rabbitmq.reply-to"), unique)
    async with asyncio.timeout(DEADLINE_S):
        assert sorted([await answers.get(), await answers.get()]) == [("one", b"ONE"), ("two", b"TWO")]


async def test_its_own_rpc_pattern(aio: AbstractChannel, unique: str) -> None:
    """It uses exclusive reply queues, a headers exchange, and dead lettering of unroutable messages."""

    async def multiply(*, x: int, y: int) -> int:
        return x * y

    rpc = await RPC.create(aio)
    await rpc.register(unique, multiply, auto_delete=True)
    async with asyncio.timeout(DEADLINE_S):
        assert await asyncio.gather(*(rpc.call(unique, {"x": x, "y": 7}) for x in range(20))) == [
            7 * x for x in range(20)]
    await rpc.unregister(multiply)
    await rpc.close()


async def test_unroutable(aio: AbstractChannel, unique: str) -> None:
    with pytest.raises(DeliveryError) as caught:
        await aio.default_exchange.publish(aio_pika.Message(b"back"), unique, mandatory=True)
    assert caught.value.message is not None


async def test_missing_queue(aio: AbstractChannel, unique: str) -> None:
    with pytest.raises(ChannelNotFoundEntity, match=f"no queue '{unique}' in vhost '/'"):
        await aio.declare_queue(unique, passive=True)


async def test_time_to_live_and_dead_letter(aio: AbstractChannel) -> None:
    grave = await aio.declare_queue(exclusive=True)
    mortal = await aio.declare_queue(exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave.name})
    await aio.default_exchange.publish(aio_pika.Message(b"x", expiration=0.05), mortal.name)
    async with asyncio.timeout(DEADLINE_S), grave.iterator(no_ack=True) as messages:
        message = await anext(messages)
    assert message.body == b"x"
    assert message.headers["x-first-death-reason"] == "expired"


async def test_transactions(url: str) -> None:
    async with await aio_pika.connect(url) as connection, connection.channel(publisher_confirms=False) as channel:
        queue = await channel.declare_queue(exclusive=True)
        transaction = channel.transaction()
        await transaction.select()
        await channel.default_exchange.publish(aio_pika.Message(b"dropped"), queue.name)
        await transaction.rollback()
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"kept"), queue.name)
            assert await queue.get(fail=False, no_ack=True) is None
        message = await queue.get(no_ack=True)
        assert message is not None
        assert message.body == b"kept"
        assert await queue.get(fail=False) is None
