"""The whole broker in a box: core, journal and sync thread on a disk that loses what was not synced, and clients.

Everything that is concurrent in a real process is interleaved here by one random generator: clients' turns happen
between the disk operations of the sync thread, and what the thread reports is heard sooner or later. A crash stops the
process at a disk operation; the next life must be one that the model allows.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from leveret.broker.broker import Broker, Settings
from leveret.broker.pager import Pager
from leveret.broker.peer import Peer
from leveret.net.commit import Committer
from leveret.net.paging import Paging
from leveret.store.disk import MemoryDisk
from leveret.store.format import DATA_START
from leveret.store.journal import Journal
from leveret.store.segment import SegmentStore
from leveret.store.sync import SyncWork
from leveret.wire import grammar
from leveret.wire.method import Method, method_frame

from .client import SimClient
from .model import Model, ModelQueue
from .state import State, state_of

DIRECTORY = "/data/journal"
SEGMENTS = "/data/segments"
FILE_SIZE = DATA_START + 1500
Operation = tuple[object, ...]

_MAIN = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
# name -> (durable, arguments): two delay levels, a queue with dead letters, and the ways in which those can be wanting
QUEUES: dict[str, tuple[bool, dict[str, str | int]]] = {
    "level1": (True, {"x-message-ttl": 2003, "x-dead-letter-exchange": "down"}),
    "level0": (True, {"x-message-ttl": 1009, "x-dead-letter-exchange": "out"}),
    "work": (True, _MAIN),
    "dead": (True, {}),
    "plain": (True, {}),
    "brief": (False, {"x-message-ttl": 503, **_MAIN}),
    "lost": (True, {"x-message-ttl": 307, "x-dead-letter-exchange": "missing"}),
    "round": (True, {"x-message-ttl": 701, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "round"}),
}
EXCHANGES: dict[str, bool] = {"in": True, "down": True, "out": True, "fleeting": False}
BINDINGS = [
    ("in", "slow", "level1"), ("in", "fast", "level0"), ("in", "all", "work"), ("in", "all", "plain"),
    ("in", "all", "level0"), ("down", "slow", "level0"), ("out", "slow", "work"), ("out", "fast", "work"),
    ("out", "all", "work"), ("fleeting", "all", "plain"),
]  # fmt: skip


class Crash(BaseException):
    """The process ends here; a BaseException, so that nothing in it can handle it."""


def note(trace: hashlib._Hash, what: str, text: str) -> None:
    """Add an event to the trace."""
    trace.update(f"{what} {text}\n".encode())


def copied(disk: MemoryDisk) -> MemoryDisk:
    """A disk in the same state, pending operations included, that nobody listens to."""
    before, disk.before = disk.before, None
    other = copy.deepcopy(disk)
    disk.before = before
    return other


class SimWork(SyncWork):
    """The sync thread's work, carried out when the world says so, or at once: a thread may be that fast."""

    def __init__(self, world: World, journal: Journal) -> None:
        super().__init__(journal, world.done)
        self._world = world

    def submit(self, batch_id: int, payload: bytes | Sequence[bytes], rotate_snapshot: bytes | None = None) -> None:
        self._world.submitted(batch_id)
        super().submit(batch_id, payload, rotate_snapshot)
        self._world.hasten()


