"""When the batch under construction goes to the disk: at once if somebody waits for it, soon if nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leveret.net.commit import LINGER_US, Committer


class Linger:
    """submit: hand the batch to the disk. A batch that nobody waits for is given LINGER_US to grow."""

    def __init__(self, loop: asyncio.AbstractEventLoop, committer: Committer, submit: Callable[[], None]) -> None:
        self._loop = loop
        self._committer = committer
        self._submit = submit
        self._is_set = False

    def end_turn(self, is_stopping: bool) -> None:
        """There is something to write."""
        if is_stopping or not self._committer.may_linger():
            self._submit()
        elif not self._is_set:
            self._is_set = True
            self._loop.call_later(LINGER_US / 1e6, self._ring)

    def _ring(self) -> None:
        self._is_set = False
        self._submit()
