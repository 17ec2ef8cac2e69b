"""A world of delayed messages: a broker with the levels of a layout, on a machine with an unreliable wall clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.delay.layout import Layout
from leveret.delay.topology import ExchangeBinding, ExchangeDeclaration, QueueBinding, QueueDeclaration
from leveret.net.clock import Clock, Sources
from leveret.store.format import DATA_START
from leveret.store.journal import JournalFailed
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header

from .actions import Actions
from .client import FRAME_MAX
from .delay_ledger import HELD, DelayLedger
from .state import State, body
from .world import HITS, Crash, Operation, World

SECOND_US: Final = 1_000_000
WEEK_US: Final = 7 * 86400 * SECOND_US
DESTINATIONS: Final = ("orders", "billing", HELD)
HELD_US_MAX: Final = 10**14
SECONDS: Final = Layout()
WEIGHTS: Final = {"delay": 40, "time": 14, "ack": 30, "lose": 3, "watch": 8, "set": 3}
FILE_SIZES: Final = (DATA_START + 9000, 1 << 20)


class DelayActions(Actions):
    """What clients do in this world; they do not set the virtual clock."""

    def __init__(self, world: DelayWorld) -> None:
        super().__init__(world)
        self._world: DelayWorld = world

    def setup(self) -> None:
        """Declare the layout and the destinations, pipelined by one client."""
        client = self._world.client("control")
        calls: list[tuple[grammar.MethodSpec, dict[str, object]]] = []
        for one in self._world.layout.topology():
            match one:
                case ExchangeDeclaration(name):
                    calls.append((grammar.EXCHANGE_DECLARE, {"exchange": name, "type": "topic", "durable": True}))
                case QueueDeclaration(name, arguments):
                    calls.append((grammar.QUEUE_DECLARE, {"queue": name, "durable": True, "arguments": arguments}))
                case QueueBinding(queue, exchange, key):
                    calls.append((grammar.QUEUE_BIND, {"queue": queue, "exchange": exchange, "routing_key": key}))
                case ExchangeBinding(destination, source, key):
                    binding = {"destination": destination, "source": source, "routing_key": key}
                    calls.append((grammar.EXCHANGE_BIND, {**binding}))
        arguments: dict[str, object] = {"x-delayed-type": "direct"}
        delayed = {"exchange": HELD, "type": "x-delayed-message", "durable": True, "arguments": arguments}
        calls.append((grammar.EXCHANGE_DECLARE, {**delayed}))
        for name in DESTINATIONS:
            calls.append((grammar.QUEUE_DECLARE, {"queue": name, "durable": True}))
            source = HELD if name == HELD else self._world.layout.delivery_exchange
            key = name if name == HELD else f"#.{name}"
            calls.append((grammar.QUEUE_BIND, {"queue": name, "exchange": source, "routing_key": key}))
        client.waiting += [(f"{spec.name}-ok", 0, None) for spec, _ in calls]
        self._world.turn(client, b"".join(method_frame(1, spec, **values) for spec, values in calls))

    def delay(self, destination: str, units: int, count: int = 1) -> None:
        """Send `count` messages that are due after `units` units, in one read, with confirms."""
        world = self._world
        client = world.clients.get("publisher")
        if client is None:
            client = world.client("publisher")
            world.turn(client, method_frame(1, grammar.CONFIRM_SELECT))
        layout, headers = world.layout, None
        delay_us = units * layout.unit_ms * 1000
        if destination == HELD:
            exchange, key, headers = HELD, HELD, {"x-delay": delay_us // 1000}
        else:
            exchange, key = layout.entrance(units), layout.routing_key(units, destination)
        data = b""
        for _ in range(count):
            id, world.next_id = world.next_id, world.next_id + 1
            client.published += 1
            world.ledger.sent(id, destination, delay_us)
            client.unconfirmed[client.published] = (id, world.model.batch)
            header = encode_header(Properties(delivery_mode=2, headers=headers), len(body(id)))
            data += method_frame(1, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)
            data += content_frames(1, header, body(id), FRAME_MAX)
        world.turn(client, data)

    def watch(self, destination: str) -> None:
        """Consume from a destination, as the client of the same name, unless it has a consumer."""
        if destination not in self._world.ledger.watched_us:
            self._world.ledger.watched_us[destination] = self._world.broker_us
            self.consume(destination, destination)

    def set(self, us: int) -> None:
        """Set the wall clock, but not in the moment in which the broker records which boot this is."""
        if self._world.may_set:
            self._world.ahead_us += us
            self._world.look()

    def drain(self) -> None:
        """Wait until all messages are due, and consume them."""
        for name in DESTINATIONS:
            self.watch(name)
        self.time(max(0, self._world.ledger.left_us()))
        for name in DESTINATIONS:
            self.ack(name, -1, True)


class DelayWorld(World):
    """A world whose wall clock may be wrong."""

    def __init__(self, seed: int, layout: Layout = SECONDS, file_size: int = 1 << 20, overlap: float = 0.4) -> None:
        super().__init__(seed, file_size, overlap)
        self.layout = layout
        self.ledger = self.model = DelayLedger(self)
        self._actions = DelayActions(self)
        self.ahead_us = 0  # how far the wall clock is ahead of true time
        # ahead_us at the broker's last look, its boot (_seen_boot), and the batch that records both (_seen_in)
        self._seen_us = 0
        self._seen_boot = 0
        self._seen_in = 0
        self._boots = 1
        self._booted_us = self.now_us - SECOND_US
        self.clock: Clock | None = None

    def resume(self) -> int:
        def wall_ns() -> int:
            return 1000 * (self.now_us + self.ahead_us)

        def boot_ns() -> int:
            return 1000 * (self.now_us - self._booted_us)

        sources = Sources(wall_ns, boot_ns, f"boot {self._boots}")
        self.clock = Clock(self.broker.timeline, sources)
        return self.clock.resume()

    @property
    def broker_us(self) -> int:
        return self.now_us if self.clock is None else self.clock.now_us()

    def start(self) -> None:
        super().start()
        self._seen_in = 0
        self.look()

    def stop(self) -> None:
        self.look(is_ending=True)
        super().stop()

    def look(self, is_ending: bool = False) -> None:
        """Sample the clock, as the server does every second."""
        assert self.clock is not None
        before = self.broker.timeline.sample
        self.clock.look(is_ending)
        self._seen_us, self._seen_boot = self.ahead_us, self._boots
        if self.broker.timeline.sample is not before:
            self._seen_in = self.model.batch
        self._end_turn()

    def _state(self) -> State:
        return _without_held(super()._state())

    def _recovered(self, state: State) -> None:
        super()._recovered(_without_held(state))

    def submitted(self, batch_id: int) -> None:
        super().submitted(batch_id)
        self.ledger.closed(self.model.batch - 1, self._state())

    def off(self, us: int, behind_us: int) -> None:
        """Switch the machine off for `us`; its clock is behind by `behind_us` when it comes back."""
        self.now_us += us
        self.ahead_us -= behind_us
        self._boots += 1
        self._booted_us = self.now_us - SECOND_US

    @property
    def may_boot(self) -> bool:
        """Whether the last setting of the wall clock is on disk: otherwise a boot takes it for time that has passed."""
        return self._seen_us == self.ahead_us and self._seen_in <= self.floor

    @property
    def may_set(self) -> bool:
        """Whether this boot is on disk: otherwise a change of the clock while the broker is down counts as time."""
        return self.may_boot and self._seen_boot == self._boots


def _without_held(state: State) -> State:
    """Leave out delayed exchanges' messages: they are in no queue, due ones leave while the journal is read, and only
    the ledger knows them."""
    return state._replace(queues={**state.queues, HELD: ()} if HELD in state.queues else state.queues)


def operations(world: DelayWorld, count: int) -> Iterator[Operation]:
    """Yield random operations, each valid at the moment when it is asked for."""
    yield ("setup",)
    rng = world.rng
    for name in DESTINATIONS:
        if rng.random() < 0.8:
            yield "watch", name
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    for _ in range(count):
        name = rng.choices(names, weights)[0]
        destination = rng.choice(DESTINATIONS)
        match name:
            case "delay":
                units = rng.randrange(1 << rng.randrange(1, world.layout.levels + 1))
                if destination == HELD:
                    units = min(units, HELD_US_MAX // (1000 * world.layout.unit_ms))
                yield name, destination, units, rng.choice((1, 1, 1, 2, 5))
            case "time":
                yield name, rng.randrange(10 ** rng.randrange(3, 15))
            case "ack":
                yield name, destination, rng.randrange(-2, 2), rng.random() < 0.3
            case "lose":
                yield name, rng.choice((*DESTINATIONS, "publisher"))
            case "watch":
                yield name, destination
            case "set":
                yield name, rng.choice((-1, 1)) * rng.randrange(10 ** rng.randrange(3, 15))


def simulate(seed: int) -> DelayWorld:
    """Simulate one seed; raise AssertionError unless all confirmed messages have arrived at the end."""
    world = DelayWorld(seed)
    rng = world.rng
    if rng.random() < 0.3:
        world.layout = Layout("ms", unit_ms=rng.choice((1, 7)), levels=rng.choice((6, 13)))
    world.file_size = rng.choice(FILE_SIZES)
    world.overlap = rng.choice((0.0, 0.3, 0.6))
    world.ready_octets = rng.choice((3000, 1 << 30))
    for _ in range(rng.randrange(2, 5)):
        _live(world)
    world.start()
    world.run([("setup",), *[("watch", name) for name in DESTINATIONS], ("drain",)])
    world.ledger.check_all_came()
    return world


def _live(world: DelayWorld) -> None:
    """Simulate one run of the broker, and the pause after it."""
    rng = world.rng
    first = world.disk.operations
    world.crash_at = first + rng.randrange(1, 10 ** rng.randrange(1, 3)) if rng.random() < 0.4 else 0
    world.crash_in = "hop in flight" if not world.crash_at and rng.random() < 0.7 else ""
    if rng.random() < 0.1:
        world.crash_in = rng.choice(HITS[:-1])
    world.fault_at = first + rng.randrange(1, 30) if rng.random() < 0.1 else 0
    behind_us = 0
    try:
        world.start()
        world.run(operations(world, rng.randrange(5, 40)))
        if rng.random() < 0.4:
            world.stop()
            # not earlier: without a last-moment sample, such a clock sets the broker's time back to the last sample
            behind_us = rng.choice((0, rng.randrange(10**14)))
    except Crash:
        pass
    except (OSError, JournalFailed):
        assert first < world.fault_at <= world.disk.operations
    world.crash_at, world.crash_in, world.fault_at = 0, "", 0
    pause_us = rng.choice((rng.randrange(10 ** rng.randrange(1, 15)), WEEK_US))
    if rng.random() < 0.4 or not world.may_boot:
        # the same boot: once the broker has recorded it, changes of the wall clock do not matter
        world.kill()
        world.now_us += pause_us
        if world.may_set:
            world.ahead_us += rng.choice((0, -1, 1)) * rng.randrange(10**14)
        return
    pending = world.disk.pending
    kept = {index for index in range(len(pending)) if rng.random() < 0.5}
    world.crash(kept, rng.choice((None, rng.randrange(200))), rng.random() < 0.3)
    world.off(pause_us, behind_us)
