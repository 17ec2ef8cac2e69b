"""The asyncio API: a connection on the sans-IO core. Channels are in aio_channel, RPC in rpc."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, TypeVar, cast

from leveret import tcp_settings
from leveret.client.aio_channel import Channel, ChannelConnection
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.errors import ConnectionClosed, may_try_another_host, nobody_answered
from leveret.client.protocol.reconnect import Reconnect, ReconnectDelays, given_up, policy
from leveret.client.protocol.url import Address, parse_urls
from leveret.client.protocol.waiter import Waiter
from leveret.client.rpc import Rpc
from leveret.wire.table import Value

log: Final = logging.getLogger("leveret.client")

T = TypeVar("T")

READ_SIZE: Final = 256 * 1024
# outbox size in bytes from which it is written at once, not at the end of the loop's turn
WRITE_SIZE: Final = 64 * 1024


class _Socket(asyncio.BufferedProtocol):
    """Moves bytes between asyncio and the core, with one buffer for all reads (asyncio.Protocol allocates for each)."""

    def __init__(self, core: ConnectionCore) -> None:
        self._core = core
        self._number = core.sockets  # the core counts its sockets; this is the number of this one
        self._buffer = memoryview(bytearray(READ_SIZE))
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_flush_due = False
        self._is_paused = False
        self._tick_timer: asyncio.TimerHandle | None = None
        self._resumed: list[asyncio.Future[None]] = []

    @property
    def _is_current(self) -> bool:
        """Whether the core has not lost this socket, and may have another one."""
        return self._number == self._core.sockets and self._core.is_on_line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_current:
            self._core.receive(bytes(self._buffer[:nbytes]))
            self.flush()
            self._resume()
            if not self._is_flush_due:
                # behind the tasks that this woke, so that what they send needs no turn of its own
                self._is_flush_due = True
                self._loop.call_soon(self.flush)
        if not self._is_current and self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_current:
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
        if self._core.outbox_size and self._transport is not None and self._number == self._core.sockets:
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
        if self._is_current:
            self._core.tick()
            self.flush()
        if self._is_current:
            self.start_ticking()
        else:
            self.abort()
            self._resume()

    def _must_wait(self) -> bool:
        return self._is_current and (self._is_paused or self._core.blocked is not None)

    def _resume(self) -> None:
        if self._resumed and not self._must_wait():
            resumed, self._resumed = self._resumed, []
            for future in resumed:
                if not future.done():
                    future.set_result(None)


class Connection:
    """An AMQP connection, made by connect(). An async context manager that closes it."""

    def __init__(self, core: ConnectionCore, stream: _Socket, hosts: _Hosts | None = None) -> None:
        self._core = core
        self._stream = stream
        self._hosts = hosts
        self._reconnecting: asyncio.Task[None] | None = None
        self._delays = ReconnectDelays(core.policy, random.random) if core.policy is not None else None
        self._on_disconnected: Callable[[ConnectionClosed], None] = lambda error: None
        self._on_reconnected: Callable[[], None] = lambda: None
        self.new_channel: Callable[[ChannelConnection], Channel] = Channel
        """Makes the channels; for this package only."""
        core.on_interrupted = self._interrupted

    @property
    def server_properties(self) -> dict[str, Value]:
        """The properties that the broker announced: product, version, capabilities and more."""
        return self._core.server_properties

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed by either side, or lost."""
        return self._core.error is not None

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open now. If it is neither that nor closed, it is reconnecting."""
        return self._core.error is None and self._core.interruption is None

    def on_disconnected(self, handler: Callable[[ConnectionClosed], None]) -> None:
        """Set the handler that is called with the reason when the connection is lost and will be restored."""
        self._on_disconnected = handler

    def on_reconnected(self, handler: Callable[[], None]) -> None:
        """Set the handler that is called when everything is as it was before the connection was lost."""
        self._on_reconnected = handler

    def queue_name(self, name: str) -> str:
        """Return the present name of a queue that the broker named `name`: after a reconnect it has another one.

        Calls of this connection take either name. Others, such as those who reply, need the present one.
        """
        return self._core.topology.names.get(name, name)

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

    async def channel(self, confirms: bool = False, publisher: str | None = None) -> Channel:
        """Open a channel.

        Args:
            confirms: Turn publisher confirms on, as confirm_select() does.
            publisher: Publish under this reference, with confirms: leveret stores each message once, whatever breaks,
                and Channel.last_publishing_id says how far the publisher has got (docs/guides/exactly-once.md). A
                reference has one holder; another channel that takes it over closes this one (406).

        Raises:
            PublisherReferencesMissing: The broker keeps no publisher references: RabbitMQ.
            ChannelClosed: 406 if the reference was forgotten, 403 if another user has it.
            ConnectionClosed: The connection is lost.
            ClientError: No channel number is free.
        """
        channel = await Channel.open(self)
        if confirms:
            await channel.confirm_select()
        if publisher is not None:
            await channel.attach_publisher(publisher)
        return channel

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
        if self._reconnecting is not None:
            self._reconnecting.cancel()
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
        try:
            return await wait_for(waiter)
        except asyncio.CancelledError:
            if undo is not None:
                undo()
                self._stream.schedule_flush()
            raise


    def _interrupted(self, error: ConnectionClosed) -> None:
        if self._reconnecting is None:  # else an attempt has failed, and the next one follows
            log.warning("%s; reconnecting", error)
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(error))
            self._on_disconnected(error)

    async def _reconnect(self, interruption: ConnectionClosed) -> None:
        """Try to connect again until it succeeds, the error is final, or the policy gives up."""
        assert self._hosts is not None
        assert self._delays is not None
        loop = asyncio.get_running_loop()
        last = interruption
        for attempt, delay_s in enumerate(self._delays.before_attempts(loop.time()), 1):
            await asyncio.sleep(delay_s)
            try:
                self._stream = await self._hosts.open_again(self._core)
                await self.wait(self._core.restored)
                self._core.restored.result()  # it may be lost again by now
            except ConnectionClosed as error:
                if self._core.error is not None:
                    log.error("not reconnected: %s", self._core.error)
                    return
                log.info("attempt %d to reconnect has failed: %s", attempt, error)
                last = error
            else:
                log.warning("reconnected to %s at attempt %d", self._core.address.where, attempt)
                self._delays.succeeded(loop.time())
                self._reconnecting = None
                self._on_reconnected()
                return
        self._core.fail(given_up(interruption, last))


async def connect(
    url: str | Sequence[str],
    heartbeat_s: int = 60,
    name: str | None = None,
    timeout_s: float = 15.0,
    reconnect: bool | Reconnect = True,
) -> Connection:
    """Connect to a broker, or to the first of several that accepts the connection, and log in.

    Args:
        url: amqp:// or amqps:// URL, such as "amqp://user:password@host:5672/vhost". Several hosts are tried in turn:
            "amqp://user:password@one,two:5673/vhost", or several URLs, in a sequence or with commas between them.
        heartbeat_s: Requested heartbeat interval in seconds; 0 turns heartbeats off.
        name: Name of the connection that the broker's tools show; None = made of host name and process id.
        timeout_s: Seconds until the connection must be open, login included. Several hosts share them equally.
        reconnect: Restore the connection when it is lost, with all that it had declared and consumed and with publishes
            that are not confirmed (docs/guides/reconnecting.md). False ends it. A Reconnect has other delays and
            limits.

    Raises:
        ValueError: The URL is wrong.
        AuthenticationFailed: The broker refused the user or the password; other hosts are not asked.
        ConnectionClosed: The connection could not be opened for any other reason, or not within timeout_s.
    """
    hosts = _Hosts(parse_urls(url), timeout_s)
    core, stream = await hosts.open(lambda address: ConnectionCore(address, heartbeat_s, name, policy(reconnect)))
    return Connection(core, stream, hosts)


class _Hosts:
    """The addresses of a broker, or of several, which are tried in turn within timeout_s seconds."""

    def __init__(self, addresses: Sequence[Address], timeout_s: float) -> None:
        self._addresses = addresses
        self._timeout_s = timeout_s / len(addresses)

    async def open(self, new: Callable[[Address], ConnectionCore]) -> tuple[ConnectionCore, _Socket]:
        """Return an open connection to the first host that accepts one, and its socket. Raises ConnectionClosed."""
        failures: list[ConnectionClosed] = []
        for address in self._addresses:
            core = new(address)
            try:
                return core, await self._open(core)
            except ConnectionClosed as error:
                if not may_try_another_host(error):
                    raise
                failures.append(error)
        raise nobody_answered(failures)

    async def open_again(self, core: ConnectionCore) -> _Socket:
        """Open another socket for a connection that has lost its own. Raises ConnectionClosed."""

        def begin(address: Address) -> ConnectionCore:
            if core.error is not None:
                raise core.error
            core.begin(address)
            return core

        return (await self.open(begin))[1]

    async def _open(self, core: ConnectionCore) -> _Socket:
        stream = _Socket(core)
        address = core.address
        try:
            async with asyncio.timeout(self._timeout_s):
                context = address.tls_context()
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: stream,
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=None if context is None else address.server_name or "",
                )
                if (peer := transport.get_extra_info("peername")) is not None:  # else the broker has hung up already
                    tcp_settings.quicken(transport.get_extra_info("socket"), peer[0])
                await wait_for(core.opened)
        except TimeoutError:
            stream.abort()
            raise ConnectionClosed(0, f"no AMQP connection to {address.where} within {self._timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionClosed(0, f"cannot connect to {address.where}: {error}") from error
        except BaseException:
            stream.abort()
            raise
        stream.start_ticking()
        return stream


async def wait_for(waiter: Waiter[T]) -> T:
    """Wait for an answer and return it, or raise its error."""
    if not waiter.done:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.when_done(lambda: None if future.done() else future.set_result(None))
        await future
    return waiter.result()
