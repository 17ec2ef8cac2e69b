"""Closes connections that stay without a request: uvicorn by itself would keep them for ever.

When all places are taken, an idle connection is closed at once, of the address that has most connections: uvicorn by
itself would answer 503 to everybody.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from leveret.broker.access.login_throttle import network
from leveret.net.connections.by_address import ByAddress

logger = logging.getLogger("leveret")

# at most one log line in this time, for all connections closed meanwhile
TELL_S: Final = 10.0


class IdleTimeout(H11Protocol):
    """HTTP/1.1 with an idle timeout: one to two periods without a new request or a part of one."""

    period_s: ClassVar[float] = 30.0
    connections_max: ClassVar[float] = float("inf")  # the number of connections stays below this
    sockets: ClassVar[ByAddress[IdleTimeout]] = ByAddress()  # all connections of the process
    _told_s: ClassVar[float] = float("-inf")

    def arrived(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection from here on; with TLS, connection_made is called only after the handshake."""
        self.transport = transport  # type: ignore[assignment]
        self.client = get_remote_addr(self.transport)
        self._network = network(self.client[0]) if self.client else ""
        self.sockets.add(self._network, self)
        while self.sockets.count >= self.connections_max and self._has_made_room():
            pass

    def left(self) -> None:
        """Stop counting the connection."""
        self.sockets.remove(self._network, self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        counts = self.transport is not None
        super().connection_made(transport)  # type: ignore[arg-type]
        self._seen: RequestResponseCycle | None = None
        self._look_later()
        if not counts:
            self.arrived(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        self.left()
        super().connection_lost(exc)

    @property
    def is_waited_for(self) -> bool:
        """Whether the broker waits for the client to send."""
        cycle: Any = self.cycle  # the last request; None: there was none
        return cycle is None or cycle.response_complete or cycle.more_body

    def _has_made_room(self) -> bool:
        """Close the oldest idle connection. Returns False if no connection is idle; uvicorn then answers 503."""
        found = next((each for each in self.sockets.of_the_most() if each.is_waited_for), None)
        if found is None:
            return False
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= TELL_S:
            IdleTimeout._told_s = now_s
            where = found.client[0] if found.client else "somebody"
            text = (
                "%s: closed an idle connection to the HTTP API to make room for another: %d are open, and no "
                "address "
            )
            logger.warning(text + "has more (logged at most every %g s)", where, self.sockets.count, TELL_S)
        found.left()
        found.connections.discard(found)
        found.transport.abort()
        return True

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(self.period_s, self._look)

    def _look(self) -> None:
        cycle: Any = self.cycle  # the last request; None: there was none
        if self.transport.is_closing():  # the client does not take the rest of the output
            self.transport.abort()
            return
        if cycle is self._seen and (cycle is None or cycle.response_complete):
            self.transport.abort()
            return
        self._seen = cycle
        self._look_later()
