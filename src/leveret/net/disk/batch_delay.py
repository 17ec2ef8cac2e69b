"""When the batch under construction goes to the disk: now or after this turn of the loop if a client waits, else soon.

It goes after the loop's turn, not the connection's, so that everything that is ready to be read gets into one batch.
"""

from __future__ import annotations

from collections.abc import Callable

from leveret.net.disk.commit import BATCH_DELAY_US, Committer
from leveret.net.event_loop import EventLoop


class BatchDelay:
    """Decides when to call `submit`, which hands the batch to the disk.

    A batch that no client waits for may grow for BATCH_DELAY_US.
    """

    def __init__(self, loop: EventLoop, committer: Committer, submit: Callable[[], None]) -> None:
        self._loop = loop
        self._committer = committer
        self._submit = submit
        self._is_set = self._is_next = False

    def end_turn(self, is_stopping: bool, is_alone: bool = False) -> None:
        """Have the batch, which is not empty, submitted. is_alone: no other connection can add to it in this turn."""
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
