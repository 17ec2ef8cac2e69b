#!/usr/bin/env python3
"""What TLS costs: the same messages with and without it, on several brokers, alternately.

    LEVERET_CORE=compiled python bench/tls.py
    LEVERET_CORE=compiled python bench/tls.py --messages 100000 --sizes 16,16384 --rounds 5

Each round publishes messages to a queue with confirms, and then consumes them without acknowledgements, with leveret's
blocking client on one connection. Prints, as medians over the rounds, the broker's processor time in µs per message of
both halves, its ratio to that without TLS, and its resident memory in KiB per idle connection. The client costs more
than most brokers, so rates would mean nothing here.
"""

import argparse
import os
import re
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import trustme

from leveret.client import BlockingConnection
from leveret.testing.processes import LeveretProcess, RabbitMQProcess, ServerProcess, free_port

QUEUE: Final = "bench.tls"
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") // 1024


class Cost(NamedTuple):
    """Processor time in µs per message."""

    publish: float
    consume: float


def processes(broker: ServerProcess) -> list[list[str]]:
    """Return the fields after the name in /proc/PID/stat, of the broker and of all processes that it started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # the process has ended
        if int(fields[2]) == broker.pid:
            found.append(fields)
    return found


def busy_us(broker: ServerProcess) -> float:
    """Return the broker's processor time until now."""
    return sum(int(fields[11]) + int(fields[12]) for fields in processes(broker)) / TICKS_PER_S * 1e6


def memory_kib(broker: ServerProcess) -> int:
    """Return the broker's resident memory."""
    return sum(int(fields[21]) for fields in processes(broker)) * PAGE_KIB


def measure(broker: ServerProcess, url: str, count: int, size: int) -> Cost:
    body = b"x" * size
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue(QUEUE)
        channel.confirm_select()
        times = [busy_us(broker)]
        for _ in range(count):
            channel.publish(body, "", QUEUE)
        channel.wait_for_confirms()
        times.append(busy_us(broker))
        channel.consume(QUEUE, no_ack=True)
        left = count
        while left:
            left -= len(channel.deliveries(left))
        times.append(busy_us(broker))
        channel.delete_queue(QUEUE)
    return Cost((times[1] - times[0]) / count, (times[2] - times[1]) / count)


def idle_kib(broker: ServerProcess, url: str, count: int) -> float:
    """Return the memory of one idle connection with one channel."""
    before = memory_kib(broker)
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(BlockingConnection(url, heartbeat_s=0, reconnect=False)).channel()
        return (memory_kib(broker) - before) / count


def brokers(directory: Path) -> dict[str, tuple[ServerProcess, dict[str, str]]]:
    """Return by name the brokers, not started, and their URLs without and with TLS."""
    authority = trustme.CA()
    pair = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    pair.cert_chain_pems[0].write_to_path(str(directory / "server.pem"))
    pair.private_key_pem.write_to_path(str(directory / "server.key"))
    ports = free_port(), free_port()
    files = {name: str(directory / f"server.{end}") for name, end in (("cert", "pem"), ("key", "key"))}
    options = [f"--tls-port={ports[0]}", f"--tls-cert={files['cert']}", f"--tls-key={files['key']}"]
    made: dict[str, ServerProcess] = {"leveret": LeveretProcess(arguments=options)}
    if RabbitMQProcess.program():
        settings = [f"listeners.ssl.default = 127.0.0.1:{ports[1]}", f"ssl_options.certfile = {files['cert']}"]
        settings += [f"ssl_options.keyfile = {files['key']}", f"ssl_options.cacertfile = {directory / 'ca.pem'}"]
        made["rabbitmq"] = RabbitMQProcess(settings="\n".join(settings))
    secured = [f"amqps://guest:guest@localhost:{port}/%2F?cacertfile={directory / 'ca.pem'}" for port in ports]
    return {
        name: (broker, {"plain": broker.url, "TLS": url})
        for (name, broker), url in zip(made.items(), secured, strict=False)
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=50_000, help="of each size, in each turn (default: 50000)")
    parser.add_argument("--sizes", default="16,1024,16384", help="octets of a body (default: 16,1024,16384)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each broker (default: 3)")
    parser.add_argument("--connections", type=int, default=200, help="that idle (default: 200)")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    sizes = [int(size) for size in re.findall(r"\d+", options.sizes)]
    costs: dict[tuple[str, str, int], list[Cost]] = {}
    idle: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory(prefix="leveret-bench-") as directory, ExitStack() as stack:
        found = brokers(Path(directory))
        for broker, _ in found.values():
            stack.enter_context(broker)
        for turn in range(options.rounds):
            for size in sizes:
                for name, (broker, urls) in found.items():
                    for way, url in urls.items():
                        cost = measure(broker, url, options.messages, size)
                        costs.setdefault((name, way, size), []).append(cost)
                        print(f"{turn + 1}/{options.rounds} {name} {way} {size}: {cost}", file=sys.stderr, flush=True)
        for name, (broker, urls) in found.items():
            for way, url in urls.items():
                idle[name, way] = idle_kib(broker, url, options.connections)
    print("| broker | octets | publish | with TLS | ratio | consume | with TLS | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name in found:
        for size in sizes:
            cells = []
            for half in range(2):
                plain, tls = (statistics.median(c[half] for c in costs[name, way, size]) for way in ("plain", "TLS"))
                cells += [f"{plain:.2f}", f"{tls:.2f}", f"{tls / plain:.2f}" if plain else "-"]
            print(f"| {name} | {size} | {' | '.join(cells)} |")
    for (name, way), kib in idle.items():
        print(f"{name}, {way}: {kib:.0f} KiB per idle connection")


if __name__ == "__main__":
    main()
