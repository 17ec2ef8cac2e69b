"""kill -9 between and within commits: a transaction is complete or absent, and complete if commit-ok arrived."""

import asyncio
import random
from collections import Counter
from contextlib import suppress

import pytest

from leveret.client import ClientError, Connection, Properties, connect
from leveret.testing.processes import LeveretProcess

from .load import KILLS

SOURCE = "transactions.source"
SINKS = ("transactions.left", "transactions.right")
EXCHANGE = "transactions"
PARTS = 3
WORKERS = 4
COMMITS_PER_LIFE_MAX = 200
PERSISTENT = Properties(delivery_mode=2)


class Work:
    """Workers that turn orders, numbers in the source queue, into their parts in both sinks, one transaction each."""

    def __init__(self, process: LeveretProcess, generator: random.Random) -> None:
        self.process = process
        self.generator = generator
        self.ordered = 0
        self.committed: set[int] = set()
        self.kill_at = 0

    async def fill(self) -> None:
        """Declare what is needed, and publish more orders than one run can process."""
        async with await connect(self.process.url, reconnect=False) as connection:
            channel = await connection.channel()
            await channel.declare_exchange(EXCHANGE, "fanout")
            await channel.declare_queue(SOURCE)
            for sink in SINKS:
                await channel.declare_queue(sink)
                await channel.bind_queue(sink, EXCHANGE)
            await channel.confirm_select()
            for _ in range(COMMITS_PER_LIFE_MAX + WORKERS):
                self.ordered += 1
                channel.publish(b"%d" % self.ordered, "", SOURCE, PERSISTENT)
            await channel.wait_for_confirms()

    async def live(self) -> None:
        """Let the workers run until enough is committed; the broker is killed while they work."""
        self.kill_at = len(self.committed) + self.generator.randint(1, COMMITS_PER_LIFE_MAX)
        async with asyncio.timeout(60):
            await asyncio.gather(*(self._worker() for _ in range(WORKERS)))

    async def _worker(self) -> None:
        with suppress(ClientError, OSError):
            connection = await connect(self.process.url, reconnect=False)
            channel = await connection.channel()
            await channel.tx_select()
            await channel.qos(5)
            async for order in await channel.consume(SOURCE):
                if self.generator.random() < 0.2:
                    channel.publish(b"0", EXCHANGE, "", PERSISTENT)
                    channel.ack(order.delivery_tag)
                    await channel.tx_rollback()
                for _ in range(PARTS):
                    channel.publish(order.body, EXCHANGE, "", PERSISTENT)
                    await channel.drain()
                channel.ack(order.delivery_tag)
                await channel.tx_commit()
                self.committed.add(int(order.body))
                if len(self.committed) == self.kill_at:
                    self.process.kill()


async def numbers(connection: Connection, queue: str) -> list[int]:
    """Return the contents of a queue, in order; they stay there."""
    channel = await connection.channel()
    count = (await channel.declare_queue(queue, passive=True)).message_count
    consumer = await channel.consume(queue)
    found = [int((await anext(consumer)).body) for _ in range(count)]
    await channel.close()
    return found


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_kill_among_commits(process: LeveretProcess, seed: int) -> None:
    work = Work(process, random.Random(seed))
    for _ in range(KILLS):
        await work.fill()
        await work.live()
        process.start()
        async with await connect(process.url, reconnect=False) as connection:
            waiting = await numbers(connection, SOURCE)
            sinks = [Counter(await numbers(connection, sink)) for sink in SINKS]
        assert waiting == sorted(set(waiting))
        made = set(sinks[0])
        assert work.committed <= made, "committed, and lost"
        assert sorted([*waiting, *made]) == list(range(1, work.ordered + 1)), "lost, or there before and after"
        for sink in sinks:
            assert sink == dict.fromkeys(made, PARTS), "a transaction is there in part"
        # transactions on disk whose commit-ok was not sent yet count as committed
        work.committed = made
