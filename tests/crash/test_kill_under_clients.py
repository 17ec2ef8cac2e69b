"""kill -9 under clients that reconnect: confirmed messages are there, under a reference once and in order, and all end.

LEVERET_CRASH_KILLS: how often the broker is killed (5).
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from leveret.client import BlockingConnection, Connection, Properties, Reconnect, connect
from leveret.testing.processes import LeveretProcess

KILLS = int(os.environ.get("LEVERET_CRASH_KILLS", "5"))
WORK = "crash.clients.work"
"""A queue that all publishers reach and all consumers share; each publisher has one of its own, too."""
END = b"end"
PERSISTENT = Properties(delivery_mode=2)
SOON = Reconnect(first_delay_s=0.0, max_delay_s=0.05)
WINDOW = 50
PATIENCE_S = 60
"""Something is wrong if nothing happens for so long."""


class Events:
    """What the clients tell the test, from any thread."""

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self.losses: Counter[str] = Counter()
        self.seen: set[bytes] = set()
        self.is_enough = threading.Event()
        self._changed = threading.Condition()
        self._confirms = 0
        self._ready = 0

    def ready(self) -> None:
        """Learn that one more client is connected, for the first time or again."""
        with self._changed:
            self._ready += 1
            self._changed.notify_all()

    def confirmed(self, number: int) -> None:
        """Count confirms."""
        with self._changed:
            self._confirms += number
            self._changed.notify_all()

    def wait(self, number: int, kills: int) -> None:
        """Wait until all clients are back after so many kills, and for so many confirms more. Raises TimeoutError."""
        with self._changed:
            ready = self.clients * (kills + 1)
            if not self._changed.wait_for(lambda: self._ready == ready, PATIENCE_S):
                raise TimeoutError(f"{ready - self._ready} clients have not come back: {self.losses}")
            wanted = self._confirms + number
            if not self._changed.wait_for(lambda: self._confirms >= wanted, PATIENCE_S):
                raise TimeoutError(f"{wanted - self._confirms} confirms are missing")

    def watch(self, name: str, connection: Connection | BlockingConnection) -> None:
        """Count a connection's losses, and when it is ready again."""
        connection.on_disconnected(lambda error: self.losses.update([name]))
        connection.on_reconnected(self.ready)


async def publish_asyncio(url: str, name: str, reference: str | None, events: Events) -> int:
    """Publish until it is enough; return how many messages there are."""
    async with await connect(url, reconnect=SOON) as connection:
        events.watch(name, connection)
        channel = await connection.channel(confirms=True, publisher=reference)
        events.ready()
        for number in count():
            future = channel.publish(f"{name} {number}".encode(), name, "", PERSISTENT)
            future.add_done_callback(lambda done: events.confirmed(done.exception() is None))
            while channel.outstanding >= WINDOW:
                await channel.drain()
                await asyncio.wait([future])
            if events.is_enough.is_set():
                await channel.wait_for_confirms()
                return number + 1
            await asyncio.sleep(0)
    raise AssertionError


def publish_blocking(url: str, name: str, reference: str | None, events: Events) -> int:
    """Publish until it is enough; return how many messages there are."""
    with BlockingConnection(url, reconnect=SOON) as connection:
        events.watch(name, connection)
        channel = connection.channel(confirms=True, publisher=reference)
        events.ready()
        for number in count():
            channel.publish(f"{name} {number}".encode(), name, "", PERSISTENT)
            is_last = events.is_enough.is_set()
            if is_last or (number + 1) % WINDOW == 0:
                channel.wait_for_confirms()
                events.confirmed(WINDOW)
            if is_last:
                return number + 1
    raise AssertionError


async def consume_asyncio(url: str, name: str, events: Events) -> None:
    """Consume until the end has come."""
    async with await connect(url, reconnect=SOON) as connection:
        events.watch(name, connection)
        channel = await connection.channel()
        await channel.qos(10)
        consumer = await channel.consume(WORK)
        events.ready()
        async for delivery in consumer:
            channel.ack(delivery.delivery_tag)
            if delivery.body == END:
                return
            events.seen.add(delivery.body)


