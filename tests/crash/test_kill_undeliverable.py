"""kill -9 while delayed messages become undeliverable, stay so, or are released: confirmed ones arrive, once."""

import asyncio
import random
from contextlib import suppress
from uuid import uuid4

import pytest

from leveret.client import Channel, ClientError, Properties, connect
from leveret.delay import MILLISECONDS, Layout
from leveret.testing.processes import LeveretProcess

HERE = "crash.here"
GONE = "crash.gone"
MARKER = "crash.marker"
KILLS = 6
MESSAGES = 200
DELAY_MS_MAX = 30
PERSISTENT = Properties(delivery_mode=2)
QUORUM = Layout("nsb.v2.ms", unit_ms=1, queue_type="quorum")


async def declare(channel: Channel, layout: Layout) -> None:
    """Declare the levels, and a queue for every destination but GONE."""
    await layout.declare(channel)
    for queue in (HERE, GONE, MARKER):
        await channel.declare_queue(queue)
    for queue in (HERE, MARKER):
        await layout.bind_destination(channel, queue)
    gone = layout.destination_binding(GONE)
    await channel.unbind_queue(gone.queue, gone.exchange, gone.routing_key)


async def send_and_kill(
    process: LeveretProcess, layout: Layout, generator: random.Random, first: int, *, is_released: bool
) -> list[str]:
    """Send some messages, mostly wait until all of them are due, and kill the broker; return what it has confirmed."""
    async with await connect(process.url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await declare(channel, layout)
        bodies = [f"{generator.choice((HERE, GONE))} {number}" for number in range(first, first + MESSAGES)]
        sent = []
        for body in bodies:
            delay = generator.randint(1, DELAY_MS_MAX) / 1000
            sent.append(layout.send(channel, body.encode(), body.partition(" ")[0], delay, PERSISTENT))
        await asyncio.gather(*sent)
        if generator.random() < 0.7:
            await until_due(channel, layout)
        if is_released:
            await layout.bind_destination(channel, GONE)
        await asyncio.sleep(generator.uniform(0, 0.15))
        process.kill()
        with suppress(ClientError):
            await channel.close()
    return bodies


async def until_due(channel: Channel, layout: Layout) -> None:
    """Wait until all messages sent so far are due and handled."""
    marker = await channel.consume(MARKER, no_ack=True)
    due = uuid4().bytes
    await layout.send(channel, due, MARKER, (DELAY_MS_MAX + 1) / 1000)
    while (await asyncio.wait_for(anext(marker), 30)).body != due:
        pass
    await marker.cancel()


async def collect(channel: Channel, queue: str, count: int) -> list[str]:
    """Consume `count` messages, and all further ones that are there."""
    found: list[str] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            delivery = await channel.get(queue, no_ack=True)
            if delivery is not None:
                found.append(delivery.body.decode())
    while (delivery := await channel.get(queue, no_ack=True)) is not None:
        found.append(delivery.body.decode())
    return found


@pytest.mark.parametrize("layout", [MILLISECONDS, QUORUM], ids=["classic", "quorum"])
@pytest.mark.timeout(180)
async def test_what_is_undeliverable_survives_a_kill(process: LeveretProcess, seed: int, layout: Layout) -> None:
    generator = random.Random(seed)
    confirmed: list[str] = []
    for kill in range(KILLS):
        is_released = generator.random() < 0.6
        confirmed += await send_and_kill(process, layout, generator, kill * MESSAGES, is_released=is_released)
        process.start()
    async with await connect(process.url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await layout.bind_destination(channel, GONE)
        for queue in (HERE, GONE):
            expected = [body for body in confirmed if body.startswith(queue)]
            found = await collect(channel, queue, len(expected))
            await until_due(channel, layout)
            found += await collect(channel, queue, 0)
            assert sorted(found) == sorted(expected)
