#!/usr/bin/env python3
"""One federation link: messages per second, many bindings over a long line, catching up after a partition.

    bench/federation.py
    bench/federation.py --only throughput --rounds 5
    bench/federation.py --pairs leveret --only bindings,catch-up

A pair is two brokers of one kind with a link between them (ack-mode on-confirm, prefetch 1,000), both on the disk of
this directory: leveret -> leveret (the compiled core, if available), RabbitMQ -> RabbitMQ with its federation plugin,
and leveret-interpreted. The pairs take turns.

- throughput: persistent messages of --size octets to a topic exchange upstream, --window of them unconfirmed, and a
  consumer of a durable queue downstream that acknowledges; messages delivered per second while the publisher runs. CPU
  µs: processor time of each broker per message, including the work for its own client.
- bindings: --bindings keys are bound downstream, then the link is created over a line with --round-trip-ms; seconds
  until a message with each of some 200 keys, spread over all, arrives downstream. After that a message with every one
  of the keys must arrive. Then as many keys again are bound while the link runs, timed from the request. RabbitMQ binds
  one after another, so it gets only --rabbitmq-bindings, and its time is scaled up to --bindings.
- catch-up: the line is cut for --partition-s seconds, while --buffered messages are published upstream; then it is
  restored. Seconds until the last of them was consumed downstream, including reconnection, messages per second, and the
  memory of both brokers. RabbitMQ gets --rabbitmq-buffered messages.

Prints one table. Compare ratios within one run, not figures across runs.
"""

import argparse
import base64
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import leveret
from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.testing.processes import LeveretProcess, ProcessFailed, RabbitMQProcess, ServerProcess, free_port
from run import HERE, WORK, build_tools, positive

EXCHANGE = "fed.bench"
QUEUE = "bench"
PARTS = ("throughput", "bindings", "catch-up")
PAIRS = ("rabbitmq", "leveret", "leveret-interpreted")
PLUGINS = ("rabbitmq_management", "rabbitmq_federation", "rabbitmq_federation_management")
PERSISTENT = Properties(delivery_mode=2)
SAMPLE = 200
LINK_S_MAX = 60.0
LOST_S_MAX = 30.0

Row = dict[str, float]


class Node:
    def __init__(self, kind: str, directory: Path) -> None:
        self.process: ServerProcess
        if kind == "rabbitmq":
            self._api = free_port()
            settings = f"management.tcp.port = {self._api}\nmanagement.tcp.ip = 127.0.0.1"
            self.process = RabbitMQProcess(directory, plugins=PLUGINS, settings=settings)
        else:
            broker = LeveretProcess(directory, admin=True)
            if kind == "leveret-interpreted":
                broker.extra_environment["LEVERET_CORE"] = "interpreted"
            self._api, self.process = broker.admin_port, broker

    def __enter__(self) -> Self:
        self.process.__enter__()
        wait_for(self.is_served, "the HTTP API")
        return self

    def __exit__(self, *error: Any) -> None:
        self.process.__exit__(*error)

    @property
    def port(self) -> int:
        return self.process.port

    @property
    def url(self) -> str:
        return self.process.url

    def is_served(self) -> bool:
        """Return whether the HTTP API answers."""
        try:
            self.ask("GET", "overview")
        except OSError:
            return False
        return True

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the HTTP API and return its answer."""
        login = base64.b64encode(b"guest:guest").decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._api}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def _stats(self) -> Iterator[list[str]]:
        """Yield the fields after the name in /proc/PID/stat, of each of the broker's processes."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == self.process.pid:  # field 3 is the session
                yield fields

    def processor_s(self) -> float:
        """Return the processor time of its processes."""
        return sum(int(fields[11]) + int(fields[12]) for fields in self._stats()) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """Return the resident memory of its largest process."""
        return max(int(fields[21]) for fields in self._stats()) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Line:
    """A long line before a broker that can be cut: bench/delay_relay.py."""

    def __init__(self, target: Node, round_trip_ms: float) -> None:
        self.port = free_port()
        self._command = [sys.executable, HERE / "delay_relay.py", str(self.port), str(target.port), str(round_trip_ms)]
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cut(self) -> None:
        self.__exit__()

    def restore(self) -> None:
        self.__enter__()


