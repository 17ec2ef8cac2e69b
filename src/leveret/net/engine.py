"""The engine: what happens around the core in a turn, without an event loop, a socket or a thread of its own.

A turn handles what one read returned: the peer processes it, queues deliver, and every connection with output gets one
write. Durable changes collect in the log; while one batch is being synced, the next one grows. Publishers are paused
while the journal, or a consumer that still reads, is behind, so that no backlog builds up as long as both could keep up
(net/pressure.py). While disk space or memory is short, no messages are accepted at all (net/alarms.py).

Two drivers run it: net/server.py by asyncio, testing/simulation/process.py in virtual time. So the simulation tries
what serves.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from leveret.broker.broker import Broker
from leveret.broker.peer import Peer
from leveret.broker.storage.page import Page
from leveret.broker.storage.pager import Pager
from leveret.net.alarms import HOLDING, Alarms, ResourceLimits
from leveret.net.clock import Clock
from leveret.net.connections.handshake_budget import HandshakeBudget
from leveret.net.connections.protocol import PeerProtocol
from leveret.net.disk.batches import Batches
from leveret.net.disk.commit import Committer
from leveret.net.disk.files import FileCounts, files_of
from leveret.net.disk.paging import READY_OCTETS_MAX, Paging
from leveret.net.disk.streams import StreamStorage
from leveret.net.event_loop import EventLoop
from leveret.net.fairness import Fairness
from leveret.net.logs import about
from leveret.net.poller import Poller
from leveret.net.pressure import Pressure
from leveret.net.stopwatch import Stopwatch
from leveret.net.wakeup import Wakeup
from leveret.session import lifecycle
from leveret.session.connection import TICK_US
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.store.sync import SyncWork

# publishers are paused while more than this waits for the disk
BATCH_OCTETS_MAX = 4 << 20
HANDSHAKE_US_MAX = 10_000_000
# publishers no longer wait for a consumer that has taken nothing for this long
STUCK_S = 0.1
# how often heartbeats and resources are checked, and a write that found no room is retried
CHECK_S = TICK_US / 1_000_000
# called with the result of work, or with its error
Done = Callable[[Any, BaseException | None], None]


class Engine(ABC):
    """A broker with its journal, files and connections; a driver lends it a loop and does the work that blocks.

    Args:
        sync: carries out the journal's work. The driver passes its results to `batches.on_disk`, on the loop.
        elapsed_ns: a clock for the duration of turns.
        poller: the loop's, None if it has none.
        pager: moves messages, None = one with the usual sizes.
        ready_octets: messages in memory that take more than this go to disk.
        batch_octets: publishers are paused while more than this waits for the disk.
    """

    def __init__(
        self, broker: Broker, journal: Journal, segments: SegmentStore, streams: StreamStore, reserve: Reserve,
        alarms: Alarms, clock: Clock, loop: EventLoop, sync: SyncWork,
        elapsed_ns: Callable[[], int] = time.perf_counter_ns, poller: Poller | None = None, pager: Pager | None = None,
        ready_octets: int = READY_OCTETS_MAX, batch_octets: int = BATCH_OCTETS_MAX,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.journal = journal
        self.segments = segments
        self.reserve = reserve
        self.alarms = alarms
        self.clock = clock
        self.now_us = clock.now_us
        self.loop: EventLoop = loop
        self._elapsed_ns = elapsed_ns
        self.logger = logging.getLogger("leveret")  # of single connections
        self.batch_octets = batch_octets
        self._turn_us = broker.log.measures.turn_us
        self._blocked = Stopwatch()  # while an alarm blocks publishers
        self._has_alarm = clock.runs
        self._sync = sync
        self._protocols: dict[Peer, PeerProtocol] = {}
        self._pressure = Pressure(self._protocols, self._loop_us)
        self._fairness = Fairness(self._pressure, self._look_after)
        self.handshake_budget = HandshakeBudget(loop, self._received_early, elapsed_ns)
        self.streams = StreamStorage(broker, streams, self.work_on_streams, self._stirred, self.now_us)
        pager = pager or Pager(broker)
        self._paging = Paging(broker, pager, segments, self._write_segment, self.remove_segment, ready_octets)
        self._committer = Committer(broker, journal, sync, self._paging)
        self._wakeup = Wakeup(loop, self.now_us, self.ring)
        self.batches = Batches(broker, self._committer, sync, loop, self.now_us, poller, self._batch_changed)
        self._is_paging = self._is_requeuing = False
        self.is_draining = False  # consumers are sent nothing new, as the broker is about to stop
        self._is_over = False  # the loop may outlive the engine
        broker.has_hung_up = self._has_hung_up
        broker.log.fetch_page = self._fetch_page

    # -- what a driver does --------------------------------------------------------------------------------------------

    @abstractmethod
    def work_on_pages(self, work: Callable[[], Any], done: Done) -> None:
        """Do blocking work on segments elsewhere, in order; then call done(result, error) on the loop."""

    @abstractmethod
    def work_on_streams(self, work: Callable[[], Any], done: Done, is_reading: bool = False) -> None:
        """Do blocking work on files of streams elsewhere, changes in order; then call done(result, error) on the loop,
        and `streams_worked`."""

    @abstractmethod
    def remove_segment(self, number: int) -> None:
        """Delete a segment, soon."""

    @abstractmethod
    def failed(self) -> None:
        """The journal has failed (`batches.failure`): stop, as no confirm may leave any more."""

    @property
    @abstractmethod
    def is_stopping(self) -> bool:
        """Whether the broker stops."""

    @abstractmethod
    def connection_ended(self) -> None:
        """A connection has ended, and is no longer among `peers`."""

    @abstractmethod
    def pages_moved(self) -> None:
        """Messages were moved from memory to disk."""

    # -- start and time ------------------------------------------------------------------------------------------------

    def recover(self) -> int:
        """Read the journal; returns the number of messages."""
        count = self._committer.recover(self.clock.resume, self.reserve)
        self.streams.recovered()
        self.started_us = self.now_us()
        self.reserve.fill()
        self._check_alarms()
        return count

    def begin(self) -> None:
        """Begin to check connections and resources every CHECK_S seconds."""
        self.look()
        if not self.is_stopping:
            self.loop.call_later(CHECK_S, self.begin)

    # -- for operators -------------------------------------------------------------------------------------------------

    def peers(self) -> list[Peer]:
        """All connections, oldest first."""
        return list(self._protocols)

    def unsent_octets(self, peer: Peer) -> int:
        """The number of bytes that the socket has not accepted yet."""
        return self._protocols[peer].transport.get_write_buffer_size()

    def waits_s(self) -> dict[str, float]:
        """How many seconds publishers have been held up, by reason: those of net/pressure.py, and alarms."""
        return self._pressure.seconds() | {"alarm": self._blocked.total_us(self.now_us()) / 1e6}

    def files(self) -> FileCounts:
        """The files of the journal and the segments, with their sizes."""
        return files_of(self.journal, self.segments)

    def paused_count(self) -> int:
        """How many connections are paused, that is, not read from, at the moment."""
        return sum(protocol.is_paused for protocol in self._protocols.values())

    def close(self, peer: Peer, reason: str) -> None:
        """Close a connection: 320 CONNECTION_FORCED with this reason."""
        peer.close(320, reason)
        self._pressure.review(self._protocols[peer])

    @property
    def failure(self) -> Exception | None:
        """The error of the journal that made the engine stop, None if there was none."""
        return self.batches.failure

    # -- connections ---------------------------------------------------------------------------------------------------

    def opened(self, protocol: PeerProtocol) -> None:
        self._protocols[protocol.peer] = protocol
        protocol.peer.is_full = self.is_draining

    def received(self, protocol: PeerProtocol, data: bytes) -> None:
        """Handle bytes that were read: one turn."""
        began_ns = self._elapsed_ns()
        self.handle(protocol, data)
        self.end_turn()
        self._turn_us.add((self._elapsed_ns() - began_ns) // 1000)

    def _received_early(self, protocol: PeerProtocol, data: bytes) -> None:
        if protocol.peer in self._protocols:
            self.received(protocol, data)

    def handle(self, protocol: PeerProtocol, data: bytes) -> None:
        """Handle bytes as a part of a turn; the caller ends the turn."""
        peer = protocol.peer
        now_us = self.now_us()
        try:
            needs_look = peer.turn(data, now_us)
        except Exception:
            # a defect of leveret: this connection ends with AMQP's code for it, the others go on
            self.logger.exception("%s: internal error", peer.address, extra=about(peer))
            peer.close(541, "internal error")
            needs_look = True
        if needs_look or protocol.is_paused or self._pressure.is_on:
            self._look_at(protocol, now_us)
        if self._paging.received(len(data)):
            self._review_pages()

    def _look_at(self, protocol: PeerProtocol, now_us: int) -> None:
        """Review fairness and pressure for this connection, and continue with what its turn has left over."""
        peer = protocol.peer
        self._fairness.turn(protocol, self._loop_us())
        self._pressure.review(protocol)
        if peer.has_more and not protocol.is_going_on:
            protocol.is_going_on = True
            self.loop.call_soon(self._go_on, peer)
        if self._paging.received(peer.cost):
            self._review_pages()

    def _go_on(self, peer: Peer) -> None:
        """Give a connection another turn: its last one left something over, or its login has been decided."""
        protocol = self._protocols.get(peer)
        if protocol is not None:
            protocol.is_going_on = False
            self.received(protocol, b"")

    def lost(self, protocol: PeerProtocol, error: Exception | None) -> None:
        """Clean up after a connection whose socket has closed."""
        peer = protocol.peer
        if self._protocols.pop(peer, None) is None:
            return
        place = protocol.transport.place
        has_given_way = place is not None and place.has_given_way  # admission has logged it
        if peer.state < lifecycle.CLOSING and not has_given_way and not self.is_stopping:
            reason = f": {error}" if error else ""
            text = "%s: connection lost without connection.close%s"
            self.logger.warning(text, peer.address, reason, extra=about(peer))
        peer.lost(self.now_us())
        self._fairness.forget(protocol)
        self._pressure.slow(protocol, False)
        self.connection_ended()
        self.end_turn()

    def _has_hung_up(self, connection: Peer) -> bool:
        protocol = self._protocols.get(connection)
        return protocol is None or protocol.has_hung_up()

    def crowded(self, protocol: PeerProtocol) -> None:
        """Let publishers wait for a client that reads too slowly, but only as long as it reads at all."""
        if protocol.is_stuck:
            return
        self._pressure.slow(protocol, True)
        self.loop.call_later(STUCK_S, self._stuck, protocol)

    def overrun(self, protocol: PeerProtocol) -> None:
        """Abort a connection whose client does not read, and for which too much output waits."""
        peer = protocol.peer
        self.broker.cut("unread")
        self.logger.warning("%s: closed: send buffer limit exceeded (slow consumer)", peer.address, extra=about(peer))
        protocol.transport.abort()

    def _stuck(self, protocol: PeerProtocol) -> None:
        protocol.is_stuck = protocol.is_choked
        self._pressure.slow(protocol, False)

    def drained(self, protocol: PeerProtocol) -> None:
        """Go on with a connection whose socket accepts output again."""
        was_flooded = protocol.peer.is_flooded
        if self.is_draining:
            protocol.peer.is_flooded = False  # its input is read again, but its consumers get nothing more
        else:
            protocol.peer.drained(self.now_us())
        if was_flooded:
            self.received(protocol, b"")
        else:
            self.end_turn()
        # this turn may have filled its socket again
        self._pressure.slow(protocol, protocol.is_choked and not protocol.is_stuck)

    def _look_after(self, us: int) -> None:
        self.loop.call_later(us / 1e6, lambda: self._fairness.look(self._loop_us()))

    def _loop_us(self) -> int:
        """The time of the loop's timers, in µs, for waits that concern clients and not due times."""
        return int(self.loop.time() * 1e6)

    # -- turns ---------------------------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Write all output to sockets, and hand the journal's batch on."""
        if self._is_over:
            return
        self._flush()
        log = self.broker.log
        if log.size():
            self.batches.end_turn(self.is_stopping)
            if log.has_stream_work:
                self.streams.step()
            if log.size() > self.batch_octets and not self.batches.is_full:
                self._pressure.journal(True)
        if (self._paging.is_due or log.has_waste) and not self._is_paging and self._paging.step():
            self._is_paging = True
            self.loop.call_soon(self._page)
        if self.broker.is_busy and not self._is_requeuing:
            self._is_requeuing = True
            self.loop.call_soon(self._requeue)
        next_us = self.broker.timers.next_us()
        # a timer that fires early sets the next one
        if next_us and self._has_alarm and not 0 < self._wakeup.due_us <= next_us:
            self._wakeup.set(next_us)

    def _flush(self) -> None:
        dirty = self.broker.dirty
        if not dirty:
            return
        now_us = self.now_us()
        synced = self.broker.log.synced
        self.broker.dirty = []
        for connection in dirty:
            protocol = self._protocols.get(connection)
            if protocol is None:
                continue
            buffers = connection.take(synced)
            if buffers:
                connection.sent_us = now_us
                if protocol.is_choked:
                    protocol.write_choked(buffers)
                    self._pressure.review(protocol)
                else:
                    protocol.transport.writelines(buffers)
            if connection.is_gated:
                self._committer.hold(protocol.peer)
            else:
                self._flushed(protocol)

    def _flushed(self, protocol: PeerProtocol) -> None:
        """Go on after all output of a connection was handed to its transport."""
        peer = protocol.peer
        if peer.state == lifecycle.CLOSED:
            protocol.transport.close()
        elif (peer.is_full or peer.is_flooded) and not protocol.is_choked:
            self.loop.call_soon(self.drained, protocol)

    def ring(self) -> None:
        """Run the timers that are due, or the first part of them."""
        self.broker.run_timers(self.now_us())
        self.end_turn()

    def look(self) -> None:
        """Check time, heartbeats, timeouts, resources and memory; called every CHECK_S seconds."""
        self.clock.look()
        now_us = self.now_us()
        send_timeout_ms = self.broker.settings.send_timeout_ms
        for peer, protocol in list(self._protocols.items()):
            peer.now_us = now_us
            if protocol.has_stopped_reading(now_us, send_timeout_ms * 1000) and send_timeout_ms:
                self._cut_unread(protocol, send_timeout_ms)
                continue
            if peer.state < lifecycle.RUNNING and now_us - protocol.opened_us > HANDSHAKE_US_MAX:
                self.broker.refused("timeout")
                limit_s = HANDSHAKE_US_MAX // 1_000_000
                self.logger.warning(
                    "%s: closed: handshake not completed within %d s", peer.address, limit_s, extra=about(peer)
                )
                protocol.transport.abort()
                continue
            if peer.state >= lifecycle.CLOSING and not peer.is_gated and now_us - peer.sent_us > peer.close_delay_us:
                protocol.transport.abort()
                continue
            if protocol.is_paused:
                peer.received_us = now_us  # we do not read from it, so its silence proves nothing
            elif not peer.is_blocked:
                peer.check_ack_timeouts(now_us)
            if not peer.tick():
                self.broker.cut("heartbeat")
                agreed_s = peer.heartbeat_s
                self.logger.warning(
                    "%s: closed: missed heartbeats (heartbeat timeout: %d s)", peer.address, agreed_s, extra=about(peer)
                )
                protocol.transport.abort()
        self._pressure.look(self.broker.log.synced + 1 if self._committer.is_syncing else 0)
        self._check_alarms()
        if self.batches.is_full or self.alarms.is_low_on_disk:
            self._sync.retry()
        self._paging.look()
        self.streams.look()
        self._review_pages()
        if 0 < self._wakeup.due_us <= now_us:
            self._wakeup.ring()  # the machine was suspended, and the loop's timers with it
        self.end_turn()

    def _cut_unread(self, protocol: PeerProtocol, timeout_ms: int) -> None:
        peer = protocol.peer
        self.broker.cut("send_timeout")
        text = (
            "%s: reset: %d octets wait in the send buffer, and the client has read nothing for %d ms (send_timeout_ms)"
        )
        unsent = protocol.transport.get_write_buffer_size()
        self.logger.warning(text, peer.address, unsent, timeout_ms, extra=about(peer))
        protocol.transport.reset()

    # -- pages ---------------------------------------------------------------------------------------------------------

    def _review_pages(self) -> None:
        self._pressure.pages(self._paging.is_behind or self.streams.is_behind)

    def _page(self) -> None:
        self._is_paging = False
        self._paging.is_due = True
        self.end_turn()
        self._review_pages()  # the step may have found that nothing can be moved

    def _requeue(self) -> None:
        self._is_requeuing = False
        self.broker.requeue_step(self.now_us())
        self.end_turn()

    def _write_segment(self, number: int, pages: list[list[bytes]]) -> None:
        self.work_on_pages(lambda: self.segments.write(number, pages), self._segment_written)

    def _segment_written(self, places: list[tuple[int, int]] | None, error: BaseException | None) -> None:
        if self.is_stopping:
            return  # the journal is complete; the next start removes a segment that the journal does not know
        self._paging.written(places, error)
        self.pages_moved()
        self._review_pages()
        self.end_turn()

    def _fetch_page(self, page: Page) -> None:
        self.work_on_pages(lambda: self._paging.fetch(page), lambda data, error: self._page_fetched(page, data, error))

    def _page_fetched(self, page: Page, data: list[bytes], error: BaseException | None) -> None:
        if error is not None:
            raise error
        self.broker.log.fetched(page, data)
        self.broker.end_turn(self.now_us())
        self.end_turn()

    # -- the journal ---------------------------------------------------------------------------------------------------

    def _batch_changed(self) -> None:
        if self.failure is not None:
            self.failed()
            return
        if self.batches.is_full:
            # The batch waits for room, and all confirms wait for it; consumers go on from memory. The alarm keeps
            # messages out, so pressure need not keep out the acknowledgements behind them as well.
            self._check_alarms()
            self._pressure.journal(False)
            return
        if self.broker.log.is_stirred:
            self._stirred()
        if self.broker.log.has_stream_work:
            self.streams.step()
        if not self.reserve.is_whole:
            self._check_alarms()
        if self.broker.log.size() <= self.batch_octets:
            self._pressure.journal(False)
        self.end_turn()

    def streams_worked(self) -> None:
        """Go on after a piece of work on streams was done and reported."""
        self.streams.step()
        self._review_pages()
        self.end_turn()

    def _stirred(self) -> None:
        """Serve consumers of streams that can go on."""
        self.broker.log.is_stirred = False
        self.broker.end_turn(self.now_us())

    # -- alarms --------------------------------------------------------------------------------------------------------

    def limit(self, limits: ResourceLimits) -> None:
        """Set new limits for the alarms, and check them at once."""
        self.alarms.limits = limits
        self._check_alarms()
        self._flush()

    def _check_alarms(self) -> None:
        before = self.broker.block_reason
        is_full = self.batches.is_full or not self.reserve.is_whole
        self.broker.block_reason = self.alarms.check(is_full, self._pressure.late)
        self._blocked.set(bool(self.broker.block_reason), self.now_us())
        is_low = self.alarms.is_low_on_disk
        self._committer.saves_room = self._paging.saves_room = self._sync.saves_room = is_low
        self._paging.is_due = True
        if self.broker.block_reason:
            for peer, protocol in self._protocols.items():
                if protocol.is_paused and self._pressure.why(protocol) in HOLDING:
                    peer.block(self.broker.block_reason)  # it cannot find out by publishing, as it is not read from
        elif before:
            for protocol in self._protocols.values():
                if protocol.peer.is_blocked:
                    # each in a turn of its own, as together they may hold many messages
                    self.loop.call_soon(self._unblock, protocol)

    def _unblock(self, protocol: PeerProtocol) -> None:
        if not self.broker.block_reason and protocol.peer in self._protocols:
            self.received(protocol, protocol.peer.release())
