"""Freed memory goes back to the system once no more messages are moved to the disk.

glibc gives back by itself only what lies behind all that is used. What messages took is holes among the others, which
it keeps for what comes next: after a burst of a million messages, three times what the rest of them needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

# what is moved again and again would else be asked of the system each time
REST_S: Final = 0.2


class Trimming:
    """trim_memory: takes milliseconds, and is called on `thread`; others wait for it only if they need memory."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: Executor, trim_memory: Callable[[], object]) -> None:
        self._loop = loop
        self._thread = thread
        self._trim_memory = trim_memory
        self._timer: asyncio.TimerHandle | None = None

    def later(self) -> None:
        """Messages were moved."""
        self.stop()
        self._timer = self._loop.call_later(REST_S, self._thread.submit, self._trim_memory)

    def stop(self) -> None:
        """Nothing is given back any more."""
        if self._timer is not None:
            self._timer.cancel()
