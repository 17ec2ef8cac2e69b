#!/usr/bin/env python3
"""Tables of a stream: how fast it is sealed, what that costs publishers, their size, and how fast they are read.

    bench/stream_tables.py
    bench/stream_tables.py --messages 300000 --rounds 2

- A broker without sealing fills a stream with 100-byte JSON messages and is stopped; then a sealing process (the
  broker's own, python -m leveret.lake) turns the native files into Parquet, --rounds times: rows per second, and octets
  per message in both.
- A publisher of --rate such messages per second waits for its confirms; brokers without sealing and brokers that seal
  every second take turns: latency of the confirms.
- pyarrow, DuckDB and spark.read.parquet read all columns of the sealed folder, in turns, each in this process. A first
  read is not counted, so the files are in the page cache, and Java is warm. Rows per second.

Medians; do not compare figures across runs. Prints tables in Markdown.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leveret.store.disk import RealDisk
from leveret.store.streams import StreamStore
from leveret.testing.processes import LeveretProcess, ProcessFailed
from run import WORK, build_tools, positive
from table_readers import rates
from tables import line, text

QUEUE = "bench.json"
STREAM = "-durable -qarg x-queue-type=stream"
SEAL_AFTER_MS = 500
UNSEALED = ("--tables-dir", "off")


def amqpload(broker: LeveretProcess, arguments: str) -> dict[str, Any]:
    """Run the load generator once."""
    command = [str(WORK / "amqpload"), *shlex.split(arguments), "-port", str(broker.port), "-pid", str(broker.pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode or '"error"' in done.stdout:
        raise ProcessFailed(f"amqpload: {done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# -- sealing ----------------------------------------------------------------------------------------------------------


def fill(data: Path, count: int) -> tuple[Path, int, int]:
    """Fill a stream; return the directory of its native files, the number of messages, and the octets."""
    with LeveretProcess(data, arguments=UNSEALED) as broker:
        amqpload(broker, f"publish-only {STREAM} -persistent -confirm 1000 -json -queue {QUEUE} -keep -no-drain"
                         f" -count {count}")  # fmt: skip
    store = StreamStore(RealDisk(), str(data / "streams"))
    (number,) = store.numbers()
    files = store.open(number, 0)
    return Path(store.path(number)), files.end, files.octets


class Sealer:
    """A sealing process on a directory of tables."""

    def __init__(self, tables: Path) -> None:
        command = [sys.executable, "-m", "leveret.lake", str(tables)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seal(self, native: Path, first: int, end: int) -> None:
        request = {"id": 1, "directory": str(native), "vhost": "/", "stream": QUEUE, "creation": "0" * 16,
                   "first": first, "end": end, "schema": ""}  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["error"] or answer["lost"] or answer["end"] != end:
            raise ProcessFailed(f"sealing: {answer}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def sealer(tables: Path) -> Iterator[Sealer]:
    found = Sealer(tables)
    try:
        yield found
    finally:
        found.close()


def sealing(native: Path, tables: Path, count: int, rounds: int) -> float:
    """Return the rows per second of a warm process; leaves the tables of the last round."""
    per_s = []
    for _ in range(rounds):
        shutil.rmtree(tables, ignore_errors=True)
        with sealer(tables) as process:
            process.seal(native, 0, 1000)
            started_s = time.perf_counter()
            process.seal(native, 1000, count)
            per_s.append((count - 1000) / (time.perf_counter() - started_s))
    return statistics.median(per_s)


# -- what it costs publishers ------------------------------------------------------------------------------------------


def latencies(data: Path, rate: int, seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """Return p50 and p99 of confirms in µs, without and with sealing."""
    found: dict[str, list[dict[str, float]]] = {"without sealing": [], "with sealing": []}
    stream = f"{STREAM} -qarg x-leveret-seal-after-ms={SEAL_AFTER_MS}"
    load = f"throughput -consumers 0 {stream} -persistent -json -confirm 50000 -warmup 3"
    brokers = {
        "without sealing": LeveretProcess(data / "without", arguments=UNSEALED),
        "with sealing": LeveretProcess(data / "with"),
    }
    with brokers["without sealing"], brokers["with sealing"]:
        for _ in range(rounds):
            for name, broker in brokers.items():
                row = amqpload(broker, f"{load} -rate {rate} -seconds {seconds}")
                found[name].append(row["confirm_latency_us"] | {"CPU µs": row["broker_cpu_us_per_msg"]})
    return {
        name: {key: statistics.median(row[key] for row in rows) for key in ("p50", "p99", "CPU µs")}
        for name, rows in found.items()
    }


# -- all --------------------------------------------------------------------------------------------------------------


def octets(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join([line(head), line(["---"] + ["---:"] * (len(head) - 1)), *map(line, rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=positive, default=1_000_000)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--rate", type=positive, default=20_000, help="messages per second of the paced publisher")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each of its runs")
    options = parser.parse_args()
    build_tools()
    data, load = WORK / "data", os.getloadavg()[0]
    shutil.rmtree(data, ignore_errors=True)
    try:
        native, count, native_octets = fill(data / "filled", options.messages)
        per_s = sealing(native, data / "tables", count, options.rounds)
        waits = latencies(data, options.rate, options.seconds, options.rounds)
    except ProcessFailed as error:
        sys.exit(str(error))
    (folder,) = (path.parent for path in (data / "tables").glob("*/*/date=*"))
    sizes = [text(native_octets / count), text(octets(folder) / count)]
    readers = rates(folder, count, options.rounds)
    shutil.rmtree(data)
    print(f"load before the run: {load:.2f}, {os.cpu_count()} processors; {count:,} messages\n")
    print(f"sealed: {text(per_s)} rows/s\n")
    print(table(["octets per message", "native", "Parquet"], [["100 bytes of JSON", *sizes]]) + "\n")
    rows = [[name, *map(text, figures.values())] for name, figures in waits.items()]
    print(table([f"{options.rate:,} messages/s", "confirm p50 µs", "confirm p99 µs", "broker CPU µs"], rows) + "\n")
    print(table(["reader", "rows/s"], [[name, text(rate)] for name, rate in readers.items()]))


if __name__ == "__main__":
    main()
