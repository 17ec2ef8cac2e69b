"""One run of a broker: the parts of a server process, driven by virtual time instead of an event loop.

Core, journal, segments, commits, paging and federation links are the server's own. This module replaces only what
net/server.py builds on asyncio: turns, writes, alarms, and the two threads that wait for the disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

import leveret
from leveret.broker.broker import Broker, Settings
from leveret.broker.peer import Peer
from leveret.federation.federator import Federator
from leveret.net.disk.commit import BATCH_DELAY_US, Committer
from leveret.net.disk.paging import Paging
from leveret.session import lifecycle
from leveret.session.connection import TICK_US
from leveret.store.disk import DiskFile
from leveret.store.journal import Journal
from leveret.store.kernel_sync import KernelSync
from leveret.store.segment import SegmentStore
from leveret.store.sync import Payload, SyncWork
from leveret.testing.simulation.clock import ScheduledEvent
from leveret.testing.simulation.environment import VirtualEnvironment
from leveret.testing.simulation.stream import End

if TYPE_CHECKING:
    from leveret.testing.simulation.machine import Machine

JOURNAL: Final = "/data/journal"
SEGMENTS: Final = "/data/segments"
# links must wait while more than this is queued behind the batch in sync; small, so that it happens in small
# simulations
HELD_OCTETS: Final = 4000


class Crash(BaseException):
    """The end of the process, as a BaseException, so that nothing in it handles it."""


class Outlet(Protocol):
    """The receiver of a peer's output."""

    def send(self, data: bytes) -> None: ...

    def end(self, reason: str) -> None:
        """Called when the broker has closed the connection."""


class SimulatedWork(SyncWork):
    """The work of the sync thread; the machine's disk decides how long it takes."""

    def __init__(self, process: Process, journal: Journal) -> None:
        super().__init__(journal, process.done)
        self._process = process

    def submit(self, batch_id: int, payload: Payload, rotate_snapshot: Payload | None = None) -> None:
        super().submit(batch_id, payload, rotate_snapshot)
        self._process.ask_disk()

    def remove_before(self, number: int) -> None:
        super().remove_before(number)
        self._process.ask_disk()


class VirtualKernel(KernelSync):
    """A sync by the kernel: it takes as long as the disk does, and then notifies the loop."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def begin(self, file: DiskFile) -> None:
        self._file = file
        self._process.later(self._process.machine.disk_us(), self._process.kernel_is_done)

    def end(self) -> None:
        self._file.sync()


class Socket:
    """The broker's end of a connection from a client or link."""

    def __init__(self, process: Process, end: End) -> None:
        self._process = process
        self._end = end
        self.peer = Peer(process.broker, f"{end.peer_name}:5672", True)

    def received(self, data: bytes) -> None:
        self._process.run(lambda: self._process.turn(self.peer, data))

    def lost(self, reason: str) -> None:
        self._process.run(lambda: self._process.forget(self.peer))

    def send(self, data: bytes) -> None:
        self._end.write(data)

    def end(self, reason: str) -> None:
        self._end.close()
        self._process.forget(self.peer)


