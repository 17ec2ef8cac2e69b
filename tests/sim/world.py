"""The whole broker in a box: core, journal and sync thread on a disk that loses what was not synced, and clients.

One random generator interleaves everything that is concurrent in a real process: clients' turns happen between the disk
operations of the sync thread, and the loop learns of the thread's results some time later. A crash stops the process at
a disk operation; the next run must start in a state that the model allows.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from leveret.broker.broker import Broker, Settings
from leveret.broker.peer import Peer
from leveret.broker.storage.pager import Pager
from leveret.broker.streams.stream import Stream
from leveret.net.disk.commit import Committer
from leveret.net.disk.paging import LOOK_OCTETS, Paging
from leveret.net.disk.streams import StreamStorage
from leveret.store.disk import MemoryDisk
from leveret.store.format import DATA_START
from leveret.store.journal import Journal
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.store.sync import Payload, SyncWork
from leveret.wire import grammar
from leveret.wire.method import Method

from .actions import Actions
from .client import SimClient
from .model import Model, ModelQueue
from .state import State, coming_back, state_of

DIRECTORY = "/data/journal"
SEGMENTS = "/data/segments"
STREAM_FILES = "/data/streams"
FILE_SIZE = DATA_START + 2100
Operation = tuple[object, ...]
# what a crash can hit, and must hit in some worlds
HITS = ("hop in flight", "rotation", "file removal", "file reuse", "page-out", "recovery")
STREAM_HITS = ("stream append", "segment roll", "stream retention", "stream removal")
# space that is written ahead of the batches of a growing file
AHEAD_SIZE = 300


class Crash(BaseException):
    """The process ends here; a BaseException, so that nothing in it can handle it."""


def note(trace: hashlib._Hash, what: str, text: str) -> None:
    """Add an event to the trace."""
    trace.update(f"{what} {text}\n".encode())


def copied(disk: MemoryDisk) -> MemoryDisk:
    """Return a disk in the same state, pending operations included, without callbacks."""
    before, disk.before = disk.before, None
    other = copy.deepcopy(disk)
    disk.before = before
    return other


class SimDisk(MemoryDisk):
    """A disk whose page cache sometimes lacks what a stream's reader wants."""

    def __init__(self, before: Callable[[str, str], None], rng: random.Random) -> None:
        super().__init__(before)
        self.rng = rng

    def read_cached(self, path: str, offset: int, length: int) -> bytes | None:
        return None if self.rng.random() < 0.3 else super().read_cached(path, offset, length)


class SimWork(SyncWork):
    """The sync thread's work, carried out when the world says so, or at once, as by a very fast thread."""

    def __init__(self, world: World, journal: Journal) -> None:
        super().__init__(journal, world.done)
        self._world = world

    def submit(self, batch_id: int, payload: Payload, rotate_snapshot: Payload | None = None) -> None:
        self._world.submitted(batch_id)
        super().submit(batch_id, payload, rotate_snapshot)
        self._world.hasten()


