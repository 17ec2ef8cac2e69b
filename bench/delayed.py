#!/usr/bin/env python3
"""What a delayed exchange takes: memory for many pending messages, the time of a restart, lateness.

    bench/delayed.py
    bench/delayed.py --pending 3000000 --hold 300 900 --check

1. fill: `--pending` persistent messages of 100 octets with random delays of `--hold` seconds, all confirmed; prints the
rate and the broker's memory. 2. kill -9 and restart; prints the time until the broker serves, and memory. 3. lateness
of `--rate` messages a second with random delays of 1 to 5 seconds, while the others are pending. 4. lateness of a
burst: `--burst` messages that are due at one instant. 5. with `--check`: consumes all pending messages and checks that
each arrives once, none before its time.

Lateness is the time at which the consumer has read a message, minus the time at which it was due. The publisher reads
the clock before it sends, so only a message that is early has a negative lateness.
"""

import argparse
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from leveret.testing.processes import LeveretProcess
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER, FrameReader, content_frames
from leveret.wire.method import decode_method, method_frame
from leveret.wire.properties import Properties, encode_header

BODY = 100
BATCH = 500
WINDOW = 50_000  # the most unconfirmed messages


class Connection:
    """A blocking connection with channel 1 open."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.reader = FrameReader(0)
        self.frames = self._frames()
        self.socket.sendall(PROTOCOL_HEADER)
        self.wait(grammar.CONNECTION_START)
        self.send(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US")
        self.wait(grammar.CONNECTION_TUNE)
        self.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
        self.send(0, grammar.CONNECTION_OPEN, virtual_host="/")
        self.wait(grammar.CONNECTION_OPEN_OK)
        self.call(grammar.CHANNEL_OPEN, grammar.CHANNEL_OPEN_OK)

    def send(self, channel: int, spec: grammar.MethodSpec, **values: object) -> None:
        self.socket.sendall(method_frame(channel, spec, **values))

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        while True:
            data = self.socket.recv(1 << 20)
            if not data:
                return
            self.reader.feed(data)
            while (frame := self.reader.next()) is not None:
                yield frame.kind, frame.payload

    def wait(self, spec: grammar.MethodSpec) -> None:
        for kind, payload in self.frames:
            if kind == 1 and decode_method(payload).spec is spec:
                return
        raise SystemExit(f"the broker closed the connection before {spec.name}")

    def call(self, spec: grammar.MethodSpec, answer: grammar.MethodSpec, **values: object) -> None:
        self.send(1, spec, **values)
        self.wait(answer)


def declare(port: int, name: str) -> None:
    """Declare a delayed exchange and a queue bound to it."""
    connection = Connection(port)
    arguments = {"x-delayed-type": "direct"}
    connection.call(
        grammar.EXCHANGE_DECLARE, grammar.EXCHANGE_DECLARE_OK,
        exchange=name, type="x-delayed-message", durable=True, arguments=arguments,
    )  # fmt: skip
    connection.call(grammar.QUEUE_DECLARE, grammar.QUEUE_DECLARE_OK, queue=name, durable=True)
    connection.call(grammar.QUEUE_BIND, grammar.QUEUE_BIND_OK, queue=name, exchange=name, routing_key=name)
    connection.socket.close()


class Publisher:
    """Publishes with confirms; frames are made from a template."""

    def __init__(self, port: int, name: str) -> None:
        self.connection = Connection(port)
        self.connection.call(grammar.CONFIRM_SELECT, grammar.CONFIRM_SELECT_OK)
        method = method_frame(1, grammar.BASIC_PUBLISH, exchange=name, routing_key=name)
        properties = Properties(headers={"x-delay": 1 << 30}, delivery_mode=2)
        frames = content_frames(1, encode_header(properties, BODY), bytes(BODY), 131072)
        head, tail = frames.split(b"I" + struct.pack(">i", 1 << 30))
        self._head = method + head + b"I"
        self._tail = tail[: -BODY - 1]
        self.published = 0
        self.confirmed = 0
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for kind, payload in self.connection.frames:
            if kind == 1:
                method = decode_method(payload)
                if method.spec is not grammar.BASIC_ACK:
                    return  # the broker closed the connection
                with self._news:
                    tag, multiple = struct.unpack_from(">QB", payload, 4)
                    self.confirmed = tag if multiple else self.confirmed + 1
                    self._news.notify()

    def publish(self, delays_ms: list[int], first: int) -> None:
        """Publish messages whose bodies begin with the message's number and its due time in microseconds."""
        now_us = time.time_ns() // 1000
        padding = bytes(BODY - 16) + b"\xce"
        parts = []
        for number, delay_ms in enumerate(delays_ms, first):
            due_us = now_us + delay_ms * 1000
            body = struct.pack(">qq", number, due_us) + padding
            parts.append(self._head + struct.pack(">i", delay_ms) + self._tail + body)
        self.connection.socket.sendall(b"".join(parts))
        self.published += len(delays_ms)
        self.wait(WINDOW)

    def wait(self, open_max: int = 0) -> None:
        with self._news:
            self._news.wait_for(lambda: self.published - self.confirmed <= open_max)