class Process:
    """One process of a broker."""

    def __init__(self, machine: Machine, random: Random) -> None:
        self.machine = machine
        self.random = random  # randomness of this run only
        self.clock = machine.clock
        self.is_alive = True  # it has neither crashed nor stopped
        self.outlets: dict[Peer, Outlet] = {}
        self._alarm: ScheduledEvent | None = None
        self._batch_delay: ScheduledEvent | None = None
        self._is_paging = self._is_requeuing = self._is_disk_asked = self._is_on_loop = False
        self._heard_us = 0  # when the loop learns of the last finished sync
        self._unheard: list[int] = []
        self._is_held = False
        self.broker = Broker(self._settings(), random.randbytes)
        self.broker.on_event = lambda text: machine.trace.note(machine.name, "log:", text)
        disk, sizes = machine.disk, machine.sizes
        self.journal = Journal(disk, JOURNAL, sizes.file_octets, random.randbytes, ahead_size=sizes.ahead_octets)
        self.work = SimulatedWork(self, self.journal)
        self._kernel = VirtualKernel(self)
        self.segments = SegmentStore(disk, SEGMENTS, random.randbytes)
        self.pager = sizes.pager(self.broker)
        write, remove = self._write_segment, self._remove_segment
        self.paging = Paging(self.broker, self.pager, self.segments, write, remove, sizes.ready_octets)
        self.committer = Committer(self.broker, self.journal, self.work, self.paging)
        self.environment = VirtualEnvironment(self)
        self.federator = Federator(self.broker, self.environment)

    def _settings(self) -> Settings:
        # links request positions from an upstream that reports a leveret version
        own_version = leveret.__version__ if self.machine.gives_positions else ""
        return Settings(own_version=own_version, cluster_name=self.machine.name)

    # -- start and stop ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover from the disk, then listen."""
        self.committer.recover(lambda: self.clock.now_us)
        self.machine.host.accept = self._accept
        self.later(TICK_US, self._tick)
        self.federator.start()
        self.end_turn()

    def stop(self) -> None:
        """Shut down in order, without any virtual time passing."""
        self.federator.stop()
        self.end_turn()
        for peer in list(self.outlets):
            peer.close(320, "broker forced connection closure with reason 'shutdown'")
        self.end_turn()
        for peer in list(self.outlets):
            self.forget(peer)
        self.broker.stop()
        self.sync()
        self.is_alive = False
        self.journal.close()
        self.segments.close()

    def run(self, call: Callable[[], object]) -> None:
        """Run a turn: the call and its consequences. A crash in it is passed to the machine."""
        if not self.is_alive:
            return
        try:
            call()
            self.end_turn()
        except Crash:
            self.machine.crashed()

    def later(self, delay_us: int, call: Callable[[], object]) -> ScheduledEvent:
        """Schedule a turn; it is skipped if the process has ended by then."""
        return self.clock.later(delay_us, lambda: self.run(call))

    # -- connections ---------------------------------------------------------------------------------------------------

    def _accept(self, end: End) -> Socket:
        socket = Socket(self, end)
        self.enter(socket.peer, socket)
        return socket

    def enter(self, peer: Peer, outlet: Outlet) -> None:
        """Register a new peer."""
        peer.sent_us = peer.received_us = peer.now_us = self.clock.now_us
        self.outlets[peer] = outlet

    def forget(self, peer: Peer) -> None:
        """Remove a peer whose connection is gone. No effect the second time."""
        if self.outlets.pop(peer, None) is not None:
            peer.lost(self.clock.now_us)

    def turn(self, peer: Peer, data: bytes) -> None:
        """Handle bytes from a peer."""
        if peer not in self.outlets:
            return
        peer.received_us = self.clock.now_us
        peer.turn(data, self.clock.now_us)
        self.paging.received(len(data) + int(peer.cost))
        if peer.has_more:
            self.later(0, lambda: self.turn(peer, b""))

    # -- the end of a turn ---------------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Write output to peers, submit the batch to the disk, and set the alarm for the next timer."""
        while self.broker.dirty:
            self._flush()
        log = self.broker.log
        self._hold(self.committer.is_syncing and log.size() > HELD_OCTETS)
        if log.size():
            if not self.committer.may_delay():
                self._submit()
            elif self._batch_delay is None or not self._batch_delay.is_due:
                self._batch_delay = self.later(BATCH_DELAY_US, self._submit)
        if (self.paging.is_due or log.has_waste) and not self._is_paging and self.paging.step():
            self._is_paging = True
            self.later(0, self._page)
        if self.broker.is_busy and not self._is_requeuing:
            self._is_requeuing = True
            self.later(0, self._requeue)
        next_us = self.broker.timers.next_us()
        if next_us and (self._alarm is None or not self._alarm.is_due or self._alarm.when_us > next_us):
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self.later(next_us - self.clock.now_us, self._ring)

    def _flush(self) -> None:
        dirty, self.broker.dirty = self.broker.dirty, []
        synced = self.broker.log.synced
        for connection in dirty:
            outlet = self.outlets.get(connection)
            data = b"".join(connection.take(synced))
            if outlet is None:
                continue
            connection.sent_us = self.clock.now_us
            outlet.send(data)
            if connection.is_gated:
                self.committer.hold(connection)
            elif connection.state == lifecycle.CLOSED:
                outlet.end("")
            elif connection.is_full or connection.is_flooded:
                self.later(0, lambda peer=connection: peer.drained(self.clock.now_us))  # type: ignore[misc]

    def _hold(self, is_held: bool) -> None:
        """Tell links to wait while the disk is behind."""
        if is_held != self._is_held:
            self._is_held = is_held
            self.environment.hold(is_held)

    def _ring(self) -> None:
        self.broker.run_timers(self.clock.now_us)

    def _tick(self) -> None:
        """Check heartbeats and memory, as the server does every second."""
        now_us = self.clock.now_us
        for peer, outlet in list(self.outlets.items()):
            peer.now_us = now_us
            has_waited = now_us - peer.sent_us > peer.close_delay_us
            is_over = peer.state >= lifecycle.CLOSING and not peer.is_gated and has_waited
            if is_over or not peer.tick():
                outlet.end("missed heartbeats")
        self.paging.look()
        self.later(TICK_US, self._tick)

    def _page(self) -> None:
        self._is_paging = False
        self.paging.is_due = True

    def _requeue(self) -> None:
        self._is_requeuing = False
        self.broker.requeue_step(self.clock.now_us)

    # -- the threads ---------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        """Submit a batch to the disk, by the sync thread or the kernel."""
        if not self.work.has_begun:
            self.work.kernel = self._kernel if self.random.random() < 0.5 else None
        self.committer.submit()

    def kernel_is_done(self) -> None:
        """Handle the kernel's notification of a finished sync."""
        self._is_on_loop = True
        self.work.end()
        self._is_on_loop = False

    def ask_disk(self) -> None:
        """Schedule work of the sync thread."""
        if not self._is_disk_asked:
            self._is_disk_asked = True
            self.clock.later(self.machine.disk_us(), lambda: self._guard(self._perform))

    def _guard(self, call: Callable[[], None]) -> None:
        """Run the work of a thread, without a turn of the loop."""
        if not self.is_alive:
            return
        try:
            call()
        except Crash:
            self.machine.crashed()

    def _perform(self) -> None:
        self._is_disk_asked = False
        if self.work.is_waiting and not self.work.has_begun:
            self.work.perform()
        if self.work.is_waiting:
            self.ask_disk()

    def done(self, batch: int, error: Exception | None) -> None:
        """Handle a synced batch: at once if the loop did the work itself, else after a random delay."""
        if error is not None:
            raise error
        self.machine.on_synced(batch)
        if self._is_on_loop:
            self.committer.on_disk(batch)
            self.end_turn()
            return
        self._unheard.append(batch)
        self._heard_us = max(self._heard_us, self.clock.now_us + self.random.randrange(10, 400))
        self.later(self._heard_us - self.clock.now_us, self._hear)

    def _hear(self) -> None:
        for batch in self._unheard:
            self.committer.on_disk(batch)
        self._unheard.clear()

    def sync(self) -> None:
        """Return when everything recorded so far is synced, and confirmed to clients."""
        self.end_turn()
        while self.broker.log.size() or self.committer.is_syncing:
            self._submit()
            self.kernel_is_done()
            while self.work.is_waiting:
                self.work.perform()
            self._hear()
            self.end_turn()

    def _write_segment(self, number: int, pages: list[list[bytes]]) -> None:
        def write() -> None:
            try:
                places = self.segments.write(number, pages)
            except OSError as error:
                failure = error
                self.later(0, lambda: self.paging.written(None, failure))
            else:
                self.later(self.random.randrange(10, 400), lambda: self.paging.written(places, None))

        self.clock.later(3 * self.machine.disk_us(), lambda: self._guard(write))

    def _remove_segment(self, number: int) -> None:
        def remove() -> None:
            with contextlib.suppress(OSError):
                self.segments.remove(number)

        self.clock.later(self.machine.disk_us(), lambda: self._guard(remove))
