"""One run of a broker, from a start to a stop or crash: the server and its event loop on a thread of their own.

It is the broker of `leveret serve` in a different environment: disk, network, clock and gauges are the test's, and the
process keeps its signal handlers, logging and garbage collector settings.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leveret import __version__
from leveret.broker.broker import Broker, Settings
from leveret.net.alarms import DISK_FREE_LIMIT_OCTETS, Alarms, Gauges, ResourceLimits
from leveret.net.clock import Sources
from leveret.net.server import Server
from leveret.session import lifecycle
from leveret.store.data_directory import open_directory
from leveret.testing.kit.disk import FaultyDisk

if TYPE_CHECKING:
    from leveret.testing.kit.fixture import BrokerFixture

T = TypeVar("T")

# timeout of calls to a broker, in seconds; it answers within a millisecond unless its disk is stalled
ANSWER_S_MAX: Final = 60.0
MEMORY_OCTETS: Final = 1 << 32
PLENTY_OCTETS: Final = 1 << 40
RESERVE_OCTETS: Final = 1 << 16
SPARE_FILES: Final = 0
HEARTBEATS_S: Final = 1.0


class BrokerDown(Exception):
    """The broker is down and cannot do what was asked."""


class Ended(Exception):
    """The reason for which a server ends when the test crashes it."""


class BrokerRun:
    """A broker from a start to its end."""

    def __init__(self, fixture: BrokerFixture) -> None:
        self.server: Server
        self._fixture = fixture
        self._disk = FaultyDisk(fixture.disk, fixture.disk_faults)
        self._now_us = fixture.clock.now_us if fixture.clock is not None else 0
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="leveret-testing", daemon=True)
        self._thread.start()
        try:
            self._ready.result()
        except Exception:
            self._thread.join()
            raise
        if fixture.clock is not None:
            fixture.clock.join(self)

    @property
    def failure(self) -> Exception | None:
        """The error that ended the run, e.g. a failed sync; None if there was none. Valid once `is_over` is true."""
        failure = self.server.failure
        return None if isinstance(failure, Ended) else failure

    @property
    def is_over(self) -> bool:
        """Whether the run has ended or is ending."""
        return not self._thread.is_alive() or self.server.stopping.is_set()

    # -- calls into the broker -----------------------------------------------------------------------------------------

    def call(self, function: Callable[[], T]) -> T:
        """Call the function on the broker's loop and return its result. Also raises BrokerDown or TimeoutError."""
        if threading.get_ident() == self._thread.ident:
            return function()

        async def called() -> T:
            return function()

        return self.wait(called())

    def change(self, function: Callable[[], T]) -> T:
        """Like `call`, for changes: their consequences have been written to sockets when this returns."""

        def changed() -> T:
            result = function()
            self.server.broker.end_turn(self.server.now_us())
            self.server.end_turn()
            return result

        return self.call(changed)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the broker's loop and return its result. Raises BrokerDown or TimeoutError."""
        try:
            if self.is_over:
                raise RuntimeError
            future = asyncio.run_coroutine_threadsafe(coroutine, self.server.loop)
        except RuntimeError:
            coroutine.close()
            raise BrokerDown("the broker is down; start() starts it again") from None
        try:
            return future.result(ANSWER_S_MAX)
        except CancelledError:
            raise BrokerDown("the broker went down before it could answer") from None

    # -- end -----------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop in order, as after SIGTERM: clients get connection.close, and one second to answer it."""
        self._end(self.server.stop)

    def hang_up(self) -> None:
        """Send clients connection.close and end at once, without regard for the disk."""

        def hang_up() -> None:
            for peer in self.server.peers():
                self.server.close(peer, "broker forced connection closure with reason 'shutdown'")
            self.server.end_turn()
            self._cut()

        self._end(hang_up)

    def crash(self) -> None:
        """Fail the power: unsynced data is lost, and the clients' connections are reset."""
        self._disk.cut()
        self._end(self._cut)

    def _cut(self) -> None:
        self._disk.cut()
        self.server.batches.failure = Ended()
        self.server.stopping.set()

    def _end(self, how: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # it has ended by itself
            self.server.loop.call_soon_threadsafe(how)
        self._thread.join()
        if self._fixture.clock is not None:
            self._fixture.clock.leave(self)

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_due_us(self) -> int:
        """Return the time of the next timer; 0 if none is set."""
        with suppress(BrokerDown):
            return self.call(self._next_us)
        return 0

    def _next_us(self) -> int:
        due = (self.server.broker.timers.next_us(), self.server.logins.next_us())
        return min(filter(None, due), default=0)

    def look_interval_us(self) -> int:
        """Return how often to check for deliveries that are unacknowledged for too long; 0 if there are none."""
        with suppress(BrokerDown):
            return self.call(self._look_interval_us)
        return 0

    def _look_interval_us(self) -> int:
        timeout = self.server.broker.ack_timeout
        if not timeout.timeout_ms and not timeout.has_own:
            return 0
        channels = (channel for vhost in self.server.broker.vhosts.values() for channel in vhost.channels)
        waiting = any(channel.state == lifecycle.OPEN and channel.unacked.count for channel in channels)
        return int(timeout.interval_us) if waiting else 0

    def move(self, now_us: int) -> None:
        """Set the broker's time, and complete everything that is due."""
        with suppress(BrokerDown):
            self.wait(self._move(now_us))

    async def _move(self, now_us: int) -> None:
        self._fixture.network.shift(now_us - self._now_us)
        self._now_us = now_us
        server = self.server
        server.look()
        while not server.stopping.is_set():
            server.ring()
            server.logins.ring()
            if not self._fixture.disk_faults.is_slow and not self._fixture.disk_faults.full:
                await server.settled()
            while self._is_delivering():  # noqa: ASYNC110  (another turn of the loop is what brings it on)
                await asyncio.sleep(0)
            if not 0 < self._next_us() <= now_us:
                return

    def _is_delivering(self) -> bool:
        """Whether a connection has more to deliver than one turn writes, and its socket accepts more."""
        return any(line.peer.is_full and not line.is_choked for line in self._fixture.network.lines)

    def _sources(self) -> Sources | None:
        clock = self._fixture.clock
        if clock is None:
            return None
        return Sources(
            lambda: self._now_us * 1000, lambda: clock.boot_us(self._now_us) * 1000, clock.boot_id, runs=False
        )

    async def _keep_heartbeats(self) -> None:
        """Let the connections' time pass while the broker's clock stands still, so that heartbeats work."""
        last_s = time.monotonic()
        while True:
            await asyncio.sleep(HEARTBEATS_S)
            now_s = time.monotonic()
            self._fixture.network.shift(-round((now_s - last_s) * 1e6))
            last_s = now_s

    # -- thread --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._live())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _live(self) -> None:
        fixture = self._fixture
        broker = Broker(Settings(own_version=__version__, host="testing", **fixture.settings), os.urandom)
        parts = open_directory(self._disk, fixture.directory, SPARE_FILES, reserve_octets=RESERVE_OCTETS)
        limits = ResourceLimits(DISK_FREE_LIMIT_OCTETS, MEMORY_OCTETS)
        server = self.server = Server(broker, *parts, Alarms(limits, self._gauges()), self._sources())
        server.protocol = fixture.network.protocol
        try:
            server.recover()
            fixture.record.listen(broker)
            fixture.load_definitions(server)
            await server.listen(fixture.host, fixture.port)
        except BaseException as error:
            self._ready.set_exception(error)
            self._cut()
        else:
            self._ready.set_result(None)
        beats = asyncio.ensure_future(self._keep_heartbeats()) if fixture.clock is not None else None
        await server.run()
        if beats is not None:
            beats.cancel()

    def _gauges(self) -> Gauges:
        blocked = self._fixture.blocked
        return Gauges(
            lambda: 0 if blocked["disk"] else PLENTY_OCTETS,
            lambda: PLENTY_OCTETS if blocked["memory"] else 0,
            lambda: None,
        )
