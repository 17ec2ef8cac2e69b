"""The blocking API: the same sans-IO core on a plain socket, for scripts and for Spark's executors.

Every call holds the connection's lock, so threads may share a connection, one call at a time. While no call runs, a
thread sends the heartbeats.
"""

from __future__ import annotations

import logging
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from time import monotonic
from types import TracebackType
from typing import Final, TypeVar

from leveret.client.blocking_channel import BlockingChannel, BlockingLink
from leveret.client.blocking_rpc import BlockingRpc
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.errors import ConnectionClosed, may_try_another_host, nobody_answered
from leveret.client.protocol.reconnect import Reconnect, ReconnectDelays, given_up, policy
from leveret.client.protocol.url import Address, parse_urls
from leveret.client.protocol.waiter import Waiter
from leveret.client.stream import ClientSocket
from leveret.wire.table import Value

log: Final = logging.getLogger("leveret.client")

T = TypeVar("T")
# reads per turn of the heartbeat thread: enough to see heartbeats and a close, few enough not to fill the memory
IDLE_READS_MAX: Final = 4


class BlockingConnection:
    """A connection to a broker, open and logged in when the constructor returns. A context manager that closes it.

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

    core: ConnectionCore

    def __init__(
        self,
        url: str | Sequence[str],
        heartbeat_s: int = 60,
        name: str | None = None,
        timeout_s: float = 15.0,
        reconnect: bool | Reconnect = True,
    ) -> None:
        self._addresses = parse_urls(url)
        self._timeout_s = timeout_s / len(self._addresses)
        self.lock: threading.RLock = threading.RLock()
        self._changed = threading.Condition(self.lock)  # notified when a lost connection is restored, or has ended
        self._is_reconnecting = False
        self._idle = threading.Event()
        self._on_disconnected: Callable[[ConnectionClosed], None] = lambda error: None
        self._on_reconnected: Callable[[], None] = lambda: None
        kept = policy(reconnect)
        self._delays = ReconnectDelays(kept, random.random) if kept is not None else None
        self.new_channel: Callable[[BlockingLink], BlockingChannel] = BlockingChannel
        """Makes the channels; for this package only."""

        def begin(address: Address) -> None:
            self.core = ConnectionCore(address, heartbeat_s, name, kept)

        self._stream = self._open(begin)
        self.core.on_interrupted = self._interrupted
        self._next_tick = monotonic() + self.core.tick_interval_s
        if self.core.tick_interval_s:
            target, arguments = _keep_alive, (weakref.ref(self), self._idle, self.core.tick_interval_s)
            threading.Thread(target=target, args=arguments, name="leveret-heartbeat", daemon=True).start()

    def _open(self, begin: Callable[[Address], None]) -> ClientSocket:
        """Return a socket to the first host that accepts a connection. Raises ConnectionClosed.

        begin: Begins the connection's protocol for a host. The lock is not held while the network is waited for.
        """
        failures: list[ConnectionClosed] = []
        for address in self._addresses:
            try:
                return self._open_one(address, begin)
            except ConnectionClosed as error:
                if not may_try_another_host(error):
                    raise
                failures.append(error)
        raise nobody_answered(failures)

    def _open_one(self, address: Address, begin: Callable[[Address], None]) -> ClientSocket:
        late = ConnectionClosed(0, f"no AMQP connection to {address.where} within {self._timeout_s:g} s")
        try:
            stream = ClientSocket(address, self._timeout_s)
        except TimeoutError:
            raise late from None
        except OSError as error:
            raise ConnectionClosed(0, f"cannot connect to {address.where}: {error}") from error
        try:
            with self.lock:
                begin(address)
                opened = self.core.opened
            if not self._move(stream, opened):
                raise late
            opened.result()
        except BaseException:
            stream.close()
            raise
        return stream

    def _move(self, stream: ClientSocket, waiter: Waiter[None]) -> bool:
        """Move bytes of a new socket until the waiter is done, or the time is over; return whether it is done."""
        deadline = monotonic() + self._timeout_s
        while True:
            with self.lock:
                try:
                    while not waiter.done and self._move_once(stream):
                        pass
                except OSError as error:
                    self.core.lost(str(error))
                if waiter.done:
                    return True
            left = deadline - monotonic()
            if left <= 0:
                return False
            stream.wait(left)

    def _move_once(self, stream: ClientSocket) -> bool:
        """Write the outbox, then read once without waiting; return whether anything was read."""
        stream.write(self.core.take, self.core.receive)
        return stream.read(0, self.core.receive)

    def _interrupted(self, error: ConnectionClosed) -> None:
        if self._is_reconnecting:
            return  # an attempt has failed, and the next one follows
        assert self._delays is not None
        self._is_reconnecting = True
        self._stream.close(self.core.take())
        log.warning("%s; reconnecting", error)
        target, arguments = _reconnect, (weakref.ref(self), self._idle, self._delays, error)
        threading.Thread(target=target, args=arguments, name="leveret-reconnect", daemon=True).start()
        self._on_disconnected(error)

    def reconnect(self) -> None:
        """Try once to restore a lost connection; for the thread that reconnects. Raises ConnectionClosed."""

        def begin(address: Address) -> None:
            self.core.check_open()
            self.core.begin(address)

        stream = self._open(begin)
        if not self._move(stream, self.core.restored):
            with self.lock:
                self.core.interrupt(ConnectionClosed(0, f"not restored within {self._timeout_s:g} s"))
        with self.lock:
            if self.core.restored.error is not None:
                stream.close()
                self.core.restored.result()
            self._stream = stream
            self._next_tick = monotonic() + self.core.tick_interval_s
            self._on_reconnected()
            self.go_on()

    def go_on(self) -> None:
        """Let calls go on that wait for the connection, which is restored or has ended; for this package only."""
        with self.lock:
            self._is_reconnecting = False
            self._changed.notify_all()

    @property
    def server_properties(self) -> dict[str, Value]:
        """The properties that the broker announced: product, version, capabilities and more."""
        return self.core.server_properties

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed by either side, or lost."""
        return self.core.error is not None

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open now. If it is neither that nor closed, it is reconnecting."""
        return self.core.error is None and self.core.interruption is None

    def on_disconnected(self, handler: Callable[[ConnectionClosed], None]) -> None:
        """Set the handler that is called with the reason when the connection is lost and will be restored.

        It runs inside calls, or on the heartbeat thread; it must not use the connection.
        """
        self._on_disconnected = handler

    def on_reconnected(self, handler: Callable[[], None]) -> None:
        """Set the handler that is called when everything is as it was before the connection was lost.

        It runs on the thread that reconnects, with the connection locked: it should return soon.
        """
        self._on_reconnected = handler

    def queue_name(self, name: str) -> str:
        """Return the present name of a queue that the broker named `name`: after a reconnect it has another one.

        Calls of this connection take either name. Others, such as those who reply, need the present one.
        """
        return self.core.topology.names.get(name, name)

    @property
    def blocked(self) -> str | None:
        """The reason why the broker blocks publishers (connection.blocked), or None if it does not."""
        return self.core.blocked

    def on_blocked(self, handler: Callable[[str | None], None]) -> None:
        """Set the handler that is called with the reason when the broker blocks publishers, and None when it unblocks.

        RabbitMQ and leveret block while disk or memory run short, and notify only connections that publish. Meanwhile
        publish() waits. The handler runs inside calls, or on the heartbeat thread; it must not use the connection.
        """
        self.core.on_blocked = handler

    def channel(self, confirms: bool = False, publisher: str | None = None) -> BlockingChannel:
        """Open a channel.

        Args:
            confirms: Turn publisher confirms on, as confirm_select() does.
            publisher: Publish under this reference, with confirms: leveret stores each message once, whatever breaks,
                and BlockingChannel.last_publishing_id says how far the publisher has got (docs/guides/exactly-once.md).
                A reference has one holder; another channel that takes it over closes this one (406).

        Raises:
            PublisherReferencesMissing: The broker keeps no publisher references: RabbitMQ.
            ChannelClosed: 406 if the reference was forgotten, 403 if another user has it.
            ConnectionClosed: The connection is lost.
            ClientError: No channel number is free.
        """
        with self.lock:
            channel = self.new_channel(self)
            if confirms:
                channel.confirm_select()
            if publisher is not None:
                channel.attach_publisher(publisher)
            return channel

    def rpc(self, reply_queue: bool = False) -> BlockingRpc:
        """Return an RPC client with a channel of its own.

        Args:
            reply_queue: Receive replies in an exclusive queue, not by direct reply-to.
        """
        with self.lock:
            channel = self.channel()
            try:
                return BlockingRpc(channel, reply_queue)
            except BaseException:
                channel.abandon()
                raise

    def flush(self) -> None:
        """Write the buffered publishes and acks of all channels."""
        with self.lock:
            self.pump(0)

    def close(self, timeout_s: float = 5.0) -> None:
        """Close the connection after what was buffered is written.

        Args:
            timeout_s: Seconds after which the socket is closed without the broker's answer. An interrupt
                (KeyboardInterrupt) closes it at once.
        """
        self._idle.set()
        with self.lock:
            # if the wait is interrupted
            reason = "the connection was closed by this client, which did not wait for the reply"
            try:
                self.core.close()
                if not self.wait(self.core.closed, timeout_s):
                    reason = f"the server did not answer connection.close within {timeout_s:g} s"
            finally:
                self.core.fail(ConnectionClosed(0, reason))
                self._stream.close()

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # for channels; the caller holds the lock

    def wait(self, waiter: Waiter[T], timeout_s: float | None = None) -> bool:
        """Move bytes until the waiter is done, or timeout_s seconds have passed; return whether it is done."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while not waiter.done:
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return False
            self.pump(left)
        return True

    def pump(self, timeout_s: float | None) -> bool:
        """Write the outbox, then read once, waiting at most timeout_s seconds (None = no limit).

        Returns whether anything was read. A broken socket ends the connection; the error is not raised here, since all
        waiters and channels get it.
        """
        core = self.core
        if self._is_reconnecting:
            self._changed.wait(timeout_s)
            return False
        if not core.is_on_line:
            return False
        if self._stream.is_torn:
            core.lost("a call was interrupted during a read or write, so the state of the connection is unknown")
            return False
        try:
            self._write()
            if core.tick_interval_s:
                left = self._next_tick - monotonic()
                if left <= 0:
                    self._tick()
                    left = core.tick_interval_s
                timeout_s = left if timeout_s is None else min(timeout_s, left)
            is_read = self._stream.read(timeout_s, core.receive)
            if is_read:
                self._write()  # the protocol's own answers, such as close-ok
        except OSError as error:
            core.lost(str(error))
            return False
        return is_read

    def keep_alive(self) -> None:
        """Do one turn of the heartbeat thread, unless a call is running, which keeps the connection alive itself."""
        if self.lock.acquire(blocking=False):
            try:
                for _ in range(IDLE_READS_MAX):
                    if not self.pump(0):
                        break
            finally:
                self.lock.release()

    def _write(self) -> None:
        if self.core.outbox_size or self._stream.has_unsent:
            self._stream.write(self.core.take, self.core.receive)

    def _tick(self) -> None:
        self._next_tick = monotonic() + self.core.tick_interval_s
        self.core.tick()
        self._write()


