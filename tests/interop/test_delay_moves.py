"""Moving delayed messages between layouts and brokers: none lost, none early.

Messages that must still wait when they are moved are delayed by an hour, for slow machines, and are checked in their
levels.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections import Counter
from itertools import chain

import pytest

from leveret.client import ChannelClosed, Connection, ConnectionClosed, Delivery, Properties, connect
from leveret.delay import CELERY, NSERVICEBUS, NSERVICEBUS_V2, Layout
from leveret.delay.tools import Mover, Progress
from leveret.delay.tools.destinations import DestinationBinding
from leveret.testing.processes import LeveretProcess

from .delayed import Ledger, counts, remove, utc

OLD = dataclasses.replace(NSERVICEBUS, prefix="moves.v1")
NEW = dataclasses.replace(NSERVICEBUS_V2, prefix="moves.v2")
POISON = "moves.poison"
HOUR_S = 3600


async def waiting(connection: Connection, layout: Layout, queue: str, delays_s: list[float]) -> Ledger:
    """Return the ledger of an endpoint's messages that wait in the layout."""
    channel = await connection.channel()
    await channel.confirm_select()
    await channel.declare_queue(queue)
    await layout.declare(channel)
    await layout.bind_destination(channel, queue)
    ledger = Ledger()
    await asyncio.gather(*(ledger.send(channel, layout, queue, delay_s) for delay_s in delays_s))
    await channel.close()
    return ledger


async def taken(connection: Connection, queue: str) -> list[Delivery]:
    """Consume everything from a queue, and delete it."""
    channel = await connection.channel()
    found = []
    while (delivery := await channel.get(queue, no_ack=True)) is not None:
        found.append(delivery)
    await channel.delete_queue(queue)
    await channel.close()
    return found


async def resting(connection: Connection, layout: Layout, destination: str) -> dict[str, list[int]]:
    """Return message id -> delays of its copies from publishing on, in units of the layout; all messages stay."""
    channel = await connection.channel()
    found: dict[str, list[int]] = {}
    for level in await counts(connection, layout):
        while (delivery := await channel.get(layout.level_name(level))) is not None:
            address = layout.address(delivery.routing_key)
            assert address is not None
            if address[1] == destination:
                found.setdefault(str(delivery.properties.message_id), []).append(address[0])
    await channel.close()
    return found


async def check_rest(
    connection: Connection, layout: Layout, ledger: Ledger, destination: str
) -> dict[str, list[int]]:
    """Check that all messages of the ledger wait in the layout, and that none will be early; return duplicates."""
    now_s = time.time()
    found = await resting(connection, layout, destination)
    assert set(found) == set(ledger.due)
    assert [name for name, waits_s in found.items() if now_s + min(waits_s) < ledger.due[name]] == []
    return {name: waits_s for name, waits_s in found.items() if len(waits_s) > 1}


async def test_what_waits_moves_with_what_is_left_of_its_delay(url: str) -> None:
    """Twice, the second time with messages of the first under way: each arrives once, and none early."""
    random.seed(1)
    async with await connect(url, reconnect=False) as connection:
        long = await waiting(connection, OLD, "moves.long", [HOUR_S + number for number in range(50)])
        ledger = await waiting(connection, OLD, "moves.twice", [random.uniform(1, 8) for _ in range(300)])
        first = await Mover(connection, OLD, connection, NEW, POISON).run()
        assert await counts(connection, OLD) == {}
        assert await check_rest(connection, NEW, long, "moves.long") == {}
        assert 50 <= first.moved <= 350, "on a slow machine some of the others are due before they can move"
        assert (first.left, first.poisoned) == (Counter(), 0)
        assert "moves.long" in first.destinations
        collecting = asyncio.create_task(ledger.collect(connection, "moves.twice"))
        back = await Mover(connection, NEW, connection, OLD, POISON).run()
        assert 50 <= back.moved <= 350
        await collecting
        assert ledger.early == []
        assert sorted(ledger.arrived) == sorted(ledger.due), "one came twice"
        assert await check_rest(connection, OLD, long, "moves.long") == {}
        for queue in ("moves.twice", "moves.long"):
            assert await taken(connection, queue) == []
        await remove(connection, OLD, NEW)


