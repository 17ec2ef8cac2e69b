"""Deliveries in batches: what has come by now is handled with one transaction of the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from leveret.client import Consumer, Delivery


async def batches(consumer: Consumer, limit: int, stopping: asyncio.Event) -> AsyncIterator[list[Delivery]]:
    """One to ``limit`` deliveries at a time, until ``stopping`` is set; errors as the consumer's own iteration."""
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
                await asyncio.sleep(0)  # lets it take what is there
            yield batch
    finally:
        for future in (pending, stopped):
            future.cancel()
        await asyncio.gather(pending, stopped, return_exceptions=True)
