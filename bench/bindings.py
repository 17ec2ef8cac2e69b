#!/usr/bin/env python3
"""Many bindings on one topic exchange: the time to bind them, to route past them, and to delete their queue.

    bench/bindings.py
    bench/bindings.py --bindings 40000 --brokers rabbitmq,leveret --rounds 2

The brokers take turns. Each is measured twice, with a transient exchange and queue and with durable ones:

- bind: --bindings patterns ("a.<number>.*") to one queue, up to --window of them unanswered, in four equal parts. The
  four figures should be about equal: binding must not slow down as bindings accumulate.
- one by one: 500 more bindings, each awaited before the next.
- route: --messages with as many different routing keys, confirmed; each matches one of all the patterns.
- mixed: 1,000 times a binding, a message and its confirm, so that a broker's cache of routes does not help.
- again: the messages of "route" once more.
- delete: deletes the queue with all its bindings, until the answer arrives.

Prints medians over the rounds in seconds, and the ratio to the first broker. All brokers are driven through the same
sockets and the frames of leveret.wire. Compare ratios within one run, not figures across runs.
"""

import argparse
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from leveret.testing.processes import ProcessFailed
from leveret.wire import grammar
from leveret.wire.frames import FRAME_METHOD, PROTOCOL_HEADER, FrameReader, content_frames
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import Properties, encode_header
from run import available, positive, servers

NAME = "bench.bindings"
CHOICES = ("rabbitmq", "leveret", "leveret-interpreted")
PARTS = 4
ALONE, MIXED = 500, 1000
HEADER = encode_header(Properties(delivery_mode=1), 1)
Seconds = dict[str, float]


