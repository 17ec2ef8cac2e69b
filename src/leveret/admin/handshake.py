"""TLS of the HTTP API: a connection counts as idle until its handshake is done."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any, Final, cast

from leveret.admin.idle_timeout import IdleTimeout

# time limit of a handshake; asyncio would allow a minute
HANDSHAKE_S_MAX: Final = 10


class Handshake(SSLProtocol):
    """asyncio's TLS, which reports the connection to its protocol before the handshake."""

    def __init__(self, idle_timeout: IdleTimeout, context: ssl.SSLContext) -> None:
        nobody = cast(Any, None)  # nothing waits for the end of the handshake
        loop = asyncio.get_running_loop()
        super().__init__(loop, idle_timeout, context, nobody, server_side=True, ssl_handshake_timeout=HANDSHAKE_S_MAX)
        self._idle_timeout = idle_timeout

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._idle_timeout.arrived(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._idle_timeout.left()


class Loop(asyncio.SelectorEventLoop):
    """An event loop that limits handshakes, as uvicorn limits neither their duration nor their number."""

    async def create_server(self, factory: Callable[[], Any], *arguments: Any, **options: Any) -> asyncio.Server:  # type: ignore[override]
        """Create a server with limited handshakes."""
        context: ssl.SSLContext | None = options.pop("ssl", None)
        secured = factory if context is None else lambda: Handshake(factory(), context)
        return await super().create_server(secured, *arguments, **options)
