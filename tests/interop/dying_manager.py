"""A timeout manager, or a drain, that is killed at a step: dying_manager.py STEP ENDPOINT DATABASE URL."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leveret.client import connect
from leveret.delay import NSERVICEBUS
from leveret.endpoint.timeouts import TimeoutManager, TimeoutQueues, drain, store
from leveret.endpoint.timeouts.manager import open_store
from leveret.endpoint.timeouts.outbox import Outbox
from leveret.endpoint.timeouts.store import TimeoutStore


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_before(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function so that the process dies before its first call that has something to do."""

    def called(self: TimeoutStore, given: Any, *more: Any, **options: Any) -> Any:
        if given:
            die()
        return function(self, given, *more, **options)

    return called


def dies_after(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function so that the process dies after its first call that did something."""

    def called(self: TimeoutStore, given: Any, *more: Any, **options: Any) -> Any:
        result = function(self, given, *more, **options)
        if given and result != []:
            die()
        return result

    return called


def dies_sent(send: Callable[..., Any]) -> Callable[..., Any]:
    async def called(self: Outbox, messages: Any) -> Any:
        outcomes = await send(self, messages)
        if messages:
            die()
        return outcomes

    return called


# step -> (class, method, replacement): the name says what is on disk, or at the broker, at that moment
STEPS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "received": (TimeoutStore, "apply", dies_before),
    "stored": (TimeoutStore, "apply", dies_after),
    "claimed": (TimeoutStore, "claim", dies_after),
    "ordered": (TimeoutStore, "load", dies_before),
    "sent": (Outbox, "send", dies_sent),
    "forgotten": (TimeoutStore, "delete", dies_after),
    "drained": (TimeoutStore, "delete", dies_before),
    "drained and forgotten": (TimeoutStore, "delete", dies_after),
}


async def main(step: str, endpoint: str, database: str, url: str) -> None:
    owner, name, dying = STEPS[step]
    setattr(owner, name, dying(getattr(owner, name)))
    store.CLAIM_US = 300_000  # type: ignore[misc]
    async with await connect(url, reconnect=False) as connection:
        if step.startswith("drained"):
            timeouts = open_store(endpoint, database)
            timeouts.create()
            await drain(connection, timeouts, TimeoutQueues(endpoint), NSERVICEBUS)
        manager = TimeoutManager(endpoint, database, folder=Path(), error_queue=f"{endpoint}.error")
        await manager.start(connection)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
