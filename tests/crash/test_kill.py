"""kill -9 under load: what was confirmed is there, in order, once; what was settled for sure stays away."""

import asyncio
import random
from contextlib import suppress

from leveret.client import ClientError, Connection, Properties, connect
from leveret.client.aio_channel import Channel
from leveret.testing.processes import LeveretProcess

WORK = "crash.work"
DEAD = "crash.dead"
COPY = "crash.copy"
EXCHANGE = "crash"
MESSAGES_PER_LIFE = 1500
WINDOW = 100
PERSISTENT = Properties(delivery_mode=2)


class Ledger:
    """What the clients know. A message is its number; numbers grow with the order of publishing."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        self.attempted = 0
        self.confirmed: set[int] = set()
        self.acked: set[int] = set()
        self.acked_for_sure: set[int] = set()
        self.rejected: set[int] = set()
        self.delivered: set[int] = set()
        self.gone: set[int] = set()
        self.sizes: dict[int, int] = {}

    def body(self, number: int) -> bytes:
        """A number, and a filler: mostly short, now and then longer than a frame."""
        size = self.generator.choice((10, 100, 100, 1000, 5000, 200_000 if number % 97 == 0 else 100))
        self.sizes[number] = size
        return b"%d:" % number + b"x" * size

    def number(self, body: bytes) -> int:
        """The number of a body, which has to be complete."""
        digits, _, filler = body.partition(b":")
        number = int(digits)
        assert len(filler) == self.sizes[number]
        return number


async def declare(channel: Channel) -> None:
    await channel.declare_exchange(EXCHANGE, "fanout")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
    await channel.declare_queue(WORK, arguments=arguments)
    await channel.declare_queue(DEAD)
    await channel.declare_queue(COPY)
    await channel.bind_queue(WORK, EXCHANGE)
    await channel.bind_queue(COPY, EXCHANGE)


async def publish(channel: Channel, ledger: Ledger, life_acks: set[int]) -> None:
    """Publish in a window of confirms, and note what each confirm proves."""
    waiting: dict[asyncio.Future[None], tuple[int, frozenset[int]]] = {}

    def note(done: asyncio.Future[None]) -> None:
        number, acked_before = waiting.pop(done)
        if done.exception() is None:
            ledger.confirmed.add(number)
            # These acks went out on the same channel before the publish, so the sync that it waited for covers them.
            ledger.acked_for_sure |= acked_before

    for _ in range(MESSAGES_PER_LIFE):
        while len(waiting) >= WINDOW:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if channel.is_closed:
            return
        number = ledger.attempted = ledger.attempted + 1
        future = channel.publish(ledger.body(number), EXCHANGE, "", PERSISTENT)
        waiting[future] = (number, frozenset(life_acks))
        life_acks.clear()
        future.add_done_callback(note)
        await channel.drain()


async def consume(channel: Channel, ledger: Ledger, life_acks: set[int]) -> None:
    """Acknowledge most, dead-letter some, put some back, keep a few."""
    consumer = await channel.consume(WORK)
    async for delivery in consumer:
        number = ledger.number(delivery.body)
        assert delivery.redelivered or number not in ledger.delivered
        ledger.delivered.add(number)
        choice = ledger.generator.random()
        if choice < 0.5:
            ledger.acked.add(number)
            life_acks.add(number)
            channel.ack(delivery.delivery_tag)
        elif choice < 0.7:
            ledger.rejected.add(number)
            channel.reject(delivery.delivery_tag, requeue=False)
        elif choice < 0.8:
            channel.reject(delivery.delivery_tag, requeue=True)


async def load(url: str, ledger: Ledger) -> None:
    """Publish and consume on one channel until the broker dies."""
    life_acks: set[int] = set()
    with suppress(ClientError, OSError):
        connection = await connect(url)
        channel = await connection.channel()
        await declare(channel)
        await channel.confirm_select()
        await channel.qos(50)
        consuming = asyncio.create_task(consume(channel, ledger, life_acks))
        try:
            await publish(channel, ledger, life_acks)
            await consuming
        finally:
            consuming.cancel()
            with suppress(asyncio.CancelledError, ClientError, OSError):
                await consuming


async def peek(connection: Connection, queue: str, ledger: Ledger | None = None) -> list[int]:
    """The numbers in a queue, in order; all are put back. With a ledger, bodies and redelivered flags are checked."""
    channel = await connection.channel()
    count = (await channel.declare_queue(queue, passive=True)).message_count
    consumer = await channel.consume(queue)
    found = []
    for _ in range(count):
        delivery = await anext(consumer)
        if ledger is None:
            found.append(int(delivery.body.partition(b":")[0]))
            continue
        number = ledger.number(delivery.body)
        found.append(number)
        if queue == WORK:
            assert delivery.redelivered or number not in ledger.delivered, f"{number} was delivered before"
            ledger.delivered.add(number)
    await channel.close()
    return found


def check(ledger: Ledger, work: list[int], dead: list[int], copy: list[int]) -> None:
    """Compare the queues with what the clients know."""
    present = set(work) | set(dead)
    assert len(present) == len(work) + len(dead), "a message is there twice"
    assert present | set(copy) <= set(range(1, ledger.attempted + 1)), "a message was invented"
    assert work == sorted(work), "the order was lost"
    assert copy == sorted(set(copy)), "the order was lost, or a message is there twice"
    lost = ledger.confirmed - ledger.acked - present
    assert not lost, f"confirmed and lost: {sorted(lost)[:10]}"
    lost = ledger.confirmed - set(copy)
    assert not lost, f"confirmed and lost in the second queue: {sorted(lost)[:10]}"
    assert not ledger.acked_for_sure & present, "an acknowledgement covered by a sync came back"
    assert not ledger.gone & present, "a message came back that an earlier life had lost or settled"
    assert set(dead) <= ledger.rejected, "dead-lettered, but never rejected"
    ledger.gone = set(range(1, ledger.attempted + 1)) - present


async def test_kill_under_load(process: LeveretProcess, seed: int, kills: int) -> None:
    generator = random.Random(seed)
    ledger = Ledger(generator)
    hops = 0
    for _ in range(kills):
        loading = asyncio.create_task(load(process.url, ledger))
        await asyncio.sleep(generator.uniform(0.05, 1.0))
        process.kill()
        await asyncio.wait_for(loading, 20)
        process.start()
        async with await connect(process.url) as connection:
            await declare(await connection.channel())
            work = await peek(connection, WORK, ledger)
            dead = await peek(connection, DEAD, ledger)
            copy = await peek(connection, COPY, ledger)
        hops += len(dead)
        check(ledger, work, dead, copy)
    assert len(ledger.confirmed) > 20 * kills, "the load was too small to mean anything"
    assert hops
    assert ledger.acked_for_sure


async def test_kill_after_many_files(process: LeveretProcess) -> None:
    """More than the journal's files hold at once: the settled ones go, the rest survives a kill."""
    filler = b"x" * (1 << 20)
    confirmed = 0
    async with await connect(process.url) as connection:
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
                # The first one stays in the queue through all files.
                if delivery.body == b"1:oldest":
                    delivery2 = await channel.get(WORK)
                    assert delivery2 is not None
                    channel.reject(delivery.delivery_tag)
                    delivery = delivery2
                channel.ack(delivery.delivery_tag)
        await channel.wait_for_confirms()
    assert confirmed == 150
    journal = process.data_dir / "journal"
    assert len(list(journal.glob("journal-*.lvj"))) > 1
    process.kill()
    process.start()
    async with await connect(process.url) as connection:
        assert await peek(connection, WORK) == [1, *range(141, 152)]
        channel = await connection.channel()
        await channel.purge_queue(WORK)
        await channel.confirm_select()
        # Nothing in the old files is needed now; the next full file lets them go.
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
    async with await connect(process.url) as connection:
        assert await peek(connection, WORK) == [999]