async def test_a_long_delay_keeps_its_second(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        delays_s = [268_435_455, 86_400 * 365, 3_600]
        await waiting(connection, OLD, "moves.long", list(delays_s))
        await Mover(connection, OLD, connection, NEW, POISON).run()
        left = await resting(connection, NEW, "moves.long")
        for delay_s, left_s in zip(sorted(delays_s), sorted(chain(*left.values())), strict=True):
            assert delay_s - 60 < left_s <= delay_s
        await remove(connection, OLD, NEW)
        await (await connection.channel()).delete_queue("moves.long")


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_cut_in_the_middle_loses_nothing(url: str, side: str) -> None:
    """Messages under way may be doubled, with the same id; the next run moves the rest."""
    async with await connect(url, reconnect=False) as connection:
        ledger = await waiting(connection, OLD, "moves.cut", [HOUR_S + number % 3 for number in range(1500)])
        source, target = await connect(url, reconnect=False), await connect(url, reconnect=False)
        halves = iter([False, True])

        def cut(progress: Progress) -> None:
            if next(halves, False):
                (source if side == "source" else target)._stream.abort()

        with pytest.raises(ConnectionClosed):
            await Mover(source, OLD, target, NEW, POISON, on_progress=cut).run()
        for side_of_it in (source, target):
            await side_of_it.close()
        moved = sum((await counts(connection, NEW)).values())
        assert 0 < moved < 1500
        again = await Mover(connection, OLD, connection, NEW, POISON).run()
        assert again.moved > 0
        assert await counts(connection, OLD) == {}
        assert len(await check_rest(connection, NEW, ledger, "moves.cut")) <= 256, "only what was unacknowledged"
        await remove(connection, OLD, NEW)
        await (await connection.channel()).delete_queue("moves.cut")


async def test_a_broker_that_is_killed_in_the_middle_loses_nothing() -> None:
    with LeveretProcess() as source_process, LeveretProcess() as target_process:
        async with await connect(source_process.url, reconnect=False) as source:
            ledger = await waiting(source, OLD, "moves.killed", [HOUR_S + number % 3 for number in range(1500)])
            target = await connect(target_process.url, reconnect=False)
            await (await target.channel()).declare_queue("moves.killed")
            kills = iter([False, True])

            def kill(progress: Progress) -> None:
                if next(kills, False):
                    target_process.kill()

            with pytest.raises(ConnectionClosed):
                await Mover(source, OLD, target, NEW, POISON, on_progress=kill).run()
            target_process.start()
            async with await connect(target_process.url, reconnect=False) as target:
                await Mover(source, OLD, target, NEW, POISON).run()
                assert await counts(source, OLD) == {}
                assert len(await check_rest(target, NEW, ledger, "moves.killed")) <= 256


async def test_what_does_not_tell_when_it_is_due_is_put_aside(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await waiting(connection, OLD, "moves.aside", [])
        channel = await connection.channel()
        await channel.confirm_select()
        exchange, key = OLD.route(3600, "moves.aside")
        await channel.publish(b"lost", exchange, key, Properties(message_id="m1", headers={"mine": 1}), mandatory=True)
        await channel.publish(b"odd", "", OLD.level_name(3), mandatory=True)
        summary = await Mover(connection, OLD, connection, NEW, POISON).run()
        assert (summary.moved, summary.poisoned) == (0, 2)
        odd, lost = sorted(await taken(connection, POISON), key=lambda delivery: len(delivery.body))
        assert (lost.body, lost.properties.message_id) == (b"lost", "m1")
        headers = lost.properties.headers or {}
        assert (headers["mine"], headers["leveret-delay-routing-key"]) == (1, key)
        assert (odd.properties.headers or {})["leveret-delay-queue"] == OLD.level_name(3)
        await remove(connection, OLD, NEW)
        await channel.delete_queue("moves.aside")


async def test_or_waits_for_its_whole_level_again(url: str) -> None:
    layout, target = Layout("moves.bare", unit_ms=1, levels=20), Layout("moves.bare2", unit_ms=1, levels=20)
    async with await connect(url, reconnect=False) as connection:
        await waiting(connection, layout, "moves.restart", [600, 900])
        summary = await Mover(connection, layout, connection, target, POISON, restarts=True).run()
        assert (summary.moved, summary.poisoned) == (2, 0)
        left = await resting(connection, target, "moves.restart")
        assert sorted(left.values()) == [[600_000], [900_000]]
        await remove(connection, layout, target)
        await (await connection.channel()).delete_queue("moves.restart")


async def test_what_has_no_destination_stays_and_holds_nobody_up(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        ledger = await waiting(connection, OLD, "moves.there", [])
        channel = await connection.channel()
        await channel.confirm_select()
        for _ in range(3):
            await OLD.send(channel, b"x", "moves.nobody", 3600)
        for _ in range(300):
            await ledger.send(channel, OLD, "moves.there", 3600)
        summary = await Mover(connection, OLD, connection, NEW, POISON).run()
        assert summary.moved == 300
        assert summary.left == Counter({"the destination 'moves.nobody' does not exist": 3})
        assert sum((await counts(connection, OLD)).values()) == 3
        await remove(connection, OLD, NEW)
        await channel.delete_queue("moves.there")


async def test_an_exchange_of_the_name_goes_before_a_queue(url: str) -> None:
    """The conventional topology: bindings lead to the endpoint's exchange, and the queue behind it gets one copy."""
    async with await connect(url, reconnect=False) as connection:
        ledger = await waiting(connection, OLD, "moves.both", [1.2])
        channel = await connection.channel()
        await channel.declare_exchange("moves.both", kind="fanout")
        await channel.bind_queue("moves.both", "moves.both")
        await Mover(connection, OLD, connection, NEW, POISON).run()
        await ledger.collect(connection, "moves.both")
        assert len(ledger.arrived) == 1
        with pytest.raises(ChannelClosed, match="no exchange 'moves\\.nobody'"):
            await channel.bind_exchange("moves.nobody", NEW.delivery_exchange, "#.moves.nobody")
        channel = await connection.channel()
        await channel.delete_exchange("moves.both")
        await channel.delete_queue("moves.both")
        await remove(connection, OLD, NEW)


async def test_a_dry_run_changes_nothing(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        await waiting(connection, OLD, "moves.dry", [HOUR_S] * 1200 + [600])
        channel = await connection.channel()
        await channel.confirm_select()
        await OLD.send(channel, b"x", "moves.nobody", 86_400)
        exchange, key = OLD.route(500, "moves.dry")
        await channel.publish(b"lost", exchange, key, mandatory=True)
        before = await counts(connection, OLD)
        summary = await Mover(connection, OLD, connection, NEW, POISON).dry_run()
        assert (summary.moved, summary.poisoned, summary.unseen) == (1001, 1, 200)
        assert summary.left == Counter({"the destination 'moves.nobody' does not exist": 1})
        assert await counts(connection, OLD) == before
        for name in (NEW.level_name(0), POISON):
            with pytest.raises(ChannelClosed, match="NOT_FOUND"):
                await (await connection.channel()).declare_queue(name, passive=True)
        await remove(connection, OLD)
        await channel.delete_queue("moves.dry")


async def test_what_comes_meanwhile_does_not_make_it_endless(url: str) -> None:
    """A sender adds two messages for each one moved: these are left for the next run."""
    async with await connect(url, reconnect=False) as connection, await connect(url, reconnect=False) as other:
        ledger = await waiting(connection, OLD, "moves.more", [3600] * 600)
        sending: list[asyncio.Future[None]] = []
        channel = await other.channel()
        await channel.confirm_select()

        def add(progress: Progress) -> None:
            sending.extend(OLD.publish(channel, b"x", "moves.more", 3600) for _ in range(512 if progress.done else 0))

        summary = await Mover(connection, OLD, connection, NEW, POISON, on_progress=add).run()
        await asyncio.gather(*sending)
        assert summary.moved == len(ledger.due)
        assert sum((await counts(connection, OLD)).values()) == len(sending) > 600
        await remove(connection, OLD, NEW)
        await channel.delete_queue("moves.more")


async def test_too_long_for_the_target_stays(url: str) -> None:
    small = Layout("moves.small", unit_ms=1, levels=10)
    async with await connect(url, reconnect=False) as connection:
        await waiting(connection, OLD, "moves.small-one", [3600])
        summary = await Mover(connection, OLD, connection, small, POISON).run()
        assert summary.moved == 0
        assert ["too long" in reason for reason in summary.left] == [True]
        await remove(connection, OLD, small)
        await (await connection.channel()).delete_queue("moves.small-one")


async def test_celery_binds_its_queues_itself(url: str) -> None:
    """A task's key is that of an exchange of the worker, and its eta determines the time."""
    old = dataclasses.replace(CELERY, prefix="moves_celery")
    new = dataclasses.replace(CELERY, prefix="moves_celery2")
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await old.declare(channel)
        await new.declare(channel)
        await channel.declare_exchange("moves.tasks", kind="topic")
        await channel.declare_queue("moves.worker")
        for layout in (old, new):
            await channel.bind_exchange("moves.tasks", layout.delivery_exchange, "#.moves.key")
        await channel.bind_queue("moves.worker", "moves.tasks", "#.moves.key")
        due: dict[str, float] = {}
        for name, delay_s in (("task-1", 2), ("task-2", HOUR_S)):
            eta = time.time() + delay_s + 0.5
            due[name] = eta - 0.5  # Celery rounds the countdown down; the worker waits for the rest
            exchange, key = old.route(delay_s, "moves.key")
            properties = Properties(message_id=name, headers={"eta": utc(eta).isoformat(), "id": name}, delivery_mode=2)
            await channel.publish(name.encode(), exchange, key, properties, mandatory=True)
        summary = await Mover(connection, old, connection, new, POISON, binding=DestinationBinding.NONE).run()
        assert summary.moved in (1, 2), "on a slow machine the first is due before it can move"
        now_s = time.time()
        [left_s] = (await resting(connection, new, "moves.key"))["task-2"]
        assert now_s + left_s >= due["task-2"]
        ledger = Ledger({"task-1": due["task-1"]})
        await ledger.collect(connection, "moves.worker")
        assert ledger.early == []
        await remove(connection, old, new)
        await channel.delete_queue("moves.worker")
        await channel.delete_exchange("moves.tasks")


async def test_no_layout_no_move(url: str) -> None:
    async with await connect(url, reconnect=False) as connection:
        with pytest.raises(LookupError, match="no level of this layout"):
            await Mover(connection, Layout("moves.none"), connection, NEW, POISON).run()


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_a_dry_run_does_not_begin_a_wait_anew(url: str, queue_type: str) -> None:
    """A message of 6 s that is looked at after 2 s arrives before one of 7.5 s in levels that are left alone: if its
    wait began anew, it would arrive after 8 s."""
    looked_at = Layout("moves.look", unit_ms=1, levels=13, queue_type="quorum" if queue_type == "quorum" else "classic")
    other = Layout("moves.other", unit_ms=1, levels=13)
    async with await connect(url, reconnect=False) as connection:
        ledger = await waiting(connection, other, "moves.order", [])
        channel = await connection.channel()
        await channel.confirm_select()
        await looked_at.declare(channel)
        await looked_at.bind_destination(channel, "moves.order")
        touched = await ledger.send(channel, looked_at, "moves.order", 6)
        late = await ledger.send(channel, other, "moves.order", 7.5)
        first = await ledger.send(channel, other, "moves.order", 2)
        consumer = await channel.consume("moves.order", no_ack=True)
        ledger.note(await anext(consumer))
        summary = await Mover(connection, looked_at, connection, NEW, POISON, restarts=True).dry_run()
        assert summary.moved == 1
        for _ in range(2):
            ledger.note(await anext(consumer))
        assert ledger.arrived == [first, touched, late]
        assert ledger.early == []
        await remove(connection, looked_at, other)
        await channel.delete_queue("moves.order")
