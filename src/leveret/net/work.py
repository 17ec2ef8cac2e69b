"""Blocking disk work, on threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class WorkThreads:
    """One thread for work that changes files, in order, and one for reads, so that no read waits for a sync.

    then: called on the loop after the `done` of each piece of work.
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
        """Run `work` on a thread, then call `done` on the loop with its result or its error, unless stopped by then."""

        def finished(future: asyncio.Future[Any]) -> None:
            if not self._is_stopped:
                error = future.exception()
                done(None if error else future.result(), error)
                self._then()

        executor = self._reading if is_reading else self._writing
        self._loop.run_in_executor(executor, work).add_done_callback(finished)

    def stop(self) -> None:
        """Finish what was submitted, without reporting it."""
        self._is_stopped = True
        self._writing.shutdown()
        self._reading.shutdown()
