"""Power cuts under load: after each kill the disk loses what was not synced, all of it or a part, torn at any byte."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leveret.client import ClientError, Connection, connect
from leveret.client.aio_channel import Channel
from leveret.testing.lossy import LossyDisk
from leveret.testing.processes import LeveretProcess

from .ledger import Ledger
from .load import PERSISTENT, check, load_and_kill

CUTS = int(os.environ.get("LEVERET_CRASH_CUTS", "15"))
QUEUE = "power"

pytestmark = pytest.mark.needs("compiler")


class LossyLeveret(LeveretProcess):
    """A broker whose disk can lose power."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "data")
        self.disk = LossyDisk(self.data_dir, directory)
        self.extra_environment.update(self.disk.environment())

    def lose_power(self, generator: random.Random | None = None) -> int:
        """Kill it, and remove what was not synced (with a generator: a random part); return how many changes
        were lost."""
        self.kill()
        self.disk.absorb()
        return self.disk.power_loss(generator)


@asynccontextmanager
async def a_sync_waits(disk: LossyDisk) -> AsyncIterator[None]:
    """Stop syncs; enter the block when something has been written that a sync is waiting to cover."""
    with disk.syncs_stopped():
        await asyncio.to_thread(disk.wait_for_a_sync)
        yield


@pytest.fixture
def process(tmp_path: Path) -> Iterator[LossyLeveret]:
    with LossyLeveret(tmp_path) as running:
        yield running


@pytest.mark.timeout(60 + 10 * CUTS)
async def test_power_loss_under_load(process: LossyLeveret, seed: int) -> None:
    """Runs LEVERET_CRASH_CUTS times; `pytest -rP` shows what the cuts hit.

    Every third cut hits a broker that has just recovered from a kill, and has made the contents of the page cache
    durable.
    """
    generator = random.Random(seed)
    ledger = Ledger(generator)
    for cut in range(CUTS):
        # A slow disk at the cut: deliveries, acknowledgements and hops of messages that are not synced.
        is_slow = cut % 2 == 1
        await load_and_kill(process, ledger, a_sync_waits(process.disk) if is_slow else None)
        process.disk.absorb()
        if cut % 3 == 2:
            process.start()
            await check(process.url, ledger)
            process.kill()
            process.disk.absorb()
        is_partial = generator.random() < 0.5
        gone = process.disk.power_loss(generator if is_partial else None)
        assert gone or is_partial or not is_slow, "what was written and not synced is still there"
        ledger.hits["cuts that took changes away"] += bool(gone)
        ledger.hits["changes taken away"] += gone
        process.start()
        await check(process.url, ledger)
    print(*ledger.report(), sep="\n")
    assert ledger.hits["cuts that took changes away"]
    assert ledger.hits["dead letters in dead"]
    assert ledger.hits["dead letters in expired"]
    assert ledger.hits["dead letters in overflow"]
    assert ledger.hits["declarations checked"]
    assert ledger.hits["deletions checked"]
    assert ledger.work.settled_for_sure


@pytest.mark.parametrize(("lie", "found"), [("file", "confirmed and lost"), ("directory", "declaration is lost")])
async def test_the_test_sees_a_disk_that_lies(tmp_path: Path, seed: int, lie: str, found: str) -> None:
    """If syncs of files, or of directories, are only pretended, the same run finds loss."""
    ledger = Ledger(random.Random(seed))
    process = LossyLeveret(tmp_path)
    if lie == "file":
        # An honest run first, so that the queues are safe and the loss is one of messages.
        with process:
            await check(process.url, ledger)
        assert process.disk.absorb() == 0
    process.disk.ignored = {lie}
    with process:
        await load_and_kill(process, ledger)
        process.disk.absorb()
        process.disk.power_loss()
        process.start()
        if lie == "file":
            # Declarations are lost, too; this test is about messages.
            ledger.declared.clear()
        with pytest.raises((AssertionError, pytest.fail.Exception), match=found):
            await check(process.url, ledger)


