"""The transport of a link to its upstream over TCP or TLS (federation/environment.py, Transport)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from leveret import tcp_settings
from leveret.client.protocol.url import Address
from leveret.net.connections.certificates import words

if TYPE_CHECKING:
    from leveret.federation.environment import TransportUser
    from leveret.net.links import Links

T = TypeVar("T")
Place = tuple[Any, ...]  # as getaddrinfo returns them

# how long an upstream that does not read has to take the last output
GOODBYE_S_MAX: Final = 5.0
# limit of unsent output, which consists of acknowledgements and bindings: an upstream this far behind is dead
UNSENT_OCTETS_MAX: Final = 128 << 20


class TcpTransport(asyncio.BufferedProtocol):
    """A connection to an upstream, which dials when it is created.

    Each call to its user is a turn of the broker (`Links.turn`).
    """

    def __init__(self, links: Links, address: Address, user: TransportUser) -> None:
        self._links = links
        self._address = address
        self._user: TransportUser | None = user  # gets the callbacks, until the transport is closed or lost
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._dialling: asyncio.Task[None] | None = links.loop.create_task(self._dial())

    # -- for its user --------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send data. Does nothing if the connection is not made yet, or is closed."""
        transport = self._transport
        if self._user is None or transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > UNSENT_OCTETS_MAX:
            self._links.loop.call_soon(self._end, "send buffer limit exceeded: the upstream does not read")

    def pause(self, is_paused: bool) -> None:
        """Stop reading, or go on; also before the connection is made. While the server stops, nothing is read any more.
        """
        is_paused = is_paused or self._links.is_stopping
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            self._read(not is_paused)

    def _read(self, is_wanted: bool) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if is_wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def close(self) -> None:
        """Send what was written, then close."""
        if self._user is None:
            return
        self._user = None
        if self._dialling is not None:
            self._dialling.cancel()
        transport = self._transport
        if transport is None:
            self._links.forget(self)
            return
        self._links.loop.call_later(GOODBYE_S_MAX, transport.abort)
        if transport.can_write_eof():
            # closing a socket with unread input would discard the output that is still to be sent
            try:
                transport.write_eof()
            except OSError:  # the other side has closed already, and what was written last found nobody
                transport.abort()
            self._read(True)
        else:
            transport.close()

    # -- the socket ----------------------------------------------------------------------------------------------------

    async def _dial(self) -> None:
        address = self._address
        where = f"{address.host}:{address.port}"
        reason = ""
        try:
            async with asyncio.timeout(address.connection_timeout_ms / 1000):
                await self._connect(*await on_daemon(partial(look_up, address)))
        except TimeoutError:
            reason = f"no connection to {where} within {address.connection_timeout_ms:,} ms"
        except ssl.SSLError as error:
            reason = f"TLS with {where} failed: {words(error)}"
        except ssl.CertificateError as error:
            reason = f"TLS with {where} failed: {error}"
        except (OSError, ValueError) as error:  # ValueError: the host is no valid name
            reason = f"cannot connect to {where}: {_text(error)}"
        finally:
            self._dialling = None
        if reason:
            self._end(reason)

    async def _connect(self, places: list[Place], context: ssl.SSLContext | None) -> None:
        """Connect to the first address that answers. OSError of the last address if none does."""
        for place in places:
            try:
                connection = await self._reach(place)
            except OSError:
                if place is places[-1]:
                    raise
            else:
                # an empty name: no SNI is sent, and the name in the certificate is not checked
                name = None if context is None else self._address.server_name or ""
                await self._links.loop.create_connection(
                    lambda: self, sock=connection, ssl=context, server_hostname=name
                )
                return

    async def _reach(self, place: Place) -> socket.socket:
        connection = socket.socket(place[0], place[1], place[2])
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tcp_settings.quicken(connection, place[4][0])
            await self._links.loop.sock_connect(connection, place[4])
        except BaseException:
            connection.close()
            raise
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._dialling = None  # its last step is still to run; cancelling it now would close the transport
        if self._user is None:
            self._transport.abort()
            return
        if self._is_paused:
            self._transport.pause_reading()
        self._tell(self._user.connected)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._links.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._user is not None:
            self._tell(self._user.received, bytes(self._links.buffer[:nbytes]))

    def eof_received(self) -> None:
        """Let asyncio close the transport: an upstream that sends nothing more is gone."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(_reason(exc))

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._links.turn(call, *arguments):
            self._end("internal error")

    def _end(self, reason: str) -> None:
        """Clean up after the connection has ended for any reason."""
        user, self._user = self._user, None
        if self._transport is not None:
            self._transport.abort()
        self._links.forget(self)
        if user is not None:
            self._links.turn(user.lost, reason)


def _reason(error: Exception | None) -> str:
    if error is None:
        return "the upstream closed the connection"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {words(error)}"
    return f"connection lost: {_text(error)}"


def _text(error: Exception) -> str:
    """A short text for an error. asyncio's are long, so an error number's text is used; name resolution's are negative.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error)


def look_up(address: Address) -> tuple[list[Place], ssl.SSLContext | None]:
    """Resolve the host, and make the TLS context if TLS is used. OSError."""
    context = address.tls_context()
    return list(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)), context


def on_daemon(function: Callable[[], T]) -> asyncio.Future[T]:
    """Run a function that may hang, such as name resolution, on a daemon thread that does not delay the process's end.

    An error comes without its traceback: its frames refer to the future, which refers to the error, and the collector
    is off.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def work() -> None:
        result, failure = None, None
        try:
            result = function()
        except Exception as error:
            failure = error.with_traceback(None)
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits for the result any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, daemon=True, name="leveret-dial").start()
    return future
