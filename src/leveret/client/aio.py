"""The asyncio API: a connection on the sans-IO core. Channels are in aio_channel, RPC in rpc."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, TypeVar, cast

from leveret.client.aio_channel import Channel
from leveret.client.errors import ConnectionClosed, may_try_another_host, nobody_answered
from leveret.client.protocol import ConnectionCore
from leveret.client.rpc import Rpc
from leveret.client.url import Address, parse_urls
from leveret.client.waiter import Waiter
from leveret.wire.table import Value

T = TypeVar("T")

READ_SIZE: Final = 256 * 1024
# outbox size in bytes from which it is written at once, not at the end of the loop's turn
WRITE_SIZE: Final = 64 * 1024


class _Socket(asyncio.BufferedProtocol):
    """Moves bytes between asyncio and the core, with one buffer for all reads (asyncio.Protocol allocates for each)."""

    def __init__(self, core: ConnectionCore) -> None:
        self._core = core
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_flush_due = False
        self._is_paused = False
        self._tick_timer: asyncio.TimerHandle | None = None
        self._resumed: list[asyncio.Future[None]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._core.receive(bytes(self._buffer[:nbytes]))
        self.flush()
        self._resume()
        if self._core.error is not None and self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._core.lost(str(exc) if exc is not None else "")
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._transport = None
        self._is_paused = False
        self._resume()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._resume()

    def schedule_flush(self) -> None:
        """Write once per turn of the loop, however many frames it makes; a large outbox is written at once."""
        if self._core.outbox_size >= WRITE_SIZE:
            self.flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._is_flush_due = False
        if self._core.outbox_size and self._transport is not None:
            self._transport.write(self._core.take())

    async def drain(self) -> None:
        self.flush()
        while self._must_wait():
            resumed: asyncio.Future[None] = self._loop.create_future()
            self._resumed.append(resumed)
            try:
                await resumed
            except asyncio.CancelledError:
                if resumed in self._resumed:
                    self._resumed.remove(resumed)
                raise

    def start_ticking(self) -> None:
        if self._core.tick_interval_s:
            self._tick_timer = self._loop.call_later(self._core.tick_interval_s, self._tick)

    def close(self, timeout_s: float) -> None:
        """Close without waiting. What is in the outbox is sent if the peer takes it within timeout_s seconds."""
        self.flush()
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                self._loop.call_later(timeout_s, self.abort)
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _tick(self) -> None:
        self._core.tick()
        self.flush()
        if self._core.error is not None:
            self.abort()
            self._resume()
        else:
            self.start_ticking()

    def _must_wait(self) -> bool:
        return self._core.error is None and (self._is_paused or self._core.blocked is not None)

    def _resume(self) -> None:
        if self._resumed and not self._must_wait():
            resumed, self._resumed = self._resumed, []
            for future in resumed:
                if not future.done():
                    future.set_result(None)


class Connection:
    """An AMQP connection, made by connect(). An async context manager that closes it."""

    def __init__(self, core: ConnectionCore, stream: _Socket) -> None:
        self._core = core
        self._stream = stream

    @property
    def server_properties(self) -> dict[str, Value]:
        """The properties that the broker announced: product, version, capabilities and more."""
        return self._core.server_properties

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed by either side, or lost."""
        return self._core.error is not None

    @property
    def blocked(self) -> str | None:
        """The reason why the broker blocks publishers (connection.blocked), or None if it does not."""
        return self._core.blocked

    def on_blocked(self, handler: Callable[[str | None], None]) -> None:
        """Set the handler that is called with the reason when the broker blocks publishers, and None when it unblocks.

        RabbitMQ and leveret block while disk or memory run short, and notify only connections that publish. Meanwhile
        publishes are not confirmed, and Channel.drain() waits.
        """
        self._core.on_blocked = handler

    async def channel(self) -> Channel:
        """Open a channel. Raises ConnectionClosed, or ClientError if no channel number is free."""
        return await Channel.open(self)

    async def rpc(self, reply_queue: bool = False) -> Rpc:
        """Return an RPC client with a channel of its own.

        Args:
            reply_queue: Receive replies in an exclusive queue, not by direct reply-to.
        """
        return await Rpc.open(self, reply_queue)

    async def close(self, timeout_s: float = 5.0) -> None:
        """Close the connection after what was published before is written.

        If the calling task is cancelled, the connection is still closed, without waiting for the broker's answer.

        Args:
            timeout_s: Seconds after which the socket is closed without the broker's answer.
        """
        self._core.close()
        self._stream.flush()
        try:
            await asyncio.wait_for(self.wait(self._core.closed), timeout_s)
        except TimeoutError:
            self._core.fail(ConnectionClosed(0, f"the server did not answer connection.close within {timeout_s:g} s"))
        except asyncio.CancelledError:
            self._core.fail(
                ConnectionClosed(0, "the connection was closed by this client, which did not wait for the reply")
            )
            self._stream.close(timeout_s)
            raise
        self._stream.abort()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # for channels

    @property
    def core(self) -> ConnectionCore:
        """The protocol state; for this package only."""
        return self._core

    def written(self) -> None:
        """Schedule a write of the outbox; for this package only."""
        self._stream.schedule_flush()

    async def drain(self) -> None:
        """Wait until the socket accepts more data and the broker does not block publishers."""
        await self._stream.drain()

    async def wait(self, waiter: Waiter[T], undo: Callable[[], None] | None = None) -> T:
        """Write the outbox and wait for an answer; for this package only.

        undo is called if the caller is cancelled, before the answer or in the turn in which it arrived: nobody will use
        what the answer brings.
        """
        self._stream.flush()
        if not waiter.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiter.when_done(lambda: None if future.done() else future.set_result(None))
            try:
                await future
            except asyncio.CancelledError:
                if undo is not None:
                    undo()
                    self._stream.schedule_flush()
                raise
        return waiter.result()


