"""A crash at every disk operation of short histories, with every sensible remainder of what was not synced.

Where batches overlap, every third operation is taken; LEVERET_SIM_BOUNDARIES=all (make soak) takes all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from leveret.store.disk import MemoryDisk
from leveret.store.format import BATCH_HEADER_SIZE, DATA_START
from leveret.store.journal import JournalFailed

from .world import STREAM_HITS, Crash, Operation, World

SUBSETS_OF_MAX = 4
STEP = 1 if os.environ.get("LEVERET_SIM_BOUNDARIES") == "all" else 3
# a few messages' batch fills a file
SMALL = DATA_START + 400
LARGE = 1 << 20

DELAY: list[Operation] = [
    ("declare", "level1"), ("declare", "level0"), ("declare", "work"), ("exchange", "in"), ("exchange", "down"),
    ("exchange", "out"), ("bind", "in", "slow", "level1"), ("bind", "down", "slow", "level0"),
    ("bind", "out", "slow", "work"),
]  # fmt: skip
DEATH: list[Operation] = [("declare", "work"), ("declare", "dead")]

# name -> (size of a journal file, operations)
HISTORIES: dict[str, tuple[int, list[Operation]]] = {
    "publish": (LARGE, [
        *DEATH, ("declare", "plain"), ("declare", "brief"), ("exchange", "in"), ("bind", "in", "all", "plain"),
        ("bind", "in", "all", "work"), ("publish", "in", "all"), ("publish", "in", "all", 4),
        ("publish", "", "plain", 2, False), ("publish", "", "brief"), ("publish", "", "nowhere"),
        ("publish", "in", "all", 2),
    ]),
    "consume": (LARGE, [
        ("declare", "plain"), ("publish", "", "plain", 4), ("consume", "a", "plain", False, 2), ("ack", "a"),
        ("nack", "a", -1), ("get", "b", "plain"), ("publish", "", "plain", 3), ("ack", "a", -1, True), ("lose", "a"),
        ("consume", "c", "plain", True), ("publish", "", "plain", 3), ("ack", "b"),
    ]),
    "dead letters": (LARGE, [
        *DEATH, ("declare", "brief"), ("declare", "lost"), ("publish", "", "work", 3), ("get", "a", "work"),
        ("reject", "a"), ("publish", "", "brief"), ("consume", "b", "dead"), ("time", 510_000),
        ("publish", "", "lost"), ("time", 310_000), ("get", "a", "work"), ("get", "a", "work"),
        ("reject", "a", -1, True), ("ack", "b", -1, True),
    ]),
    "delay": (LARGE, [
        *DELAY, ("publish", "in", "slow", 2), ("time", 700_000), ("publish", "in", "slow"), ("time", 1_400_000),
        ("publish", "", "work", 1, True, 5000), ("time", 1_100_000), ("get", "a", "work", True), ("time", 1_000_000),
    ]),
    "delete": (LARGE, [
        *DEATH, ("declare", "plain"), ("exchange", "in"), ("exchange", "fleeting"), ("bind", "in", "all", "plain"),
        ("bind", "fleeting", "all", "plain"), ("publish", "in", "all", 3), ("get", "a", "plain"), ("purge", "plain"),
        ("publish", "in", "all", 2), ("unbind", "in", "all", "plain"), ("publish", "", "plain"), ("delete", "plain"),
        ("ack", "a"), ("declare", "plain"), ("publish", "", "plain"), ("delete_exchange", "in"),
    ]),
    "files": (SMALL, [
        *DEATH, ("exchange", "in"), ("bind", "in", "all", "work"), ("publish", "in", "all", 5),
        ("publish", "", "dead"), ("consume", "a", "work", False, 3),
        ("publish", "in", "all", 5), ("ack", "a", -1, True), ("publish", "in", "all", 2), ("ack", "a", -1, True),
        ("get", "b", "dead", True), ("reject", "a", -1, True), ("publish", "", "work", 5), ("ack", "a", -1, True),
        ("publish", "", "work", 3), ("ack", "a", -1, True), ("publish", "", "dead", 5), ("publish", "", "dead"),
    ]),
    "stream": (LARGE, [
        ("declare", "log"), ("read", "r", "log", "first", 3), ("publish", "", "log", 2),
        ("publish", "", "log", 2, False), ("ack", "r", -1, True), ("publish", "", "log", 4),
        ("publish", "", "log", 5), ("read", "s", "log", 5, 2),
    ]),
    "stream deletion": (LARGE, [
        ("declare", "tape"), ("publish", "", "tape", 5), ("publish", "", "tape", 4), ("read", "r", "tape", "first", 8),
        ("delete", "tape"), ("declare", "tape"), ("publish", "", "tape", 4), ("read", "s", "tape", "first", 8),
    ]),
    "into a stream": (LARGE, [
        ("declare", "level0"), ("declare", "tape"), ("declare", "plain"), ("exchange", "out"), ("exchange", "in"),
        ("bind", "in", "fast", "level0"), ("bind", "out", "fast", "tape"), ("publish", "in", "fast", 3),
        ("publish", "in", "fast", 1, False), ("time", 1_100_000), ("publish", "", "tape", 2),
        ("read", "s", "tape", "first", 9),
    ]),
    "orderly stop": (SMALL, [
        ("declare", "plain"), ("publish", "", "plain", 5), ("get", "a", "plain"), ("nack", "a"),
        ("get", "a", "plain"), ("stop",), ("get", "a", "plain"), ("publish", "", "plain", 5), ("stop",),
        ("get", "a", "plain"),
    ]),
}  # fmt: skip

LONG_ONES = ("files", "orderly stop", "delay")
LONG = pytest.mark.needs("minutes")

AFTERWARDS: list[Operation] = [
    *DEATH, ("declare", "log"), ("read", "r", "log", "first", 9), ("publish", "", "log", 2), ("publish", "", "work", 2),
    ("time", 600_000), ("get", "a", "work"), ("reject", "a"),
    ("get", "b", "dead", True), ("publish", "", "dead"),
]  # fmt: skip


def play(world: World, history: list[Operation]) -> None:
    """Play a history; "stop" is an orderly stop."""
    world.start()
    life: list[Operation] = []
    for operation in history:
        if operation == ("stop",):
            world.run(life)
            world.stop()
            world.start()
            life = []
        else:
            life.append(operation)
    world.run(life)


def stopped_at(name: str, overlap: float, number: int) -> World | None:
    """Stop a history at this disk operation; return None if it has fewer."""
    size, history = HISTORIES[name]
    world = World(7, size, overlap)
    world.crash_at = number
    try:
        play(world, history)
    except Crash:
        world.crash_at = 0
        return world
    return None


def refused_at(name: str, number: int) -> World | None:
    """Let the disk refuse this operation of a history; return None if it has fewer."""
    size, history = HISTORIES[name]
    world = World(7, size, 0.0)
    world.fault_at = number
    try:
        play(world, history)
    except (Crash, OSError, JournalFailed):
        assert world.hits["fault"]
    world.fault_at = 0
    return world if world.hits["fault"] else None


def remainders(disk: MemoryDisk) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """Yield which pending operations a crash keeps: every prefix, every subset of few, the last write whole or torn."""
    count = len(disk.pending)
    kept = {tuple(range(size)) for size in range(count + 1)}
    if count <= SUBSETS_OF_MAX:
        kept |= {tuple(index for index in range(count) if bits >> index & 1) for bits in range(1 << count)}
    for indices in sorted(kept):
        yield indices, None
        writes = [disk.pending[index] for index in indices if disk.pending[index].kind == "write"]
        if writes:
            size = writes[-1].size
            for torn in sorted({0, 1, BATCH_HEADER_SIZE, BATCH_HEADER_SIZE + 6, size // 2, size - 1}):
                yield indices, torn


def go_on(world: World) -> None:
    """Check after a crash that the recovered state is allowed, that the broker works, and that it survives another
    power cut with the maximum loss."""
    world.start()
    world.run(AFTERWARDS)
    world.crash()
    world.start()


def cut_during_recovery(world: World) -> int:
    """Cut the power at each operation of the recovery; return how many there were."""
    number = 1
    while True:
        other = world.fork()
        other.crash_at = other.disk.operations + number
        try:
            other.start()
        except Crash:
            other.crash_at = 0
            other.crash()
            other.start()
            number += 1
        else:
            return number - 1


@pytest.mark.parametrize(
    "overlap", [0.0, pytest.param(0.4, marks=LONG)], ids=["one by one", "overlapping"]
)
@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG if name in LONG_ONES else ()) for name in HISTORIES])
def test_a_crash_at_every_disk_operation_loses_nothing_confirmed(name: str, overlap: float) -> None:
    hits: Counter[str] = Counter()
    number = tried = 0
    while (world := stopped_at(name, overlap, number + 1)) is not None:
        number += 1
        if overlap and number % STEP:
            continue
        tried += 1
        for kept, torn in remainders(world.disk):
            other = world.fork()
            other.crash(kept, torn, is_sized=torn is not None and torn % 2 == 0)
            go_on(other)
            hits += other.hits
            hits["torn"] += torn is not None
        killed = world.fork()
        killed.kill()
        hits["recovery"] += cut_during_recovery(killed)
        go_on(killed)
    print(f"{name}: {tried} of {number} operations, {dict(hits)}")
    assert tried > 3
    assert hits["torn"] > tried
    assert hits["recovery"] > tried
    if name in ("dead letters", "delay") and not overlap:
        assert hits["hop in flight"]
    if name == "files" and not overlap:
        assert hits["rotation"]
        assert hits["file removal"]
    if name == "stream" and not overlap:
        assert not [what for what in STREAM_HITS[:-1] if not hits[what]]
    if name == "stream deletion" and not overlap:
        assert hits["stream removal"]


@pytest.mark.parametrize("name", ["publish", "dead letters", pytest.param("files", marks=LONG), "stream"])
def test_a_disk_that_refuses_any_operation_loses_nothing_confirmed(name: str) -> None:
    """The process ends at a refusal. The kernel then only pretends to have written; that must be written again."""
    number = 1
    while (world := refused_at(name, number)) is not None:
        for is_killed in (True, False):
            other = world.fork()
            if is_killed:
                other.kill()
            else:
                other.crash()
            go_on(other)
        number += 1
    assert number > 10