async def test_the_library_sees_every_change(process: LossyLeveret, seed: int) -> None:
    """After an orderly stop the journal equals the log of changes, to the byte, and all but its end is synced.

    The stop truncates zeros, and does not wait for that.
    """
    await load_and_kill(process, Ledger(random.Random(seed)))
    process.disk.absorb()
    process.start()
    assert process.stop() == 0
    assert process.disk.absorb() == 0
    journal = process.data_dir / "journal"
    before = {path.name: path.read_bytes() for path in journal.iterdir()}
    process.disk.power_loss()
    assert {path.name: path.read_bytes().rstrip(b"\0") for path in journal.iterdir()} == {
        name: content.rstrip(b"\0") for name, content in before.items()
    }


async def prepare(connection: Connection) -> Channel:
    channel = await connection.channel()
    await channel.declare_queue(QUEUE)
    await channel.confirm_select()
    return channel


async def test_publish_deliver_die_reconnect_before_the_sync(process: LossyLeveret) -> None:
    """Delivered, not acknowledged, not synced, crashed: the message is gone. It was never confirmed."""
    async with await connect(process.url, reconnect=False) as connection:
        channel = await prepare(connection)
        await channel.publish(b"synced", "", QUEUE, PERSISTENT)
        consumer = await channel.consume(QUEUE)
        assert (await anext(consumer)).body == b"synced"
        with process.disk.syncs_stopped():
            confirm = channel.publish(b"not synced", "", QUEUE, PERSISTENT)
            delivery = await anext(consumer)
            assert (delivery.body, delivery.redelivered) == (b"not synced", False)
            # More round trips than a confirm would need.
            await channel.declare_queue(QUEUE, passive=True)
            assert not confirm.done()
            process.lose_power()
        with pytest.raises(ClientError):
            await confirm
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        channel = await prepare(connection)
        delivery = await channel.get(QUEUE)
        assert delivery is not None
        assert (delivery.body, delivery.redelivered) == (b"synced", True)
        assert await channel.get(QUEUE) is None


async def test_publish_deliver_die_reconnect_after_the_sync(process: LossyLeveret) -> None:
    """Delivered, not acknowledged, confirmed, crashed: the message is delivered again, marked as redelivered."""
    async with await connect(process.url, reconnect=False) as connection:
        channel = await prepare(connection)
        await channel.publish(b"once", "", QUEUE, PERSISTENT)
        delivery = await anext(await channel.consume(QUEUE))
        assert (delivery.body, delivery.redelivered) == (b"once", False)
        process.lose_power()
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        delivery = await anext(await (await prepare(connection)).consume(QUEUE))
        assert (delivery.body, delivery.redelivered) == (b"once", True)


async def test_what_a_start_found_is_safe(process: LossyLeveret) -> None:
    """Written, not synced, killed, found in the page cache by the next run and delivered: no power cut may lose it."""
    async with await connect(process.url, reconnect=False) as connection:
        channel = await prepare(connection)
        with process.disk.syncs_stopped():
            confirm = channel.publish(b"unconfirmed", "", QUEUE, PERSISTENT)
            # wait_for_a_sync returns when the sync thread is about to sync: the write is done.
            await asyncio.to_thread(process.disk.wait_for_a_sync)
            process.kill()
        with pytest.raises(ClientError):
            await confirm
    process.disk.absorb()
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        delivery = await anext(await (await prepare(connection)).consume(QUEUE))
        assert (delivery.body, delivery.redelivered) == (b"unconfirmed", True)
        process.lose_power()
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        delivery = await anext(await (await prepare(connection)).consume(QUEUE))
        assert delivery.body == b"unconfirmed"


async def test_an_acknowledgement_before_a_confirmed_publish_is_safe(process: LossyLeveret) -> None:
    async with await connect(process.url, reconnect=False) as connection:
        channel = await prepare(connection)
        for body in (b"one", b"two"):
            await channel.publish(body, "", QUEUE, PERSISTENT)
        consumer = await channel.consume(QUEUE)
        channel.ack((await anext(consumer)).delivery_tag)
        await channel.publish(b"three", "", QUEUE, PERSISTENT)
        process.lose_power()
    process.start()
    async with await connect(process.url, reconnect=False) as connection:
        consumer = await (await prepare(connection)).consume(QUEUE)
        assert [(await anext(consumer)).body for _ in range(2)] == [b"two", b"three"]