async def test_publish_deliver_die_reconnect(process: LeveretProcess) -> None:
    """The scenario of the publisher confirms document: delivered, not acknowledged, the broker dies; it comes again."""
    async with await connect(process.url) as connection:
        channel = await connection.channel()
        await declare(channel)
        await channel.confirm_select()
        await channel.publish(b"1:once", EXCHANGE, "", PERSISTENT)
        consumer = await channel.consume(WORK)
        delivery = await anext(consumer)
        assert (delivery.body, delivery.redelivered) == (b"1:once", False)
        process.kill()
    process.start()
    async with await connect(process.url) as connection:
        channel = await connection.channel()
        consumer = await channel.consume(WORK)
        delivery = await anext(consumer)
        assert (delivery.body, delivery.redelivered) == (b"1:once", True)


async def test_delivered_in_a_life_that_wrote_nothing(process: LeveretProcess) -> None:
    """An orderly stop, a life in which nothing durable happens but a delivery, a kill: it was delivered before."""
    async with await connect(process.url) as connection:
        channel = await connection.channel()
        await declare(channel)
        await channel.confirm_select()
        await channel.publish(b"1:x", EXCHANGE, "", PERSISTENT)
    assert process.stop() == 0
    process.start()
    async with await connect(process.url) as connection:
        channel = await connection.channel()
        delivery = await anext(await channel.consume(WORK))
        assert not delivery.redelivered
        process.kill()
    process.start()
    async with await connect(process.url) as connection:
        channel = await connection.channel()
        delivery = await anext(await channel.consume(WORK))
        assert delivery.redelivered


async def test_an_orderly_stop_forgets_nothing(process: LeveretProcess) -> None:
    """SIGTERM: exit status 0, everything back in order, redelivered only where it was delivered."""
    async with await connect(process.url) as connection:
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
    async with await connect(process.url) as connection:
        channel = await connection.channel()
        consumer = await channel.consume(WORK)
        deliveries = [await anext(consumer) for _ in range(500)]
        assert [int(delivery.body[:-1]) for delivery in deliveries] == list(range(1, 501))
        assert [delivery.redelivered for delivery in deliveries] == [True] * 20 + [False] * 480
        assert (await channel.declare_queue(COPY, passive=True)).message_count == 500