class Pair:
    """Two brokers of one kind; the second one is downstream."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.up, self.down = (Node(kind, directory / name) for name in ("up", "down"))

    def link(self, url: str) -> None:
        """Federate all exchanges whose names begin with "fed"; each gets a link as soon as it exists."""
        upstream = {"uri": url, "prefetch-count": 1000, "ack-mode": "on-confirm", "reconnect-delay": 1}
        self.down.ask("PUT", "parameters/federation-upstream/%2F/up", {"value": upstream})
        policy = {"pattern": "^fed", "apply-to": "exchanges", "definition": {"federation-upstream": "up"}}
        self.down.ask("PUT", "policies/%2F/federation", policy)

    def is_running(self) -> bool:
        """Return whether the link reports that it runs."""
        links = self.down.ask("GET", "federation-links")
        return bool(links) and all(link["status"] == "running" for link in links)

    def unlink(self) -> None:
        self.down.ask("DELETE", "policies/%2F/federation")
        self.down.ask("DELETE", "parameters/federation-upstream/%2F/up")

    @contextmanager
    def channels(self) -> Iterator[tuple[BlockingChannel, BlockingChannel]]:
        """Yield a channel upstream and one downstream, with a fresh exchange on both sides and a queue downstream."""
        with (
            BlockingConnection(self.up.url, reconnect=False) as up,
            BlockingConnection(self.down.url, reconnect=False) as down,
            up.channel() as publisher,
            down.channel() as consumer,
        ):
            for channel in (publisher, consumer):
                channel.declare_exchange(EXCHANGE, "topic", durable=True)
            consumer.declare_queue(QUEUE, durable=True)
            yield publisher, consumer
            consumer.delete_queue(QUEUE)
            for channel in (consumer, publisher):
                channel.delete_exchange(EXCHANGE)


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = LINK_S_MAX) -> None:
    """Poll until the condition is true. Raises ProcessFailed after `limit_s`."""
    end_s = time.perf_counter() + limit_s
    while not condition():
        if time.perf_counter() > end_s:
            raise ProcessFailed(f"{what}: nothing within {limit_s:.0f} s")
        time.sleep(0.05)


def amqpload(*arguments: str | float, timeout_s: float) -> dict[str, Any]:
    """Run the load generator once."""
    command = [str(WORK / "amqpload"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode or '"error"' in done.stdout:
        raise ProcessFailed(f"amqpload: {done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# -- throughput -------------------------------------------------------------------------------------------------------


def throughput(pair: Pair, options: argparse.Namespace) -> Row:
    """Measure messages per second while the publisher runs."""
    pair.link(pair.up.url)
    before = [node.processor_s() for node in (pair.up, pair.down)]
    with pair.channels():
        wait_for(pair.is_running, "the link")
        row = amqpload(
            "throughput", "-port", pair.up.port, "-cport", pair.down.port, "-exchange", EXCHANGE, "-type", "topic",
            "-key", "bench", "-durable", "-persistent", "-size", options.size, "-confirm", options.window,
            "-prefetch", 1000, "-ack-every", 50, "-settle", 2, "-seconds", options.seconds, "-drain", LOST_S_MAX,
            "-queue", f"{QUEUE}.load", timeout_s=30 * options.seconds + 120,
        )  # fmt: skip
    used = [node.processor_s() - start for node, start in zip((pair.up, pair.down), before, strict=True)]
    pair.unlink()
    if row["lost"]:
        raise ProcessFailed(f"{pair.kind}: {row['lost']} messages were lost")
    return {
        "msg/s": row["delivered_per_s"],
        "up CPU µs": used[0] * 1e6 / row["delivered"],
        "down CPU µs": used[1] * 1e6 / row["delivered"],
    }


# -- bindings ---------------------------------------------------------------------------------------------------------


class Probe:
    """Finds out which keys are bound upstream: publishes messages with the keys as bodies, and sees which arrive."""

    def __init__(self, pair: Pair, publisher: BlockingChannel) -> None:
        self._publisher = publisher
        self._arrived: set[bytes] = set()
        self._connection = BlockingConnection(pair.down.url, reconnect=False)
        self._channel = self._connection.channel()
        self._channel.consume(QUEUE, no_ack=True)

    def close(self) -> None:
        self._connection.close()

    def publish(self, keys: list[str]) -> None:
        for key in keys:
            self._publisher.publish(key.encode(), EXCHANGE, key)
        self._publisher.flush()

    def missing(self, keys: list[str], timeout_s: float) -> list[str]:
        """Return the keys of which no message arrives within this time."""
        wanted = {key.encode() for key in keys} - self._arrived
        end_s = time.perf_counter() + timeout_s
        while wanted and (left_s := end_s - time.perf_counter()) > 0:
            found = {delivery.body for delivery in self._channel.deliveries(10_000, left_s)}
            self._arrived |= found
            wanted -= found
        return [key.decode() for key in wanted]


def keys_of(name: str, count: int) -> list[str]:
    return [f"{name}.{number}" for number in range(count)]


def bind(pair: Pair, keys: list[str]) -> None:
    """Bind the queue downstream to all these keys at once."""
    binding = {"source": EXCHANGE, "vhost": "/", "destination": QUEUE, "destination_type": "queue", "arguments": {}}
    pair.down.ask("POST", "definitions", {"bindings": [{**binding, "routing_key": key} for key in keys]})


def effective_s(probe: Probe, keys: list[str], since_s: float, limit_s: float) -> float:
    """Return the seconds until messages of a sample of the keys arrive; then check that those of all keys do."""
    step = max(1, len(keys) // SAMPLE)
    open_keys = sorted({*keys[::step], keys[-1]})
    while open_keys:
        probe.publish(open_keys)
        open_keys = probe.missing(open_keys, 0.25)
        if time.perf_counter() - since_s > limit_s:
            raise ProcessFailed(f"{len(open_keys)} of the sampled bindings are not in effect after {limit_s:.0f} s")
    took_s = time.perf_counter() - since_s
    probe.publish(keys)
    if missing := probe.missing(keys, LOST_S_MAX):
        raise ProcessFailed(f"{len(missing)} bindings were not in effect when the sample was, such as {missing[0]}")
    return took_s


def bindings(pair: Pair, options: argparse.Namespace) -> Row:
    """Measure the seconds until all bindings are in effect upstream."""
    count = options.rabbitmq_bindings if pair.kind == "rabbitmq" else options.bindings
    factor = options.bindings / count
    limit_s = 30 + count * options.round_trip_ms / 1000 * 3
    first, second = keys_of("first", count), keys_of("second", count)
    with Line(pair.up, options.round_trip_ms) as line, pair.channels() as (publisher, _):
        probe = Probe(pair, publisher)
        bind(pair, first)
        start_s = time.perf_counter()
        pair.link(line.url)
        at_start_s = effective_s(probe, first, start_s, limit_s)
        start_s = time.perf_counter()
        bind(pair, second)
        running_s = effective_s(probe, second, start_s, limit_s)
        probe.close()
        pair.unlink()
    return {"bound": float(count), "at start s": at_start_s * factor, "running s": running_s * factor}


# -- catch-up ---------------------------------------------------------------------------------------------------------


def catch_up(pair: Pair, options: argparse.Namespace) -> Row:
    """Measure the seconds from the end of a partition until everything is consumed downstream."""
    count = options.rabbitmq_buffered if pair.kind == "rabbitmq" else options.buffered
    with Line(pair.up, 0) as line, pair.channels() as (publisher, consumer):
        pair.link(line.url)
        consumer.bind_queue(QUEUE, EXCHANGE, "bench")
        probe = Probe(pair, publisher)
        effective_s(probe, ["bench"], time.perf_counter(), LINK_S_MAX)
        probe.close()
        consumer.purge_queue(QUEUE)
        line.cut()
        cut_s = time.perf_counter()
        fill(pair, count, options)
        time.sleep(max(0.0, options.partition_s - (time.perf_counter() - cut_s)))
        memory = [pair.up.memory_mib(), pair.down.memory_mib()]
        line.restore()
        start_s = time.perf_counter()
        with Highest(pair) as highest:
            drained = consume(pair, count)
        took_s = time.perf_counter() - start_s
        pair.unlink()
    return {
        "buffered": float(count),
        "s": took_s,
        "msg/s": count / took_s,
        "drained/s": drained,
        "up MiB full": memory[0],
        "up MiB most": highest.most[0],
        "down MiB most": highest.most[1],
    }


def fill(pair: Pair, count: int, options: argparse.Namespace) -> None:
    """Publish `count` persistent messages upstream, all confirmed."""
    body = b"x" * options.size
    with BlockingConnection(pair.up.url, reconnect=False) as connection, connection.channel() as channel:
        channel.confirm_window = 10_000
        channel.confirm_select()
        for _ in range(count):
            channel.publish(body, EXCHANGE, "bench", PERSISTENT)
        channel.wait_for_confirms()


def consume(pair: Pair, count: int) -> float:
    """Consume `count` messages downstream; return messages per second from the first one on."""
    row = amqpload(
        "drain", "-port", pair.down.port, "-queue", QUEUE, "-count", count, "-prefetch", 1000, "-ack-every", 50,
        "-drain", LOST_S_MAX, timeout_s=3600,
    )  # fmt: skip
    return float(row["drained_per_s"])


class Highest:
    """Samples the memory of both brokers while the context is open."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.most = [0.0, 0.0]  # peak MiB of each broker
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            for index, node in enumerate((self._pair.up, self._pair.down)):
                self.most[index] = max(self.most[index], node.memory_mib())
            if self._end.wait(0.5):
                return


