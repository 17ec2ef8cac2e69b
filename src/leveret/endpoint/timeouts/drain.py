"""Moves the timeouts that a timeout manager holds to the native delay levels."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from leveret.client import Connection, PublishError
from leveret.delay import DestinationMissing, Layout, Sender
from leveret.delay.message import TIME_SENT
from leveret.endpoint.timeouts.clock import Clock
from leveret.endpoint.timeouts.order import order_of
from leveret.endpoint.timeouts.outbox import Outbox
from leveret.endpoint.timeouts.queues import TimeoutQueues, queue_info
from leveret.endpoint.timeouts.timeout import Timeout, sorted_out
from leveret.wire.properties import Properties

if TYPE_CHECKING:
    from leveret.endpoint.timeouts.store import TimeoutStore

BATCH: Final = 128


@dataclass
class Drained:
    """The result of a drain.

    Attributes:
        moved: How many messages were moved to the levels.
        kept: The reasons why others stay, by id.
    """

    moved: int = 0
    kept: dict[str, str] = field(default_factory=dict)


async def drain(
    connection: Connection,
    store: TimeoutStore,
    queues: TimeoutQueues,
    layout: Layout,
    *,
    clock: Clock | None = None,
    waiting: Callable[[float], None] = lambda seconds: None,
) -> Drained:
    """Move all timeouts to the delay levels, each with the rest of its delay, rounded up.

    A row is deleted when the broker has confirmed its message, so an interrupted drain can be started again. Messages
    stay if their destination does not exist, or if they are due later than the levels can delay.

    Args:
        connection: Connection to the broker.
        store: The endpoint's store.
        queues: The endpoint's queues.
        layout: Layout of the delay levels.
        clock: Source of the time; for tests.
        waiting: Called with the maximum number of seconds to wait, while other processes hold claims.
    """
    claim, drained, clock = uuid.uuid4().hex, Drained(), clock or Clock()
    await _take_in(connection, store, queues)
    await _take_orders_back(connection, store, queues)
    try:
        async with Sender(connection, layout, queues.routing) as sender:
            while True:
                ids = await asyncio.to_thread(store.claim, claim, clock.now_us(), BATCH, undue=True)
                if ids:
                    await _move(sender, layout, store, await asyncio.to_thread(store.load, ids), drained)
                    continue
                lapse_us = await asyncio.to_thread(store.next_lapse_us, claim)
                if lapse_us is None:
                    return drained
                wait_s = max(lapse_us - clock.now_us(), 0) / 1_000_000
                waiting(wait_s)
                await asyncio.sleep(min(wait_s + 0.01, 1.0))
    finally:
        await asyncio.to_thread(store.release, claim)


async def _take_in(connection: Connection, store: TimeoutStore, queues: TimeoutQueues) -> None:
    """Store the messages of the timeouts queue."""
    if await queue_info(connection, queues.timeouts) is None:
        return
    async with Outbox(connection, queues) as outbox, await connection.channel() as channel:
        while (delivery := await channel.get(queues.timeouts)) is not None:
            requests, poison = sorted_out([delivery])
            await asyncio.to_thread(store.apply, requests)
            await outbox.dead_letter(poison)
            channel.ack(delivery.delivery_tag)


async def _take_orders_back(connection: Connection, store: TimeoutStore, queues: TimeoutQueues) -> None:
    """Release timeouts that were ordered and not sent. Orders of another database are requeued by the channel's end."""
    if await queue_info(connection, queues.dispatcher) is None:
        return
    async with await connection.channel() as channel:
        while (delivery := await channel.get(queues.dispatcher)) is not None:
            order = order_of(delivery)
            if order is not None and order.store != store.identity:
                continue
            if order is not None:
                await asyncio.to_thread(store.release, order.claim, [order.id])
            channel.ack(delivery.delivery_tag)


async def _move(sender: Sender, layout: Layout, store: TimeoutStore, timeouts: list[Timeout], drained: Drained) -> None:
    """Send a batch. Timeouts that stay remain claimed until the end, so that each is tried once."""
    reasons = await asyncio.gather(*(_send(sender, layout, timeout) for timeout in timeouts))
    moved = [timeout.id for timeout, reason in zip(timeouts, reasons, strict=True) if reason is None]
    await asyncio.to_thread(store.delete, moved)
    drained.moved += len(moved)
    drained.kept |= {
        timeout.id: reason for timeout, reason in zip(timeouts, reasons, strict=True) if reason is not None
    }


async def _send(sender: Sender, layout: Layout, timeout: Timeout) -> str | None:
    """Send a timeout; return the reason if it stays."""
    try:
        await sender.send(timeout.body, timeout.destination, properties=native(timeout, layout), at=timeout.due)
    except (DestinationMissing, PublishError) as error:
        return str(error)
    except ValueError as error:
        return f"{timeout.destination}: {error}"
    return None


def native(timeout: Timeout, layout: Layout) -> Properties:
    """Return a timeout's properties for the levels.

    The layout sets the time of sending: together with the delay it tells when the message is due.
    """
    properties = timeout.outgoing()
    if not layout.delay_header:
        return properties
    headers = {name: value for name, value in (properties.headers or {}).items() if name != TIME_SENT}
    return replace(properties, headers=headers)
