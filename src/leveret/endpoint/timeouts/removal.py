"""Removes the queues and tables of a timeout manager that is empty."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leveret.client import Connection
from leveret.endpoint.timeouts.clock import Clock
from leveret.endpoint.timeouts.queues import TimeoutQueues

if TYPE_CHECKING:
    from leveret.endpoint.timeouts.store import TimeoutStore


async def obstacles(connection: Connection, store: TimeoutStore, queues: TimeoutQueues) -> list[str]:
    """Return the reasons against a removal now, one sentence each; empty if all is drained and no manager runs."""
    found = []
    if await asyncio.to_thread(store.exists):
        await asyncio.to_thread(store.create)  # raises if another version of this program created the tables
        pending = (await asyncio.to_thread(store.census, Clock().now_us())).pending
        if pending:
            found.append(f"timeouts are pending in {store.place} ({pending}): wait until they are sent, or drain them")
    for name, info in (await queues.info(connection)).items():
        if info is not None and info.message_count:
            found.append(
                f"messages are in the queue {name} ({info.message_count}): wait until the manager has taken them, or "
                "drain the queue"
            )
        if info is not None and info.consumer_count:
            found.append(f"consumers read the queue {name} ({info.consumer_count}): disable the timeout manager first")
    return found


async def remove(connection: Connection, store: TimeoutStore, queues: TimeoutQueues, force: bool = False) -> list[str]:
    """Delete queues, exchanges and tables. If :func:`obstacles` returns reasons, return them and delete nothing.

    With force, obstacles are ignored. Raises ``ChannelClosed`` (406) if a message or consumer arrived after the check.
    """
    if not force and (found := await obstacles(connection, store, queues)):
        return found
    await queues.delete(connection, force)
    if await asyncio.to_thread(store.exists):
        await asyncio.to_thread(store.drop)
    return []
