"""Work that waits for the disk, on threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Work:
    """One thread for what changes files, in order, and one for what reads them, so that no reader waits for a sync.

    then: called on the loop behind each piece of work that was done.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
        self._writing = ThreadPoolExecutor(1, name)
        self._reading = ThreadPoolExecutor(1, f"{name}-reads")
        self._loop = loop
        self._then = then
        self._is_stopped = False

    def submit(
        self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None], is_reading: bool = False
    ) -> None:
        """Do `work`, and tell `done` on the loop what came of it: its result, or its error. Not after `stop`."""

        def finished(future: asyncio.Future[Any]) -> None:
            if not self._is_stopped:
                error = future.exception()
                done(None if error else future.result(), error)
                self._then()

        executor = self._reading if is_reading else self._writing
        self._loop.run_in_executor(executor, work).add_done_callback(finished)

    def stop(self) -> None:
        """Finish what was submitted; nobody is told of it any more."""
        self._is_stopped = True
        self._writing.shutdown()
        self._reading.shutdown()
