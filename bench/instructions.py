#!/usr/bin/env python3
"""Has a message become more expensive? Instructions of the core per message, counted by callgrind, against a baseline.

    bench/instructions.py          counts them
    bench/instructions.py gate     `make instructions`: exit status 1 where a load costs 3 % more than its baseline
    bench/instructions.py renew    writes the baseline of this compiler and Python into bench/instructions.json

A broker without sockets, disk or clock (tests/unit/support.py) is fed recorded octets in one process under valgrind. A
load is warmed up, then carried out for N turns and for 2 N; the difference counts, which excludes one-time costs.
Messages, names and random octets are the same in every run, as are hashes (PYTHONHASHSEED=0), the environment and the
addresses of memory (setarch -R): two runs in an unchanged tree give exactly the same counts. In another directory the
objects have other addresses, and the same work takes up to 5 % more or less; so each load is carried out by PROCESSES
processes, whose memory begins at different addresses, with LAYOUTS different heaps each. The lowest count is used.

Not included are system calls, the event loop, the sync thread, and the effects of the processor's caches and branch
prediction.

It takes about a minute. Needs valgrind, and the compiled core: LEVERET_CORE=compiled insists on it. Figures of
another compiler or Python cannot be compared: the gate then shows them and says how to make their baseline.
"""

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count as count_from
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from tests.unit.support import Bench, Client  # noqa: E402

import leveret  # noqa: E402
from leveret.broker.peer import Peer  # noqa: E402
from leveret.wire import frames as compiled_module  # noqa: E402
from leveret.wire import grammar  # noqa: E402
from leveret.wire.frames import FRAME_HEADER, PROTOCOL_HEADER, content_frames  # noqa: E402
from leveret.wire.method import method_frame  # noqa: E402
from leveret.wire.properties import Properties, decode_header, encode_header  # noqa: E402

BASELINE = TOP / "bench" / "instructions.json"
LIMIT = 0.03
LAYOUTS = 2
PROCESSES = 8
MARK = "getpriority"
"""A function of the C library at whose calls callgrind writes its counts; nothing else calls it."""
PERSISTENT = 2
ALIKE = 500
"""Messages of a turn that differ in their bodies only."""
MIXED = 1000
MIXED_PER_TURN = 50
CYCLE = MIXED // MIXED_PER_TURN
"""Turns until messages repeat."""
ACK_EVERY = 50
WINDOW = 50
CLIENT_PROPERTIES = {
    "product": "a client", "version": "1.0", "platform": "Linux", "information": "its licence",
    "capabilities": {"consumer_cancel_notify": True, "connection.blocked": True, "basic.nack": True},
}  # fmt: skip
EVERY_SHOP = [f"shop{number:02}.{pattern}" for number in range(20) for pattern in ("paid.*", "open.#", "lost.*")]
Turn = Callable[[], None]


class CannotCount(Exception):
    """valgrind is missing or cannot run this Python, or the core is not compiled."""


class Load(NamedTuple):
    prepare: Callable[[], tuple[Bench, Turn]]  # returns a broker and the function that runs one turn
    per_turn: int  # messages
    turns: int  # in the shorter of the two lengths
    meaning: str


# -- the broker's environment ----------------------------------------------------------------------------------------


def flush(bench: Bench) -> None:
    """Take the output of the connections at the end of a turn, and discard it."""
    dirty, bench.broker.dirty = bench.broker.dirty, []
    synced = bench.broker.log.synced
    for connection in dirty:
        connection.take(synced)


def commit(bench: Bench) -> None:
    """Mark one batch of the journal as synced, at no cost."""
    log = bench.broker.log
    batch = log.batch
    log.close_batch()
    log.on_disk(batch)


def frames(key: str, body: bytes, exchange: str = "", **properties: object) -> bytes:
    """Return the frames of a publish."""
    header = encode_header(Properties(**properties), len(body))  # type: ignore[arg-type]
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)
    return method + content_frames(1, header, body, 131072)


