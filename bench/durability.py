#!/usr/bin/env python3
"""What a confirm is worth: brokers killed under load, keeping the page cache (kill -9) or losing it (a power cut).

    bench/durability.py
    bench/durability.py --rounds 10 --brokers leveret
    bench/durability.py --names-too

Persistent messages go to durable queues, up to 100 of them unconfirmed. The broker is killed under this load and
restarted; then the queue is read to its end. A message that was confirmed and is missing counts as lost. The power cut
discards all bytes that were not synced when the process died (leveret.testing.lossy), on a file system that never loses
a name: RabbitMQ does not sync directories, and ext4 with its defaults forgives that. With --names-too, names not
covered by a sync of their directory are lost as well, as POSIX allows. What an orderly stop left before the load counts
as written back. Prints a table in Markdown.
"""

import argparse
import asyncio
import logging
import random
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from leveret.client import ClientError, Connection, Properties, connect
from leveret.testing.lossy import LossyDisk
from leveret.testing.processes import LeveretProcess, ProcessFailed, RabbitMQProcess, ServerProcess

PERSISTENT = Properties(delivery_mode=2)
END = b"end"
WINDOW = 100
AWAITED = 100
KILL, POWER = "kill -9", "power cut"


@dataclass
class Count:
    """Totals of all rounds: confirmed messages, how many of these were lost, and failed starts."""

    confirmed: int = 0
    lost: int = 0

    def __str__(self) -> str:
        return f"{self.confirmed:,} | {self.lost:,}"


@dataclass
class Kind:
    """A kind of queue and its measurements."""

    broker: str
    name: str
    arguments: Mapping[str, object]
    syncs: int = 0
    counts: dict[str, Count] = field(default_factory=lambda: {KILL: Count(), POWER: Count()})

    @property
    def queue(self) -> str:
        return f"durability.{self.name}"


KINDS = {
    "leveret": [Kind("leveret", "durable", {})],
    "rabbitmq": [
        Kind("RabbitMQ 3.10.8", "classic", {}),
        Kind("RabbitMQ 3.10.8", "classic, x-queue-version=2", {"x-queue-version": 2}),
        Kind("RabbitMQ 3.10.8", "quorum", {"x-queue-type": "quorum"}),
    ],
}


async def prepare(url: str, kinds: list[Kind]) -> None:
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        for kind in kinds:
            await channel.declare_queue(kind.queue, arguments=kind.arguments)


async def count_syncs(url: str, kinds: list[Kind], disk: LossyDisk) -> None:
    """Count how many syncs a number of messages takes, each awaited before the next."""
    async with await connect(url, reconnect=False) as connection:
        for kind in kinds:
            channel = await connection.channel()
            await channel.confirm_select()
            before = disk.count_syncs()
            for number in range(AWAITED):
                await channel.publish(b"%d" % number, "", kind.queue, PERSISTENT)
            kind.syncs = disk.count_syncs() - before
            await channel.purge_queue(kind.queue)


async def publish(connection: Connection, queue: str, turn: int, confirmed: set[int]) -> None:
    """Publish this turn's numbers until the broker dies."""
    channel = await connection.channel()
    await channel.confirm_select()
    waiting: dict[asyncio.Future[None], int] = {}

    def note(done: asyncio.Future[None]) -> None:
        number = waiting.pop(done)
        if done.exception() is None:
            confirmed.add(number)

    number = 0
    while not channel.is_closed:
        while len(waiting) >= WINDOW:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        number += 1
        confirm = channel.publish(b"%d %d" % (turn, number) + b" " * 200, "", queue, PERSISTENT)
        waiting[confirm] = number
        confirm.add_done_callback(note)
        await channel.drain()


