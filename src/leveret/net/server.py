"""The broker on asyncio: its listeners, its threads, its start and its stop. What happens in a turn is engine.py's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from leveret.broker.broker import Broker
from leveret.broker.peer import Peer
from leveret.net.alarms import Alarms
from leveret.net.clock import Clock, Sources, system_sources
from leveret.net.connections.admission import Admission
from leveret.net.connections.certificates import Certificates
from leveret.net.connections.listener import Listener
from leveret.net.connections.listening import Accept, Listening
from leveret.net.connections.logins import Logins
from leveret.net.connections.protocol import PeerProtocol
from leveret.net.connections.tls import TlsAcceptor, TlsStream
from leveret.net.disk.backup import Backups
from leveret.net.disk.removals import Removals
from leveret.net.disk.trimming import Trimming
from leveret.net.engine import Done, Engine
from leveret.net.federation import Federation
from leveret.net.lag import Lag
from leveret.net.poller import Poller
from leveret.net.shutdown import Shutdown
from leveret.net.work import WorkThreads
from leveret.store.journal import Journal
from leveret.store.kernel_sync import kernel_sync
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.store.sync import SyncThread

# clients have this long to answer the close of an orderly stop
GOODBYE_S_MAX = 1.0
CLOSED_PER_COLLECTION = 256


class Server(Engine):
    """One broker that runs on asyncio."""

    loop: asyncio.AbstractEventLoop
    _sync: SyncThread

    def __init__(
        self, broker: Broker, journal: Journal, segments: SegmentStore, streams: StreamStore, reserve: Reserve,
        # sources: of the time, None = the system clock. poller: the loop's, None if the process belongs to another
        # program; then the garbage collector is left alone, too.
        alarms: Alarms, sources: Sources | None = None, poller: Poller | None = None,
    ) -> None:  # fmt: skip
        loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._poller = poller
        # writing a segment takes long, and confirms must not wait for it
        self._pages_thread = ThreadPoolExecutor(1, "leveret-pages")
        self._stream_work = WorkThreads("leveret-streams", loop, self.streams_worked)
        sync = SyncThread(journal, self._batch_done, reserve, kernel_sync() if poller is not None else None)
        clock = Clock(broker.timeline, sources or system_sources())
        super().__init__(broker, journal, segments, streams, reserve, alarms, clock, loop, sync, poller=poller)
        # the class of the object between a transport and its peer
        self.protocol: Callable[..., PeerProtocol] = PeerProtocol
        self.listeners: list[Listener] = []
        self.admission = Admission(broker)
        self.listening = Listening(loop, lambda host: self.admission.admit(host, self.now_us()))
        broker.on_opened = self._logged_in
        self.logins = Logins(broker, self.now_us, self._go_on)
        self._tls: TlsAcceptor | None = None
        self._trimming = Trimming(loop, self._pages_thread, alarms.trim_memory)
        self._removals = Removals(loop, segments, self._pages_thread)
        self.backups = Backups(journal, segments, self.streams, sync, self._removals)
        self.federator = Federation(self)
        self._lag = Lag(loop, broker.log.measures.lag_us)
        self._closed = 0
        self.keeps_process = False  # the process goes on after the server has stopped
        self.shutdown = Shutdown(self)
        self.stopping = asyncio.Event()
        self.serving = asyncio.Event()
        self._empty = asyncio.Event()
        self._told = asyncio.Event()  # a result of the sync thread has come
        if sync.kernel is not None:
            loop.add_reader(sync.kernel, sync.end)

    # -- start and stop ------------------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Read the journal; returns the number of messages."""
        # none of these many new objects is garbage, and the collector would take most of the time to find that out
        if self._poller is not None:
            gc.disable()
        return super().recover()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections; returns the address and port that are listened on. OSError if they are not available."""
        return await self._listen("amqp", lambda: self.protocol(self), host, port)

    async def listen_tls(self, host: str, port: int, certificates: Certificates) -> tuple[str, int]:
        """Accept TLS connections, as `listen`. All TLS listeners use the certificates of the first call."""
        direct = self._tls = self._tls or TlsAcceptor(self, certificates)
        return await self._listen("amqp/ssl", lambda: TlsStream(direct), host, port)

    async def _listen(self, protocol: str, accept: Accept, host: str, port: int) -> tuple[str, int]:
        listener = await self.listening.add(protocol, accept, host, port)
        self.listeners.append(listener)
        return listener.address, listener.port

    async def run(self) -> None:
        """Serve until `stopping` is set; then close every connection, write what must be kept, and return."""
        if self._poller is not None:
            gc.collect()
            gc.freeze()
            # entries are many and never form cycles, so the collector would only cause pauses
            gc.disable()
        self.begin()
        self.federator.start()
        self._lag.start()
        self.serving.set()
        await self.stopping.wait()
        self._lag.stop()
        self.listening.suspend()
        if self._tls is not None:
            self._tls.close()
        if self.failure is None:
            await self.federator.stop()
            await self._stop_connections()
            if self.reserve.is_whole:
                # else the next start might have no room to record that a new epoch has begun
                self.clock.look(is_ending=True)
                self.broker.stop()
            await self._drain()
        self._is_over = True  # the loop may outlive the server
        protocols = list(self._protocols.values())
        self._protocols.clear()
        for protocol in protocols:
            protocol.transport.abort()
        self.backups.stop()
        self._trimming.stop()
        self.batches.is_over = True
        if self._sync.kernel is not None:
            self.loop.remove_reader(self._sync.kernel)
        self._sync.stop()
        self._pages_thread.shutdown()
        self._removals.stop()
        self._stream_work.stop()
        self.logins.stop()
        self.journal.close()
        self.segments.close()

    async def _stop_connections(self) -> None:
        self._empty.clear()
        for peer, protocol in self._protocols.items():
            peer.close(320, "broker forced connection closure with reason 'shutdown'")
            self._pressure.review(protocol)
        self.end_turn()
        if self._protocols and not self.shutdown.is_hurried:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), GOODBYE_S_MAX)
        for peer in list(self._protocols):
            peer.lost(self.now_us())

    async def _drain(self) -> None:
        """Write what the log has; return when it is on disk, or never will be."""
        self._committer.submit()
        if self.batches.is_full:
            self._sync.retry()
        while (self._committer.is_syncing or self.broker.log.size()) and self.failure is None:
            await self._next_batch()

    async def _next_batch(self) -> None:
        self._told.clear()
        await self._told.wait()

    def stop(self, keeps_process: bool = False) -> None:
        """Begin an orderly stop. keeps_process: the process then waits for the command to serve again."""
        self.keeps_process = keeps_process
        self.stopping.set()

    def hurry(self) -> None:
        """Stop without waiting for any client; only the journal is still written."""
        self._empty.set()
        self.stopping.set()

    async def settled(self) -> None:
        """Deliver everything that can be delivered; return when everything recorded so far is on disk."""
        is_left = True
        while is_left:
            is_left = self.broker.enforce_policies(self.now_us()) or self.broker.is_busy
            self.broker.end_turn(self.now_us())
            self.broker.log.is_awaited = True
            self.end_turn()
            await asyncio.sleep(0)
        log = self.broker.log
        batch = log.batch if log.size() else log.batch - 1
        while log.synced < batch and self.failure is None:
            await self._next_batch()

    # -- for operators -------------------------------------------------------------------------------------------------

    def certificates(self) -> list[tuple[str, int]]:
        """The certificates that the listeners present: path and end of validity in µs."""
        if self._tls is None:
            return []
        certificates = self._tls.certificates
        return [(certificates.settings.cert, certificates.until_us)]

    def _logged_in(self, connection: Peer) -> None:
        """Note that a connection has opened a virtual host; admission does not close it in favour of others any more.
        """
        protocol = self._protocols.get(connection)
        if protocol is not None and protocol.transport.place is not None:
            protocol.transport.place.logged_in()

    # -- for the engine ------------------------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        return self.stopping.is_set()

    def failed(self) -> None:
        self.stopping.set()

    def look(self) -> None:
        if self._tls is not None:
            self._tls.certificates.look()
        super().look()
        if self._closed >= CLOSED_PER_COLLECTION:
            # connections and their sockets form cycles
            self._closed = 0
            gc.collect(0)

    def connection_ended(self) -> None:
        self._closed += 1
        if not self._protocols:
            self._empty.set()

    def work_on_pages(self, work: Callable[[], Any], done: Done) -> None:
        def finished(future: asyncio.Future[Any]) -> None:
            error = future.exception()
            done(None if error else future.result(), error)

        self.loop.run_in_executor(self._pages_thread, work).add_done_callback(finished)

    def work_on_streams(self, work: Callable[[], Any], done: Done, is_reading: bool = False) -> None:
        self._stream_work.submit(work, done, is_reading)

    def remove_segment(self, number: int) -> None:
        self.backups.remove_segment(number)

    def pages_moved(self) -> None:
        self._trimming.later()

    def _batch_done(self, batch: int, error: Exception | None) -> None:
        """Receive a result of the sync thread, on that thread or on this one."""
        if threading.get_ident() == self._thread_id:
            self._heard(batch, error)
        else:
            self.loop.call_soon_threadsafe(self._heard, batch, error)

    def _heard(self, batch: int, error: Exception | None) -> None:
        self._told.set()
        self.batches.on_disk(batch, error, self.is_stopping)
