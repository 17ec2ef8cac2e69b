"""The addresses that the broker listens on, and how it stops accepting for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leveret.net.listener import Listener

Accept = Callable[[], asyncio.BaseProtocol]
BACKLOG = 1024


class Listening:
    """One for all addresses of AMQP."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._places: list[tuple[Listener, Accept]] = []
        self._servers: list[asyncio.Server] = []

    async def add(self, protocol: str, accept: Accept, host: str, port: int) -> Listener:
        """Listen on one more address; port 0 = a free one. OSError if it can't be had."""
        server = await self._loop.create_server(accept, host, port, backlog=BACKLOG)
        address = server.sockets[0].getsockname()
        listener = Listener(protocol, address[0], address[1])
        self._servers.append(server)
        self._places.append((listener, accept))
        return listener

    def suspend(self) -> None:
        """Who connects now is refused; connections that are there stay."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def resume(self) -> None:
        """Accept connections again. OSError if an address has been taken by another meanwhile."""
        if self._servers:
            return
        for listener, accept in self._places:
            server = await self._loop.create_server(accept, listener.address, listener.port, backlog=BACKLOG)
            self._servers.append(server)
