"""The asyncio face: a connection on the sans-IO core. Channels are in aio_channel, RPC in rpc."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeVar, cast

from leveret.client.aio_channel import Channel
from leveret.client.errors import ConnectionClosed
from leveret.client.protocol import ConnectionCore
from leveret.client.rpc import Rpc
from leveret.client.url import parse_url
from leveret.client.waiter import Waiter
from leveret.wire.table import Value

T = TypeVar("T")

READ_SIZE: Final = 256 * 1024
# beyond this a write does not wait for the end of the loop's turn
WRITE_SIZE: Final = 64 * 1024


class _Socket(asyncio.BufferedProtocol):
    """Moves bytes between asyncio and the core. One buffer for all reads: asyncio would else allocate one for each."""

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
        """One write per turn of the loop, however many frames it makes; large ones go at once."""
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
        """Close without waiting: what was said goes out, if the other side takes it within timeout_s seconds."""
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
        """What the broker said of itself: product, version, capabilities and more."""
        return self._core.server_properties

    @property
    def is_closed(self) -> bool:
        """Whether the connection is gone, by either side or by the network."""
        return self._core.error is not None

    @property
    def blocked(self) -> str | None:
        """Why the broker asks publishers to wait (connection.blocked), or None."""
        return self._core.blocked

    def on_blocked(self, handler: Callable[[str | None], None]) -> None:
        """Have handler called with the reason when the broker asks publishers to wait, with None when they may go on.

        RabbitMQ and leveret do so while disk or memory run short, and only tell connections that publish. Meanwhile
        publishes are not confirmed, and Channel.drain() waits.
        """
        self._core.on_blocked = handler

    async def channel(self) -> Channel:
        """Open a channel. ConnectionClosed if the connection is gone, ClientError if no channel number is free."""
        return await Channel.open(self)

    async def rpc(self, reply_queue: bool = False) -> Rpc:
        """A caller with a channel of its own. Replies come by direct reply-to, or by a queue if reply_queue is set."""
        return await Rpc.open(self, reply_queue)

    async def close(self, timeout_s: float = 5.0) -> None:
        """Close: what was published before is written first. After timeout_s without an answer the socket is cut.

        Where the caller is cancelled, the connection is closed all the same, and the answer is not waited for.
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
        """The protocol's side; for this package."""
        return self._core

    def written(self) -> None:
        """Frames were put into the outbox; for this package."""
        self._stream.schedule_flush()

    async def drain(self) -> None:
        """Wait until the socket takes more, and the broker does not ask publishers to wait."""
        await self._stream.drain()

    async def wait(self, waiter: Waiter[T], undo: Callable[[], None] | None = None) -> T:
        """Write what is due and wait for an answer; for this package.

        undo: called where the caller is cancelled, before the answer or in the turn in which it came: nobody will use
        what it brings.
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


async def connect(url: str, heartbeat_s: int = 60, name: str | None = None, timeout_s: float = 15.0) -> Connection:
    """Connect to the broker at an amqp:// or amqps:// URL and log in.

    heartbeat_s: wished interval in seconds, 0 turns heartbeats off; name: what the broker's tools show; timeout_s: for
    everything until the connection is open. ValueError for a wrong URL, AuthenticationFailed for a wrong user or
    password, ConnectionClosed for everything else that stands between.
    """
    address = parse_url(url)
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
