#!/usr/bin/env python3
"""The delay levels in figures: lateness and processor time on several brokers, and the cost of millions pending.

    bench/delay_levels.py                                    all parts, at a tenth of their size
    bench/delay_levels.py late --count 100000
    bench/delay_levels.py pending --pending 5000000 --brokers leveret

late: `--count` messages with random delays of 1 to 30 s, published at `--rate` a second, on each broker in turn, which
is otherwise idle. Prints messages that were early, lost or duplicated, lateness, and processor time of the broker per
message (amqpload delay).

pending: 1. fill: `--pending` persistent messages of 100 octets with random delays of `--hold` seconds, all confirmed;
prints rate and memory. 2. kill -9 and restart: prints the time until the broker serves, and memory. 3. burst: `--burst`
messages that fall due in the same second, while the others are pending; prints their lateness. 4. with `--check`:
consumes the others and checks that each arrives once, none before its time.

The levels are those of NServiceBus (28, of seconds, classic). Lateness is the time at which the consumer has read a
message, minus the time at which it was due; the publisher reads the clock before it sends.
"""

import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import time
from pathlib import Path

import leveret
from delayed import BATCH, BODY, Connection, Consumer, Publisher
from leveret.delay import NSERVICEBUS, ExchangeBinding, ExchangeDeclaration, QueueBinding, QueueDeclaration
from leveret.testing.processes import ServerProcess
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header
from run import WORK, build_tools, server

DESTINATION = "bench.delayed"
PARTS = ("late", "pending")


def declare(port: int) -> None:
    """Declare the levels, and a queue behind them."""
    connection = Connection(port)
    for one in NSERVICEBUS.topology():
        match one:
            case ExchangeDeclaration(name):
                ask, answer, values = grammar.EXCHANGE_DECLARE, grammar.EXCHANGE_DECLARE_OK, {
                    "exchange": name, "type": "topic", "durable": True}  # fmt: skip
            case QueueDeclaration(name, arguments):
                ask, answer, values = grammar.QUEUE_DECLARE, grammar.QUEUE_DECLARE_OK, {
                    "queue": name, "durable": True, "arguments": arguments}  # fmt: skip
            case QueueBinding(queue, exchange, key):
                ask, answer, values = grammar.QUEUE_BIND, grammar.QUEUE_BIND_OK, {
                    "queue": queue, "exchange": exchange, "routing_key": key}  # fmt: skip
            case ExchangeBinding(destination, source, key):
                ask, answer, values = grammar.EXCHANGE_BIND, grammar.EXCHANGE_BIND_OK, {
                    "destination": destination, "source": source, "routing_key": key}  # fmt: skip
        connection.call(ask, answer, **values)
    connection.socket.close()


def bind(port: int, name: str) -> None:
    connection = Connection(port)
    connection.call(grammar.QUEUE_DECLARE, grammar.QUEUE_DECLARE_OK, queue=name, durable=True)
    connection.call(
        grammar.QUEUE_BIND, grammar.QUEUE_BIND_OK,
        queue=name, exchange=NSERVICEBUS.delivery_exchange, routing_key=f"#.{name}",
    )  # fmt: skip
    connection.socket.close()


class LevelPublisher(Publisher):
    """Publishes to the levels with confirms; the frames before the body are encoded once for each delay."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self._name = name
        self._heads: dict[int, bytes] = {}

    def _head_of(self, delay_s: int) -> bytes:
        head = self._heads.get(delay_s)
        if head is None:
            exchange, key = NSERVICEBUS.route(delay_s, self._name)
            method = method_frame(1, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key, mandatory=True)
            frames = content_frames(1, encode_header(Properties(delivery_mode=2), BODY), bytes(BODY), 131072)
            head = self._heads[delay_s] = method + frames[: -BODY - 1]
        return head

    def publish(self, delays_s: list[int], first: int) -> None:
        """Publish messages whose bodies begin with the message's number and its due time in microseconds."""
        now_us = time.time_ns() // 1000
        padding = bytes(BODY - 16) + b"\xce"
        parts = []
        for number, delay_s in enumerate(delays_s, first):
            parts.append(self._head_of(delay_s) + struct.pack(">qq", number, now_us + delay_s * 1_000_000) + padding)
        self.connection.socket.sendall(b"".join(parts))
        self.published += len(delays_s)
        self.wait(20_000)


