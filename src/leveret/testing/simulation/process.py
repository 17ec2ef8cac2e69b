"""One run of a broker: net/engine.py in virtual time.

Everything that `leveret serve` does between its sockets and its disk happens here, too. Virtual are the loop, the
threads that wait for the disk, and the sockets.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import leveret
from leveret.broker.broker import Broker, Settings
from leveret.federation.federator import Federator
from leveret.net.alarms import Alarms, ResourceLimits
from leveret.net.clock import Clock, Sources
from leveret.net.engine import Done, Engine
from leveret.store.disk import DiskFile
from leveret.store.journal import Journal
from leveret.store.kernel_sync import KernelSync
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.store.sync import Payload, SyncWork
from leveret.testing.simulation.clock import START_US, ScheduledEvent
from leveret.testing.simulation.environment import VirtualEnvironment
from leveret.testing.simulation.socket import Socket
from leveret.testing.simulation.stream import End

if TYPE_CHECKING:
    from leveret.testing.simulation.machine import Machine

JOURNAL: Final = "/data/journal"
SEGMENTS: Final = "/data/segments"
STREAMS: Final = "/data/streams"
RESERVE: Final = "/data/reserve"
RESERVE_OCTETS: Final = 4096


class Crash(BaseException):
    """The end of the process, as a BaseException, so that nothing in it handles it."""


class VirtualLoop:
    """The loop of one process: what it calls are events of the simulation's clock, which end with the process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def call_soon(self, call: Callable[..., object], *arguments: object) -> ScheduledEvent:
        return self._process.later(0, partial(call, *arguments))

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> ScheduledEvent:
        return self._process.later(round(delay_s * 1e6), partial(call, *arguments))

    def time(self) -> float:
        return (self._process.virtual.now_us - START_US) / 1e6


class VirtualThread:
    """A thread of the process: the disk decides how long its work takes, and the loop hears of it a little later."""

    def __init__(self, process: Process, operations: int) -> None:
        self._process = process
        self._operations = operations  # of the disk, in each piece of work
        self._free_us = self._heard_us = 0

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """Do the work after that which was submitted before, then call done(result, error) on the loop."""
        process = self._process
        now_us = process.virtual.now_us
        self._free_us = max(now_us, self._free_us) + self._operations * process.machine.disk_us()

        def act() -> None:
            result, failure = None, None
            try:
                result = work()
            except Exception as error:  # reported to `done`, as by a thread
                failure = error
            now_us = process.virtual.now_us
            self._heard_us = max(self._heard_us, now_us + process.random.randrange(10, 400))
            process.later(self._heard_us - now_us, lambda: done(result, failure))

        process.later(self._free_us - now_us, act)


class SimulatedWork(SyncWork):
    """The work of the sync thread; some batches are synced by the kernel, if nothing else is under way."""

    def __init__(self, process: Process, journal: Journal, reserve: Reserve) -> None:
        super().__init__(journal, process.done, reserve)
        self._process = process
        self._virtual_kernel = VirtualKernel(process)
        self._is_asked = False

    def begin(self, batch_id: int, payload: Payload) -> bool:
        self.kernel = self._virtual_kernel if self._process.random.random() < 0.5 else None
        return super().begin(batch_id, payload)

    def submit(self, batch_id: int, payload: Payload, rotate_snapshot: Payload | None = None) -> None:
        super().submit(batch_id, payload, rotate_snapshot)
        self._ask()

    def remove_before(self, number: int) -> None:
        super().remove_before(number)
        self._ask()

    def retry(self) -> None:
        super().retry()
        self._ask()

    def _ask(self) -> None:
        """Have the next request carried out when the disk is ready."""
        if not self._is_asked:
            self._is_asked = True
            self._process.later(self._process.machine.disk_us(), self._act)

    def _act(self) -> None:
        self._is_asked = False
        if self.is_waiting and not self.has_begun:
            self.perform()
        if self.is_waiting:
            self._ask()


class VirtualKernel(KernelSync):
    """A sync by the kernel: it takes as long as the disk does, and then notifies the loop."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def begin(self, file: DiskFile) -> None:
        self._file = file
        self._process.later(self._process.machine.disk_us(), self._process.kernel_is_done)

    def end(self) -> None:
        self._file.sync()


class TraceHandler(logging.Handler):
    """Writes log lines to the simulation's trace."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def emit(self, record: logging.LogRecord) -> None:
        self._machine.trace.note(self._machine.name, "log:", record.getMessage())