class World:
    """A broker, its disk, its clients, and the model that it is checked against."""

    def __init__(
        self, seed: int, file_size: int = FILE_SIZE, overlap: float = 0.4, ready_octets: int = 1 << 30
    ) -> None:
        self.ready_octets = ready_octets  # size of messages in memory above which some go to pages
        # how probable it is that the loop goes on during a disk operation; 0: each operation is synced before the next
        self.overlap = overlap
        self.rng = random.Random(seed)
        self.disk: MemoryDisk = SimDisk(self._before, self.rng)
        self.tail_octets = 0  # size of a stream's messages in memory above which they go to files
        self.step_max = 2048  # how many messages are requeued in one step
        self.now_us = 1_700_000_000_000_000
        self.model = Model()
        self.file_size = file_size
        self.crash_at = 0  # number of the disk operation at which the process crashes
        self.crash_in = ""  # the process crashes at the first disk operation that hits this (see HITS)
        self.fault_at = 0  # number of the operation that the disk refuses
        self.hits: Counter[str] = Counter()  # crash point -> how many crashes hit it
        self._path = ""
        self._trace = hashlib.sha256()
        self.declared: dict[str, ModelQueue] = {}
        self.next_id = 1
        self.floor = 0  # the last batch that a client was told is safe
        self._marks: dict[int, State] = {0: State(frozenset(), frozenset(), {}, frozenset())}
        # mark of a declared stream -> offset that retention reached in its life
        self._firsts: dict[str, int] = {}
        self._living: set[int] = set()  # numbers of the existing streams
        self._clean_from = 0  # the first batch that ends an orderly stop, 0 = none
        self._starts = 0
        self._is_recovering = False
        self._is_busy = False  # the event loop is in a turn
        self._is_performing = False  # the sync thread is working
        self._is_storing = False  # the thread that writes segments is working
        self._script: Iterator[Operation] = iter(())
        self._actions = Actions(self)

    # -- runs of the broker --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a process, check that its state is one that the model allows, and handle what is overdue."""
        self.clients: dict[str, SimClient] = {}
        self._completions: list[Callable[[], None]] = []
        self._segment_work: list[Callable[[], None]] = []
        self._stream_work: list[Callable[[], None]] = []
        self._stream_reads: list[Callable[[], None]] = []
        self._is_paging = False
        self._numbers: dict[int, int] = {}
        self._is_performing = self._is_storing = self._is_archiving = False
        self._is_busy = self._is_recovering = True
        self._starts += 1
        self.broker = Broker(Settings(), self.rng.randbytes)
        self.broker.on_event = lambda _: None
        self.broker.requeue_jobs.step_max = self.step_max
        self.journal = Journal(self.disk, DIRECTORY, self.file_size, self.rng.randbytes, ahead_size=AHEAD_SIZE)
        self.work = SimWork(self, self.journal)
        self.segments = SegmentStore(self.disk, SEGMENTS, self.rng.randbytes)
        pager = Pager(self.broker, page_octets=500, step_octets=900, segment_octets=1800, front_octets=300)
        write, remove = self._write_segment, self._remove_segment
        self.paging = Paging(self.broker, pager, self.segments, write, remove, self.ready_octets)
        store = StreamStore(self.disk, STREAM_FILES, self.rng.randbytes)
        self.streams = StreamStorage(self.broker, store, self._submit_stream, self._stirred, lambda: self.broker_us)
        self.committer = Committer(self.broker, self.journal, self.work, self.paging)
        self.committer.recover(self.resume)
        self.streams.recovered()
        self._look_at_streams(True)
        self._is_busy = self._is_recovering = False
        assert self.journal.report.damages == []
        self._recovered(state_of(self.broker, self.streams.archives))
        self.run_timers()

    def resume(self) -> int:
        """Return the broker's time at which this run begins; the journal has been read."""
        return self.broker_us

    @property
    def broker_us(self) -> int:
        """The broker's time; now_us is the true time."""
        return self.now_us

    def _recovered(self, state: State) -> None:
        note(self._trace, "recovered", repr(sorted(state.queues.items())))
        allowed = range(self.floor, max(self._marks) + 1)
        found = [number for number in allowed if any(state.matches(mark) for mark in self._expected(number))]
        newest = self._expected(max(self._marks))[0]
        assert found, f"no batch from {allowed} leaves this; here is the newest:\n{newest.difference(state)}"
        self.model.check_owed(state, found[-1])
        self.model.restart(state, self.declared)
        self._marks = {0: state}
        self.floor = self._clean_from = self._starts = 0

    def _expected(self, number: int) -> list[State]:
        """Return the states that may be recovered if this was the last batch."""
        mark = self._marks[number]
        if not self._clean_from or number < self._clean_from:
            return [mark.delivered()]
        # a start that failed half-way may have invalidated the record of the orderly stop
        return [mark, mark.delivered()] if self._starts > 1 else [mark]

    def crash(self, keep: Collection[int] = (), torn: int | None = None, is_sized: bool = False) -> None:
        """Cut the power: of the pending operations, those in `keep` survive, the last write of them torn at `torn`."""
        note(self._trace, "crash", repr((sorted(keep), torn, is_sized)))
        self._count_crash()
        self.disk.crash(keep, torn, is_sized)

    def kill(self) -> None:
        """Kill the process; its writes stay in the page cache."""
        note(self._trace, "kill", "")
        self._count_crash()

    def _is_hit(self, what: str) -> bool:
        """Whether a crash would hit this now."""
        names = [change for pending in self.disk.pending for change in pending.names]
        gone = [name for name, inode in names if inode is None]
        paths = [self._path, *gone]
        match what:
            case "hop in flight":
                return any(self.model.hops[number] for number in range(self.floor + 1, self.model.batch))
            case "rotation":
                return any(path.startswith(DIRECTORY) and path.endswith(".lvj.new") for path in paths)
            case "file removal":
                return any(path.startswith(f"{DIRECTORY}/journal-") and path.endswith(".lvj") for path in gone)
            case "file reuse":
                return any(path.startswith(f"{DIRECTORY}/spare-") for path in paths)
            case "page-out":
                return any(path.startswith(SEGMENTS) for path in paths)
            case "stream append":
                written = [pending.path for pending in self.disk.pending if pending.kind == "write"]
                return any(path.startswith(STREAM_FILES) and path.endswith(".lvs") for path in written)
            case "segment roll":
                return any(path.startswith(STREAM_FILES) and path.endswith(".lvs.new") for path in paths)
            case "stream retention" | "stream removal":
                files = [path for path in gone if path.startswith(STREAM_FILES) and path.endswith(".lvs")]
                numbers = {int(path.split("/")[3]) for path in files}
                return bool(numbers & self._living if what == "stream retention" else numbers - self._living)
        return self._is_recovering

    def _count_crash(self) -> None:
        self.hits["crash"] += 1
        self.hits.update(what for what in HITS + STREAM_HITS if self._is_hit(what))

    def stop(self) -> None:
        """Stop in good order: connections end, and the journal records which messages were delivered."""
        while self._background():
            pass
        for name in list(self.clients):
            self.lose(name)
        self.broker.stop()
        self._clean_from = self.model.batch
        self._end_turn()
        while self._background():
            pass
        self.journal.close()
        self.segments.close()

    def fork(self) -> World:
        """Return a copy of this world that can end in another way; neither has a running process."""
        other = World(0, self.file_size, self.overlap, self.ready_octets)
        other.step_max = self.step_max
        other.tail_octets, other._firsts, other._living = self.tail_octets, dict(self._firsts), set(self._living)
        for name in ("now_us", "floor", "_clean_from", "_starts", "next_id", "_path", "_is_recovering"):
            setattr(other, name, getattr(self, name))
        other.rng.setstate(self.rng.getstate())
        other.declared = dict(self.declared)
        other._marks = dict(self._marks)
        other._trace = self._trace.copy()
        other.disk, other.model = copied(self.disk), copy.deepcopy(self.model)
        other.disk.before = other._before
        return other

    # -- scheduling ----------------------------------------------------------------------------------------------------

    def run(self, script: Iterable[Operation]) -> None:
        """Run a script of client operations while the sync thread works; check that all requests were answered."""
        self._script = iter(script)
        for operation in self._script:
            self.do(operation)
            while self.rng.random() >= self.overlap and self._background():
                pass
        while self._background():
            pass
        self.model.check_readers()
        for client in self.clients.values():
            assert not client.unconfirmed, f"never confirmed: {client.unconfirmed}"
            assert not client.waiting, f"never answered: {client.waiting}"

    def do(self, operation: Operation) -> None:
        """Carry out one operation of a client, or let time pass, and handle what follows at once."""
        note(self._trace, "do", repr(operation))
        name, *values = operation
        self.now_us += self.rng.randrange(1, 5000)
        self.run_timers()
        # connect now, so that its next request belongs to one batch
        self.client("control")
        getattr(self._actions, name)(*values)
        self.paging.received(LOOK_OCTETS)
        self.run_timers()
        self.model.check(self._state())

    def _state(self) -> State:
        return state_of(self.broker, self.streams.archives)

    def _background(self) -> bool:
        """Let one of the threads do its next work, or the loop learn of a result; return False if none is left."""
        ready: list[Callable[[], None]] = []
        if self._completions:
            ready.append(self._hear)
        if self._is_paging:
            ready.append(self._page)
        if self.work.is_waiting and not self._is_performing:
            ready.append(self._perform)
        if self._segment_work and not self._is_storing:
            ready.append(self._store)
        if self._stream_work and not self._is_archiving:
            ready.append(self._archive)
        if self._stream_reads:
            ready.append(self._read_stream)
        if self.broker.log.size() and not self.committer.is_syncing:
            ready.append(self._batch_delay)
        if any(client.peer.has_more for client in self.clients.values()):
            ready.append(self._go_on)
        if self.broker.is_busy:
            ready.append(self._requeue)
        if ready:
            self.rng.choice(ready)()
        return bool(ready)

    def _hear(self) -> None:
        self._completions.pop(0)()
        self._end_turn()

    def _batch_delay(self) -> None:
        """End the batch delay: no client waits for this batch, but it has been open long enough."""
        self._is_busy = True
        self.committer.submit()
        self._is_busy = False

    def _go_on(self) -> None:
        """Give another turn to clients whose request takes several."""
        for client in list(self.clients.values()):
            if client.peer.has_more:
                self._turn(client, b"")

    def _requeue(self) -> None:
        self._is_busy = True
        self.broker.requeue_step(self.broker_us)
        self._end_turn()

    def _page(self) -> None:
        self._is_paging = False
        self._end_turn()

    def _perform(self) -> None:
        self._is_performing = True
        self.work.perform()
        self._is_performing = False

    def _store(self) -> None:
        self._is_storing = True
        self._segment_work.pop(0)()
        self._is_storing = False

    def _archive(self) -> None:
        self._is_archiving = True
        self._stream_work.pop(0)()
        self._is_archiving = False

    def _read_stream(self) -> None:
        self._stream_reads.pop(0)()

    def _submit_stream(
        self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None], is_reading: bool = False
    ) -> None:
        def do() -> None:
            result, failure = None, None
            try:
                result = work()
            except OSError as error:
                failure = error
            self._completions.append(lambda: self._worked(done, result, failure))

        (self._stream_reads if is_reading else self._stream_work).append(do)

    def _worked(self, done: Callable[[Any, BaseException | None], None], result: Any, error: OSError | None) -> None:
        done(result, error)
        self.streams.step()

    def _stirred(self) -> None:
        self.broker.log.is_stirred = False
        self.broker.end_turn(self.broker_us)

    def _look_at_streams(self, is_start: bool) -> None:
        """Note how far retention has come. At a start, messages may be gone only up to where it had come before."""
        self._living = {int(number) for number in self.streams.archives}
        self.model.firsts = {}
        for queue in self.broker.vhosts["/"].queues.values():
            if isinstance(queue, Stream):
                first = int(queue.first)
                assert not is_start or first <= self._firsts.get(queue.creation, 0), f"{queue.name} begins at {first}"
                self.model.firsts[queue.name] = first
                self._firsts[queue.creation] = max(first, self._firsts.get(queue.creation, 0))

    def _write_segment(self, number: int, pages: list[bytes]) -> None:
        def write() -> None:
            try:
                places = self.segments.write(number, pages)
            except OSError as error:
                failure = error
                self._completions.append(lambda: self.paging.written(None, failure))
            else:
                self._completions.append(lambda: self.paging.written(places, None))

        self._segment_work.append(write)

    def _remove_segment(self, number: int) -> None:
        def remove() -> None:
            with contextlib.suppress(OSError):
                self.segments.remove(number)

        self._segment_work.append(remove)

    def hasten(self) -> None:
        """Let the sync thread finish a new request, sometimes, before the loop goes on."""
        if not self._is_performing and self.rng.random() < 0.2:
            self._perform()

    def submitted(self, batch_id: int) -> None:
        """Note, when a batch is closed, the state that must come back if it is the last one."""
        self._numbers[batch_id] = self.model.batch
        state = self._state()
        self.model.place(state)
        self._marks[self.model.batch] = state.kept()
        self.model.batch += 1

    def done(self, batch_id: int, error: Exception | None) -> None:
        """Report from the sync thread that a batch is on the medium, or never will be."""
        self._completions.append(lambda: self._on_disk(batch_id, error))
        if error is None:
            self.floor = max(self.floor, self._numbers[batch_id])

    def _on_disk(self, batch_id: int, error: Exception | None) -> None:
        if isinstance(error, AssertionError):
            raise error  # raised by a check on the sync thread
        if error is not None:
            raise Crash
        self.committer.on_disk(batch_id)
        if self.broker.log.is_stirred:
            self._stirred()
        if self.broker.log.has_stream_work:
            self.streams.step()

    def _before(self, operation: str, path: str) -> None:
        note(self._trace, operation, path)
        self._path = path
        if self.disk.operations == self.crash_at or (self.crash_in and self._is_hit(self.crash_in)):
            raise Crash
        if self.disk.operations == self.fault_at:
            self.hits["fault"] += 1
            if operation == "sync":
                # the kernel takes these pages for clean: they can be read, but are never written again
                self.disk.pending = [p for p in self.disk.pending if (p.kind, p.path) != ("write", path)]
            raise OSError(5, "input/output error", path)
        while not self._is_busy and self.rng.random() < self.overlap:
            if self.rng.random() < 0.5:
                self._background()
            elif (following := next(self._script, None)) is not None:
                self.do(following)

    def run_timers(self) -> None:
        while 0 < self.broker.timers.next_us() <= self.broker_us:
            self.broker.run_timers(self.broker_us)
            self._end_turn()
        assert self.model.is_quiet(self.now_us), "a message stays though its time has ended"

    def trace(self) -> str:
        """A hash of all events."""
        return self._trace.hexdigest()

    # -- turns ---------------------------------------------------------------------------------------------------------

    def turn(self, client: SimClient, data: bytes) -> None:
        while client.peer.has_more:
            self._requeue()
            self._turn(client, b"")
        self._turn(client, data)

    def await_return(self, queue: str) -> None:
        """Run until all messages on their way back to a queue are there."""
        while self.broker.vhosts["/"].queues[queue].awaiting:
            self._requeue()

    def _turn(self, client: SimClient, data: bytes) -> None:
        self._is_busy = True
        client.peer.turn(data, self.broker_us)
        self._end_turn()

    def settle(self) -> None:
        """Finish everything that no client has asked for."""
        self._end_turn()

    def _end_turn(self) -> None:
        self._is_busy = True
        if self.broker.log.has_stream_work:
            self.streams.step()
        for archive in list(self.streams.archives.values()):
            if archive.stream.tail_octets > self.tail_octets:
                archive.write()
        self._look_at_streams(False)
        coming = coming_back(self.broker)
        self.hits["return in steps"] += bool(coming)
        self.model.come_back(coming)
        dirty, self.broker.dirty = self.broker.dirty, []
        clients = [client for client in self.clients.values() if client.peer in dirty]
        for client in clients:
            data = b"".join(client.peer.take(self.broker.log.synced))
            note(self._trace, client.name, data.hex())
            for method in client.receive(data):
                self._answer(client, method)
            if client.peer.is_gated:
                self.committer.hold(client.peer)
        self.model.delivered([d for client in clients for d in client.deliveries], self.now_us)
        # a client saw this, so it must be there after any crash from now on
        self.floor = max(self.floor, self.model.seen)
        for client in clients:
            client.deliveries.clear()
        if not self.model.is_quiet(self.now_us):
            self.model.expire(self._state(), self.now_us)
        if not self.committer.may_delay() or self.rng.random() < 0.5:
            self.committer.submit()
        self._is_paging = self.paging.step() or self._is_paging
        self._is_busy = False

    def _answer(self, client: SimClient, method: Method) -> None:
        if method.spec is grammar.BASIC_ACK:
            self._confirmed(client, method.number("delivery_tag"), method.flag("multiple"))
        elif method.spec is grammar.BASIC_CANCEL:
            client.queues.pop(method.text("consumer_tag"))
        elif method.spec is grammar.BASIC_GET_EMPTY:
            queue, _ = client.got.pop(0)
            assert self.model.queues[queue].head() is None, f"{queue} is not empty"
        elif client.waiting and client.waiting[0][0] == method.name:
            _, batch, count = client.waiting.pop(0)
            self.floor = max(self.floor, batch)
            assert count is None or method.number("message_count") == count
        else:
            assert method.name not in ("channel.close", "connection.close"), f"refused: {method}"

    def _confirmed(self, client: SimClient, tag: int, multiple: bool) -> None:
        assert tag in client.unconfirmed, f"{tag} is confirmed twice, or was never published"
        for number in [n for n in client.unconfirmed if n == tag or (multiple and n < tag)]:
            id, batch = client.unconfirmed.pop(number)
            self.model.confirmed.add(id)
            # a client was told, so this batch must be there after any crash from now on
            self.floor = max(self.floor, batch)

    def client(self, name: str) -> SimClient:
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = SimClient(name, Peer(self.broker, name, True))
            for data in client.greeting():
                self.turn(client, data)
        return client

    def lose(self, name: str) -> None:
        client = self.clients.pop(name)
        self.model.requeue(name)
        self._is_busy = True
        client.peer.lost(self.broker_us)
        self._end_turn()
