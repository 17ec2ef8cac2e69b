"""The load under which brokers are killed: confirms, acknowledgements, dead letters of all kinds, declarations."""

import asyncio
import itertools
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

import pytest

from leveret.client import ChannelClosed, ClientError, Connection, Delivery, Properties, connect
from leveret.client.aio_channel import Channel
from leveret.client.protocol.channel_core import DeliverySink
from leveret.testing.processes import ServerProcess

from .ledger import PREFIX, Ledger, Place

EXCHANGE = PREFIX + "exchange"
NOTED = PREFIX + "noted"
# LEVERET_CRASH_KILLS: how often a broker is killed under load.
KILLS = int(os.environ.get("LEVERET_CRASH_KILLS", "20"))
WINDOWS = (1, 100, 300)
PREFETCH = 50
# How many messages a check leaves in a queue without another consumer.
LEFT = 100
PERSISTENT = Properties(delivery_mode=2)
END = b"end"


async def declare(channel: Channel, ledger: Ledger) -> None:
    await channel.declare_exchange(EXCHANGE, "fanout")
    await channel.declare_queue(NOTED)
    for place in ledger.places:
        for queue in place.queues[1:]:
            await channel.declare_queue(queue)
        await channel.declare_queue(place.queues[0], arguments=place.arguments)
        await channel.bind_queue(place.queues[0], EXCHANGE)


async def load_and_kill(
    process: ServerProcess, ledger: Ledger, last_moments: AbstractAsyncContextManager[None] | None = None
) -> None:
    """Load a running broker and kill it at a random moment, inside the context `last_moments` if one is given.

    The moment is a number of confirms, so that a slow machine bears the same load. A ledger's first run is long enough
    for everything that may happen to a message or a declaration.
    """
    is_first = not ledger.hits["kills"]
    left = 400 if is_first else ledger.generator.randint(25, 250)
    enough = asyncio.Event()

    def confirmed() -> None:
        nonlocal left
        if not is_first or (ledger.work.rejected and ledger.deleted):
            left -= 1
        if left <= 0:
            enough.set()

    loading = asyncio.create_task(load(process.url, ledger, confirmed))
    waiting = asyncio.create_task(enough.wait())
    await asyncio.wait({loading, waiting}, return_when=asyncio.FIRST_COMPLETED)
    assert enough.is_set(), f"the load ended by itself: {process.output}"
    async with last_moments or nullcontext():
        await asyncio.sleep(ledger.generator.uniform(0, 0.05))
        process.kill()
    await loading


async def load(url: str, ledger: Ledger, confirmed: Callable[[], object]) -> None:
    """Publish, consume and declare until the broker dies; call `confirmed` for each confirm."""
    acked: set[int] = set()
    with suppress(ClientError, OSError):
        connection = await connect(url, reconnect=False)
        channel = await connection.channel()
        await declare(channel, ledger)
        await channel.confirm_select()
        await channel.qos(PREFETCH)
        things = await connection.channel()
        await declare_thing(things, ledger)
        others = [
            asyncio.create_task(consume(channel, ledger, acked)),
            asyncio.create_task(declare_things(things, ledger)),
        ]
        try:
            await publish(channel, ledger, acked, confirmed)
        finally:
            for task in others:
                task.cancel()
            for task in others:
                with suppress(asyncio.CancelledError, ClientError, OSError):
                    await task
    ledger.killed()


async def publish(channel: Channel, ledger: Ledger, acked: set[int], confirmed: Callable[[], object]) -> None:
    """Publish in a window of confirms, and note what each confirm proves."""
    waiting: dict[asyncio.Future[None], tuple[int, frozenset[int]]] = {}
    window = ledger.generator.choice(WINDOWS)

    def note(done: asyncio.Future[None]) -> None:
        number, acked_before = waiting.pop(done)
        if done.exception() is None:
            ledger.confirmed.add(number)
            # These acks went out on the same channel before the publish, so the sync that it waited for covers them.
            ledger.work.settled_for_sure |= acked_before
            confirmed()

    while not channel.is_closed:
        while len(waiting) >= window:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        number, body = ledger.next()
        future = channel.publish(body, EXCHANGE, "", PERSISTENT)
        waiting[future] = (number, frozenset(acked))
        acked.clear()
        future.add_done_callback(note)
        await channel.drain()


async def consume(channel: Channel, ledger: Ledger, acked: set[int]) -> None:
    """Acknowledge most, dead-letter some, put some back, keep a few."""
    work = ledger.work
    consumer = await channel.consume(work.queues[0])
    async for delivery in consumer:
        number = ledger.number(delivery.body)
        assert delivery.redelivered or number not in work.delivered, f"{number} was delivered before"
        work.delivered.add(number)
        choice = ledger.generator.random()
        if choice < 0.5:
            work.settled.add(number)
            acked.add(number)
            channel.ack(delivery.delivery_tag)
        elif choice < 0.7:
            work.rejected.add(number)
            channel.reject(delivery.delivery_tag, requeue=False)
        elif choice < 0.8:
            channel.reject(delivery.delivery_tag, requeue=True)


