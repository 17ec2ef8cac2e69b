#!/usr/bin/env python3
"""One load of one Python client, in this process: prints the time and the processor time that it took, as JSON.

    bench/client_loads.py CLIENT LOAD URL COUNT

bench/clients.py, which starts it, says what the loads are. Each client does them in the cheapest way that it offers and
documents. SERVER as a load answers requests until it is killed.
"""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import aio_pika
import pika

from leveret.client import BlockingConnection, Properties, connect

QUEUE = "bench.clients"
REPLY_TO = "amq.rabbitmq.reply-to"
WINDOW = 1000
"""Unconfirmed publishes."""
PREFETCH = 500
CALLS = 50
"""Outstanding requests."""
BODY = b"x" * 200
PERSISTENT = 2
SERVER = "server"


class Meter:
    """Measures a block: `seconds`, and `cpu_s`, the processor time of all threads of this process."""

    def __enter__(self) -> "Meter":
        self.seconds, self.cpu_s = -time.perf_counter(), -time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter()
        self.cpu_s += time.process_time()


def message_id(number: int) -> str:
    return f"order-{number:08}"


def properties(number: int) -> Properties:
    return Properties(delivery_mode=PERSISTENT, message_id=message_id(number), headers={"kind": "order"})


# leveret.client, asyncio


async def publish(url: str, count: int, reconnect: bool) -> Meter:
    async with await connect(url, reconnect=reconnect) as connection:
        channel = await connection.channel(confirms=True)
        window: deque[asyncio.Future[None]] = deque()
        with Meter() as meter:
            for number in range(count):
                if len(window) == WINDOW:
                    await window.popleft()
                window.append(channel.publish(BODY, "", QUEUE, properties(number)))
            await channel.wait_for_confirms()
    return meter


async def consume(url: str, count: int, reconnect: bool, reads: bool = False) -> Meter:
    async with await connect(url, reconnect=reconnect) as connection:
        channel = await connection.channel()
        await channel.qos(PREFETCH)
        with Meter() as meter:
            left = count
            async for delivery in await channel.consume(QUEUE):
                if reads:
                    assert delivery.properties.message_id
                    assert delivery.properties.headers
                assert delivery.body
                channel.ack(delivery.delivery_tag)
                left -= 1
                if not left:
                    break
    return meter


async def rpc(url: str, count: int, reconnect: bool) -> Meter:
    async with await connect(url, reconnect=reconnect) as connection:
        caller = await connection.rpc()
        numbers = iter(range(count))

        async def calls() -> None:
            for _ in numbers:
                reply = await caller.call(BODY, "", QUEUE)
                assert reply.body == BODY

        with Meter() as meter:
            await asyncio.gather(*(calls() for _ in range(CALLS)))
    return meter


async def idle(url: str, seconds: int, reconnect: bool) -> Meter:
    async with await connect(url, heartbeat_s=60, reconnect=reconnect) as connection:
        channel = await connection.channel()
        await channel.consume(QUEUE)
        with Meter() as meter:
            await asyncio.sleep(seconds)
    return meter


async def serve(url: str) -> None:
    """Answer each request with its body."""
    async with await connect(url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE)
        requests = await channel.consume(QUEUE, no_ack=True)
        print("ready", flush=True)
        async for request in requests:
            asked = request.properties
            reply = Properties(correlation_id=asked.correlation_id)
            channel.publish(request.body, "", asked.reply_to or "", reply)


# leveret.client, blocking


def blocking_publish(url: str, count: int) -> Meter:
    with BlockingConnection(url) as connection, connection.channel(confirms=True) as channel:
        channel.confirm_window = WINDOW
        with Meter() as meter:
            for number in range(count):
                channel.publish(BODY, "", QUEUE, properties(number))
            channel.wait_for_confirms()
    return meter


def blocking_consume(url: str, count: int, reads: bool = False) -> Meter:
    with BlockingConnection(url) as connection, connection.channel() as channel:
        channel.qos(PREFETCH)
        with Meter() as meter:
            channel.consume(QUEUE)
            for _ in range(count):
                delivery = channel.next_delivery()
                assert delivery is not None
                if reads:
                    assert delivery.properties.message_id
                    assert delivery.properties.headers
                assert delivery.body
                channel.ack(delivery.delivery_tag)
    return meter


def blocking_idle(url: str, seconds: int) -> Meter:
    with BlockingConnection(url, heartbeat_s=60) as connection, connection.channel() as channel:
        channel.consume(QUEUE)
        with Meter() as meter:
            time.sleep(seconds)
    return meter


# aio-pika


def aio_pika_message(number: int) -> aio_pika.Message:
    return aio_pika.Message(
        BODY, headers={"kind": "order"}, message_id=message_id(number), delivery_mode=aio_pika.DeliveryMode.PERSISTENT
    )


async def aio_pika_publish(url: str, count: int) -> Meter:
    async with await aio_pika.connect_robust(url) as connection:
        exchange = (await connection.channel()).default_exchange
        numbers = iter(range(count))

        async def publishes() -> None:
            for number in numbers:
                await exchange.publish(aio_pika_message(number), QUEUE)

        with Meter() as meter:
            await asyncio.gather(*(publishes() for _ in range(WINDOW)))
    return meter


