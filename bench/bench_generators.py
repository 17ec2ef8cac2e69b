#!/usr/bin/env python3
"""Compares the load generator of `leveret bench` with bench/amqpload.c, alternately; docs/reference/bench.md has the
table.

.venv/bin/python bench/bench_generators.py --seconds 1.5 --rounds 3
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

from leveret.testing.processes import LeveretProcess
from run import WORK, build_tools
from tables import lookup


class Pair(NamedTuple):
    """One scenario in both generators, and the path of the figure in their JSON output."""

    amqpload: str
    bench: str
    amqpload_figure: str
    bench_figure: str


PAIRS = {
    "16 bytes, transient, auto-ack, delivered/s": Pair(
        "throughput -size 16", "throughput", "delivered_per_s", "delivered_per_s"
    ),
    "1 KiB, the same": Pair("throughput -size 1024", "throughput --size 1024", "delivered_per_s", "delivered_per_s"),
    "16 bytes, persistent, confirmed, acknowledged": Pair(
        "throughput -size 16 -durable -persistent -prefetch 500 -ack-every 50 -confirm 1000", "ack --persistent",
        "delivered_per_s", "delivered_per_s",
    ),
    "one persistent message: median until its confirm, µs": Pair(
        "confirm-latency -size 16", "confirm", "confirm_latency_us.p50", "confirm_us.p50"
    ),
    "RPC by direct reply-to, 50 under way, round trips/s": Pair(
        "rpc -mode direct -window 50", "rpc", "round_trips_per_s", "round_trips_per_s"
    ),
}  # fmt: skip


def answered(command: list[str]) -> dict[str, object]:
    """Run a generator and return its JSON output. Exits the program if the generator fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: {done.stderr or done.stdout}")
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    build_tools()
    seconds = str(options.seconds)
    print("| | amqpload | leveret bench | ratio |\n|---|---:|---:|---:|")
    with LeveretProcess() as broker:
        for name, pair in PAIRS.items():
            theirs, ours = [], []
            for _ in range(options.rounds):
                in_c = [
                    str(WORK / "amqpload"),
                    *shlex.split(pair.amqpload),
                    "-port",
                    str(broker.port),
                    "-seconds",
                    seconds,
                ]
                theirs.append(float(lookup(answered(in_c), pair.amqpload_figure)))
                python = [sys.executable, "-m", "leveret.cli.main", "bench", *shlex.split(pair.bench), broker.url]
                document = answered([*python, "--duration-s", seconds, "--json"])
                (one,) = document["brokers"]  # type: ignore[misc]
                ours.append(float(lookup(one["median"], pair.bench_figure)))
            print(
                f"| {name} | {median(theirs):,.0f} | {median(ours):,.0f} | {median(ours) / median(theirs):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