def processes(broker: ServerProcess) -> list[Path]:
    """Return the processes of the broker's group. RabbitMQ's node is a descendant of the process that was started."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # the process has ended
            if int(fields[2]) == broker.pid:
                found.append(directory)
    return found


def memory(broker: ServerProcess) -> str:
    """Return the present and the peak memory of all its processes."""
    now = most = 0
    for directory in processes(broker):
        fields = dict(line.split(":", 1) for line in (directory / "status").read_text().splitlines())
        now += int(fields.get("VmRSS", "0 kB").split()[0])
        most += int(fields.get("VmHWM", "0 kB").split()[0])
    return f"memory {now / 1024:.0f} MiB, at most {most / 1024:.0f} MiB"


def processor_s(broker: ServerProcess) -> float:
    """Return the processor time of all its processes."""
    ticks = 0
    for directory in processes(broker):
        fields = (directory / "stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def late(name: str, broker: ServerProcess, options: argparse.Namespace) -> None:
    where = ["-port", str(broker.port), "-pid", str(broker.pid), "-drain", "120"]
    how = ["-count", str(options.count), "-rate", str(options.rate), "-min-delay", "1", "-max-delay", "30"]
    done = subprocess.run([WORK / "amqpload", "delay", *where, *how], capture_output=True, text=True, check=False)
    try:
        row = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise SystemExit(f"{name}: amqpload failed: {done.stdout}{done.stderr}") from None
    lateness = row["lateness_ms"]
    print(
        f"{name}: {row['count']:,} messages, early {row['early']}, lost {row['lost']}, duplicates {row['duplicates']}; "
        f"lateness in ms: least {lateness['min']:.2f}, p50 {lateness['p50']:.2f}, p99 {lateness['p99']:.2f}, "
        f"most {lateness['max']:.2f}; CPU {row['broker_cpu_us_per_msg']:.0f} µs per message",
        flush=True,
    )


def pending(name: str, broker: ServerProcess, options: argparse.Namespace) -> None:
    declare(broker.port)
    for destination in (DESTINATION, DESTINATION + ".burst"):
        bind(broker.port, destination)
    print(f"{name}: before: {memory(broker)}", flush=True)
    fill(name, broker, options)
    broker.start_timeout_s = 600.0
    broker.kill()
    start = time.perf_counter()
    broker.start()
    took = f"{time.perf_counter() - start:.2f} s, {processor_s(broker):.2f} s of processor time"
    print(f"{name}: restart after kill -9: {took}, {memory(broker)}", flush=True)
    if options.burst:
        burst(name, broker, options.burst)
    if options.check:
        Consumer(broker.port, DESTINATION, options.pending).report(f"{name}: pending")
        print(f"{name}: afterwards: {memory(broker)}", flush=True)


def fill(name: str, broker: ServerProcess, options: argparse.Namespace) -> None:
    publisher = LevelPublisher(broker.port, DESTINATION)
    shortest, longest = options.hold
    start, computed_s = time.perf_counter(), processor_s(broker)
    for first in range(0, options.pending, BATCH):
        size = min(BATCH, options.pending - first)
        publisher.publish([random.randint(shortest, longest) for _ in range(size)], first)
    publisher.wait()
    rate = options.pending / (time.perf_counter() - start)
    cost_us = (processor_s(broker) - computed_s) * 1e6 / options.pending
    print(
        f"{name}: fill: {options.pending:,} messages pending, {rate:,.0f}/s confirmed, "
        f"CPU {cost_us:.0f} µs per message, {memory(broker)}",
        flush=True,
    )
    publisher.connection.socket.close()


def burst(name: str, broker: ServerProcess, count: int) -> None:
    """Publish messages, each with the whole seconds left until one instant: they fall due within a second after it."""
    destination = DESTINATION + ".burst"
    consumer = Consumer(broker.port, destination, count)
    publisher = LevelPublisher(broker.port, destination)
    computed_s = processor_s(broker)
    due_s = time.time() + 5 + count / 10_000
    for first in range(0, count, BATCH):
        delay_s = max(1, -int((time.time() - due_s) // 1))
        publisher.publish([delay_s] * min(BATCH, count - first), first)
    publisher.wait()
    print(f"{name}: burst: the last one was confirmed {due_s - time.time():.1f} s before it is due", flush=True)
    consumer.report(f"{name}: burst")
    cost_us = (processor_s(broker) - computed_s) * 1e6 / count
    print(f"{name}: burst: CPU {cost_us:.0f} µs per message, {memory(broker)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help="late, pending")
    parser.add_argument("--brokers", type=lambda text: text.split(","), default=["rabbitmq", "leveret"])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--pending", type=int, default=500_000)
    parser.add_argument("--hold", type=int, nargs=2, default=(3600, 7200), help="least and longest delay, in seconds")
    parser.add_argument("--burst", type=int, default=10_000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    build_tools()
    load = os.getloadavg()[0]
    print(f"core: {leveret.core()}, load {load:.2f}, {os.cpu_count()} processors", flush=True)
    for part in options.parts:
        for name in options.brokers:
            directory = WORK / "delay-levels" / name
            shutil.rmtree(directory, ignore_errors=True)
            with server(name, directory) as broker:
                (late if part == "late" else pending)(name, broker, options)
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
