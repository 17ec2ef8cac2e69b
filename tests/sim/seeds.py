"""One seed is one world: a few runs of random operations, each ended by an orderly stop, a crash or a disk fault."""

from __future__ import annotations

from collections.abc import Iterator

from leveret.store.format import DATA_START
from leveret.store.journal import JournalFailed

from .topology import BINDINGS, EXCHANGES, QUEUES, STREAMS
from .world import HITS, STREAM_HITS, Crash, Operation, World

CLIENTS = ("a", "b", "c")
# consumers of streams
READERS = ("r", "s")
# rare crash points
CRASHES_IN = (*HITS[:-1], *STREAM_HITS, "stream retention", "stream removal")
FILE_SIZES = (DATA_START + 900, DATA_START + 2100, 1 << 20)
# operation -> relative frequency
WEIGHTS = {
    "publish": 40, "time": 12, "ack": 16, "get": 8, "consume": 6, "reject": 7, "nack": 5, "purge": 2, "lose": 3,
    "declare": 4, "delete": 1, "bind": 1, "unbind": 1, "exchange": 1, "delete_exchange": 1,
    "read": 4, "ack read": 16, "append": 20, "delete stream": 4, "vhost": 1, "parameter": 2,
}  # fmt: skip
CONSUMERS_MAX = 3
VHOSTS = ("u", "v")


def operations(world: World, count: int) -> Iterator[Operation]:
    """Yield random operations, each valid at the moment when it is asked for."""
    yield ("setup",)
    if world.rng.random() < 0.5:
        # these queues are always empty, which lets journal files be removed
        for queue in QUEUES:
            if world.rng.random() < 0.9 and queue not in STREAMS:
                yield "consume", "c", queue, True
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    for _ in range(count):
        operation = _operation(world, world.rng.choices(names, weights)[0])
        if operation is not None:
            yield operation


def _operation(world: World, name: str) -> Operation | None:
    rng, model = world.rng, world.model
    queue = rng.choice(sorted(model.queues)) if model.queues else None
    streams, others = sorted(model.queues.keys() & STREAMS), sorted(model.queues.keys() - STREAMS)
    match name:
        case "publish":
            return _publish(world)
        case "time":
            return name, rng.randrange(10 ** rng.randrange(3, 7))
        case "ack" | "nack" | "reject":
            return name, rng.choice(CLIENTS), rng.randrange(-2, 2), rng.random() < 0.3
        case "ack read":
            return "ack", rng.choice(READERS), rng.randrange(-2, 2), rng.random() < 0.5
        case "lose":
            return name, rng.choice((*CLIENTS, *READERS, "publisher", "control"))
        case "read":
            return _read(world)
        case "append":
            return "publish", "", rng.choice(sorted(STREAMS)), rng.randrange(1, 7), rng.random() < 0.8
        case "delete stream":
            return ("delete", rng.choice(streams)) if streams else None
        case "declare":
            return name, rng.choice(list(QUEUES))
        case "exchange":
            return name, rng.choice(list(EXCHANGES))
        case "delete_exchange":
            exchange = rng.choice(sorted(model.exchanges))
            return (name, exchange) if exchange else None
        case "vhost":
            return name, rng.choice(VHOSTS)
        case "parameter":
            return name, rng.choice(("", *VHOSTS)), rng.choice("xy"), rng.choice(("", "1", "2"))
        case "bind" | "unbind":
            source, key, target = rng.choice(BINDINGS)
            return (name, source, key, target) if source in model.exchanges and target in model.queues else None
    if queue is None:
        return None
    if name != "delete":
        if not others:
            return None
        queue = rng.choice(others)
    match name:
        case "get":
            return name, rng.choice(CLIENTS), queue, rng.random() < 0.3
        case "consume":
            client = rng.choice(CLIENTS)
            if client in world.clients and len(world.clients[client].queues) >= CONSUMERS_MAX:
                return None
            return name, client, queue, rng.random() < 0.2, rng.randrange(4)
    return name, queue


def _read(world: World) -> Operation | None:
    rng, model = world.rng, world.model
    streams, client = sorted(STREAMS & model.queues.keys()), rng.choice(READERS)
    if not streams or (client in world.clients and len(world.clients[client].queues) >= CONSUMERS_MAX):
        return None
    stream = rng.choice(streams)
    end = model.queues[stream].end
    return "read", client, stream, rng.choice(("first", "next", rng.randrange(end + 5))), rng.randrange(1, 9)


def _publish(world: World) -> Operation:
    rng = world.rng
    ttl_ms = rng.choice((0, 200, 1500)) if rng.random() < 0.15 else None
    exchange, key = "in", rng.choice(("slow", "fast", "all"))
    if rng.random() < 0.4 or exchange not in world.model.exchanges:
        exchange, key = "", rng.choice((*QUEUES, "nowhere"))
    elif rng.random() < 0.1 and "fleeting" in world.model.exchanges:
        exchange = "fleeting"
    return "publish", exchange, key, rng.randrange(1, 7), rng.random() < 0.85, ttl_ms


def simulate(seed: int) -> World:
    """Simulate one seed; raise AssertionError if a run recovers to a state that the model does not allow."""
    world = World(seed)
    rng = world.rng
    world.file_size = rng.choice(FILE_SIZES)
    world.overlap = rng.choice((0.0, 0.3, 0.5, 0.8))
    world.ready_octets = rng.choice((600, 3000, 1 << 30))
    world.step_max = rng.choice((1, 1, 1, 2048))
    world.tail_octets = rng.choice((0, 0, 0, 500, 1 << 30))
    for _ in range(rng.randrange(2, 5)):
        _live(world)
        world.now_us += rng.randrange(10 ** rng.randrange(1, 8))
    world.start()
    world.run(operations(world, 10))
    return world


def _live(world: World) -> None:
    rng = world.rng
    first = world.disk.operations
    # the crash may come at once, while the journal is being read
    world.crash_at = first + rng.randrange(1, 10 ** rng.randrange(1, 3)) if rng.random() < 0.6 else 0
    world.crash_in = rng.choice(CRASHES_IN) if not world.crash_at and rng.random() < 0.7 else ""
    world.fault_at = first + rng.randrange(1, 30) if rng.random() < 0.1 else 0
    try:
        world.start()
        world.run(operations(world, rng.randrange(5, 60)))
        if rng.random() < 0.5:
            world.stop()
    except Crash:
        pass
    except (OSError, JournalFailed):
        assert first < world.fault_at <= world.disk.operations
    world.crash_at, world.crash_in, world.fault_at = 0, "", 0
    if rng.random() < 0.2:
        world.kill()
        return
    pending = world.disk.pending
    kept = set(range(rng.randrange(len(pending) + 1)))
    if rng.random() < 0.5:
        kept = {index for index in range(len(pending)) if rng.random() < 0.5}
    world.crash(kept, rng.choice((None, rng.randrange(200))), rng.random() < 0.3)
