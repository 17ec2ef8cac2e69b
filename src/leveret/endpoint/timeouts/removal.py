"""Removing what a timeout manager needed, once nothing waits in it any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leveret.client import Connection
from leveret.endpoint.timeouts.clock import Clock
from leveret.endpoint.timeouts.queues import TimeoutQueues

if TYPE_CHECKING:
    from leveret.endpoint.timeouts.store import TimeoutStore


async def obstacles(connection: Connection, store: TimeoutStore, queues: TimeoutQueues) -> list[str]:
    """Why nothing should be removed now, one sentence each; empty where all is drained and no manager runs."""
    found = []
    if await asyncio.to_thread(store.exists):
        await asyncio.to_thread(store.create)  # says so if another version of this program stored them
        pending = (await asyncio.to_thread(store.census, Clock().now_us())).pending
        if pending:
            found.append(f"{pending} timeouts are pending in {store.place}: wait until they are sent, or drain them")
    for name, info in (await queues.info(connection)).items():
        if info is not None and info.message_count:
            found.append(
                f"{info.message_count} messages are in the queue {name}: wait until the manager has taken "
                "them, or drain the queue"
            )
        if info is not None and info.consumer_count:
            found.append(f"{info.consumer_count} consumers read the queue {name}: disable the timeout manager first")
    return found


async def remove(connection: Connection, store: TimeoutStore, queues: TimeoutQueues, force: bool = False) -> list[str]:
    """Delete queues, exchanges and tables; unless forced, nothing where there are :func:`obstacles`, which it returns.

    ``ChannelClosed`` (406) where a message or a consumer came between looking and deleting.
    """
    if not force and (found := await obstacles(connection, store, queues)):
        return found
    await queues.delete(connection, force)
    if await asyncio.to_thread(store.exists):
        await asyncio.to_thread(store.drop)
    return []