class Link:
    """A blocking connection with channel 1 open, which sends methods and counts their answers."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self.socket = socket.create_connection((address.hostname, address.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = FrameReader(0)
        self.tag = 0  # delivery tag of the last publish
        self.socket.sendall(PROTOCOL_HEADER)
        self.expect("connection.start")
        self.send(grammar.CONNECTION_START_OK, 0, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US")
        self.expect("connection.tune")
        self.send(grammar.CONNECTION_TUNE_OK, 0, channel_max=2047, frame_max=131072)
        self.send(grammar.CONNECTION_OPEN, 0, virtual_host="/")
        self.expect("connection.open-ok")
        self.call(grammar.CHANNEL_OPEN)

    def send(self, spec: grammar.MethodSpec, channel: int = 1, **values: object) -> None:
        self.socket.sendall(method_frame(channel, spec, **values))

    def methods(self) -> Iterator[Method]:
        """Yield the methods received, waiting for more."""
        while True:
            while (frame := self.reader.next()) is not None:
                if frame.kind == FRAME_METHOD:
                    yield decode_method(frame.payload)
            data = self.socket.recv(1 << 18)
            if not data:
                sys.exit("the broker closed the connection")
            self.reader.feed(data)

    def expect(self, name: str) -> Method:
        method = next(self.methods())
        if method.name != name:
            sys.exit(f"expected {name}, got {method}")
        return method

    def call(self, spec: grammar.MethodSpec, **values: object) -> Method:
        self.send(spec, **values)
        return self.expect(f"{spec.name}-ok")

    def bind(self, first: int, count: int, window: int) -> None:
        """Bind with up to `window` bindings unanswered."""
        for start in range(first, first + count, window):
            size = min(window, first + count - start)
            frames = [
                method_frame(1, grammar.QUEUE_BIND, queue=NAME, exchange=NAME, routing_key=f"a.{number}.*")
                for number in range(start, start + size)
            ]
            self.socket.sendall(b"".join(frames))
            for _ in range(size):
                self.expect("queue.bind-ok")

    def publish(self, first: int, count: int, bindings: int) -> bytes:
        """Return frames of messages with different routing keys, each of which matches one of the `bindings`."""
        content = content_frames(1, HEADER, b"x", 4096)
        frames: list[bytes] = []
        for number in range(first, first + count):
            key = f"a.{number % bindings}.{number}"
            frames.append(method_frame(1, grammar.BASIC_PUBLISH, exchange=NAME, routing_key=key))
            frames.append(content)
        return b"".join(frames)

    def confirmed(self, data: bytes, count: int) -> None:
        """Publish and wait until each message is confirmed."""
        open_tags = set(range(self.tag + 1, self.tag + count + 1))
        self.tag += count
        self.socket.sendall(data)
        while open_tags:
            ack = self.expect("basic.ack")
            tag = ack.number("delivery_tag")
            if ack.flag("multiple"):
                open_tags = {each for each in open_tags if each > tag}
            else:
                open_tags.discard(tag)


def measure(url: str, options: argparse.Namespace, durable: bool) -> Seconds:
    """Run all measurements once on one broker."""
    link = Link(url)
    link.call(grammar.EXCHANGE_DECLARE, exchange=NAME, type="topic", durable=durable)
    link.call(grammar.QUEUE_DECLARE, queue=NAME, durable=durable)
    seconds: Seconds = {}
    started_s = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal started_s
        now_s = time.perf_counter()
        seconds[name] = now_s - started_s
        started_s = now_s

    part = options.bindings // PARTS
    for number in range(PARTS):
        link.bind(number * part, part, options.window)
        lap(f"bind {number + 1}/{PARTS}")
    link.bind(options.bindings, ALONE, 1)
    lap(f"one by one, {ALONE}")
    link.call(grammar.CONFIRM_SELECT)
    batch = link.publish(0, options.messages, options.bindings)
    started_s = time.perf_counter()
    link.confirmed(batch, options.messages)
    lap("route")
    for number in range(MIXED):
        link.bind(options.bindings + ALONE + number, 1, 1)
        link.confirmed(link.publish(number, 1, options.bindings), 1)
    lap(f"mixed, {MIXED}")
    link.confirmed(batch, options.messages)
    lap("again")
    count = link.call(grammar.QUEUE_DELETE, queue=NAME).number("message_count")
    lap("delete")
    if count != 2 * options.messages + MIXED:
        sys.exit(f"{count} messages are in the queue")
    link.call(grammar.EXCHANGE_DELETE, exchange=NAME, if_unused=True)
    link.socket.close()
    return seconds


def report(rows: dict[str, list[Seconds]]) -> str:
    """Return a Markdown table: a line per figure, a column per broker, ratios to the first broker."""
    names = list(rows)
    lines = [f"{'':28}" + "".join(f"{name:>22}" for name in names)]
    for figure in rows[names[0]][0]:
        medians = [statistics.median(row[figure] for row in rows[name]) for name in names]
        cells = [f"{median:12.3f} s" + (f" x{median / medians[0]:6.2f}" if at else " " * 8)
                 for at, median in enumerate(medians)]
        lines.append(f"{figure:28}" + "".join(cells))
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = [name for name in available() if name in ("rabbitmq", "leveret")]
    brokers = f"comma separated, of {', '.join(CHOICES)}; the first is the base (default: {','.join(here)})"
    parser.add_argument("--brokers", type=lambda names: names.split(","), default=here, help=brokers)
    parser.add_argument("--bindings", type=positive, default=40000, help="on the exchange (default: 40000)")
    parser.add_argument("--messages", type=positive, default=20000, help="with different keys (default: 20000)")
    parser.add_argument("--window", type=positive, default=1000, help="unanswered bindings at most (default: 1000)")
    parser.add_argument("--rounds", type=positive, default=1, help="how often each broker has its turn (default: 1)")
    options = parser.parse_args()
    if unknown := set(options.brokers) - set(CHOICES):
        parser.error(f"unknown brokers: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = arguments()
    try:
        with servers(options.brokers) as brokers:
            for durable in (False, True):
                rows: dict[str, list[Seconds]] = {name: [] for name in options.brokers}
                for _ in range(options.rounds):
                    for name, broker in brokers.items():
                        rows[name].append(measure(broker.url, options, durable))
                print(f"\n{'durable' if durable else 'transient'}, {options.bindings} bindings")
                print(report(rows), flush=True)
    except ProcessFailed as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