class Consumer:
    """Reads deliveries in a thread of its own."""

    def __init__(self, port: int, name: str, expected: int) -> None:
        self.connection = Connection(port)
        self.connection.call(grammar.BASIC_CONSUME, grammar.BASIC_CONSUME_OK, queue=name, no_ack=True)
        self.expected = expected
        self.late_us: list[int] = []  # lateness of each delivery, in order of arrival
        self.numbers: list[int] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for kind, payload in self.connection.frames:
            if kind == 3:
                number, due_us = struct.unpack_from(">qq", payload)
                self.numbers.append(number)
                self.late_us.append(time.time_ns() // 1000 - due_us)
                if len(self.numbers) == self.expected:
                    return

    def report(self, what: str) -> None:
        self._thread.join()
        late = sorted(self.late_us)
        p50, p99 = (late[int(len(late) * part)] / 1000 for part in (0.5, 0.99))
        print(f"{what}: {len(late):,} messages, lateness in ms: least {late[0] / 1000:.2f}, p50 {p50:.2f}, "
              f"p99 {p99:.2f}, most {late[-1] / 1000:.2f}", flush=True)
        assert sorted(self.numbers) == list(range(self.expected)), "not each message once"
        assert late[0] >= 0, "a message came too early"
        self.connection.socket.close()


def memory(broker: LeveretProcess) -> str:
    """Return the broker's present and peak memory."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines())
    now, most = (int(fields[name].split()[0]) // 1024 for name in ("VmRSS", "VmHWM"))
    return f"memory {now} MiB, at most {most} MiB"


def processor_s(broker: LeveretProcess) -> float:
    """Return the processor time of the broker's process."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(broker: LeveretProcess, count: int, hold: tuple[float, float]) -> None:
    declare(broker.port, "pending")
    print(f"before: {memory(broker)}", flush=True)
    publisher = Publisher(broker.port, "pending")
    shortest, longest = (int(seconds * 1000) for seconds in hold)
    start = time.perf_counter()
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        publisher.publish([random.randint(shortest, longest) for _ in range(size)], first)
    publisher.wait()
    rate = count / (time.perf_counter() - start)
    print(f"fill: {count:,} messages pending, {rate:,.0f}/s confirmed, {memory(broker)}", flush=True)
    publisher.connection.socket.close()


def restart(broker: LeveretProcess) -> None:
    broker.kill()
    start = time.perf_counter()
    broker.start()
    took = f"{time.perf_counter() - start:.2f} s, {processor_s(broker):.2f} s of processor time"
    print(f"restart after kill -9: {took}, {memory(broker)}", flush=True)


def steady(broker: LeveretProcess, rate: int, seconds: float) -> None:
    declare(broker.port, "steady")
    count = int(rate * seconds)
    consumer = Consumer(broker.port, "steady", count)
    publisher = Publisher(broker.port, "steady")
    start = time.perf_counter()
    step = max(1, rate // 100)
    for first in range(0, count, step):
        time.sleep(max(0, start + first / rate - time.perf_counter()))
        publisher.publish([random.randint(1000, 5000) for _ in range(min(step, count - first))], first)
    consumer.report(f"steady, {rate:,}/s")


def burst(broker: LeveretProcess, count: int) -> None:
    declare(broker.port, "burst")
    consumer = Consumer(broker.port, "burst", count)
    publisher = Publisher(broker.port, "burst")
    due_s = time.time() + 5 + count / 30_000
    for first in range(0, count, BATCH):
        delay_ms = int((due_s - time.time()) * 1000)
        publisher.publish([delay_ms] * min(BATCH, count - first), first)
    publisher.wait()
    print(f"burst: the last one was confirmed {due_s - time.time():.1f} s before it is due", flush=True)
    consumer.report("burst")
    print(f"afterwards: {memory(broker)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pending", type=int, default=300_000)
    parser.add_argument("--hold", type=float, nargs=2, default=(3600, 7200), help="least and longest delay, in seconds")
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--burst", type=int, default=100_000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with LeveretProcess() as broker:
        broker.start_timeout_s = 120.0
        fill(broker, options.pending, options.hold)
        restart(broker)
        if options.seconds:
            steady(broker, options.rate, options.seconds)
        if options.burst:
            burst(broker, options.burst)
        if options.check:
            Consumer(broker.port, "pending", options.pending).report("pending")
            print(f"afterwards: {memory(broker)}", flush=True)


if __name__ == "__main__":
    main()
