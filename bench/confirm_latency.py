#!/usr/bin/env python3
"""What one confirm costs compared with the disk operation behind it: p50 and p99 in microseconds, measured alternately.

    bench/confirm_latency.py
    bench/confirm_latency.py --rounds 5 --seconds 3 --brokers leveret

One persistent message of 16 bytes at a time is published and its confirm awaited (amqpload confirm-latency). The bare
disk is measured with one pwrite of a record and one fdatasync, repeatedly, on the same file system. `disk, append`
writes past the end of the file, so its length must be synced, too; `disk, overwrite` writes into an existing file. A
broker cannot be faster than the one of the two that it does.

p50 and p99 are medians over the rounds. Other load on the machine can only increase a figure, so ratios are between the
lowest p50 of all rounds. Compare ratios within one run, not figures across runs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from leveret.testing.processes import ProcessFailed, ServerProcess
from run import WORK, build_tools, server

# about what a message of 16 bytes takes in the journal; any size within one page costs the same
RECORD = b"x" * 200
FILE_SIZE = 64 << 20
BARE = ("disk, append", "disk, overwrite")
Measurement = Callable[[float], tuple[float, float]]


def bare(directory: Path, is_overwriting: bool) -> Measurement:
    """Measure p50 and p99 of a write and its sync."""

    def measure(seconds: float) -> tuple[float, float]:
        descriptor = os.open(directory / "bare", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        if is_overwriting:
            for _ in range(FILE_SIZE >> 20):
                os.write(descriptor, bytes(1 << 20))
        os.fsync(descriptor)
        offset = 0
        times = []
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            os.pwrite(descriptor, RECORD, offset)
            os.fdatasync(descriptor)
            times.append((time.perf_counter() - start) * 1e6)
            offset += len(RECORD)
        os.close(descriptor)
        return statistics.median(times), statistics.quantiles(times, n=100)[98]

    return measure


def confirmed(broker: ServerProcess) -> Measurement:
    """Measure p50 and p99 of a publish and its confirm."""

    def measure(seconds: float) -> tuple[float, float]:
        what = ["confirm-latency", "-size", "16", "-port", str(broker.port), "-seconds", str(seconds)]
        done = subprocess.run([WORK / "amqpload", *what], capture_output=True, text=True, check=False)
        row = json.loads(done.stdout)
        if "error" in row:
            sys.exit(f"{broker.name}: {row['error']}")
        return row["confirm_latency_us"]["p50"], row["confirm_latency_us"]["p99"]

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", default="leveret,rabbitmq", help="comma separated; as in run.py")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement")
    options = parser.parse_args()
    build_tools()
    found: dict[str, list[tuple[float, float]]] = {}
    with TemporaryDirectory(dir=WORK, prefix="confirm-latency-") as directory, ExitStack() as stack:
        place = Path(directory).resolve()
        measurements = {name: bare(place, name == "disk, overwrite") for name in BARE}
        try:
            for name in options.brokers.split(","):
                measurements[name] = confirmed(stack.enter_context(server(name, place / name)))
        except ProcessFailed as error:
            sys.exit(str(error))
        for turn in range(1, options.rounds + 1):
            for name, measure in measurements.items():
                found.setdefault(name, []).append(measure(options.seconds))
                print(f"{turn}/{options.rounds} {name:20} {found[name][-1][0]:8.0f}", file=sys.stderr, flush=True)
    print("| | p50, µs | p99, µs | lowest p50, µs | × append | × overwrite |\n|---|---|---|---|---|---|")
    lowest = {name: min(rows)[0] for name, rows in found.items()}
    for name, rows in found.items():
        p50, p99 = (statistics.median(column) for column in zip(*rows, strict=True))
        ratios = " | ".join(f"{lowest[name] / lowest[base]:.2f}" for base in BARE)
        print(f"| {name} | {p50:.0f} | {p99:.0f} | {lowest[name]:.0f} | {ratios} |")


if __name__ == "__main__":
    main()
