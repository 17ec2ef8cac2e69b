"""A connection that is held up goes on within a bounded time, or is told why not: the real server, in virtual time.

The loop's clock jumps to the next timer, disk and sockets are simulated, and no thread is started. Limits of memory are
small, so that small messages do what large ones do elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import random
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from leveret.broker.broker import Broker, Settings
from leveret.broker.storage.pager import Pager
from leveret.net import server as server_module
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.clock import Sources
from leveret.net.connections.admission import Admitted
from leveret.net.connections.protocol import PeerProtocol
from leveret.net.disk import paging, streams
from leveret.net.engine import CHECK_S
from leveret.net.pressure import DISK_US_MAX, REASONS, SLOW_US_MAX
from leveret.net.server import Server
from leveret.session.output import Buffer
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.store.sync import SyncWork
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER, FrameReader, content_frames
from leveret.wire.method import decode_method, method_frame
from leveret.wire.properties import Properties, encode_header

T = TypeVar("T")
# limit of messages in memory; six times as much holds publishers up
READY_OCTETS: Final = 40_000
SLICE_S: Final = 0.25
# a connection that is not read for longer must have been told, at the check after that time
HELD_S_MAX: Final = (DISK_US_MAX + SLOW_US_MAX) / 1e6 + 3 * CHECK_S
CHOKED_OCTETS: Final = 20_000


class Jumping(selectors.DefaultSelector):
    """A selector without waiting: time jumps."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen"
        self.now_s += timeout
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose executor is a simulated disk with its own delay; while the disk hangs, work waits."""

    def __init__(self) -> None:
        self.selector = Jumping()
        self.is_hung = False
        self.fails = False
        self._waiting: list[Callable[[], object]] = []
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now_s

    def on_disk(self, work: Callable[[], object]) -> None:
        if self.is_hung:
            self._waiting.append(work)
        else:
            self.call_later(0.002, work)

    def hang(self, is_hung: bool) -> None:
        self.is_hung = is_hung
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            self.on_disk(work)

    def run_in_executor(self, executor: Any, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()

        def act() -> None:
            try:
                if self.fails:
                    raise OSError("the disk fails")
                future.set_result(work(*arguments))
            except OSError as error:
                future.set_exception(error)
                future.exception()  # mark it as retrieved

        self.on_disk(act)
        return future


class Sync(SyncWork):
    """Stands in for the sync thread."""

    def submit(self, *request: Any) -> None:
        super().submit(*request)
        self._later()

    def remove_before(self, number: int) -> None:
        super().remove_before(number)
        self._later()

    def retry(self) -> None:
        super().retry()
        self._later()

    def _later(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        loop.on_disk(self.perform)

    def stop(self) -> None:
        pass


class Wire:
    """A connection's transport, and the client at its other end."""

    def __init__(self, world: World, number: int) -> None:
        self.peername, self.sockname = ("127.0.0.1", 40_000 + number), ("127.0.0.1", 5672)
        self.world = world
        self.place: Admitted | None = None
        self.taken = 0
        self.is_listened_to = True
        self.reads = True  # whether the client reads
        self.is_blocked = False
        self.is_lost = self.was_reset = False
        self.next = b""  # what the client sends once the server reads from it
        self.heard_s = world.loop.time()  # when the broker last read from it, or had told it why not
        self._unsent: list[Buffer] = []
        self._is_crowded = False
        self._frames = FrameReader(0)
        self.methods: list[str] = []
        self.protocol = PeerProtocol(world.server)
        self.protocol.connection_made(self)

    # -- the transport -------------------------------------------------------------------------------------------------

    def writelines(self, buffers: list[Buffer]) -> None:
        if self.is_lost:
            return
        self._unsent += buffers
        if self.reads:
            self._take(len(self._unsent))
        elif not self._is_crowded and self.get_write_buffer_size() > CHOKED_OCTETS:
            self._is_crowded = True
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return sum(len(each) for each in self._unsent)

    def pause_reading(self) -> None:
        self.is_listened_to = False

    def resume_reading(self) -> None:
        self.is_listened_to = True
        self.world.loop.call_soon(self._say_next)

    def _say_next(self) -> None:
        if self.next and self.is_listened_to and not self.is_lost:
            data, self.next = self.next, b""
            self.say(data)

    def is_closing(self) -> bool:
        return self.is_lost

    def close(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.world.loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    def reset(self) -> None:
        self.was_reset = True
        self.close()

    def fileno(self) -> int:
        return -1

    # -- the client ----------------------------------------------------------------------------------------------------

    def read(self, reads: bool) -> None:
        """Start or stop reading."""
        self.reads = reads
        if reads and self._unsent:
            self.take(len(self._unsent))

    def take(self, buffers: int) -> None:
        """Read this many of the waiting buffers."""
        if not self._unsent or self.is_lost:
            return
        self.taken += 1
        self._take(buffers)
        if self._is_crowded and not self._unsent:
            self._is_crowded = False
            self.protocol.resume_writing()

    def _take(self, buffers: int) -> None:
        self._frames.feed(b"".join(self._unsent[:buffers]))
        del self._unsent[:buffers]
        while (frame := self._frames.next()) is not None:
            if frame.kind == 1:
                name = decode_method(frame.payload).name
                self.methods.append(name)
                if name in ("connection.blocked", "connection.unblocked"):
                    self.is_blocked = name == "connection.blocked"

    def say(self, data: bytes) -> None:
        """Send data to the broker, even if it has paused reading."""
        self.heard_s = self.world.loop.time()
        self.protocol.data_received(data)

    def call(self, spec: grammar.MethodSpec, channel: int = 1, **values: object) -> None:
        self.say(method_frame(channel, spec, **values))

    async def log_in(self) -> None:
        capable = {"capabilities": {"connection.blocked": True}}
        self.say(PROTOCOL_HEADER)
        login = {"mechanism": "PLAIN", "response": b"\0guest\0guest", "client_properties": capable}
        self.call(grammar.CONNECTION_START_OK, 0, **login)
        self.call(grammar.CONNECTION_TUNE_OK, 0, channel_max=2047, frame_max=131072, heartbeat=0)
        self.call(grammar.CONNECTION_OPEN, 0, virtual_host="/")
        self.call(grammar.CHANNEL_OPEN)
        self.call(grammar.CONFIRM_SELECT)
        await asyncio.sleep(0.1)
        assert "confirm.select-ok" in self.methods


class World:
    """A server and its clients."""

    def __init__(self, loop: JumpingLoop) -> None:
        self.loop = loop
        # what the gauges show
        self.free, self.used = 10_000, 0
        disk = MemoryDisk()
        boot_ns = lambda: round(loop.time() * 1e9)  # noqa: E731
        sources = Sources(lambda: boot_ns() + 1_700_000_000_000_000_000, boot_ns, "jumping")
        gauges = Gauges(lambda: self.free, lambda: self.used, lambda: None)
        chance = random.Random(1)
        server = self.server = Server(
            Broker(Settings(), chance.randbytes), Journal(disk, "/journal"), SegmentStore(disk, "/segments"),
            StreamStore(disk, "/streams"), Reserve(disk, "/reserve"), Alarms(ResourceLimits(1000, 1000), gauges),
            sources,
        )  # fmt: skip
        server.broker.on_event = lambda _: None
        small = Pager(server.broker, page_octets=4000, step_octets=7000, segment_octets=15_000, front_octets=3000)
        server._paging.pager = small
        server._paging._octets_max = READY_OCTETS
        server.batch_octets = 20_000
        server.handshake_budget._clock_ns = lambda: 0
        server._trimming.later = lambda: None  # type: ignore[method-assign]
        server.recover()
        server.begin()
        self.wires: list[Wire] = []

    async def client(self) -> Wire:
        wire = Wire(self, len(self.wires))
        self.wires.append(wire)
        await wire.log_in()
        return wire

    def publish(self, wire: Wire, exchange: str, key: str, size: int, delivery_mode: int = 1) -> None:
        wire.say(self.encoded(exchange, key, size, delivery_mode))

    def encoded(self, exchange: str, key: str, size: int, delivery_mode: int) -> bytes:
        method = method_frame(1, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)
        header = encode_header(Properties(delivery_mode=delivery_mode), size)
        return method + content_frames(1, header, bytes(size), 131072)

    def heal(self) -> None:
        self.free, self.used = 10_000, 0
        self.loop.fails = False
        self.loop.hang(False)
        for wire in self.wires:
            wire.read(True)

    def metric(self, reason: str) -> float:
        return self.server.waits_s()[reason]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure a server that keeps little in memory, and has no threads."""
    monkeypatch.setattr(paging, "LOOK_OCTETS", 10_000)
    monkeypatch.setattr(streams, "TAILS_OCTETS_MAX", 20_000)
    monkeypatch.setattr(server_module, "SyncThread", Sync)


def live(story: Callable[[World], Coroutine[None, None, T]]) -> T:
    """Run a story in a world of its own; return its result."""

    async def begin() -> T:
        return await story(World(loop))

    with running() as loop:
        return loop.run_until_complete(begin())


@contextmanager
def running() -> Iterator[JumpingLoop]:
    loop = JumpingLoop()
    try:
        yield loop
    finally:
        loop.close()


async def goes_on(world: World, wire: Wire) -> bool:
    """Return whether the connection is read again before HELD_S_MAX, without having been blocked."""
    until_s = world.loop.time() + HELD_S_MAX
    while not wire.is_listened_to and world.loop.time() < until_s:  # noqa: ASYNC110
        await asyncio.sleep(SLICE_S)
    return wire.is_listened_to and not wire.is_blocked


SIZES: Final = {
    "one message of 110 MB": [7 * READY_OCTETS],
    "ten messages of 11 MB in ten queues": [READY_OCTETS * 7 // 10] * 10,
    "very many small messages": [500] * 700,
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_however_large_the_messages_are_publishers_go_on(sizes: list[int], kind: str) -> None:
    async def story(world: World) -> None:
        wire = await world.client()
        for number in range(10):
            arguments = {"x-queue-type": kind}
            wire.call(grammar.QUEUE_DECLARE, queue=f"q{number}", durable=True, arguments=arguments)
        for number, size in enumerate(sizes):
            world.publish(wire, "", f"q{number % 10}", size)
        assert await goes_on(world, wire)
        await asyncio.sleep(10)
        assert wire.is_listened_to
        log = world.server.broker.log
        assert log.ready_octets + log.tail_octets < 6 * READY_OCTETS

    live(story)


def test_a_fanout_to_many_queues_holds_nobody_up_and_is_not_written_for_each() -> None:
    async def story(world: World) -> None:
        wire = await world.client()
        for number in range(60):
            wire.call(grammar.QUEUE_DECLARE, queue=f"q{number}")
            wire.call(grammar.QUEUE_BIND, queue=f"q{number}", exchange="amq.fanout")
        world.publish(wire, "amq.fanout", "", 20_000)
        await asyncio.sleep(2)
        assert wire.is_listened_to
        assert world.server.segments.numbers() == []
        assert world.metric("pages") == 0

    live(story)


def test_who_waits_for_pages_that_do_not_get_to_the_disk_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "leveret")

    async def story(world: World) -> None:
        wire = await world.client()
        wire.call(grammar.QUEUE_DECLARE, queue="q")
        world.loop.hang(True)
        world.publish(wire, "", "q", 7 * READY_OCTETS)
        assert not wire.is_listened_to
        assert world.server._pressure.why(wire.protocol) == "pages"
        await asyncio.sleep(DISK_US_MAX / 1e6 - CHECK_S)
        assert not wire.is_blocked
        await asyncio.sleep(3 * CHECK_S)
        assert wire.is_blocked
        assert world.server.broker.block_reason == "waiting for the disk"
        assert world.server.alarms.is_waiting_for_disk
        world.loop.hang(False)
        await asyncio.sleep(3 * CHECK_S)
        assert wire.is_listened_to
        assert not wire.is_blocked
        assert not world.server.alarms.is_waiting_for_disk

    live(story)
    said = [record.getMessage() for record in caplog.records if "waiting for the disk" in record.getMessage()]
    assert len(said) == 2
    assert "messages could not be moved from memory to disk for 5 s" in said[0]
    assert said[1] == "no longer waiting for the disk"


def test_who_waits_for_a_journal_that_hangs_is_told() -> None:
    async def story(world: World) -> None:
        wire = await world.client()
        wire.call(grammar.QUEUE_DECLARE, queue="q", durable=True)
        await asyncio.sleep(1)
        world.loop.hang(True)
        for _ in range(30):
            world.publish(wire, "", "q", 1000, 2)
        assert world.server._pressure.why(wire.protocol) == "journal"
        await asyncio.sleep(HELD_S_MAX)
        assert wire.is_blocked
        world.loop.hang(False)
        await asyncio.sleep(3 * CHECK_S)
        assert wire.is_listened_to
        assert not wire.is_blocked

    live(story)


def test_confirms_that_wait_for_a_disk_that_hangs_are_told_of_and_others_go_on() -> None:
    async def story(world: World) -> None:
        wire = await world.client()
        wire.call(grammar.QUEUE_DECLARE, queue="q", durable=True)
        await asyncio.sleep(1)
        world.loop.hang(True)
        world.publish(wire, "", "q", 100, 2)
        await asyncio.sleep(HELD_S_MAX)
        assert world.server.alarms.is_waiting_for_disk
        assert world.server.broker.block_reason == ""
        assert wire.is_listened_to
        assert not wire.is_blocked
        world.loop.hang(False)
        await asyncio.sleep(3 * CHECK_S)
        assert not world.server.alarms.is_waiting_for_disk
        assert "basic.ack" in wire.methods

    live(story)


def test_who_is_not_read_from_when_an_alarm_begins_hears_of_it() -> None:
    """It can't find out by publishing."""

    async def story(world: World) -> None:
        wire = await world.client()
        wire.call(grammar.QUEUE_DECLARE, queue="q")
        world.loop.hang(True)
        world.publish(wire, "", "q", 7 * READY_OCTETS)
        world.used = 2000
        await asyncio.sleep(2 * CHECK_S)
        assert world.server.broker.block_reason == "low on memory"
        assert wire.is_blocked

    live(story)


def test_a_connection_whose_client_has_stopped_reading_is_reset(caplog: pytest.LogCaptureFixture) -> None:
    """Heartbeats do not help. A client that reads, however slowly, stays."""
    caplog.set_level(logging.WARNING, "leveret")

    async def story(world: World) -> None:
        publisher, stopped, slow = [await world.client() for _ in range(3)]
        publisher.call(grammar.QUEUE_DECLARE, queue="q")
        timeout_s = world.server.broker.settings.send_timeout_ms / 1000
        for consumer in (stopped, slow):
            consumer.call(grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
            consumer.read(False)
        for _ in range(6):
            world.publish(publisher, "", "q", 10_000)
        for _ in range(int(timeout_s) - 1):
            await asyncio.sleep(1)
            stopped.say(b"\x08\0\0\0\0\0\0\xce")
        assert not stopped.is_lost
        slow.take(1)
        unacked = sum(int(channel.unacked.count) for channel in slow.protocol.peer.channels.values())
        await asyncio.sleep(3)
        assert stopped.was_reset
        assert world.server.broker.cuts == {"send_timeout": 1}
        await asyncio.sleep(timeout_s - 10)
        slow.take(1)
        await asyncio.sleep(timeout_s - 10)
        assert not slow.is_lost
        slow.read(True)  # and gets what the other one had, too
        await asyncio.sleep(1)
        assert sum(int(channel.unacked.count) for channel in slow.protocol.peer.channels.values()) == 6 > unacked
        world.server.broker.settings.send_timeout_ms = 0
        slow.read(False)
        world.publish(publisher, "", "q", 10_000)
        await asyncio.sleep(10 * timeout_s)
        assert not slow.is_lost

    live(story)
    [said] = [record.getMessage() for record in caplog.records if "send_timeout_ms" in record.getMessage()]
    assert "the client has read nothing for" in said


@pytest.mark.parametrize("seed", range(4))
def test_in_whatever_state_a_publisher_goes_on_or_is_told(seed: int) -> None:
    chance = random.Random(seed)
    seen: set[str] = set()

    async def story(world: World) -> None:
        control, *publishers = [await world.client() for _ in range(4)]
        consumers = [await world.client() for _ in range(3)]
        names = [f"q{number}" for number in range(12)]
        for number, name in enumerate(names):
            kind = "stream" if number % 4 == 3 else "classic"
            control.call(grammar.QUEUE_DECLARE, queue=name, durable=True, arguments={"x-queue-type": kind})
            control.call(grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
        for consumer in consumers:
            consumer.call(grammar.BASIC_CONSUME, queue=chance.choice(names[:3]), consumer_tag="c", no_ack=True)

        def happen() -> None:
            match chance.randrange(16):
                case 0:
                    world.loop.hang(True)
                case 1 | 2:
                    world.loop.hang(False)
                case 3:
                    world.loop.fails = chance.random() < 0.5
                case 4:
                    world.free = chance.choice([10_000, 10_000, 10])
                case 5:
                    world.used = chance.choice([0, 0, 2000])
                case 6 | 7:
                    chance.choice(consumers).read(chance.random() < 0.5)
                case 8:
                    chance.choice(consumers).take(1)
                case 9:
                    control.call(grammar.QUEUE_PURGE, queue=chance.choice(names[:3]))
                case 10 | 11:
                    control.call(grammar.BASIC_GET, queue=chance.choice(names[:3]), no_ack=chance.random() < 0.5)
                case 12:
                    control.call(grammar.BASIC_RECOVER, requeue=True)

        async def look(is_well: bool) -> None:
            await asyncio.sleep(SLICE_S)
            for wire in publishers:
                seen.add(world.server._pressure.why(wire.protocol))
                size = chance.choice([100, 3000, 30_000, 300_000] if not is_well else [100])
                key = "" if chance.random() < 0.2 else chance.choice(names)
                wire.next = world.encoded("" if key else "amq.fanout", key, size, chance.choice([1, 2]))
                if wire.is_listened_to:
                    wire.resume_reading()
                elif wire.is_blocked:
                    wire.heard_s = world.loop.time()
                else:
                    held_s = world.loop.time() - wire.heard_s
                    assert held_s <= HELD_S_MAX, world.server._pressure.why(wire.protocol)

        for _ in range(100):
            happen()
            await look(False)
        world.heal()
        for _ in range(40):
            await look(True)
        assert [wire for wire in publishers if wire.is_blocked or world.loop.time() - wire.heard_s > HELD_S_MAX] == []

    live(story)
    assert seen - {""} <= set(REASONS)
    assert seen & {"pages", "journal"}


def test_the_page_about_back_pressure_has_all_reasons() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "back-pressure.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    assert {row[1].strip() for row in rows[1:]} == set(REASONS)
    assert all(cell.strip() for row in rows for cell in row[1:-1])
