#!/usr/bin/env python3
"""Python clients side by side: leveret.client, aio-pika and pika, on leveret and on RabbitMQ.

    bench/clients.py                        about twenty minutes; writes docs/reference/clients.md
    bench/clients.py --quick                a round of a second: three minutes, prints the tables only
    bench/clients.py --only rpc --rounds 5 --print

Each client runs in a process of its own (bench/client_loads.py) on one connection and one channel, and all take turns.
The figure is the processor time of that process per message, all threads; it is what an application pays, and other
load on the machine hardly changes it. Messages have 200 octets, are persistent, and have a message id of their own and
one header; the time to make them counts. The queue is durable, and after each run it is checked that no message is
missing in it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from client_loads import BODY, LOADS, QUEUE, SERVER, properties
from leveret.client import BlockingConnection
from leveret.client.protocol.publishing import PublishEncoder
from leveret.testing.processes import ProcessFailed, ServerProcess
from machine import about
from report import judged, replaced, times
from run import TOP, WORK, available, positive, servers
from tables import line, text

DOCUMENT = TOP / "docs" / "reference" / "clients.md"
PROGRAM = Path(__file__).with_name("client_loads.py")
BEGIN = "<!-- measured: begin (bench/clients.py) -->"
OURS = "leveret.client asyncio"
PEERS = ("aio-pika", "pika")
FILL = 500
"""Messages of a write that fills the queue."""
TIMEOUT_S = 600
RABBITMQ_MAX = 15_000
"""Messages per second that RabbitMQ takes and gives at least; leveret.client would wait for it most of the time."""


class Load(NamedTuple):
    """meaning: what the clients do; goals: how many times less than that of each of PEERS the cost is to be."""

    meaning: str
    rates: dict[str, int]  # messages per second, by the first word of a client's name, to choose their number
    goals: dict[str, float]


TITLES = {
    "publish": Load(
        "Publish, at most 1,000 unconfirmed, each confirm awaited",
        {"leveret.client": 80_000, "aio-pika": 6_000, "pika": 20_000, "pika,": 400},
        {"aio-pika": 25, "pika": 8},
    ),
    "consume": Load(
        "Consume with a prefetch of 500, ack each message alone; the body is read",
        {"leveret.client": 200_000, "aio-pika": 6_000, "pika": 18_000},
        {"aio-pika": 40, "pika": 13},
    ),
    "consume-read": Load(
        "The same; message id and header are read, too",
        {"leveret.client": 100_000, "aio-pika": 6_000, "pika": 18_000},
        {},
    ),
    "rpc": Load(
        "RPC by direct reply-to, 50 outstanding, each with a time limit; the server is another process",
        {"leveret.client": 20_000, "aio-pika": 4_000},
        {"aio-pika": 15},
    ),
}
IDLE = "idle"


class Sample(NamedTuple):
    load: str
    client: str
    broker: str
    cost: float  # CPU µs per message; of IDLE: CPU ms per minute
    per_s: float  # messages per second


def command(client: str, load: str, url: str, count: int) -> list[str]:
    return [sys.executable, str(PROGRAM), client, load, url, str(count)]


@contextmanager
def server(url: str) -> Iterator[None]:
    """Run the server that answers requests."""
    with subprocess.Popen(command("", SERVER, url, 0), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def fill(url: str, count: int) -> None:
    """Put messages into the queue."""
    with BlockingConnection(url, reconnect=False) as connection, connection.channel(confirms=True) as channel:
        one = PublishEncoder(channel.number, channel.frame_max).encode(BODY, "", QUEUE, properties(0), False)
        for first in range(0, count, FILL):
            number = min(FILL, count - first)
            channel.publish_frames(one * number, number)
        channel.wait_for_confirms()


def finished(client: str, load: str, process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return what a client prints. Raises ProcessFailed."""
    try:
        said, errors = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise ProcessFailed(f"{client}, {load}: not finished after {TIMEOUT_S} s") from None
    if process.returncode:
        raise ProcessFailed(f"{client}, {load}: exit status {process.returncode}: {errors}")
    found: dict[str, Any] = json.loads(said)
    return found


def started(client: str, load: str, url: str, count: int) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(command(client, load, url, count), stdout=pipe, stderr=pipe, text=True)


