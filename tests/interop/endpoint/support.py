"""Messages, endpoints and waiting for the tests of endpoints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from leveret.client import Channel, Delivery
from leveret.delay import CONVENTIONAL, MILLISECONDS, RoutingTopology
from leveret.endpoint import Endpoint, Recoverability, message_type

from ...waiting import DEADLINE_S


@message_type("Sales.PlaceOrder")
@dataclass
class PlaceOrder:
    order: int


@message_type("Sales.OrderEvent")
@dataclass
class OrderEvent:
    order: int


@message_type("Sales.OrderPlaced")
@dataclass
class OrderPlaced(OrderEvent):
    total: float = 0.0


@message_type("Sales.Price")
@dataclass
class Price:
    amount: float


def endpoint(name: str, url: str, routing: RoutingTopology = CONVENTIONAL, **options: Any) -> Endpoint:
    """Return an endpoint with levels of milliseconds, an error queue of its own, and quick retries."""
    options.setdefault("layout", MILLISECONDS)
    options.setdefault("recoverability", Recoverability(1, 2, timedelta(milliseconds=20)))
    made = Endpoint(name, url, routing=routing, error_queue=f"{name}.error", **options)
    made.disable_timeout_manager()
    return made


@asynccontextmanager
async def program(*arguments: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a Python process; it is killed when the block ends."""
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, **options)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def within(waited: Any) -> Any:
    """Await with a timeout."""
    return await asyncio.wait_for(waited, DEADLINE_S)


async def fetched(channel: Channel, queue: str) -> Delivery:
    """Wait for the next message of a queue by consuming; take no further message, even if one comes at once."""
    await channel.qos(1)
    consumer = await channel.consume(queue)
    delivery: Delivery = await within(anext(consumer))
    await consumer.cancel()
    channel.ack(delivery.delivery_tag)
    return delivery