async def aio_pika_consume(url: str, count: int, reads: bool = False) -> Meter:
    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(PREFETCH)
        queue = await channel.get_queue(QUEUE)
        left = count
        is_over = asyncio.Event()

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            nonlocal left
            if reads:
                assert message.message_id
                assert message.headers
            assert message.body
            await message.ack()
            left -= 1
            if not left:
                is_over.set()

        with Meter() as meter:
            await queue.consume(take)
            await is_over.wait()
    return meter


async def aio_pika_rpc(url: str, count: int) -> Meter:
    """As in aio-pika's tutorial, but with direct reply-to and without confirms, which costs it less."""
    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel(publisher_confirms=False)
        pending: dict[str, asyncio.Future[aio_pika.abc.AbstractIncomingMessage]] = {}

        async def answered(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            pending.pop(message.correlation_id or "").set_result(message)

        replies = await channel.get_queue(REPLY_TO, ensure=False)
        await replies.consume(answered, no_ack=True)
        loop = asyncio.get_running_loop()
        numbers = iter(range(count))

        async def calls() -> None:
            for number in numbers:
                name = str(number)
                future = pending[name] = loop.create_future()
                request = aio_pika.Message(BODY, correlation_id=name, reply_to=REPLY_TO)
                await channel.default_exchange.publish(request, QUEUE)
                async with asyncio.timeout(30):
                    reply = await future
                assert reply.body == BODY

        with Meter() as meter:
            await asyncio.gather(*(calls() for _ in range(CALLS)))
    return meter


async def aio_pika_idle(url: str, seconds: int) -> Meter:
    async with await aio_pika.connect_robust(f"{url}?heartbeat=60") as connection:
        channel = await connection.channel()

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            await message.ack()

        await (await channel.get_queue(QUEUE)).consume(take)
        with Meter() as meter:
            await asyncio.sleep(seconds)
    return meter


# pika's BlockingConnection


def pika_publish(url: str, count: int, confirms: bool) -> Meter:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    if confirms:
        channel.confirm_delivery()
    with Meter() as meter:
        for number in range(count):
            named = pika.BasicProperties(
                delivery_mode=PERSISTENT, message_id=message_id(number), headers={"kind": "order"}
            )
            channel.basic_publish("", QUEUE, BODY, named)
        channel.queue_declare(QUEUE, passive=True)  # answered when the broker has taken all
    connection.close()
    return meter


def pika_consume(url: str, count: int, reads: bool = False) -> Meter:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    left = count

    def take(channel: Any, method: Any, named: pika.BasicProperties, body: bytes) -> None:
        nonlocal left
        if reads:
            assert named.message_id
            assert named.headers
        assert body
        channel.basic_ack(method.delivery_tag)
        left -= 1
        if not left:
            channel.stop_consuming()

    channel.basic_consume(QUEUE, take)
    with Meter() as meter:
        channel.start_consuming()
    connection.close()
    return meter


def pika_idle(url: str, seconds: int) -> Meter:
    connection = pika.BlockingConnection(pika.URLParameters(f"{url}?heartbeat=60"))
    channel = connection.channel()
    channel.basic_consume(QUEUE, lambda *_: None)
    with Meter() as meter:
        connection.process_data_events(time_limit=seconds)
    connection.close()
    return meter


LOADS: dict[str, dict[str, Callable[[str, int], Meter | Coroutine[Any, Any, Meter]]]] = {
    "leveret.client asyncio": {
        "publish": partial(publish, reconnect=True),
        "consume": partial(consume, reconnect=True),
        "consume-read": partial(consume, reconnect=True, reads=True),
        "rpc": partial(rpc, reconnect=True),
        "idle": partial(idle, reconnect=True),
    },
    "leveret.client asyncio, reconnect=False": {
        "publish": partial(publish, reconnect=False),
        "consume": partial(consume, reconnect=False),
        "consume-read": partial(consume, reconnect=False, reads=True),
        "rpc": partial(rpc, reconnect=False),
        "idle": partial(idle, reconnect=False),
    },
    "leveret.client blocking": {
        "publish": blocking_publish,
        "consume": blocking_consume,
        "consume-read": partial(blocking_consume, reads=True),
        "idle": blocking_idle,
    },
    "aio-pika": {
        "publish": aio_pika_publish,
        "consume": aio_pika_consume,
        "consume-read": partial(aio_pika_consume, reads=True),
        "rpc": aio_pika_rpc,
        "idle": aio_pika_idle,
    },
    "pika, confirms one by one": {"publish": partial(pika_publish, confirms=True)},
    "pika": {
        "publish": partial(pika_publish, confirms=False),
        "consume": pika_consume,
        "consume-read": partial(pika_consume, reads=True),
        "idle": pika_idle,
    },
}


def main() -> None:
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    client, load, url, count = sys.argv[1:]
    if load == SERVER:
        asyncio.run(serve(url))
        return
    begun = LOADS[client][load](url, int(count))
    meter = begun if isinstance(begun, Meter) else asyncio.run(begun)
    print(json.dumps({"seconds": meter.seconds, "cpu_s": meter.cpu_s}))


if __name__ == "__main__":
    main()
