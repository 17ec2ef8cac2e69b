"""Streams under load while the broker dies: what publishers and consumers know, and whether a broker contradicts it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress

from leveret.client import ClientError, connect
from leveret.client.aio_channel import Channel
from leveret.testing.processes import ServerProcess

EXCHANGE = "crash.streams"
# ALL keeps everything; retention removes the oldest messages of SOME
ALL, SOME = "crash.all", "crash.some"
SEGMENT_OCTETS = 400_000
ARGUMENTS: dict[str, dict[str, object]] = {
    ALL: {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": SEGMENT_OCTETS},
    SOME: {
        "x-queue-type": "stream",
        "x-stream-max-segment-size-bytes": SEGMENT_OCTETS,
        "x-max-length-bytes": 2 * SEGMENT_OCTETS,
    },
}
PUBLISHERS = 2
WINDOW = 100
PREFETCH = 200
# minimum confirmed in a run before the broker dies: messages go from memory to files at 1 MiB
LIFE_OCTETS = 2 << 20


class StreamLedger:
    """What clients know of the streams."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        self.attempted = 0
        self.octets = 0  # size of the confirmed bodies
        self.checks = 0
        self.confirmed: set[int] = set()  # numbers of messages
        # stream -> {offset that a consumer got: number}
        self.seen: dict[str, dict[int, int]] = {name: {} for name in ARGUMENTS}
        self.first = dict.fromkeys(ARGUMENTS, 0)  # stream -> offset of the oldest message at the last check
        self.hits: Counter[str] = Counter()

    def next(self, publisher: int) -> tuple[int, bytes]:
        """Return the next number and its body."""
        number = self.attempted = self.attempted + 1
        body = b"%d:%d:" % (number, publisher) + b"x" * self.generator.choice((10, 100, 1000, 10_000, 40_000))
        return number, body

    def note(self, stream: str, offset: object, body: bytes) -> int:
        """Note that a consumer got this message; check that the offset has always had it. Returns its number."""
        assert isinstance(offset, int)
        number = int(body.partition(b":")[0])
        known = self.seen[stream].setdefault(offset, number)
        assert known == number, f"{stream}: {offset} was message {known}, and is message {number}"
        return number

    def check(self, stream: str, found: list[tuple[int, bytes]]) -> None:
        """Check the whole stream of a restarted broker."""
        offsets = [offset for offset, _ in found]
        assert offsets, f"{stream}: all is gone"
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), f"{stream}: offsets with gaps or repeats"
        numbers = [self.note(stream, offset, body) for offset, body in found]
        assert len(set(numbers)) == len(numbers), f"{stream}: a message is there twice"
        assert max(self.seen[stream]) <= offsets[-1], f"{stream}: what a consumer had seen is gone"
        for publisher in range(PUBLISHERS):
            own = [n for n, (_, body) in zip(numbers, found, strict=True) if int(body.split(b":")[1]) == publisher]
            assert own == sorted(own), f"{stream}: the order of a publisher was lost"
        if stream == ALL:
            assert offsets[0] == 0
            lost = self.confirmed - set(numbers)
            assert not lost, f"confirmed and lost: {sorted(lost)[:10]} of {len(lost)}"
        else:
            self.hits["starts behind a retention"] += offsets[0] > self.first[stream]
        self.first[stream] = offsets[0]

    def report(self) -> Iterator[str]:
        """Yield how often each situation was hit, a line each."""
        for what, count in sorted(self.hits.items()):
            yield f"{count:8}  {what}"


async def load_and_end(
    process: ServerProcess,
    ledger: StreamLedger,
    last_moments: AbstractContextManager[object] | None = None,
    *,
    least: float = 0.3,
) -> None:
    """Publish and consume until the broker is killed at a random moment, inside the context `last_moments`.

    `least` replaces LIFE_OCTETS.
    """
    end = ledger.octets + LIFE_OCTETS * ledger.generator.uniform(least, 1.5)
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for publisher in range(PUBLISHERS):
            tasks.create_task(_publish(process.url, ledger, publisher, end, enough))
        for stream in ARGUMENTS:
            for offset in ("first", "next"):
                tasks.create_task(_consume(process.url, ledger, stream, offset))
        await enough.wait()
        with last_moments or nullcontext():
            await asyncio.sleep(ledger.generator.uniform(0, 0.05))
            process.kill()


async def declare(channel: Channel) -> None:
    await channel.declare_exchange(EXCHANGE, "fanout")
    for stream, arguments in ARGUMENTS.items():
        await channel.declare_queue(stream, arguments=arguments)
        await channel.bind_queue(stream, EXCHANGE)


async def _publish(url: str, ledger: StreamLedger, publisher: int, end: float, enough: asyncio.Event) -> None:
    waiting: dict[asyncio.Future[None], int] = {}
    sizes: dict[int, int] = {}

    def note(done: asyncio.Future[None]) -> None:
        number = waiting.pop(done)
        if done.exception() is None:
            ledger.confirmed.add(number)
            ledger.octets += sizes.pop(number)
            if ledger.octets > end:
                enough.set()

    with suppress(ClientError, OSError):
        connection = await connect(url, reconnect=False)
        channel = await connection.channel()
        await declare(channel)
        await channel.confirm_select()
        while not channel.is_closed:
            while len(waiting) >= WINDOW:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            number, body = ledger.next(publisher)
            future = channel.publish(body, EXCHANGE)
            waiting[future] = number
            sizes[number] = len(body)
            future.add_done_callback(note)
            await channel.drain()
    enough.set()
    await asyncio.gather(*waiting, return_exceptions=True)


async def _consume(url: str, ledger: StreamLedger, stream: str, offset: str) -> None:
    with suppress(ClientError, OSError):
        connection = await connect(url, reconnect=False)
        channel = await connection.channel()
        await declare(channel)
        await channel.qos(PREFETCH)
        before = -1
        async for delivery in await channel.consume(stream, arguments={"x-stream-offset": offset}):
            now = (delivery.properties.headers or {})["x-stream-offset"]
            ledger.note(stream, now, delivery.body)
            assert isinstance(now, int)
            assert before < 0 or now == before + 1 or stream == SOME, f"{stream}: {now} after {before}"
            before = now
            channel.ack(delivery.delivery_tag)
            ledger.hits["deliveries"] += 1


async def check(url: str, ledger: StreamLedger) -> None:
    """Compare the streams, up to a message of this check, with all that clients know."""
    ledger.checks += 1
    end = b"-%d:%d:" % (ledger.checks, PUBLISHERS)
    async with await connect(url, reconnect=False) as connection:
        for stream in ARGUMENTS:
            channel = await connection.channel()
            await declare(channel)
            await channel.confirm_select()
            await channel.publish(end, "", stream)
            await channel.qos(PREFETCH)
            consumer = await channel.consume(stream, arguments={"x-stream-offset": "first"})
            found: list[tuple[int, bytes]] = []
            while not found or found[-1][1] != end:
                delivery = await anext(consumer)
                offset = (delivery.properties.headers or {})["x-stream-offset"]
                assert isinstance(offset, int)
                found.append((offset, delivery.body))
                channel.ack(delivery.delivery_tag)
            ledger.check(stream, found)
            await channel.close()
    ledger.hits["lives"] += 1
