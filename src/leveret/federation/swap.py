"""Replaces the internal exchange by a new one: A and B in turns, at each connection.

The upstream queue is bound to both while the bindings of the new one are made, and gets one copy of a message that both
route. Only when all bindings are there the old exchange is deleted, and with it any bindings that nobody wants any
more. No binding waits for an answer: they are sent in one stream, in slices so that others get their turns, and the
answer to the last frame stands for all. Afterwards each change is sent the same way, and existing bindings are made
again from time to time, so that any that were deleted on the upstream come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import ChannelCore
from leveret.client.protocol.requests import Request
from leveret.federation.bindings import Group, Grouped, UpstreamBinder
from leveret.federation.declaring import frame

SLICE: Final = 1024
"""How many bindings are sent in one turn."""
AGAIN: Final = 64
"""How many bindings are made again at a time: it costs the upstream something, and rarely repairs anything."""


class Swap:
    """The replacement of one internal exchange.

    channel: the channel on which it is done, by frames for `send`. queue: the upstream queue. new: the new internal
    exchange. old: the one to be deleted, or None. asks: whether answers are awaited (not with
    bind-nowait).
    """

    def __init__(
        self, channel: ChannelCore[Any], send: Callable[[bytes], None], grouped: Grouped, queue: str,
        new: UpstreamBinder, old: UpstreamBinder | None, asks: bool,
    ) -> None:  # fmt: skip
        self.is_done = False  # only the new exchange is left
        self._channel = channel
        self._send = send
        self._grouped = grouped
        self._queue = queue
        self._new = new
        self._old = old
        self._asks = asks
        self._left = deque(grouped.groups())
        self._again: deque[Group] = deque()
        self._changes: list[tuple[Group, bool]] = []
        # unconfirmed: how many changes of groups the upstream may not have made yet
        self._count = self.unconfirmed = len(self._left)
        send(frame(channel.number, self._whole_way(), True))

    def step(self, on_done: Callable[[], None]) -> bool:
        """Send the next slice. True if it was the last one; on_done is called when the upstream has accepted all."""
        if not self.is_done:
            self._bind(self._left, SLICE)
        if self._left:
            return False
        if self._old is not None:
            self._send(frame(self._channel.number, requests.delete_exchange(self._old.internal, False), True))
        self._old = None
        self.is_done = True
        self._mark(self._count, on_done)
        return True

    def changed(self, group: Group, is_bound: bool) -> None:
        """Note that a group came or went; `flush` tells the upstream."""
        self._changes.append((group, is_bound))
        self.unconfirmed += 1

    def flush(self) -> None:
        """Send the changes, in order."""
        changes, self._changes = self._changes, []
        frames: list[bytes] = []
        for group, is_bound in changes:
            if is_bound and self._old is not None:
                frames.append(self._old.bind(group, True))  # the old one must still be complete in case this swap fails
            frames.append(self._new.bind(group, True) if is_bound else self._new.unbind(group, True))
        self._send(b"".join(frames))
        self._mark(len(changes), _nothing)

    def again(self) -> None:
        """Make some of the bindings once more, in rotation; an error shows what is missing."""
        self._send(frame(self._channel.number, self._whole_way(), True))
        if not self._again:
            self._again.extend(self._grouped.groups())
        self._bind(self._again, AGAIN)

    def _bind(self, groups: deque[Group], most: int) -> None:
        frames: list[bytes] = []
        for _ in range(min(most, len(groups))):
            group = groups.popleft()
            if group in self._grouped:  # else it has gone meanwhile
                frames.append(self._new.bind(group, True))
        self._send(b"".join(frames))

    def _mark(self, count: int, on_done: Callable[[], None]) -> None:
        """Send a request that changes nothing: its answer comes after everything that was sent before."""

        def arrived() -> None:
            self.unconfirmed -= count
            on_done()

        if self._asks:
            waiter = self._channel.request(self._whole_way())
            waiter.when_succeeded(lambda _: arrived())
        else:
            arrived()

    def _whole_way(self) -> Request:
        """The binding of the new internal exchange to the upstream queue."""
        return requests.bind_queue(self._queue, self._new.internal, "", None)


def _nothing() -> None:
    pass