async def connect(
    url: str | Sequence[str], heartbeat_s: int = 60, name: str | None = None, timeout_s: float = 15.0
) -> Connection:
    """Connect to a broker, or to the first of several that accepts the connection, and log in.

    Args:
        url: amqp:// or amqps:// URL, such as "amqp://user:password@host:5672/vhost". Several hosts are tried in turn:
            "amqp://user:password@one,two:5673/vhost", or several URLs, in a sequence or with commas between them.
        heartbeat_s: Requested heartbeat interval in seconds; 0 turns heartbeats off.
        name: Name of the connection that the broker's tools show; None = made of host name and process id.
        timeout_s: Seconds until the connection must be open, login included. Several hosts share them equally.

    Raises:
        ValueError: The URL is wrong.
        AuthenticationFailed: The broker refused the user or the password; other hosts are not asked.
        ConnectionClosed: The connection could not be opened for any other reason, or not within timeout_s.
    """
    addresses = parse_urls(url)
    failures: list[ConnectionClosed] = []
    for address in addresses:
        try:
            return await _connect(address, heartbeat_s, name, timeout_s / len(addresses))
        except ConnectionClosed as error:
            if not may_try_another_host(error):
                raise
            failures.append(error)
    raise nobody_answered(failures)


async def _connect(address: Address, heartbeat_s: int, name: str | None, timeout_s: float) -> Connection:
    core = ConnectionCore(address, heartbeat_s, name)
    stream = _Socket(core)
    where = f"{address.host}:{address.port}"
    try:
        async with asyncio.timeout(timeout_s):
            context = address.tls_context()
            await asyncio.get_running_loop().create_connection(
                lambda: stream,
                address.host,
                address.port,
                ssl=context,
                server_hostname=None if context is None else address.server_name or "",
            )
            connection = Connection(core, stream)
            await connection.wait(core.opened)
    except TimeoutError:
        stream.abort()
        raise ConnectionClosed(0, f"no AMQP connection to {where} within {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectionClosed(0, f"cannot connect to {where}: {error}") from error
    except BaseException:
        stream.abort()
        raise
    stream.start_ticking()
    return connection