def consume_blocking(url: str, name: str, events: Events) -> None:
    """Consume until the end has come."""
    with BlockingConnection(url, reconnect=SOON) as connection:
        events.watch(name, connection)
        channel = connection.channel()
        channel.consume(WORK, prefetch_count=10)
        events.ready()
        while True:
            delivery = channel.next_delivery(PATIENCE_S)
            assert delivery is not None, f"{name} gets nothing"
            channel.ack(delivery.delivery_tag)
            if delivery.body == END:
                return
            events.seen.add(delivery.body)


def kill_often(process: LeveretProcess, generator: random.Random, events: Events) -> None:
    """Kill the broker, each time after some more confirms, and start it again."""
    try:
        for number in range(KILLS):
            events.wait(generator.randint(10, 400), number)
            process.kill()
            process.start()
        events.wait(2 * WINDOW, KILLS)
    finally:
        events.is_enough.set()


async def declare(url: str, publishers: list[str]) -> None:
    async with await connect(url, reconnect=False) as connection, await connection.channel() as channel:
        await channel.declare_queue(WORK)
        for name in publishers:
            await channel.declare_exchange(name, "fanout")
            await channel.declare_queue(name)
            await channel.bind_queue(name, name)
            await channel.bind_queue(WORK, name)


async def numbers(url: str, queue: str) -> list[int]:
    """Take the numbers of the messages in a queue."""
    async with await connect(url, reconnect=False) as connection, await connection.channel() as channel:
        left = (await channel.declare_queue(queue, passive=True)).message_count
        consumer = await channel.consume(queue, no_ack=True)
        return [int((await anext(consumer)).body.rpartition(b" ")[2]) for _ in range(left)]


@pytest.mark.timeout(60 + 6 * KILLS)
async def test_kill_under_clients(process: LeveretProcess, seed: int) -> None:
    """Of both APIs: publishers with a reference and without, and consumers."""
    publishers = {
        f"{api} {kind}": f"{api} reference" if kind == "once" else None
        for api in ("asyncio", "blocking")
        for kind in ("once", "often")
    }
    readers = [f"{api} reader {number}" for api in ("asyncio", "blocking") for number in range(2)]
    events = Events(len(publishers) + len(readers))
    url = process.url
    await declare(url, list(publishers))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(len(publishers) + len(readers)) as threads:

        def in_thread(call: Callable[..., object], *arguments: object) -> asyncio.Future[object]:
            return loop.run_in_executor(threads, lambda: call(*arguments))

        def begin(name: str, *arguments: object) -> asyncio.Future[object]:
            api, what = name.split(maxsplit=1)[0], "consume" if name in readers else "publish"
            call = CLIENTS[what, api]
            if api == "blocking":
                return in_thread(call, url, name, *arguments, events)
            return asyncio.ensure_future(call(url, name, *arguments, events))

        reading = [begin(name) for name in readers]
        publishing = {name: begin(name, reference) for name, reference in publishers.items()}
        await in_thread(kill_often, process, random.Random(seed), events)
        published = {name: await future for name, future in publishing.items()}
        async with await connect(url, reconnect=False) as connection:
            channel = await connection.channel(confirms=True)
            for _ in readers:
                await channel.publish(END, "", WORK, PERSISTENT)
        await asyncio.gather(*reading)
    print(f"published: {published}")
    for name, total in published.items():
        assert isinstance(total, int)
        found = await numbers(url, name)
        if publishers[name] is not None:
            assert found == list(range(total)), name
        assert set(found) == set(range(total)), name
        assert {f"{name} {number}".encode() for number in range(total)} <= events.seen, name
    assert await numbers(url, WORK) == []
    assert events.losses == dict.fromkeys([*publishers, *readers], KILLS)


CLIENTS: dict[tuple[str, str], Callable[..., object]] = {
    ("publish", "asyncio"): publish_asyncio,
    ("publish", "blocking"): publish_blocking,
    ("consume", "asyncio"): consume_asyncio,
    ("consume", "blocking"): consume_blocking,
}
