"""A new internal exchange takes the place of the old one: A and B in turns, at each connection.

The upstream queue receives by both while the bindings of the new one are put in place, and gets one copy of a message
that both have. Only when all are there the old one is deleted, and with it whatever it had that nobody wants any more.
No binding waits for an answer: they go out in one stream, in slices so that others have their turn, and the answer to
its last frame is the answer to all. Afterwards each change goes the same way, and what is there is bound again from
time to time, so that what somebody deleted on the upstream comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from leveret.client import requests
from leveret.client.channel_core import ChannelCore
from leveret.client.requests import Request
from leveret.federation.bindings import Binder, Group, Grouped
from leveret.federation.declaring import frame

SLICE: Final = 1024
"""How many bindings go out in one turn."""
AGAIN: Final = 64
"""How many are bound again at a time: it costs the upstream something, and finds something once in a blue moon."""


class Swap:
    """channel: on which it is done, by frames for `send`; queue: the upstream queue; new: the internal exchange that
    comes; old: the one that is to go, None = there is none; asks: whether answers are awaited (not with bind-nowait).

    unconfirmed: groups that came or went and may not be so on the upstream yet. is_done: only the new one is left.
    """

    def __init__(
        self, channel: ChannelCore[Any], send: Callable[[bytes], None], grouped: Grouped, queue: str, new: Binder,
        old: Binder | None, asks: bool,
    ) -> None:  # fmt: skip
        self.is_done = False
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
        self._count = self.unconfirmed = len(self._left)
        send(frame(channel.number, self._whole_way(), True))

    def step(self, on_done: Callable[[], None]) -> bool:
        """Send the next slice. True if it was the last one: on_done is called when the upstream has taken all."""
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
        """A group came or went: `flush` tells the upstream."""
        self._changes.append((group, is_bound))
        self.unconfirmed += 1

    def flush(self) -> None:
        """Send what has changed, in its order."""
        changes, self._changes = self._changes, []
        frames: list[bytes] = []
        for group, is_bound in changes:
            if is_bound and self._old is not None:
                frames.append(self._old.bind(group, True))  # it still has to be whole, if this swap comes to nothing
            frames.append(self._new.bind(group, True) if is_bound else self._new.unbind(group, True))
        self._send(b"".join(frames))
        self._mark(len(changes), _nothing)

    def again(self) -> None:
        """Bind some of what should be there once more, all in their turns; an error tells what is not there."""
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
        """Ask for something that changes nothing: its answer comes behind everything that was sent before."""

        def arrived() -> None:
            self.unconfirmed -= count
            on_done()

        if self._asks:
            waiter = self._channel.request(self._whole_way())
            waiter.when_succeeded(lambda _: arrived())
        else:
            arrived()

    def _whole_way(self) -> Request:
        """From the new internal exchange to the upstream queue."""
        return requests.bind_queue(self._queue, self._new.internal, "", None)


def _nothing() -> None:
    pass
