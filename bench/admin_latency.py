#!/usr/bin/env python3
"""What the HTTP API costs messages: p99 latency of deliveries at 10,000 msg/s, with and without API calls.

    bench/admin_latency.py
    bench/admin_latency.py --rounds 9 --seconds 4 --queues 5000 --calls 20

The broker has 5,000 idle queues besides the one under load. The same load runs alternately without API calls and with
20 calls/s of a mix: the overview, a page of 100 queues, one queue, the connections. Each round gives a ratio of the two
p99 latencies; if the median of these ratios is above 1.5, the exit status is 1. If permitted (as root), everything but
the API's process runs with real-time priority; otherwise p99 on a busy machine mostly measures how busy the machine is.

Then the script prints how many pages of 100 queues the API serves per second, and what the API costs an idle broker:
start-up time and memory.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import leveret
from leveret.client import BlockingConnection
from leveret.testing.processes import LeveretProcess
from run import WORK, build_tools

RATIO_MAX = 1.5
PAGE = "/api/queues?page=1&page_size=100"
MIX = ("/api/overview", PAGE, "/api/queues/%2F/{queue}", "/api/connections")
HEADERS = {"authorization": "Basic " + b64encode(b"guest:guest").decode()}
START_ROUNDS = 7


class Browser:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(self, path: str) -> bytes:
        """Return the body of the answer. Raises SystemExit unless the status is 200."""
        self._connection.request("GET", path, headers=HEADERS)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            sys.exit(f"{path}: {answer.status} {body.decode()[:200]}")
        return body


class Caller(threading.Thread):
    """A thread that calls the API at a fixed rate until `stop`."""

    def __init__(self, port: int, per_s: float) -> None:
        super().__init__()
        self.latencies_ms: list[float] = []  # of each call, counted from when it was due
        self._browser = Browser(port)
        self._interval_s = 1 / per_s
        self._over = threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        for number, path in enumerate(itertools.cycle(MIX)):
            self._browser.get(path.format(queue=f"idle-{number % 1000}"))
            self.latencies_ms.append((time.monotonic() - due) * 1e3)
            due += self._interval_s
            if self._over.wait(max(0.0, due - time.monotonic())):
                return

    def stop(self) -> None:
        self._over.set()
        self.join()


def put_first() -> None:
    """Give this process and its later children real-time priority, if permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
    except PermissionError:
        print("not in real time: p99 depends on what else the machine does", file=sys.stderr)


def declare(broker: LeveretProcess, count: int) -> None:
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        for number in range(count):
            channel.declare_queue(f"idle-{number}")


def p99_us(broker: LeveretProcess, rate: int, seconds: float) -> float:
    """Measure the p99 latency of deliveries, counted from when each message was due to be sent."""
    where = ["-port", str(broker.port), "-seconds", str(seconds), "-rate", str(rate), "-size", "16"]
    done = subprocess.run([WORK / "amqpload", "throughput", *where], capture_output=True, text=True, check=False)
    row = json.loads(done.stdout)
    if "error" in row:
        sys.exit(row["error"])
    return float(row["latency_us"]["p99"])


@contextmanager
def calling(port: int, per_s: float) -> Iterator[Caller]:
    caller = Caller(port, per_s)
    caller.start()
    try:
        yield caller
    finally:
        caller.stop()


def pages_per_s(port: int, seconds: float) -> float:
    """Measure how many pages per second one client gets, requesting them one after another."""
    browser = Browser(port)
    assert len(json.loads(browser.get(PAGE))["items"]) == 100
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        browser.get(PAGE)
        count += 1
    return count / seconds


def rss_mib(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def start(directory: Path, has_admin: bool) -> tuple[float, float, float, float]:
    """Start an idle broker; return ms until it accepts connections, ms until the API answers, and MiB of both."""
    with TemporaryDirectory(dir=directory) as data:
        broker = LeveretProcess(Path(data), admin=has_admin)
        begin = time.perf_counter()
        with broker:
            ready_ms = (time.perf_counter() - begin) * 1e3
            if not has_admin:
                return ready_ms, 0.0, rss_mib(broker.pid), 0.0
            Browser(broker.admin_port).get("/api/whoami")
            answer_ms = (time.perf_counter() - begin) * 1e3
            return ready_ms, answer_ms, rss_mib(broker.pid), sum(rss_mib(child) for child in children(broker.pid))


def measure(broker: LeveretProcess, options: argparse.Namespace) -> float:
    """Return the median of the rounds' p99 ratios."""
    found: list[tuple[float, float]] = []
    latencies: list[float] = []
    for turn in range(options.rounds):
        halves = {}
        for is_asked in (False, True) if turn % 2 else (True, False):
            if is_asked:
                with calling(broker.admin_port, options.calls) as caller:
                    halves[is_asked] = p99_us(broker, options.rate, options.seconds)
                latencies += caller.latencies_ms
            else:
                halves[is_asked] = p99_us(broker, options.rate, options.seconds)
        found.append((halves[False], halves[True]))
        print(f"{turn + 1}/{options.rounds} p99 {halves[False]:7.0f} µs, asked {halves[True]:7.0f} µs", file=sys.stderr)
    ratio = statistics.median(asked / alone for alone, asked in found)
    alone, asked = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"delivery p99 at {options.rate} msg/s, {options.queues} queues: {alone:.0f} µs;", end=" ")
    print(f"with {options.calls} calls/s: {asked:.0f} µs; median of the ratios {ratio:.2f} (at most {RATIO_MAX})")
    quick, slow = statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]
    print(f"calls meanwhile: {len(latencies)}, p50 {quick:.1f} ms, p99 {slow:.1f} ms")
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4, help="of each half of a round")
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=5_000)
    parser.add_argument("--calls", type=float, default=20, help="per second")
    options = parser.parse_args()
    build_tools()
    put_first()
    print(f"leveret, {leveret.core()} core")
    with TemporaryDirectory(dir=WORK, prefix="admin-latency-") as directory:
        with LeveretProcess(Path(directory).resolve() / "data", admin=True) as broker:
            declare(broker, options.queues)
            ratio = measure(broker, options)
            print(f"{PAGE} of {options.queues} queues: {pages_per_s(broker.admin_port, options.seconds):.0f} calls/s")
        rows = {has: [start(Path(directory), has) for _ in range(START_ROUNDS)] for has in (False, True)}
    for has, row in rows.items():
        ready, answer, rss, more = (min(column) for column in zip(*row, strict=True))
        extra = f", its API after {answer:.0f} ms, {more:.0f} MiB more for its process" if has else ""
        print(f"{'with' if has else 'without'} the API: ready after {ready:.0f} ms, {rss:.0f} MiB{extra}")
    sys.exit(ratio > RATIO_MAX)


if __name__ == "__main__":
    main()
