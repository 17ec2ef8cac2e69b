"""Returns freed memory to the system after messages were moved to disk.

By itself glibc returns only what lies behind all used memory. Moved messages leave holes between used blocks, which it
keeps: after a burst of a million messages, three times what the rest of them needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

# a pause, so that memory is not returned and requested again while messages are still being moved
REST_S: Final = 0.2


class Trimming:
    """Calls trim_memory, which takes milliseconds, on `thread`; other threads wait for it only if they need memory."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: Executor, trim_memory: Callable[[], object]) -> None:
        self._loop = loop
        self._thread = thread
        self._trim_memory = trim_memory
        self._timer: asyncio.TimerHandle | None = None

    def later(self) -> None:
        """Trim after REST_S, unless more messages are moved until then."""
        self.stop()
        self._timer = self._loop.call_later(REST_S, self._thread.submit, self._trim_memory)

    def stop(self) -> None:
        """Cancel a trim that was scheduled."""
        if self._timer is not None:
            self._timer.cancel()
