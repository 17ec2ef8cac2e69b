"""An endpoint before its upgrade, played by a plain client, and the timeout manager beside it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from leveret.client import Channel, Connection, Consumer, Delivery, Properties, connect
from leveret.delay import CONVENTIONAL, RoutingTopology
from leveret.delay.instant import as_header, from_header, now
from leveret.endpoint.timeouts import TimeoutManager, TimeoutQueues, store
from leveret.endpoint.timeouts.clock import Clock, wall_us
from leveret.endpoint.timeouts.manager import open_store
from leveret.wire.table import Value

EXPIRE = "NServiceBus.Timeout.Expire"
ROUTE_TO = "NServiceBus.Timeout.RouteExpiredTimeoutTo"


async def declare(channel: Channel, name: str, routing: RoutingTopology = CONVENTIONAL) -> None:
    """Declare the queue of an endpoint without native delays."""
    await channel.declare_queue(name)
    if routing is CONVENTIONAL:
        await channel.declare_exchange(name, kind="fanout")
        await channel.bind_queue(name, name)


@dataclass
class Older:
    """An endpoint before its upgrade: it defers by sending to the timeouts queue of ``name``."""

    channel: Channel
    name: str
    destination: str
    consumer: Consumer
    routing: RoutingTopology = CONVENTIONAL

    async def defer(
        self, body: bytes, delay: timedelta, destination: str = "", headers: dict[str, Value] | None = None
    ) -> datetime:
        """Send a deferred message, confirmed; return when it is due."""
        due = now() + delay
        sent: dict[str, Value] = {
            EXPIRE: as_header(due),
            ROUTE_TO: destination or self.destination,
            "NServiceBus.IsDeferredMessage": "True",
            **(headers or {}),
        }
        properties = Properties(headers=sent, message_id=str(uuid.uuid4()), content_type="text/json", delivery_mode=2)
        await self.put(body, properties)
        return due

    async def put(self, body: bytes, properties: Properties) -> None:
        queue = f"{self.name}.Timeouts"
        exchange, key = (queue, "") if self.routing is CONVENTIONAL else ("", queue)
        await self.channel.publish(body, exchange, key, properties, mandatory=True)

    async def received(self) -> Delivery:
        """Return the next message at the destination; check that it is not early."""
        delivery = await asyncio.wait_for(anext(self.consumer), 30)
        expire = (delivery.properties.headers or {})[EXPIRE]
        assert now() >= from_header(str(expire)), f"{delivery.body!r} is early"
        return delivery


@contextlib.asynccontextmanager
async def older(url: str, routing: RoutingTopology = CONVENTIONAL) -> AsyncIterator[tuple[Connection, Older]]:
    """Yield an endpoint with a unique name, its queues declared, and the destination that it defers to."""
    name = f"T{uuid.uuid4().hex[:8]}"
    async with await connect(url, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await declare(channel, f"{name}.Dest", routing)
        await TimeoutQueues(name, routing, f"{name}.error").declare(connection)
        consumer = await channel.consume(f"{name}.Dest", no_ack=True)
        yield connection, Older(channel, name, f"{name}.Dest", consumer, routing)


@contextlib.asynccontextmanager
async def managing(
    connection: Connection, endpoint: Older, database: str, clock: Clock | None = None
) -> AsyncIterator[TimeoutManager]:
    timeouts = TimeoutManager(
        endpoint.name, database, routing=endpoint.routing, error_queue=f"{endpoint.name}.error", clock=clock
    )
    await timeouts.start(connection)
    yield timeouts
    await timeouts.stop()
    timeouts.close()


async def stored(endpoint: Older | str, database: str, count: int) -> None:
    """Wait until `count` timeouts are in the database."""
    await census_when(endpoint, database, lambda census: census.pending == count)


async def census_when(
    endpoint: Older | str, database: str, is_so: Callable[[store.StoreCensus], bool]
) -> store.StoreCensus:
    """Poll the database until `is_so`; return the census."""
    timeouts = open_store(endpoint if isinstance(endpoint, str) else endpoint.name, database)
    try:
        async with asyncio.timeout(30):
            while True:
                if timeouts.exists() and is_so(census := timeouts.census(wall_us())):
                    return census
                await asyncio.sleep(0.01)
    finally:
        timeouts.close()