class World:
    """operations: disk operations so far; the process crashes at number `crash_at`, and the disk refuses number
    `fault_at`. overlap: how probable it is that the loop gets on while the thread is at the disk; at 0 each operation
    of a script is on the medium before the next. hits: which kinds of crashes there were. floor: the last batch that
    somebody was told is safe."""

    def __init__(self, seed: int, file_size: int = FILE_SIZE, overlap: float = 0.4) -> None:
        self.overlap = overlap
        self.rng = random.Random(seed)
        self.disk = MemoryDisk(self._before)
        self.now_us = 1_700_000_000_000_000
        self.model = Model()
        self.file_size = file_size
        self.crash_at = 0
        self.fault_at = 0
        self.hits: Counter[str] = Counter()
        self.operation = ("", "")
        self._trace = hashlib.sha256()
        self._declared: dict[str, ModelQueue] = {}
        self._next_id = 1
        self.floor = 0
        self._marks: dict[int, State] = {0: State(frozenset(), frozenset(), {}, frozenset())}
        self._clean_from = 0  # the first batch that ends an orderly stop, 0 = none
        self._starts = 0
        self._is_recovering = False
        self._is_busy = False  # the event loop is in a turn
        self._is_performing = False  # the sync thread is
        self._script: Iterator[Operation] = iter(())

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A process starts: it must come back with what the model allows, and then does what is overdue."""
        self.clients: dict[str, SimClient] = {}
        self._completions: list[tuple[int, Exception | None]] = []
        self._numbers: dict[int, int] = {}
        self._is_busy = self._is_performing = False
        self._is_recovering = True
        self._starts += 1
        self.broker = Broker(Settings(), self.rng.randbytes)
        self.broker.on_event = lambda _: None
        self.journal = Journal(self.disk, DIRECTORY, self.file_size, self.rng.randbytes)
        self.work = SimWork(self, self.journal)
        self.segments = SegmentStore(self.disk, SEGMENTS, self.rng.randbytes)
        self.paging = Paging(self.broker, Pager(self.broker), self.segments, self._write_segment, self.segments.remove)
        self.committer = Committer(self.broker, self.journal, self.work, self.paging)
        self._is_busy = True
        self.committer.recover(self.now_us)
        self._is_busy = self._is_recovering = False
        assert self.journal.report.damages == []
        self._recovered(state_of(self.broker, []))
        self._run_timers()

    def _write_segment(self, number: int, pages: list[bytes]) -> None:
        self.paging.written(self.segments.write(number, pages), None)

    def _recovered(self, state: State) -> None:
        note(self._trace, "recovered", repr(state))
        allowed = range(self.floor, max(self._marks) + 1)
        found = [number for number in allowed if state in self._expected(number)]
        newest = self._marks[max(self._marks)].delivered()
        assert found, f"no batch from {allowed} leaves this; here is the newest:\n{newest.difference(state)}"
        self.model.check_owed(state, found[-1])
        self.model.restart(state, self._declared)
        self._marks = {0: state}
        self.floor = self._clean_from = self._starts = 0

    def _expected(self, number: int) -> list[State]:
        """What may come back when this batch was the last."""
        mark = self._marks[number]
        if not self._clean_from or number < self._clean_from:
            return [mark.delivered()]
        # a start that did not get through may have ended already what the orderly stop said
        return [mark, mark.delivered()] if self._starts > 1 else [mark]

    def crash(self, keep: Collection[int], torn: int | None) -> None:
        """The power fails: of the pending operations these are kept, the last write of them torn."""
        note(self._trace, "crash", repr((sorted(keep), torn)))
        self.count_crash()
        self.disk.crash(keep, torn)

    def kill(self) -> None:
        """The process is killed; what it wrote stays in the page cache."""
        note(self._trace, "kill", "")
        self.count_crash()

    def count_crash(self) -> None:
        """Note what this crash hits."""
        names = [change for pending in self.disk.pending for change in pending.names]
        in_flight = range(self.floor + 1, self.model.batch)
        self.hits["crash"] += 1
        self.hits["recovery"] += self._is_recovering
        self.hits["hop in flight"] += any(self.model.hops[number] for number in in_flight)
        self.hits["rotation"] += any(path.endswith(".new") for path in [self.operation[1], *(n for n, _ in names)])
        self.hits["file removal"] += any(inode is None and name.endswith(".lvj") for name, inode in names)

    def stop(self) -> None:
        """An orderly stop: connections end, and which messages were delivered is written down."""
        while self._background():
            pass
        for name in list(self.clients):
            self._lose(name)
        self.broker.stop()
        self._clean_from = self.model.batch
        self._end_turn()
        while self._background():
            pass
        self.journal.close()

    def fork(self) -> World:
        """Another world that has come as far, to end in another way; neither has a process any more."""
        other = World(0, self.file_size, self.overlap)
        for name in ("now_us", "floor", "_clean_from", "_starts", "_next_id", "operation", "_is_recovering"):
            setattr(other, name, getattr(self, name))
        other.rng.setstate(self.rng.getstate())
        other._declared = dict(self._declared)
        other._marks = dict(self._marks)
        other._trace = self._trace.copy()
        other.disk, other.model = copied(self.disk), copy.deepcopy(self.model)
        other.disk.before = other._before
        return other

    # -- what happens when ---------------------------------------------------------------------------------------------

    def run(self, script: Iterable[Operation]) -> None:
        """Let clients do what the script says while the sync thread works; then everything must have been answered."""
        self._script = iter(script)
        for operation in self._script:
            self.do(operation)
            while self.rng.random() >= self.overlap and self._background():
                pass
        while self._background():
            pass
        for client in self.clients.values():
            assert not client.unconfirmed, f"never confirmed: {client.unconfirmed}"
            assert not client.waiting, f"never answered: {client.waiting}"

    def do(self, operation: Operation) -> None:
        """One operation of a client, or time that passes, and what follows at once."""
        note(self._trace, "do", repr(operation))
        name, *values = operation
        self.now_us += self.rng.randrange(1, 5000)
        self._run_timers()
        getattr(self, f"do_{name}")(*values)
        self._run_timers()
        self.model.check(state_of(self.broker, [client.peer for client in self.clients.values()]))

    def _background(self) -> bool:
        """The sync thread does its next work, or the loop hears of what it did; False if there is nothing to do."""
        can_perform = self.work.is_waiting and not self._is_performing
        if self._completions and (not can_perform or self.rng.random() < 0.5):
            number, error = self._completions.pop(0)
            if error is not None:
                raise Crash
            self.committer.on_disk(number)
            self._end_turn()
        elif can_perform:
            self._perform()
        else:
            return False
        return True

    def _perform(self) -> None:
        self._is_performing = True
        self.work.perform()
        self._is_performing = False

    def hasten(self) -> None:
        """A request was handed to the sync thread: now and then it is done before the loop goes on."""
        if not self._is_performing and self.rng.random() < 0.2:
            self._perform()

    def submitted(self, batch_id: int) -> None:
        """A batch is closed: this is what must come back when it is the last one."""
        self._numbers[batch_id] = self.model.batch
        state = state_of(self.broker, [client.peer for client in self.clients.values()])
        self._marks[self.model.batch] = state.kept()
        self.model.batch += 1

    def done(self, batch_id: int, error: Exception | None) -> None:
        """On the sync thread: the batch is on the medium, or will never be."""
        self._completions.append((batch_id, error))
        if error is None:
            self.floor = max(self.floor, self._numbers[batch_id])

    def _before(self, operation: str, path: str) -> None:
        note(self._trace, operation, path)
        self.operation = (operation, path)
        if self.disk.operations == self.crash_at:
            raise Crash
        if self.disk.operations == self.fault_at:
            self.hits["fault"] += 1
            raise OSError(5, "input/output error", path)
        while not self._is_busy and self.rng.random() < self.overlap:
            if self._completions:
                self._background()
            elif (following := next(self._script, None)) is not None:
                self.do(following)

    def _run_timers(self) -> None:
        while 0 < self.broker.timers.next_us() <= self.now_us:
            self.broker.run_timers(self.now_us)
            self.model.expire(self.now_us)
            self._end_turn()
        assert self.model.is_quiet(self.now_us), "a message stays though its time has ended"

    def trace(self) -> str:
        """A hash of everything that happened."""
        return self._trace.hexdigest()

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _turn(self, client: SimClient, data: bytes) -> None:
        self._is_busy = True
        client.peer.turn(data, self.now_us)
        self._end_turn()

    def _end_turn(self) -> None:
        self._is_busy = True
        dirty, self.broker.dirty = self.broker.dirty, []
        clients = [client for client in self.clients.values() if client.peer in dirty]
        for client in clients:
            data = client.peer.take(self.broker.log.synced)
            note(self._trace, client.name, data.hex())
            for method in client.receive(data):
                self._answer(client, method)
            if client.peer.is_gated:
                self.committer.hold(client.peer)
        self.model.delivered([d for client in clients for d in client.deliveries], self.now_us)
        for client in clients:
            client.deliveries.clear()
        self.committer.submit()
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
            # told: so this batch must be there after any crash from now on
            self.floor = max(self.floor, batch)

    def _client(self, name: str) -> SimClient:
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = SimClient(name, Peer(self.broker, name, True))
            for data in client.greeting():
                self._turn(client, data)
        return client

    def _ask(self, spec: grammar.MethodSpec, *, count: int | None = None, is_durable: bool, **values: object) -> None:
        """The client "control" asks for something; its answer says that the batch is safe."""
        client = self._client("control")
        client.waiting.append((f"{spec.name}-ok", self.model.batch if is_durable else 0, count))
        self._turn(client, method_frame(1, spec, **values))

    # -- what clients can do -------------------------------------------------------------------------------------------

    def do_time(self, us: int) -> None:
        """Time passes, and alarms ring when they are due."""
        end_us = self.now_us + us
        while 0 < (next_us := self.broker.timers.next_us()) <= end_us:
            self.now_us = max(self.now_us, next_us)
            self._run_timers()
        self.now_us = end_us

    def do_declare(self, name: str) -> None:
        durable, arguments = QUEUES[name]
        is_new = name not in self.model.queues
        if is_new:
            ttl, exchange, key = (
                arguments.get(f"x-{n}") for n in ("message-ttl", "dead-letter-exchange", "dead-letter-routing-key")
            )
            ttl_us = ttl * 1000 if isinstance(ttl, int) else -1
            queue = ModelQueue(name, durable, ttl_us, exchange, key)  # type: ignore[arg-type]
            self.model.queues[name] = self._declared[name] = queue
        self._ask(
            grammar.QUEUE_DECLARE, is_durable=is_new and durable, queue=name, durable=durable, arguments=arguments
        )

    def do_exchange(self, name: str) -> None:
        is_new = name not in self.model.exchanges
        self.model.exchanges[name] = durable = EXCHANGES[name]
        self._ask(
            grammar.EXCHANGE_DECLARE, is_durable=is_new and durable, exchange=name, type="direct", durable=durable
        )

    def do_bind(self, source: str, key: str, queue: str) -> None:
        is_durable = self.model.exchanges[source] and self.model.queues[queue].durable
        is_new = (source, key, queue) not in self.model.bindings
        self.model.bindings.add((source, key, queue))
        self._ask(
            grammar.QUEUE_BIND, is_durable=is_durable and is_new, queue=queue, exchange=source, routing_key=key
        )

    def do_unbind(self, source: str, key: str, queue: str) -> None:
        is_durable = self.model.exchanges[source] and self.model.queues[queue].durable
        self.model.bindings.discard((source, key, queue))
        self._ask(grammar.QUEUE_UNBIND, is_durable=is_durable, queue=queue, exchange=source, routing_key=key)

    def do_delete(self, name: str) -> None:
        durable = self.model.queues[name].durable
        count = self.model.delete_queue(name)
        self._ask(grammar.QUEUE_DELETE, is_durable=durable, count=count, queue=name)

    def do_delete_exchange(self, name: str) -> None:
        durable = self.model.exchanges[name]
        self.model.delete_exchange(name)
        self._ask(grammar.EXCHANGE_DELETE, is_durable=durable, exchange=name)

    def do_purge(self, name: str) -> None:
        self._ask(
            grammar.QUEUE_PURGE, is_durable=self.model.queues[name].durable, count=self.model.purge(name), queue=name
        )

    def do_setup(self) -> None:
        """Declare everything that is not there."""
        for name in QUEUES:
            self.do_declare(name)
        for name in EXCHANGES:
            self.do_exchange(name)
        for binding in BINDINGS:
            self.do_bind(*binding)

    def do_publish(
        self, exchange: str, key: str, count: int = 1, persistent: bool = True, ttl_ms: int | None = None
    ) -> None:
        """Publish with confirms, `count` messages in one read."""
        client = self.clients.get("publisher")
        if client is None:
            client = self._client("publisher")
            self._turn(client, method_frame(1, grammar.CONFIRM_SELECT))
        data = b""
        for _ in range(count):
            id = self._next_id
            self._next_id += 1
            client.published += 1
            is_durable = self.model.publish(id, exchange, key, persistent, ttl_ms, self.now_us)
            client.unconfirmed[client.published] = (id, self.model.batch if is_durable else 0)
            data += client.publish(id, exchange, key, persistent, ttl_ms)
        self._turn(client, data)

    def do_consume(self, name: str, queue: str, no_ack: bool = False, prefetch: int = 0) -> None:
        client = self._client(name)
        tag = f"{queue} {len(client.queues)} {self._next_id}"
        client.queues[tag] = (queue, no_ack)
        qos = method_frame(1, grammar.BASIC_QOS, prefetch_count=prefetch)
        self._turn(client, qos + method_frame(1, grammar.BASIC_CONSUME, queue=queue, consumer_tag=tag, no_ack=no_ack))

    def do_get(self, name: str, queue: str, no_ack: bool = False) -> None:
        client = self._client(name)
        client.got.append((queue, no_ack))
        self._turn(client, method_frame(1, grammar.BASIC_GET, queue=queue, no_ack=no_ack))

    def _answer_delivery(self, name: str, place: int, multiple: bool, requeue: bool | None) -> None:
        """Ack (requeue None), requeue or reject the delivery at this place of those that the client holds."""
        tags = self.model.held_tags(name)
        if not -len(tags) <= place < len(tags):
            return
        tag = tags[place]
        if requeue is None:
            self.model.ack(name, tag, multiple)
            data = method_frame(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=multiple)
        else:
            if requeue:
                self.model.requeue(name, tag, multiple)
            else:
                self.model.reject(name, tag, multiple, self.now_us)
            data = method_frame(1, grammar.BASIC_NACK, delivery_tag=tag, multiple=multiple, requeue=requeue)
        self._turn(self.clients[name], data)

    def do_ack(self, name: str, place: int = 0, multiple: bool = False) -> None:
        self._answer_delivery(name, place, multiple, None)

    def do_nack(self, name: str, place: int = 0, multiple: bool = False) -> None:
        self._answer_delivery(name, place, multiple, True)

    def do_reject(self, name: str, place: int = 0, multiple: bool = False) -> None:
        self._answer_delivery(name, place, multiple, False)

    def do_lose(self, name: str) -> None:
        """A connection ends without a word; what it had returns."""
        if name in self.clients:
            self._lose(name)

    def _lose(self, name: str) -> None:
        client = self.clients.pop(name)
        self.model.requeue(name)
        self._is_busy = True
        client.peer.lost(self.now_us)
        self._end_turn()
