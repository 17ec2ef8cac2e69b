"""Groups deliveries into batches, so that those that have arrived are handled in one database transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from leveret.client import Consumer, Delivery


async def batches(consumer: Consumer, limit: int, stopping: asyncio.Event) -> AsyncIterator[list[Delivery]]:
    """Yield batches of 1 to ``limit`` deliveries until ``stopping`` is set. Raises the errors of the consumer."""
    stopped = asyncio.ensure_future(stopping.wait())
    pending = asyncio.ensure_future(anext(consumer))
    try:
        while True:
            await asyncio.wait((pending, stopped), return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                return
            batch: list[Delivery] = []
            while len(batch) < limit and pending.done():
                batch.append(pending.result())
                pending = asyncio.ensure_future(anext(consumer))
                await asyncio.sleep(0)  # lets the new task take a delivery that has arrived
            yield batch
    finally:
        for future in (pending, stopped):
            future.cancel()
        await asyncio.gather(pending, stopped, return_exceptions=True)
