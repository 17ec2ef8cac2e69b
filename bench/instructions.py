#!/usr/bin/env python3
"""Instructions of the core per message, counted by callgrind: almost the same in every run, however busy the machine.

    tools/with_core.py compiled .venv/bin/python bench/instructions.py

A broker without sockets, disk or clock (tests/unit/support.py) is fed recorded bytes in a process under valgrind. Each
load is warmed up, then carried out for N turns and for 2 N; what counts is the difference, so what begins and ends once
drops out. Messages, names and random octets are the same in every run. What is not in it: system calls, the event loop,
the sync thread, and what a processor's caches and predictions make of the instructions.

It takes about half a minute. Needs valgrind; the figures are those of one build of Python, mypyc and the C library.
"""

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from tests.unit.support import Bench, Client  # noqa: E402

from leveret.broker.peer import Peer  # noqa: E402
from leveret.wire import grammar  # noqa: E402
from leveret.wire.frames import FRAME_HEADER, PROTOCOL_HEADER, content_frames  # noqa: E402
from leveret.wire.method import method_frame  # noqa: E402
from leveret.wire.properties import Properties, decode_header, encode_header  # noqa: E402

MARK = "getpriority"
"""The C library's function at whose calls callgrind writes down what it has counted; nothing else calls it."""
PERSISTENT = 2
ALIKE = 500
"""Messages of a turn that differ in nothing but their bodies."""
MIXED = 1000
MIXED_PER_TURN = 50
ACK_EVERY = 50
WINDOW = 50
CLIENT_PROPERTIES = {
    "product": "a client", "version": "1.0", "platform": "Linux", "information": "its licence",
    "capabilities": {"consumer_cancel_notify": True, "connection.blocked": True, "basic.nack": True},
}  # fmt: skip
Turn = Callable[[], None]


class CannotCount(Exception):
    """There is no valgrind, or it cannot run this Python."""


class Load(NamedTuple):
    """What is counted: what makes broker and turn, messages in a turn, and turns in the shorter of two lengths."""

    prepare: Callable[[], tuple[Bench, Turn]]
    per_turn: int
    turns: int
    meaning: str


# -- the broker's surroundings ----------------------------------------------------------------------------------------


def flush(bench: Bench) -> None:
    """What leaves when a turn ends; nobody reads it."""
    dirty, bench.broker.dirty = bench.broker.dirty, []
    synced = bench.broker.log.synced
    for connection in dirty:
        connection.take(synced)


def commit(bench: Bench) -> None:
    """One batch of the log reaches the disk, which has no cost of its own."""
    log = bench.broker.log
    batch = log.batch
    log.close_batch()
    log.on_disk(batch)


def frames(key: str, body: bytes, exchange: str = "", **properties: object) -> bytes:
    """A publish as it comes from a socket."""
    header = encode_header(Properties(**properties), len(body))  # type: ignore[arg-type]
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key)
    return method + content_frames(1, header, body, 131072)


def alike(count: int, **properties: object) -> bytes:
    return b"".join(frames("q", b"%016d" % number, **properties) for number in range(count))


def mixed(delivery_mode: int | None) -> list[bytes]:
    """Turns with messages that differ in key, id, time, headers and size, like those of amqpload -mixed."""
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
    """Acknowledgements of each 50th message and all before it."""
    tag = 0
    while True:
        tag += ACK_EVERY
        yield method_frame(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=True)


def connected(*, durable: bool, topic: bool = False) -> tuple[Bench, Client, Client]:
    """A broker with the queue q, a publisher and a consumer; with confirms and prefetch where it is durable."""
    bench = Bench()
    publisher, consumer = bench.connect(), bench.connect()
    consumer.queue("q", durable=durable)
    if topic:
        consumer.call(1, grammar.EXCHANGE_DECLARE, exchange="mixed", type="topic", durable=durable)
        consumer.call(1, grammar.QUEUE_BIND, queue="q", exchange="mixed", routing_key="#")
    if durable:
        publisher.call(1, grammar.CONFIRM_SELECT)
        consumer.call(1, grammar.BASIC_QOS, prefetch_count=ALIKE)
    consumer.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=not durable)
    return bench, publisher, consumer


# -- the loads --------------------------------------------------------------------------------------------------------


def transient(turns: list[bytes], *, topic: bool) -> tuple[Bench, Turn]:
    bench, publisher, _ = connected(durable=False, topic=topic)
    data = cycle(turns)

    def turn() -> None:
        publisher.peer.turn(next(data), bench.now_us)
        flush(bench)

    return bench, turn


