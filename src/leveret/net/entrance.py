"""Who comes in by a socket: so many that files can still be opened, so many from one address, so many who only knock.

An anonymous peer that opens sockets and says nothing would else take all file descriptors, and the journal its next
file. Who is too many is closed at once: the listener has accepted it already, and nothing else tells it.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

from leveret.broker.attempts import network
from leveret.broker.broker import Broker

logger = logging.getLogger("leveret.net")

# file descriptors for the journal, segments, streams, listeners, the control socket and whoever asks there
KEPT_FILES: Final = 200
# one line of the log stands for all that are refused meanwhile
TELL_US: Final = 10_000_000


class Entrance:
    """sockets_max: connections at the same time; None = as many as the process may have files open, but KEPT_FILES."""

    def __init__(self, broker: Broker, sockets_max: int | None = None) -> None:
        self._broker = broker
        self._sockets_max = _room() if sockets_max is None else sockets_max
        self._inside: dict[str, int] = {}
        self._count = 0
        self._told_us = -TELL_US
        self._untold = 0

    def admits(self, host: str, now_us: int) -> bool:
        """Whether one more from this address may come in; if so it counts until `leave`."""
        reason = self._refusal(host)
        if reason:
            self._tell(host, reason, now_us)
            return False
        self._count += 1
        where = network(host)
        self._inside[where] = self._inside.get(where, 0) + 1
        return True

    def leave(self, host: str) -> None:
        """One that was admitted is gone."""
        self._count -= 1
        where = network(host)
        self._inside[where] -= 1
        if not self._inside[where]:
            del self._inside[where]

    def _refusal(self, host: str) -> str:
        settings = self._broker.settings
        if self._count >= self._sockets_max:
            return f"there are {self._count} connections, and files to be opened need the rest (see ulimit -n)"
        most = settings.ceiling("connection_max_per_address")
        if 0 <= most <= self._inside.get(network(host), 0):
            return f"it has {most} connections, and connection_max_per_address is {most}"
        most = settings.ceiling("handshake_max")
        if 0 <= most <= self._count - self._broker.connection_count:
            return f"{most} connections have not logged in yet, and handshake_max is {most}"
        return ""

    def _tell(self, host: str, reason: str, now_us: int) -> None:
        self._untold += 1
        if now_us - self._told_us >= TELL_US:
            others = f" ({self._untold} since the last such line)" if self._untold > 1 else ""
            logger.warning("%s: closed at once: %s%s", host, reason, others)
            self._told_us, self._untold = now_us, 0


def _room() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(soft - KEPT_FILES, soft // 2)
