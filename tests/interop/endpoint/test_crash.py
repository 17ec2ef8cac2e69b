"""kill -9 of an endpoint's process while handlers run: no message is lost, and few are handled twice."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter

from leveret.client import Channel, Properties, connect

from .support import DEADLINE_S, program, within

WORKER = """
import asyncio, sys
from leveret.endpoint import Endpoint
from leveret.delay import MILLISECONDS

name, url = sys.argv[1:3]
node = Endpoint(name, url, layout=MILLISECONDS, concurrency=8, error_queue=name + ".error")
node.disable_timeout_manager()

@node.handler("Number")
async def number(message, context):
    print(message["n"], flush=True)
    context.send(name + ".sink", {"n": message["n"], "of": context.message_id}, message_type="Number", delay=0.002)
    await asyncio.sleep(0.002)
    context.send(name + ".sink", {"n": message["n"], "of": context.message_id}, message_type="Number")

asyncio.run(node.run())
"""
MESSAGES = 200
KILLS = 6


async def test_a_killed_endpoint_loses_nothing(url: str, name: str) -> None:
    chance = random.Random(7)
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await prepare(channel, name)
        for _ in range(KILLS):
            async with program("-c", WORKER, name, url, stdout=asyncio.subprocess.PIPE) as worker:
                assert worker.stdout is not None
                for _ in range(chance.randint(1, MESSAGES // KILLS - 5)):
                    assert await within(worker.stdout.readline())
                worker.kill()
        async with program("-c", WORKER, name, url, stdout=asyncio.subprocess.DEVNULL) as worker:
            received = await sink(channel, name)
            worker.terminate()
            assert await within(worker.wait()) == 0
    # each handler that ended sent two messages; those that were killed between the end and the ack sent two more
    assert set(received) == set(range(MESSAGES))
    assert all(count >= 2 for count in received.values())
    twice = sum(count - 2 for count in received.values())
    assert twice <= KILLS * 8 * 2, "more than was being handled when the process was killed"


async def prepare(channel: Channel, name: str) -> None:
    """Declare queues and publish the numbers, before any endpoint runs."""
    for queue in (name, f"{name}.sink"):
        await channel.declare_queue(queue)
        await channel.declare_exchange(queue, kind="fanout")
        await channel.bind_queue(queue, queue)
    for n in range(MESSAGES):
        channel.publish(b'{"n":%d}' % n, "", name, Properties(message_id=str(n), type="Number", delivery_mode=2))
    await channel.wait_for_confirms()


async def sink(channel: Channel, name: str) -> Counter[int]:
    """Return how often each number arrived, once all have arrived twice and the queues are empty."""
    received: Counter[int] = Counter()
    consumer = await channel.consume(f"{name}.sink", no_ack=True)
    async with asyncio.timeout(DEADLINE_S * 2):
        while len(received) < MESSAGES or min(received.values()) < 2:
            received[json.loads((await anext(consumer)).body)["n"]] += 1
    return received