def persistent(turns: list[bytes], per_turn: int, *, topic: bool) -> tuple[Bench, Turn]:
    bench, publisher, consumer = connected(durable=True, topic=topic)
    data, acknowledged = cycle(turns), acks()

    def turn() -> None:
        publisher.peer.turn(next(data), bench.now_us)
        flush(bench)
        commit(bench)  # the confirms
        flush(bench)
        consumer.peer.turn(b"".join(islice(acknowledged, per_turn // ACK_EVERY)), bench.now_us)
        flush(bench)
        commit(bench)

    return bench, turn


def replies() -> tuple[Bench, Turn]:
    """Requests by direct reply-to, WINDOW of them outstanding, and their replies."""
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
    """Requests with a reply queue of their own each: declared, consumed from and deleted, as amqpload does it."""
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
    """Connections that log in, open a channel, and go."""
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
    "t16": Load(lambda: transient([alike(ALIKE)], topic=False), ALIKE, 20, "runs of alike messages, transient"),
    "mixed": Load(
        lambda: transient(mixed(None), topic=True), MIXED_PER_TURN, MIXED // MIXED_PER_TURN, "no two alike, transient"
    ),
    "p16-c1000": Load(
        lambda: persistent([alike(ALIKE, delivery_mode=PERSISTENT)], ALIKE, topic=False), ALIKE, 20,
        "runs, persistent, confirmed, acknowledged",
    ),
    "mixed-c1000": Load(
        lambda: persistent(mixed(PERSISTENT), MIXED_PER_TURN, topic=True), MIXED_PER_TURN, MIXED // MIXED_PER_TURN,
        "no two alike, persistent, confirmed, acknowledged",
    ),
    "rpc-50": Load(replies, WINDOW, 20, "request and reply by direct reply-to"),
    "rpc-qpr": Load(reply_queues, 1, 200, "a reply queue for each request"),
    "connections": Load(logins, 1, 100, "from a protocol header to an open channel, and away"),
}  # fmt: skip


# -- counting ---------------------------------------------------------------------------------------------------------


def carry_out() -> None:
    """All loads, within callgrind: a mark before and behind each of the two lengths."""
    for load in LOADS.values():
        bench, turn = load.prepare()
        lengths = (load.turns, 2 * load.turns)
        for _ in range(load.turns):
            turn()
        gc.collect()
        gc.disable()  # as in the broker
        os.getpriority(os.PRIO_PROCESS, 0)
        for length in lengths:
            for _ in range(length):
                turn()
            os.getpriority(os.PRIO_PROCESS, 0)
        check(bench)


def check(bench: Bench) -> None:
    """Everything was delivered, to a consumer that is still there. Raises CannotCount."""
    queue = bench.connect().call(1, grammar.QUEUE_DECLARE, queue="q", passive=True)
    found = (queue.number("message_count"), queue.number("consumer_count"))
    if found != (0, 1):
        raise CannotCount(f"the load has gone wrong: {found[0]} messages and {found[1]} consumers are left")


def count() -> dict[str, float]:
    """Instructions per message, by load. Raises CannotCount."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CannotCount("valgrind is not installed")
    with tempfile.TemporaryDirectory(prefix="instructions-") as directory:
        command = [valgrind, "--tool=callgrind", f"--dump-before={MARK}", f"--callgrind-out-file={directory}/out"]
        done = subprocess.run(
            [*command, sys.executable, __file__, "--carry-out"],
            env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise CannotCount(f"valgrind: {done.stderr[-400:]}")
        parts = [total(Path(directory, f"out.{part}").read_text()) for part in range(1, 3 * len(LOADS) + 1)]
    return {name: per_message(load, *parts[3 * at + 1 : 3 * at + 3]) for at, (name, load) in enumerate(LOADS.items())}


def total(dump: str) -> int:
    """All instructions of a part that callgrind has written. Raises CannotCount if it has none."""
    for line in dump.splitlines():
        if line.startswith("totals:"):
            return int(line.split()[1])
    raise CannotCount("callgrind wrote no totals")


def per_message(load: Load, short: int, long: int) -> float:
    """Of one message, from the instructions of N turns and of 2 N."""
    return (long - short) / (load.turns * load.per_turn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--carry-out", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    options = parser.parse_args()
    if options.carry_out:
        carry_out()
        return
    try:
        found = count()
    except CannotCount as error:
        sys.exit(str(error))
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:14} {value:10,.1f}  {LOADS[name].meaning}")


if __name__ == "__main__":
    main()
