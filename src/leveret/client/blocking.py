"""The blocking API: the same sans-IO core on a plain socket, for scripts and for Spark's executors.

Every call holds the connection's lock, so threads may share a connection, one call at a time. While no call runs, a
thread sends the heartbeats.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from time import monotonic
from types import TracebackType
from typing import Final, TypeVar

from leveret.client.blocking_channel import BlockingChannel
from leveret.client.blocking_rpc import BlockingRpc
from leveret.client.errors import ConnectionClosed, may_try_another_host, nobody_answered
from leveret.client.protocol import ConnectionCore
from leveret.client.stream import ClientSocket
from leveret.client.url import Address, parse_urls
from leveret.client.waiter import Waiter
from leveret.wire.table import Value

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

    Raises:
        ValueError: The URL is wrong.
        AuthenticationFailed: The broker refused the user or the password; other hosts are not asked.
        ConnectionClosed: The connection could not be opened for any other reason, or not within timeout_s.
    """

    def __init__(
        self, url: str | Sequence[str], heartbeat_s: int = 60, name: str | None = None, timeout_s: float = 15.0
    ) -> None:
        addresses = parse_urls(url)
        self.lock = threading.RLock()
        self._idle = threading.Event()
        failures: list[ConnectionClosed] = []
        for address in addresses:
            try:
                self._connect(address, heartbeat_s, name, timeout_s / len(addresses))
                break
            except ConnectionClosed as error:
                if not may_try_another_host(error):
                    raise
                failures.append(error)
        else:
            raise nobody_answered(failures)
        self._next_tick = monotonic() + self.core.tick_interval_s
        if self.core.tick_interval_s:
            target, arguments = _keep_alive, (weakref.ref(self), self._idle, self.core.tick_interval_s)
            threading.Thread(target=target, args=arguments, name="leveret-heartbeat", daemon=True).start()

    def _connect(self, address: Address, heartbeat_s: int, name: str | None, timeout_s: float) -> None:
        """Open a connection to this address. Raises as the constructor does."""
        self.core = ConnectionCore(address, heartbeat_s, name)
        self._next_tick = monotonic() + timeout_s
        where = f"{address.host}:{address.port}"
        try:
            self._stream = ClientSocket(address, timeout_s)
        except TimeoutError:
            raise ConnectionClosed(0, f"no AMQP connection to {where} within {timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionClosed(0, f"cannot connect to {where}: {error}") from error
        try:
            if not self.wait(self.core.opened, timeout_s):
                raise ConnectionClosed(0, f"no AMQP connection to {where} within {timeout_s:g} s")
            self.core.opened.result()
        except BaseException:
            self._stream.close()
            raise

    @property
    def server_properties(self) -> dict[str, Value]:
        """The properties that the broker announced: product, version, capabilities and more."""
        return self.core.server_properties

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed by either side, or lost."""
        return self.core.error is not None

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

    def channel(self) -> BlockingChannel:
        """Open a channel. Raises ConnectionClosed, or ClientError if no channel number is free."""
        with self.lock:
            return BlockingChannel(self)

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
        if core.error is not None:
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