class Process(Engine):
    """One process of a broker."""

    def __init__(self, machine: Machine, random: Random) -> None:
        self.machine = machine
        self.random = random  # randomness of this run only
        self.virtual = machine.clock  # the simulation's time
        self.is_alive = True  # it has neither crashed nor stopped
        self._is_stopping = self._is_on_loop = False
        self._heard_us = 0  # when the loop learns of the last finished sync
        self._unheard: list[tuple[int, Exception | None]] = []
        disk, sizes = machine.disk, machine.sizes
        # links request positions from an upstream that reports a leveret version
        own_version = leveret.__version__ if machine.gives_positions else ""
        broker = Broker(Settings(own_version=own_version, cluster_name=machine.name), random.randbytes)
        broker.on_event = lambda text: machine.trace.note(machine.name, "log:", text)
        journal = Journal(disk, JOURNAL, sizes.file_octets, random.randbytes, ahead_size=sizes.ahead_octets)
        reserve = Reserve(disk, RESERVE, RESERVE_OCTETS)
        self.work = SimulatedWork(self, journal, reserve)
        sources = Sources(self._now_ns, lambda: self._now_ns() - START_US * 1000, f"boot {machine.boots}")
        super().__init__(
            broker, journal, SegmentStore(disk, SEGMENTS, random.randbytes),
            StreamStore(disk, STREAMS, random.randbytes), reserve, Alarms(ResourceLimits(1, 1), machine.gauges()),
            Clock(broker.timeline, sources), VirtualLoop(self), self.work, elapsed_ns=self._now_ns,
            pager=sizes.pager(broker), ready_octets=sizes.ready_octets, batch_octets=sizes.batch_octets,
        )  # fmt: skip
        self.logger = logging.Logger(machine.name)
        self.logger.addHandler(TraceHandler(machine))
        self._pages_thread = VirtualThread(self, 3)
        self._stream_threads = VirtualThread(self, 2), VirtualThread(self, 1)  # changes, reads
        self.environment = VirtualEnvironment(self)
        self.federator = Federator(broker, self.environment)

    def _now_ns(self) -> int:
        return self.virtual.now_us * 1000

    # -- start and stop ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Recover from the disk, then listen."""
        self.recover()
        self.machine.host.accept = self._accept
        self.begin()
        self.federator.start()
        self.end_turn()

    def _accept(self, end: End) -> Socket:
        return Socket(self, end, self.machine.sizes.socket_octets)

    def stop(self) -> None:
        """Shut down in order, without any virtual time passing."""
        self._is_stopping = True
        self.federator.stop()
        self.end_turn()
        for peer in self.peers():
            self.close(peer, "broker forced connection closure with reason 'shutdown'")
        self.end_turn()
        for peer in self.peers():
            peer.lost(self.now_us())
        self.clock.look(is_ending=True)
        self.broker.stop()
        self.sync()
        self.is_alive = False
        self.journal.close()
        self.segments.close()

    def run(self, call: Callable[[], object]) -> None:
        """Make a call and end its turn. A crash in it is passed to the machine; no effect after the process has ended.
        """
        if not self.is_alive:
            return
        try:
            call()
            self.end_turn()
        except Crash:
            self.machine.crashed()

    def later(self, delay_us: int, call: Callable[[], object]) -> ScheduledEvent:
        """Have a call made after a delay, if the process is still alive then."""
        return self.virtual.later(delay_us, partial(self.guard, call))

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        """As `run`, for calls that end their turns by themselves."""
        if not self.is_alive:
            return
        try:
            call(*arguments)
        except Crash:
            self.machine.crashed()

    # -- for the engine ------------------------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def failed(self) -> None:
        assert self.failure is not None
        raise self.failure

    def work_on_pages(self, work: Callable[[], Any], done: Done) -> None:
        self._pages_thread.submit(work, done)

    def work_on_streams(self, work: Callable[[], Any], done: Done, is_reading: bool = False) -> None:
        def finished(result: Any, error: BaseException | None) -> None:
            done(result, error)
            self.streams_worked()

        self._stream_threads[is_reading].submit(work, finished)

    def remove_segment(self, number: int) -> None:
        def remove() -> None:
            with contextlib.suppress(OSError):
                self.segments.remove(number)

        self._pages_thread.submit(remove, lambda result, error: None)

    def connection_ended(self) -> None:
        """Do nothing: nobody waits for that."""

    def pages_moved(self) -> None:
        """Do nothing: the memory that was freed is the simulation's own."""

    def kernel_is_done(self) -> None:
        """Handle the kernel's notification of a finished sync."""
        self._is_on_loop = True
        self.work.end()
        self._is_on_loop = False

    def done(self, batch: int, error: Exception | None) -> None:
        """Receive a result of the journal's work: at once if the kernel did it, else after a random delay."""
        if error is None:
            self.machine.on_synced(batch)
        if self._is_on_loop:
            self.batches.on_disk(batch, error, self.is_stopping)
            return
        self._unheard.append((batch, error))
        self._heard_us = max(self._heard_us, self.virtual.now_us + self.random.randrange(10, 400))
        self.later(self._heard_us - self.virtual.now_us, self._hear)

    def _hear(self) -> None:
        unheard, self._unheard = self._unheard, []
        for batch, error in unheard:
            self.batches.on_disk(batch, error, self.is_stopping)

    def sync(self) -> None:
        """Return when everything recorded so far is synced, and confirmed to clients."""
        self.end_turn()
        while self.is_writing:
            self.batches.submit()
            self.kernel_is_done()
            while self.work.is_waiting:
                self.work.perform()
            self._hear()
            self.end_turn()

    @property
    def is_writing(self) -> bool:
        """Whether something recorded is not known to be on the disk yet."""
        return bool(self.broker.log.size()) or self._committer.is_syncing
