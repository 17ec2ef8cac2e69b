"""kill -9 under load: confirmed messages are there, in order, once; messages settled for sure do not come back."""

import asyncio
import random

import pytest

from leveret.client import Connection, connect
from leveret.client.aio_channel import Channel
from leveret.testing.processes import LeveretProcess

from .ledger import Ledger
from .load import EXCHANGE, KILLS, PERSISTENT, check, load_and_kill

WORK = "crash.work"
DEAD = "crash.dead"
COPY = "crash.copy"


async def declare(channel: Channel) -> None:
    await channel.declare_exchange(EXCHANGE, "fanout")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    await channel.declare_queue(WORK, arguments=arguments)
    await channel.declare_queue(DEAD)
    await channel.declare_queue(COPY)
    await channel.bind_queue(WORK, EXCHANGE)
    await channel.bind_queue(COPY, EXCHANGE)


async def peek(connection: Connection, queue: str) -> list[int]:
    """Return the numbers in a queue, in order; all messages are requeued."""
    channel = await connection.channel()
    count = (await channel.declare_queue(queue, passive=True)).message_count
    consumer = await channel.consume(queue)
    found = [int((await anext(consumer)).body.partition(b":")[0]) for _ in range(count)]
    await channel.close()
    return found


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_kill_under_load(process: LeveretProcess, seed: int) -> None:
    """Runs LEVERET_CRASH_KILLS times; `pytest -rP` shows what the kills hit."""
    generator = random.Random(seed)
    ledger = Ledger(generator)
    for _ in range(KILLS):
        await load_and_kill(process, ledger)
        process.start()
        ledger.hits["starts that cut an unfinished batch"] += "of an unfinished batch" in process.output
        await check(process.url, ledger)
    print(*ledger.report(), sep="\n")
    assert ledger.hits["kills with publishes unconfirmed"] > KILLS / 2
    assert ledger.hits["dead letters in dead"]
    assert ledger.hits["dead letters in expired"]
    assert ledger.hits["dead letters in overflow"]
    assert ledger.hits["declarations checked"]
    assert ledger.hits["deletions checked"]
    assert ledger.work.settled_for_sure


async def test_kill_after_many_files(process: LeveretProcess) -> None:
    """More messages than the journal's files hold: files of settled ones are removed, the rest survives a kill."""
    filler = b"x" * (1 << 20)
    confirmed = 0
    async with await connect(process.url, reconnect=False) as connection:
        channel = await connection.channel()
        await declare(channel)
        await channel.delete_queue(COPY)
        await channel.confirm_select()
        await channel.publish(b"1:oldest", EXCHANGE, "", PERSISTENT)
        for number in range(2, 152):
            channel.publish(b"%d:" % number + filler, EXCHANGE, "", PERSISTENT)
            await channel.drain()
            if number % 10 == 0:
                await channel.wait_for_confirms()
                confirmed = number
            if number <= 140:
                delivery = await channel.get(WORK)
                assert delivery is not None
                # The first message stays in the queue while all files are written.
                if delivery.body == b"1:oldest":
                    delivery2 = await channel.get(WORK)
                    assert delivery2 is not None
                    channel.reject(delivery.delivery_tag)
                    delivery = delivery2
                channel.ack(delivery.delivery_tag)
        await channel.wait_for_confirms()
    assert confirmed == 150
    journal = process.data_dir / "journal"
    # How many files are left depends on when the oldest message moves to a page; but the first was full long ago.
    assert max(path.name for path in journal.glob("journal-*.lvj")) >= "journal-0000000003.lvj"
    process.kill()
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        assert await peek(connection, WORK) == [1, *range(141, 152)]
        channel = await connection.channel()
        await channel.purge_queue(WORK)
        await channel.confirm_select()
        # Nothing in the old files is needed now; when the next file is full, they are removed.
        for number in range(200, 340):
            channel.publish(b"%d:" % number + filler, EXCHANGE, "", PERSISTENT)
            await channel.wait_for_confirms()
            delivery = await channel.get(WORK, no_ack=True)
            assert delivery is not None
        await channel.publish(b"999:end", EXCHANGE, "", PERSISTENT)
    names = sorted(path.name for path in journal.glob("journal-*.lvj"))
    assert "journal-0000000001.lvj" not in names
    assert len(names) <= 2
    process.kill()
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        assert await peek(connection, WORK) == [999]


async def test_delivered_in_a_life_that_wrote_nothing(process: LeveretProcess) -> None:
    """An orderly stop, a run in which the only change is a delivery, a kill: the delivery is remembered."""
    async with await connect(process.url, reconnect=False) as connection:
        channel = await connection.channel()
        await declare(channel)
        await channel.confirm_select()
        await channel.publish(b"1:x", EXCHANGE, "", PERSISTENT)
    assert process.stop() == 0
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        channel = await connection.channel()
        delivery = await anext(await channel.consume(WORK))
        assert not delivery.redelivered
        process.kill()
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        channel = await connection.channel()
        delivery = await anext(await channel.consume(WORK))
        assert delivery.redelivered


async def test_an_orderly_stop_forgets_nothing(process: LeveretProcess) -> None:
    """SIGTERM: exit status 0, all messages back in order, redelivered only those that were delivered."""
    async with await connect(process.url, reconnect=False) as connection:
        channel = await connection.channel()
        await declare(channel)
        await channel.confirm_select()
        for number in range(1, 501):
            channel.publish(b"%d:" % number, EXCHANGE, "", PERSISTENT)
        await channel.wait_for_confirms()
        await channel.qos(20)
        consumer = await channel.consume(WORK)
        for _ in range(20):
            await anext(consumer)
        assert await asyncio.to_thread(process.stop) == 0
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        channel = await connection.channel()
        consumer = await channel.consume(WORK)
        deliveries = [await anext(consumer) for _ in range(500)]
        assert [int(delivery.body[:-1]) for delivery in deliveries] == list(range(1, 501))
        assert [delivery.redelivered for delivery in deliveries] == [True] * 20 + [False] * 480
        assert (await channel.declare_queue(COPY, passive=True)).message_count == 500