def _keep_alive(connection: weakref.ref[BlockingConnection], closed: threading.Event, interval_s: float) -> None:
    """Run the heartbeat thread. It holds a weak reference only, so it ends when the connection is garbage-collected."""
    while not closed.wait(interval_s / 2):
        kept = connection()
        if kept is None or kept.is_closed:
            return
        kept.keep_alive()
        del kept


def _reconnect(
    connection: weakref.ref[BlockingConnection],
    closed: threading.Event,
    delays: ReconnectDelays,
    interruption: ConnectionClosed,
) -> None:
    """Run the thread that reconnects: try until it succeeds, the error is final, or the policy gives up."""
    last = interruption
    for attempt, delay_s in enumerate(delays.before_attempts(monotonic()), 1):
        is_closed = closed.wait(delay_s)
        kept = connection()
        if is_closed or kept is None:
            return
        try:
            kept.reconnect()
        except ConnectionClosed as error:
            if kept.core.error is not None:
                log.error("not reconnected: %s", kept.core.error)
                kept.go_on()
                return
            log.info("attempt %d to reconnect has failed: %s", attempt, error)
            last = error
        else:
            log.warning("reconnected to %s at attempt %d", kept.core.address.where, attempt)
            delays.succeeded(monotonic())
            return
        del kept
    kept = connection()
    if kept is not None:
        with kept.lock:
            kept.core.fail(given_up(interruption, last))
            kept.go_on()