async def declare_things(channel: Channel, ledger: Ledger) -> None:
    """Declare queues one after the other; delete every third one again."""
    while True:
        number = await declare_thing(channel, ledger)
        if number % 3 == 0:
            await delete_thing(channel, ledger, number)


async def declare_thing(channel: Channel, ledger: Ledger) -> int:
    """Declare a durable queue with an exchange and a binding; return its number."""
    number = ledger.things = ledger.things + 1
    name = f"{PREFIX}thing.{number}"
    ledger.hits["declarations begun"] += 1
    await channel.declare_exchange(name, "topic")
    await channel.declare_queue(name)
    await channel.bind_queue(name, name, "a.#")
    ledger.declared.add(number)
    return number


async def delete_thing(channel: Channel, ledger: Ledger, number: int) -> None:
    ledger.declared.discard(number)
    await channel.delete_queue(f"{PREFIX}thing.{number}")
    await channel.delete_exchange(f"{PREFIX}thing.{number}")
    ledger.deleted.add(number)


async def check(url: str, ledger: Ledger) -> None:
    """Compare all that the clients know with the contents of a restarted broker."""
    async with await connect(url, reconnect=False) as connection:
        await check_things(connection, ledger)
        await declare(await connection.channel(), ledger)
        for place in ledger.places:
            await check_place(connection, ledger, place)
    ledger.check_together()


async def check_things(connection: Connection, ledger: Ledger) -> None:
    """Check that answered declarations and deletions survived; then delete all of these queues."""
    channel = await connection.channel()
    for number in sorted(ledger.declared):
        name = f"{PREFIX}thing.{number}"
        try:
            await channel.declare_queue(name, passive=True)
            channel.publish(b"", name, "a.b")
            queue = await channel.get(name, no_ack=True)
        except ChannelClosed as error:
            pytest.fail(f"an answered declaration is lost: {error}")
        assert queue is not None, f"the answered binding of {name} is lost"
    for number in sorted(ledger.deleted):
        probe = await connection.channel()
        with pytest.raises(ChannelClosed, match="404"):
            await probe.declare_queue(f"{PREFIX}thing.{number}", passive=True)
    ledger.hits["declarations checked"] += len(ledger.declared)
    ledger.hits["deletions checked"] += len(ledger.deleted)
    ledger.deleted.clear()
    for number in sorted(ledger.declared):
        await delete_thing(channel, ledger, number)
    await channel.close()


async def check_place(connection: Connection, ledger: Ledger, place: Place) -> None:
    """Read both queues to their ends, check, settle most of what the load does not consume, and requeue the rest."""
    channel = await connection.channel()
    deliveries = await read(channel, place.queues)
    by_queue = [[ledger.number(delivery.body) for delivery in deliveries[queue]] for queue in place.queues]
    place.check(ledger, by_queue[0], [*itertools.chain(*by_queue[1:])])
    if place is ledger.work:
        for delivery in deliveries[place.queues[0]]:
            number = ledger.number(delivery.body)
            assert delivery.redelivered or number not in place.delivered, f"{number} was delivered before"
            place.delivered.add(number)
        assert set(by_queue[1]) <= place.rejected, "dead-lettered, but never rejected"
    await channel.confirm_select()
    settled = set()
    for delivery in deliveries[place.queues[-1]][:-LEFT]:
        channel.ack(delivery.delivery_tag)
        settled.add(ledger.number(delivery.body))
    place.settled |= settled
    await channel.publish(b"", "", NOTED, PERSISTENT)
    place.settled_for_sure |= settled
    await channel.purge_queue(NOTED)
    await channel.close()


async def read(channel: Channel, queues: list[str]) -> dict[str, list[Delivery]]:
    """Read all messages of a queue and then of its dead letter queue, in order, without acknowledging.

    A marker message shows where each queue ends. Messages may be dead-lettered meanwhile, and so may the first marker:
    it is then behind them in the second queue.
    """
    arrivals: asyncio.Queue[Delivery | ClientError] = asyncio.Queue()
    found: dict[str, list[Delivery]] = {queue: [] for queue in queues}
    for queue in queues:
        await channel.consume_into(DeliverySink(queue, arrivals.put_nowait, arrivals.put_nowait), queue, no_ack=False)
    for queue in queues:
        channel.publish(END, "", queue)
        while True:
            delivery = await arrivals.get()
            if isinstance(delivery, ClientError):
                raise delivery
            if delivery.body == END:
                channel.ack(delivery.delivery_tag)
                break
            found[delivery.consumer_tag].append(delivery)
    return found
