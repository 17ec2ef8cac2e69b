"""Limits concurrent calls in total and per address; waiting calls are served round-robin by address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from leveret.net.connections.fair_queue import FairQueue


class Turns:
    """Admits up to `most` calls at a time; one address may have half of them, but at least one."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._most_of_one = max(1, most // 2)
        self._busy: dict[str, int] = {}
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a free slot and hold it inside the with block."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(address, granted)
        self._grant()
        try:
            await granted
            yield
        finally:
            if not granted.cancelled():
                self._leave(address)

    def _leave(self, address: str) -> None:
        self._free += 1
        self._busy[address] -= 1
        if not self._busy[address]:
            del self._busy[address]
        self._grant()

    def _grant(self) -> None:
        while self._free and (found := self._waiting.pop(self._may)) is not None:
            address, granted = found
            if granted.done():
                continue  # the waiting caller has gone
            self._free -= 1
            self._busy[address] = self._busy.get(address, 0) + 1
            granted.set_result(None)

    def _may(self, address: str) -> bool:
        return self._busy.get(address, 0) < self._most_of_one
