"""Limits how much of a turn handshakes may use, so that established connections are served meanwhile.

A thousand clients that reconnect after a broker's restart are ready at the same moment, and take 0.1 ms each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.net.event_loop import EventLoop

if TYPE_CHECKING:
    from leveret.net.connections.protocol import PeerProtocol

TURN_US = 1_000


class HandshakeBudget:
    """Passes input of handshakes on to `received`, in order; after TURN_US of a turn the rest waits for the next one.
    """

    def __init__(
        self, loop: EventLoop, received: Callable[[PeerProtocol, bytes], None],
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._received = received
        self._clock_ns = clock_ns
        self._waiting: dict[PeerProtocol, bytes] = {}
        self._is_set = False
        self._used_us = 0  # in this turn

    def received(self, protocol: PeerProtocol, data: bytes) -> None:
        """Handle input of a connection in its handshake, now or in a later turn."""
        if self._waiting or self._used_us >= TURN_US:
            self._waiting[protocol] = self._waiting.get(protocol, b"") + data
        else:
            self._take(protocol, data)

    def _take(self, protocol: PeerProtocol, data: bytes) -> None:
        began_ns = self._clock_ns()
        self._received(protocol, data)
        self._used_us += (self._clock_ns() - began_ns) // 1000
        if not self._is_set:
            self._is_set = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Begin another turn of the loop: handle what waits."""
        self._is_set = False
        self._used_us = 0
        while self._waiting and self._used_us < TURN_US:
            protocol = next(iter(self._waiting))
            self._take(protocol, self._waiting.pop(protocol))