def count_of(load: str, client: str, broker: str, seconds: float) -> int:
    """Return how many messages take a client about so long."""
    rate = TITLES[load].rates[client.split(maxsplit=1)[0]]
    return int(seconds * (min(rate, RABBITMQ_MAX) if broker == "rabbitmq" else rate))


def measure(name: str, broker: ServerProcess, client: str, load: str, seconds: float) -> Sample:
    """Run one load of one client with a new queue. Raises ProcessFailed if it fails or a message is missing."""
    count = count_of(load, client, name, seconds)
    with BlockingConnection(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(QUEUE)
        if load.startswith("consume"):
            fill(broker.url, count)
        if load == "rpc":
            with server(broker.url):
                found = finished(client, load, started(client, load, broker.url, count))
        else:
            found = finished(client, load, started(client, load, broker.url, count))
        left, expected = channel.delete_queue(QUEUE), count if load == "publish" else 0
        if left != expected:
            raise ProcessFailed(f"{client}, {load}: {left} messages are in the queue, not {expected}")
    return Sample(load, client, name, found["cpu_s"] * 1e6 / count, count / found["seconds"])


def idle(name: str, broker: ServerProcess, seconds: int) -> list[Sample]:
    """Let all clients be idle at the same time, each with a consumer and heartbeats."""
    with BlockingConnection(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(QUEUE)
        clients = {client: started(client, IDLE, broker.url, seconds) for client in LOADS if IDLE in LOADS[client]}
        samples = [
            Sample(IDLE, client, name, finished(client, IDLE, process)["cpu_s"] * 60_000 / seconds, 0)
            for client, process in clients.items()
        ]
        channel.delete_queue(QUEUE)
    return samples


class Results:
    def __init__(self, brokers: list[str]) -> None:
        self.brokers = brokers
        self.samples: list[Sample] = []

    def costs(self, load: str, client: str, broker: str) -> list[float]:
        return [each.cost for each in self.samples if each[:3] == (load, client, broker)]

    def cost(self, load: str, client: str, broker: str) -> float:
        return statistics.median(self.costs(load, client, broker))

    def cheaper(self, load: str, client: str, peer: str, broker: str) -> float | None:
        """Return how many times the client's processor time the peer takes."""
        if not self.costs(load, peer, broker):
            return None
        return self.cost(load, peer, broker) / self.cost(load, client, broker)

    def clients(self, load: str) -> list[str]:
        return [client for client in LOADS if self.costs(load, client, self.brokers[0])]

    def table(self, load: str) -> str:
        """Return a load's table: costs with their spread, ratios and rates."""
        head, lines = ["client"], []
        for broker in self.brokers:
            head += [f"on {broker}: CPU µs", *(f"{peer} ÷ this" for peer in PEERS), "messages/s"]
        for client in self.clients(load):
            cells = [client]
            for broker in self.brokers:
                costs = self.costs(load, client, broker)
                rates = [each.per_s for each in self.samples if each[:3] == (load, client, broker)]
                cells.append(f"{text(statistics.median(costs))} ({text(min(costs))} to {text(max(costs))})")
                cells += [times(self.cheaper(load, client, peer, broker)) for peer in PEERS]
                cells.append(text(statistics.median(rates)))
            lines.append(line(cells))
        return "\n".join([line(head), line(["---"] + ["---:"] * (len(head) - 1)), *lines])

    def idle_table(self) -> str:
        lines = [line(["client", *(f"on {broker}: CPU ms per minute" for broker in self.brokers)])]
        lines.append(line(["---"] + ["---:"] * len(self.brokers)))
        for client in self.clients(IDLE):
            lines.append(line([client, *(text(self.cost(IDLE, client, broker)) for broker in self.brokers)]))
        return "\n".join(lines)

    def slower(self) -> list[str]:
        """Return a line for each load in which a message costs leveret's client more than one of PEERS."""
        found = []
        for load in TITLES:
            for client in self.clients(load):
                for peer in [peer for peer in PEERS if client.startswith("leveret")]:
                    for broker in self.brokers:
                        ratio = self.cheaper(load, client, peer, broker)
                        if ratio is not None and ratio < 1:
                            found.append(f"{load}, on {broker}: {client} takes {times(1 / ratio)} × the CPU of {peer}")
        return found

    def goals(self) -> list[str]:
        """Return a line for each goal: whether it is met."""
        found = []
        for load, (_, _, goals) in TITLES.items():
            for peer, bound in goals.items():
                for broker in self.brokers:
                    if not self.costs(load, OURS, broker):
                        continue
                    ratio = self.cheaper(load, OURS, peer, broker)
                    if ratio is not None:
                        said = f"{peer} takes {times(ratio)} × the CPU of {OURS}, goal {bound:g}"
                        found.append(f"`{load}`, on {broker}: {said}: {judged(ratio, bound, False)}")
        return found

    def page(self, options: argparse.Namespace) -> str:
        """Return the text between the marks."""
        out = ["**Where leveret's client costs more**", ""]
        out += [f"- {each}" for each in self.slower() or ["nowhere in this run"]]
        for load, (meaning, _, _) in TITLES.items():
            if self.clients(load):
                out += ["", f"## `{load}`", "", f"{meaning}.", "", self.table(load)]
        if self.clients(IDLE):
            meaning = f"One connection with a consumer and heartbeats of 60 s, over {options.idle_seconds} s."
            meaning += " A processor has 60,000 ms in a minute; the end of the measurement is most of these."
            out += ["", f"## `{IDLE}`", "", meaning, "", self.idle_table()]
        out += ["", "## Goals", "", *(f"- {each}" for each in self.goals()), "", "## The run", ""]
        rounds = f"{options.rounds} round(s), each long enough for {options.seconds:g} s on an idle machine"
        out += [f"- begun on {options.begun}: medians (lowest to highest) of {rounds}"]
        out += [f"- {name}: {value}" for name, value in options.about.items() if value]
        return "\n".join(out)


def run(options: argparse.Namespace) -> Results:
    results = Results(options.brokers)
    with servers(options.brokers) as brokers:
        for turn in range(1, options.rounds + 1):
            for load in options.only:
                for name, broker in brokers.items():
                    if load == IDLE:
                        results.samples += idle(name, broker, options.idle_seconds)
                        continue
                    for client in [client for client in LOADS if load in LOADS[client]]:
                        sample = measure(name, broker, client, load, options.seconds)
                        results.samples.append(sample)
                        figures = f"{text(sample.cost)} CPU µs, {text(sample.per_s)}/s"
                        print(f"{turn}/{options.rounds} {load:14}{name:10}{client:36}{figures}", file=sys.stderr)
    return results


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = [name for name in available() if name in ("rabbitmq", "leveret")][::-1]
    loads = [*TITLES, IDLE]
    parser.add_argument("--quick", action="store_true", help="one round of 1 s, idle for 3 s; print the tables only")
    parser.add_argument("--print", action="store_true", help="print the tables, and leave the document alone")
    parser.add_argument("--brokers", type=lambda names: names.split(","), default=here, help="comma separated")
    parser.add_argument("--only", type=lambda names: names.split(","), default=loads, help=f"of {','.join(loads)}")
    parser.add_argument("--rounds", type=positive)
    parser.add_argument("--seconds", type=float, help="of a round of one client, on an idle machine")
    parser.add_argument("--idle-seconds", type=positive)
    options = parser.parse_args()
    if unknown := set(options.only) - set(loads):
        parser.error(f"unknown loads: {', '.join(sorted(unknown))}")
    if not options.brokers:
        parser.error("no broker to measure: leveret's core is not compiled (see CONTRIBUTING.md)")
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (1 if options.quick else 3)
    options.idle_seconds = options.idle_seconds or (3 if options.quick else 10)
    options.begun = time.strftime("%Y-%m-%d")
    options.about = {name: version(name) for name in ("aio-pika", "aiormq", "pika")} | about()
    return options


def main() -> None:
    options = arguments()
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        page = run(options).page(options)
    except ProcessFailed as error:
        sys.exit(str(error))
    if options.quick or options.print:
        print(page)
    else:
        DOCUMENT.write_text(replaced(DOCUMENT.read_text(), page, BEGIN))
        print(f"{DOCUMENT.relative_to(TOP)} shows this run")


if __name__ == "__main__":
    main()