# -- all --------------------------------------------------------------------------------------------------------------

MEASURES: dict[str, Callable[[Pair, argparse.Namespace], Row]] = {
    "throughput": throughput,
    "bindings": bindings,
    "catch-up": catch_up,
}


def report(rows: dict[str, dict[str, list[Row]]]) -> str:
    """Return the table: medians, and the ratios of the other pairs to the first."""
    lines = ["| part | figure | " + " | ".join(f"{name} | ratio" for name in next(iter(rows.values()))) + " |"]
    lines.append("|---|---|" + "---:|---:|" * len(next(iter(rows.values()))))
    for part, pairs in rows.items():
        names = next((list(found[0]) for found in pairs.values() if found), [])
        for figure in names:
            cells = []
            base = None
            for found in pairs.values():
                value = statistics.median(row[figure] for row in found) if found else None
                base = value if base is None else base
                text = "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
                cells += [text, f"{value / base:.2f}" if value and base else "-"]
            lines.append(f"| {part} | {figure} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = ["rabbitmq"] if RabbitMQProcess.program() else []
    here.append("leveret" if leveret.core() == "compiled" else "leveret-interpreted")
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--pairs", type=names, default=here, help=f"of {', '.join(PAIRS)}; the first is the base")
    parser.add_argument("--only", type=names, default=PARTS, help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=positive, default=3, help="of throughput (default: 3); the others: one")
    parser.add_argument("--seconds", type=float, default=5.0, help="measuring window of throughput (default: 5)")
    parser.add_argument("--size", type=positive, default=100, help="octets of a body (default: 100)")
    parser.add_argument("--window", type=positive, default=1000, help="unconfirmed publishes at most (default: 1000)")
    parser.add_argument("--bindings", type=positive, default=40_000)
    parser.add_argument("--rabbitmq-bindings", type=positive, default=200)
    parser.add_argument("--round-trip-ms", type=float, default=100.0)
    parser.add_argument("--buffered", type=positive, default=1_000_000)
    parser.add_argument("--rabbitmq-buffered", type=positive, default=200_000)
    parser.add_argument("--partition-s", type=float, default=60.0)
    options = parser.parse_args()
    if unknown := (set(options.pairs) - set(PAIRS)) | (set(options.only) - set(PARTS)):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = arguments()
    build_tools()
    data = WORK / "federation"
    shutil.rmtree(data, ignore_errors=True)
    rows: dict[str, dict[str, list[Row]]] = {part: {kind: [] for kind in options.pairs} for part in options.only}
    load = os.getloadavg()[0]
    try:
        with ExitStack() as stack:
            pairs = [Pair(kind, data / kind) for kind in options.pairs]
            for pair in pairs:
                stack.enter_context(pair.up)
                stack.enter_context(pair.down)
            for part in options.only:
                for turn in range(options.rounds if part == "throughput" else 1):
                    for pair in pairs:
                        row = MEASURES[part](pair, options)
                        rows[part][pair.kind].append(row)
                        text = ", ".join(f"{name} {value:,.1f}" for name, value in row.items())
                        print(f"{part} {turn + 1} {pair.kind}: {text}", file=sys.stderr, flush=True)
    except ProcessFailed as error:
        sys.exit(str(error))
    finally:
        shutil.rmtree(data, ignore_errors=True)
    print(f"{report(rows)}\n\nload when it began: {load:.2f}")


if __name__ == "__main__":
    main()
