"""The blocking face: the same sans-IO core on a plain socket, for scripts and for Spark's executors.

Every call holds the connection's lock, so threads may share a connection, one call at a time. While no call runs, a
small thread keeps the heartbeats going.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Final, TypeVar

from leveret.client.blocking_channel import BlockingChannel
from leveret.client.blocking_rpc import BlockingRpc
from leveret.client.errors import ConnectionClosed
from leveret.client.protocol import ConnectionCore
from leveret.client.stream import Stream
from leveret.client.url import parse_url
from leveret.client.waiter import Waiter
from leveret.wire.table import Value

T = TypeVar("T")
# reads per idle turn: enough to see heartbeats and closing, and no flood into memory while nobody consumes
IDLE_READS_MAX: Final = 4


class BlockingConnection:
    """A connection to the broker at an amqp:// or amqps:// URL. A context manager that closes it.

    heartbeat_s: wished interval in seconds, 0 turns heartbeats off; name: what the broker's tools show; timeout_s: for
    everything until the connection is open. ValueError for a wrong URL, AuthenticationFailed for a wrong user or
    password, ConnectionClosed for everything else that stands between.
    """

    def __init__(self, url: str, heartbeat_s: int = 60, name: str | None = None, timeout_s: float = 15.0) -> None:
        address = parse_url(url)
        self.lock = threading.RLock()
        self.core = ConnectionCore(address, heartbeat_s, name)
        self._idle = threading.Event()
        self._next_tick = monotonic() + timeout_s
        where = f"{address.host}:{address.port}"
        try:
            self._stream = Stream(address, timeout_s)
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
        self._next_tick = monotonic() + self.core.tick_interval_s
        if self.core.tick_interval_s:
            target, arguments = _keep_alive, (weakref.ref(self), self._idle, self.core.tick_interval_s)
            threading.Thread(target=target, args=arguments, name="leveret-heartbeat", daemon=True).start()

    @property
    def server_properties(self) -> dict[str, Value]:
        """What the broker said of itself: product, version, capabilities and more."""
        return self.core.server_properties

    @property
    def is_closed(self) -> bool:
        """Whether the connection is gone, by either side or by the network."""
        return self.core.error is not None

    @property
    def blocked(self) -> str | None:
        """Why the broker asks publishers to wait (connection.blocked), or None."""
        return self.core.blocked

    def on_blocked(self, handler: Callable[[str | None], None]) -> None:
        """Have handler called with the reason when the broker asks publishers to wait, with None when they may go on.

        RabbitMQ and leveret do so while disk or memory run short, and only tell connections that publish. Meanwhile
        publish() waits. The handler runs inside calls, or on the heartbeat thread; it must not call back.
        """
        self.core.on_blocked = handler

    def channel(self) -> BlockingChannel:
        """Open a channel. ConnectionClosed if the connection is gone, ClientError if no channel number is free."""
        with self.lock:
            return BlockingChannel(self)

    def rpc(self, reply_queue: bool = False) -> BlockingRpc:
        """A caller with a channel of its own. Replies come by direct reply-to, or by a queue if reply_queue is set."""
        with self.lock:
            channel = self.channel()
            try:
                return BlockingRpc(channel, reply_queue)
            except BaseException:
                channel.abandon()
                raise

    def flush(self) -> None:
        """Write what publish and ack have buffered."""
        with self.lock:
            self.pump(0)

    def close(self, timeout_s: float = 5.0) -> None:
        """Close: what was buffered is written first. After timeout_s without an answer, or where it is interrupted, the
        socket is cut."""
        self._idle.set()
        with self.lock:
            reason = (
                "the connection was closed by this client, which did not wait for the reply"  # if it is interrupted
            )
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

    # for channels, which hold the lock

    def wait(self, waiter: Waiter[T], timeout_s: float | None = None) -> bool:
        """Move bytes until the waiter is done, or timeout_s seconds have passed: whether it is done."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while not waiter.done:
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return False
            self.pump(left)
        return True

    def pump(self, timeout_s: float | None) -> bool:
        """Write what is due, then read once, waiting at most timeout_s seconds (None = no limit): was there any?

        A broken socket ends the connection; it is not raised here, since all that waits learns of it.
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
                self._write()  # what the protocol answers by itself, such as close-ok
        except OSError as error:
            core.lost(str(error))
            return False
        return is_read

    def keep_alive(self) -> None:
        """One turn of the heartbeat thread, if no call is running: that one keeps the connection alive itself."""
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
    """The heartbeat thread. It holds no reference, so a connection that is forgotten ends it."""
    while not closed.wait(interval_s / 2):
        kept = connection()
        if kept is None or kept.is_closed:
            return
        kept.keep_alive()
        del kept
