"""When the batch under construction goes to the disk: now or after this turn of the loop if somebody waits for it, soon
if nobody does.

After the loop's turn, not the connection's: all that is ready to be read comes into one batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leveret.net.disk.commit import BATCH_DELAY_US, Committer


class BatchDelay:
    """submit: hand the batch to the disk. A batch that nobody waits for is given BATCH_DELAY_US to grow."""

    def __init__(self, loop: asyncio.AbstractEventLoop, committer: Committer, submit: Callable[[], None]) -> None:
        self._loop = loop
        self._committer = committer
        self._submit = submit
        self._is_set = self._is_next = False

    def end_turn(self, is_stopping: bool, is_alone: bool = False) -> None:
        """There is something to write. is_alone: nobody else can add to it in this turn of the loop."""
        if is_stopping:
            self._submit()
        elif self._committer.may_delay():
            if not self._is_set:
                self._is_set = True
                self._loop.call_later(BATCH_DELAY_US / 1e6, self._ring)
        elif self._committer.is_syncing or self._is_next:
            return
        elif is_alone:
            self._submit()
        else:
            self._is_next = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_next = False
        self._submit()

    def _ring(self) -> None:
        self._is_set = False
        self._submit()