async def load_and_kill(process: ServerProcess, kinds: list[Kind], turn: int, seconds: float) -> list[set[int]]:
    """Load the broker and kill it; return what was confirmed in each queue before it died."""
    confirmed: list[set[int]] = [set() for _ in kinds]
    connections = [await connect(process.url, reconnect=False) for _ in kinds]
    tasks = [
        asyncio.create_task(publish(connection, kind.queue, turn, numbers))
        for connection, kind, numbers in zip(connections, kinds, confirmed, strict=True)
    ]
    await asyncio.sleep(seconds)
    process.kill()
    for task in tasks:
        with suppress(ClientError, OSError):
            await task
    return confirmed


async def read(url: str, kind: Kind, turn: int) -> set[int]:
    """Read this turn's numbers from a queue. Those of an earlier turn may appear, too: acknowledgements can be lost."""
    mark = b"end %d" % turn
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await channel.publish(mark, "", kind.queue, PERSISTENT)
        await channel.qos(1000)
        found = set()
        async for delivery in await channel.consume(kind.queue):
            channel.ack(delivery.delivery_tag)
            if delivery.body == mark:
                break
            which, number = delivery.body.split()
            if which == b"%d" % turn:
                found.add(int(number))
        # the answer shows that the last acknowledgement has arrived
        await channel.declare_queue(kind.queue, passive=True)
        return found


async def measure(name: str, work: Path, rounds: int, names_are_safe: bool, generator: random.Random) -> None:
    """Run all rounds of one broker; every other one is a power cut."""
    kinds = KINDS[name]
    data = work / "data"
    process = LeveretProcess(data) if name == "leveret" else RabbitMQProcess(data)
    watched = data if name == "leveret" else data / "mnesia"
    try:
        process.start()
        await prepare(process.url, kinds)
        for turn in range(2 * rounds):
            what = POWER if turn % 2 else KILL
            await asyncio.to_thread(process.stop)
            disk = LossyDisk(watched, work, names_are_safe=names_are_safe)
            process.extra_environment = disk.environment()
            process.start()
            if not turn:
                await count_syncs(process.url, kinds, disk)
            confirmed = await load_and_kill(process, kinds, turn, generator.uniform(0.5, 2))
            disk.absorb()
            if what == POWER:
                disk.power_loss()
            process.extra_environment = {}
            process.start()
            for kind, numbers in zip(kinds, confirmed, strict=True):
                lost = numbers - await read(process.url, kind, turn)
                kind.counts[what].confirmed += len(numbers)
                kind.counts[what].lost += len(lost)
                print(f"{kind.broker}, {kind.name}: {what}: {len(lost)} of {len(numbers)} lost", file=sys.stderr)
    finally:
        with suppress(ProcessFailed):
            process.kill()


def table(kinds: list[Kind]) -> str:
    lines = [
        f"| broker | queue | syncs per {AWAITED} awaited | {KILL}: confirmed | lost | {POWER}: confirmed | lost |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {kind.broker} | {kind.name} | {kind.syncs} | {kind.counts[KILL]} | {kind.counts[POWER]} |" for kind in kinds
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", default="leveret,rabbitmq", help="comma separated")
    parser.add_argument("--rounds", type=int, default=5, help="kills, and as many power cuts")
    parser.add_argument("--names-too", action="store_true", help="names can be lost, too")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # asyncio warns about every byte written to a broker that has just died
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    names = options.brokers.split(",")
    if unknown := set(names) - set(KINDS):
        parser.error(f"unknown brokers: {', '.join(sorted(unknown))}")
    try:
        for name in names:
            with tempfile.TemporaryDirectory(prefix="durability-") as work:
                generator = random.Random(options.seed)
                asyncio.run(measure(name, Path(work).resolve(), options.rounds, not options.names_too, generator))
    except ProcessFailed as error:
        sys.exit(str(error))
    print(table([kind for name in names for kind in KINDS[name]]))
    if any(count.lost for kind in KINDS["leveret"] for count in kind.counts.values()):
        sys.exit("leveret lost confirmed messages")


if __name__ == "__main__":
    main()