def alike(count: int, **properties: object) -> bytes:
    return b"".join(frames("q", b"%016d" % number, **properties) for number in range(count))


def mixed(delivery_mode: int | None) -> list[bytes]:
    """Return turns of messages that differ in key, id, time, headers and size, like those of amqpload -mixed."""
    found = []
    for number in range(MIXED):
        state = "paid" if number % 3 else "open"
        headers = {"traceparent": f"00-{number * 2654435761:032x}-01", "tenant": "default" if number % 5 else "eu-west"}
        found.append(
            frames(
                f"shop{number * 7 % 20:02}.{state}.order{number:03}", b"m" * (50 << number * 31 % 20 // 3), "mixed",
                content_type="application/json", delivery_mode=delivery_mode, headers=headers,
                message_id=f"6f9619ff-8b86-d011-b42d-{number:012}", timestamp=1_700_000_000 + number, type=state,
            )
        )  # fmt: skip
    return [b"".join(found[at : at + MIXED_PER_TURN]) for at in range(0, MIXED, MIXED_PER_TURN)]


def acks() -> Iterator[bytes]:
    """Yield an acknowledgement for every 50 messages (multiple=True)."""
    tag = 0
    while True:
        tag += ACK_EVERY
        yield method_frame(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=True)


def connected(*, durable: bool, bindings: Sequence[str] = ()) -> tuple[Bench, Client, Client]:
    """Return a broker with the queue q, a publisher and a consumer; with confirms and prefetch if it is durable.

    `bindings` are the keys that bind q to a topic exchange.
    """
    bench = Bench()
    publisher, consumer = bench.connect(), bench.connect()
    consumer.queue("q", durable=durable)
    if bindings:
        consumer.call(1, grammar.EXCHANGE_DECLARE, exchange="mixed", type="topic", durable=durable)
    for key in bindings:
        consumer.call(1, grammar.QUEUE_BIND, queue="q", exchange="mixed", routing_key=key)
    if durable:
        publisher.call(1, grammar.CONFIRM_SELECT)
        consumer.call(1, grammar.BASIC_QOS, prefetch_count=ALIKE)
    consumer.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=not durable)
    return bench, publisher, consumer


# -- the loads --------------------------------------------------------------------------------------------------------


def routed(turns: list[bytes]) -> tuple[Bench, Turn]:
    """Route by EVERY_SHOP; bindings change in each turn, which empties the router's cache."""
    bench, publish = transient(turns, *EVERY_SHOP)
    other = bench.connect()
    change = b"".join(
        method_frame(1, method, queue="q", exchange="mixed", routing_key="another")
        for method in (grammar.QUEUE_BIND, grammar.QUEUE_UNBIND)
    )

    def turn() -> None:
        other.peer.turn(change, bench.now_us)
        publish()

    return bench, turn


def transient(turns: list[bytes], *bindings: str) -> tuple[Bench, Turn]:
    bench, publisher, _ = connected(durable=False, bindings=bindings)
    data = cycle(turns)

    def turn() -> None:
        publisher.peer.turn(next(data), bench.now_us)
        flush(bench)

    return bench, turn


