"""How late the event loop is: how long a message waits before its turn begins, however short its turn is."""

from __future__ import annotations

import asyncio
from typing import Final

from leveret.broker.histogram import Histogram

# often enough to notice delays of a few milliseconds now and then, and cheap enough for an idle broker
EVERY_S: Final = 0.2


class Lag:
    """A timer that measures how late it fires."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lag_us: Histogram) -> None:
        self._loop = loop
        self._lag_us = lag_us
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring."""
        self._due_s = self._loop.time() + EVERY_S
        self._timer = self._loop.call_at(self._due_s, self._ring)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._lag_us.add(max(0, round((self._loop.time() - self._due_s) * 1e6)))
        self.start()