def persistent(turns: list[bytes], per_turn: int, *bindings: str) -> tuple[Bench, Turn]:
    bench, publisher, consumer = connected(durable=True, bindings=bindings)
    data, acknowledged = cycle(turns), acks()

    def turn() -> None:
        publisher.peer.turn(next(data), bench.now_us)
        flush(bench)
        commit(bench)  # releases the confirms
        flush(bench)
        consumer.peer.turn(b"".join(islice(acknowledged, per_turn // ACK_EVERY)), bench.now_us)
        flush(bench)
        commit(bench)

    return bench, turn


def prefetched() -> tuple[Bench, Turn]:
    """A consumer with a prefetch limit of WINDOW messages, which acknowledges each one separately."""
    bench, publisher, _ = connected(durable=False)
    consumer = bench.connect()
    consumer.queue("work")
    consumer.call(1, grammar.BASIC_QOS, prefetch_count=WINDOW)
    consumer.call(1, grammar.BASIC_CONSUME, queue="work", consumer_tag="w")
    published = b"".join(frames("work", b"%016d" % number) for number in range(2 * WINDOW))
    acknowledged = count_from(1)

    def turn() -> None:
        publisher.peer.turn(published, bench.now_us)
        flush(bench)
        for _ in range(2):
            tags = islice(acknowledged, WINDOW)
            settled = b"".join(method_frame(1, grammar.BASIC_ACK, delivery_tag=tag) for tag in tags)
            consumer.peer.turn(settled, bench.now_us)
            flush(bench)

    return bench, turn


def replies() -> tuple[Bench, Turn]:
    """Requests with direct reply-to, WINDOW of them outstanding, and their replies."""
    bench, requester, responder = connected(durable=False)
    requester.call(1, grammar.BASIC_CONSUME, queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=True)
    request = b"".join(
        frames("q", b"x" * 16, reply_to="amq.rabbitmq.reply-to", correlation_id=str(number)) for number in range(WINDOW)
    )
    requester.raw(request)
    header = next(frame for frame in responder.frames() if frame.kind == FRAME_HEADER)
    address = decode_header(header.payload)[0].reply_to or ""
    reply = b"".join(frames(address, b"y" * 16, correlation_id=str(number)) for number in range(WINDOW))
    responder.raw(reply)
    if len(requester.bodies()) != WINDOW:
        raise CannotCount(f"the replies to {address!r} did not arrive")

    def turn() -> None:
        requester.peer.turn(request, bench.now_us)
        flush(bench)
        responder.peer.turn(reply, bench.now_us)
        flush(bench)

    return bench, turn


def reply_queues() -> tuple[Bench, Turn]:
    """Requests with a reply queue each, which is declared, consumed from and deleted, as in amqpload."""
    bench, requester, responder = connected(durable=False)
    client = requester.peer
    client.hears_cancel = True
    before = [
        method_frame(1, grammar.QUEUE_DECLARE, queue="reply", exclusive=True),
        method_frame(1, grammar.BASIC_CONSUME, queue="reply", no_ack=True),
        frames("q", b"x" * 16, reply_to="reply", correlation_id="0"),
    ]
    reply = frames("reply", b"y" * 16, correlation_id="0")
    after = method_frame(1, grammar.QUEUE_DELETE, queue="reply")

    def turn() -> None:
        for said in before:
            client.turn(said, bench.now_us)
            flush(bench)
        responder.peer.turn(reply, bench.now_us)
        flush(bench)
        client.turn(after, bench.now_us)
        flush(bench)

    return bench, turn


def logins() -> tuple[Bench, Turn]:
    """Connections that log in, open a channel, and close."""
    bench, _, _ = connected(durable=False)
    said = [
        PROTOCOL_HEADER,
        method_frame(
            0, grammar.CONNECTION_START_OK, client_properties=CLIENT_PROPERTIES, mechanism="PLAIN",
            response=b"\0guest\0guest", locale="en_US",
        ),
        method_frame(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072, heartbeat=60)
        + method_frame(0, grammar.CONNECTION_OPEN, virtual_host="/"),
        method_frame(1, grammar.CHANNEL_OPEN),
    ]  # fmt: skip

    def turn() -> None:
        peer = Peer(bench.broker, "127.0.0.1:50000", True)
        for words in said:
            peer.turn(words, bench.now_us)
            flush(bench)
        peer.lost(bench.now_us)

    return bench, turn


LOADS = {
    "t16": Load(lambda: transient([alike(ALIKE)]), ALIKE, 10, "runs of alike messages, transient"),
    "mixed": Load(lambda: transient(mixed(None), "#"), MIXED_PER_TURN, CYCLE, "no two alike, transient"),
    "topic-60": Load(lambda: routed(mixed(None)), MIXED_PER_TURN, CYCLE, "the same, by sixty patterns that change"),
    "acks-50": Load(prefetched, 2 * WINDOW, 5, "a prefetch of fifty, acknowledged one by one"),
    "p16-c1000": Load(
        lambda: persistent([alike(ALIKE, delivery_mode=PERSISTENT)], ALIKE), ALIKE, 10,
        "runs, persistent, confirmed, acknowledged",
    ),
    "mixed-c1000": Load(
        lambda: persistent(mixed(PERSISTENT), MIXED_PER_TURN, "#"), MIXED_PER_TURN, CYCLE,
        "no two alike, persistent, confirmed, acknowledged",
    ),
    "rpc-50": Load(replies, WINDOW, 10, "request and reply by direct reply-to"),
    "rpc-qpr": Load(reply_queues, 1, 50, "a reply queue for each request"),
    "connections": Load(logins, 1, 30, "from a protocol header to an open channel, and away"),
}  # fmt: skip


# -- counting ---------------------------------------------------------------------------------------------------------


def carry_out() -> None:
    """Run all loads under callgrind, with a mark before and after each of the two lengths."""
    gc.disable()  # as in the broker
    for load in LOADS.values():
        for layout in range(LAYOUTS):
            others = fragments(layout)
            bench, turn = load.prepare()
            for _ in range(load.turns):
                turn()
            gc.collect()
            os.getpriority(os.PRIO_PROCESS, 0)
            for length in (load.turns, 2 * load.turns):
                for _ in range(length):
                    turn()
                os.getpriority(os.PRIO_PROCESS, 0)
            check(bench)
            others.clear()


def fragments(layout: int) -> list[bytes]:
    """Leave gaps in the heap for small objects of every size; otherwise the cost of a message depends on how full a
    pool of Python's allocator happens to be."""
    others = [bytes(size) for _ in range(1000 + 97 * layout) for size in range(0, 480, 16)]
    del others[::2], others[::3]
    return others


def check(bench: Bench) -> None:
    """Check that everything was delivered to a consumer that still exists. Raises CannotCount otherwise."""
    queue = bench.connect().call(1, grammar.QUEUE_DECLARE, queue="q", passive=True)
    found = (queue.number("message_count"), queue.number("consumer_count"))
    if found != (0, 1):
        raise CannotCount(f"the load has gone wrong: {found[0]} messages and {found[1]} consumers are left")


def count() -> dict[str, float]:
    """Return the instructions per message of each load. Raises CannotCount."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CannotCount("valgrind is not installed: apt-get install valgrind")
    if leveret.core() != "compiled":
        raise CannotCount(f"only the compiled core is counted. {leveret.core_reason()}")
    with tempfile.TemporaryDirectory(prefix="instructions-") as directory, ThreadPoolExecutor(os.cpu_count()) as pool:
        # the first run writes bytecode, so that the others need not compile
        finished([sys.executable, __file__, "--carry-out"], 0)
        callgrind = [*without_randomisation(), valgrind, "--tool=callgrind", f"--dump-before={MARK}"]
        directories = [Path(directory, str(number)) for number in range(PROCESSES)]
        counted = list(pool.map(partial(count_in, callgrind), directories, range(PROCESSES)))
    return {name: min(costs[name] for costs in counted) for name in LOADS}


def count_in(callgrind: list[str], directory: Path, number: int) -> dict[str, float]:
    """Return the instructions per message of each load, as the process of this number counts them."""
    directory.mkdir()
    finished([*callgrind, f"--callgrind-out-file={directory}/out", sys.executable, __file__, "--carry-out"], number)
    totals = [total((directory / f"out.{part}").read_text()) for part in range(1, 3 * LAYOUTS * len(LOADS) + 1)]
    return {name: least(load, totals, at * LAYOUTS) for at, (name, load) in enumerate(LOADS.items())}


def finished(command: list[str], number: int) -> None:
    """Run a command. The number changes the addresses of what Python allocates as it starts. Raises CannotCount."""
    paths = [str(TOP / "src"), *(f"/nowhere/{'x' * (7 * place % 64)}" for place in range(number))]
    environment = {
        "PATH": os.defpath, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(paths), "LEVERET_CORE": "compiled",
        # buffers that grow are then moved by the kernel; else it depends on the heap whether they are copied
        "MALLOC_MMAP_THRESHOLD_": "16384",
    }  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotCount(f"{command[0]}: {done.stderr[-400:]}")


def without_randomisation() -> list[str]:
    """Return a command prefix that disables address randomisation; empty, with a note, if that is not permitted."""
    setarch = ["setarch", "-R"]
    if shutil.which("setarch") and not subprocess.run([*setarch, "true"], capture_output=True, check=False).returncode:
        return setarch
    print("addresses are random (setarch -R is not allowed here): figures vary by a few parts in 1000", file=sys.stderr)
    return []


def total(dump: str) -> int:
    """Return all instructions of a part that callgrind has written. Raises CannotCount if it has none."""
    for line in dump.splitlines():
        if line.startswith("totals:"):
            return int(line.split()[1])
    raise CannotCount("callgrind wrote no totals")


def least(load: Load, totals: Sequence[int], first: int) -> float:
    """Return the lowest result of all heap layouts: each has three of the `totals`, this load's from `first` on."""
    layouts = [totals[3 * at + 1 : 3 * at + 3] for at in range(first, first + LAYOUTS)]
    return min(per_message(load, *lengths) for lengths in layouts)


def per_message(load: Load, short: int, long: int) -> float:
    """Return the instructions per message, from those of N turns and of 2 N."""
    return (long - short) / (load.turns * load.per_turn)


# -- the gate ---------------------------------------------------------------------------------------------------------


def key() -> str:
    """Return what must be the same for figures to be comparable: compilers, Python, architecture."""
    compiler = compiled_by(Path(str(compiled_module.__file__)).read_bytes())
    python = f"{platform.python_implementation()} {platform.python_version()}, {platform.python_compiler()}"
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        python += ", optimised"
    return f"mypyc {importlib.metadata.version('mypy')}, {compiler} | {python} | {platform.machine()}"


def compiled_by(library: bytes) -> str:
    """Return the name and version of the C compiler that a library contains."""
    found = re.search(rb"GCC: \([^)]*\) [\d.]+|clang version [\d.]+", library)
    return found[0].decode() if found else "an unknown C compiler"


def dearer(was: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Return a line for each load that exceeds its limit."""
    return [
        f"{name}: {now[name]:,.1f} instead of {was[name]:,.1f} instructions, {now[name] / was[name] - 1:.1%} more;"
        f" allowed are {LIMIT:.0%}"
        for name in now
        if name in was and now[name] > was[name] * (1 + LIMIT)
    ]


def read_baselines() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    return found


def gate(now: Mapping[str, float]) -> None:
    """Exit with status 1 if a load has become more expensive."""
    was = read_baselines().get(key())
    if was is None:
        print(f"\nNothing to compare with: bench/instructions.json does not know {key()}")
        print("To add it: LEVERET_CORE=compiled .venv/bin/python bench/instructions.py renew, and commit the file")
        return
    if lines := dearer(was, now):
        print("", *lines, sep="\n")
        sys.exit("Dearer than the baseline. Find out why; or, if it is meant to be so: bench/instructions.py renew")


def renew(now: Mapping[str, float]) -> None:
    baselines = read_baselines() | {key(): {name: round(value, 1) for name, value in now.items()}}
    BASELINE.write_text(json.dumps(baselines, indent=2, sort_keys=True) + "\n")
    print(f"\nThe baseline of {key()} is new: commit {BASELINE.relative_to(TOP)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["count", "gate", "renew"], default="count")
    parser.add_argument("--carry-out", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.carry_out:
        carry_out()
        return
    try:
        found = count()
    except CannotCount as error:
        sys.exit(str(error))
    was = read_baselines().get(key(), {})
    for name, value in found.items():
        change = f"{value / was[name] - 1:+7.1%}" if name in was else ""
        print(f"{name:14} {value:10,.1f} {change:>8}  {LOADS[name].meaning}")
    if options.what == "gate":
        gate(found)
    elif options.what == "renew":
        renew(found)


if __name__ == "__main__":
    main()
