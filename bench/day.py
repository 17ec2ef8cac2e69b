#!/usr/bin/env python3
"""A day of an application in some minutes: does a broker that runs for long use more and more memory, or keep more
files?

    LEVERET_CORE=compiled .venv/bin/python bench/day.py
    ... bench/day.py --minutes 30 --svg docs/assets/day.svg

All kinds of messages are sent at once, by clients that connect, work for some seconds and disconnect: transient and
persistent ones that differ in size, route and headers, with confirms; calls with direct replies and with a reply queue
each; delays of the levels that NServiceBus uses; messages that expire or are rejected into a dead letter queue;
backlogs that are paged out and read back; a stream with retention, written and read again; connections that only open
and close. At these rates ten minutes see some 30 million messages, as many as a busy application has in a day.

Meanwhile the script samples memory, open files, threads and the files of journal, pages and streams. The first fifth is
warm-up: buffers reach their size, the journal gets its spare files. The rest is divided into thirds, and the lowest
tenth of each is compared: temporary use does not raise this floor, a leak does. Each figure has an allowance, a share
and an amount. The broker counts as growing, and the exit status is 1, if the last third exceeds both others by more
than the larger of these. A heap grows in steps until its holes fit the load, and fluctuates from then on; a leak keeps
growing. The exit status is also 1 if any message, call or confirm is missing.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import leveret
from leveret.client import BlockingConnection, Properties
from leveret.client.protocol.publishing import PublishEncoder
from leveret.testing.processes import LeveretProcess
from run import WORK, build_tools, positive
from scenarios import DURABLE, FAULTS, MIXED
from tables import line

DAY = 30_000_000
SAMPLE_S = 1.0
WARM_SHARE = 0.2
STREAM = "-durable -qarg x-queue-type=stream -queue day.stream -keep"
RETENTION = "-qarg x-max-length-bytes=40000000 -qarg x-stream-max-segment-size-bytes=8000000"
LETTERS = 20_000
FRAME_OCTETS = 131072


class Figure(NamedTuple):
    """A quantity that must not grow by more than both this share and this amount."""

    title: str
    share: float
    amount: float


FIGURES = {
    "rss_mib": Figure("memory, MiB", 0.025, 2.0),
    "files": Figure("open files and sockets", 0.05, 8.0),
    "threads": Figure("threads", 0.0, 1.0),
    "journal": Figure("journal files", 0.25, 2.0),
    "segments": Figure("files of pages", 0.25, 8.0),
    "stream_files": Figure("stream files", 0.25, 3.0),
    "data_mib": Figure("data directory, MiB", 0.25, 64.0),
}

LOADS = {
    "transient": f"{MIXED} -rate 20000 -seconds 5",
    "persistent": f"{MIXED} {DURABLE} -confirm 1000 -rate 15000 -seconds 5 -exchange day-persistent",
    "calls": "rpc -mode direct -window 50 -seconds 3",
    "calls, a queue each": "rpc -mode queue-per-request -window 10 -seconds 3",
    "delays": "delay -count 4000 -min-delay 0 -max-delay 3 -rate 2000",
    "backlog": "publish-only -mixed -count 120000",
    "backlog, persistent": "publish-only -size 100 -durable -persistent -confirm 1000 -count 200000",
    "stream": f"throughput -consumers 0 -persistent -confirm 1000 -mixed -rate 5000 -seconds 4 {STREAM} {RETENTION}",
    "stream, read": f"replay -prefetch 1000 -ack-every 100 -mixed -seconds 3 {STREAM} {RETENTION}",
    "connections": "connections -count 300 -concurrency 16 -hold 1",
}
LANES = (
    ("transient",),
    ("persistent",),
    ("calls", "calls, a queue each", "delays"),
    ("backlog", "backlog, persistent"),
    ("stream", "stream, read"),
    ("connections", "dead letters"),
)
"""Each inner tuple is one thread's kinds of clients, one after another; the threads run at the same time."""
EXPECTED = (("stream, read", "out_of_order"),)
"""Retention overtakes a reader, which then continues with the oldest messages left."""
COUNTS = ("delivered", "published", "requests", "replayed", "count", "opened")
"""Fields of amqpload's output with the number of messages; the first one present counts."""


class Day:
    """The clients of the application."""

    def __init__(self, broker: LeveretProcess) -> None:
        self.messages: Counter[str] = Counter()  # done so far, by kind
        self.over = threading.Event()
        self.failure = ""
        self._broker = broker

    def lane(self, kinds: Sequence[str]) -> None:
        """Run one kind of client after another (in a thread), until the day is over or something has failed."""
        while not self.over.is_set():
            for kind in kinds:
                if self.over.is_set():
                    return
                try:
                    self.messages[kind] += self._do(kind)
                except Exception as error:
                    self.failure = f"{kind}: {error}"
                    self.over.set()

    def _do(self, kind: str) -> int:
        if kind == "dead letters":
            return dead_letters(self._broker.url)
        command = [str(WORK / "amqpload"), *shlex.split(LOADS[kind]), "-port", str(self._broker.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        row: dict[str, Any] = json.loads(done.stdout)
        if "error" in row:
            raise RuntimeError(row["error"])
        for fault in FAULTS:
            if row.get(fault) and (kind, fault) not in EXPECTED:
                raise RuntimeError(f"{fault} {row[fault]}: {row}")
        return int(next(row[key] for key in COUNTS if key in row))


def dead_letters(url: str) -> int:
    """Publish messages of which half expire and half are rejected; consume all of them from the dead letter queue."""
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue("day.dead", durable=True)
        dead: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "day.dead"}
        encoder = PublishEncoder(1, FRAME_OCTETS)
        for name, more in (("day.short", {"x-message-ttl": 50}), ("day.rejected", {})):
            channel.declare_queue(name, durable=True, arguments=dead | more)
            properties = Properties(delivery_mode=2, headers={"kind": name})
            frames = b"".join(encoder.encode(bytes(50), "", name, properties, False) for _ in range(100))
            for _ in range(LETTERS // 200):
                channel.publish_frames(frames, 100)
        channel.flush()
        channel.qos(1000)
        taken = 0
        rejecting = channel.consume("day.rejected")
        channel.consume("day.dead")
        while taken < LETTERS:
            for delivery in channel.deliveries(1000, 10):
                if delivery.consumer_tag == rejecting:
                    channel.reject(delivery.delivery_tag, requeue=False)
                else:
                    channel.ack(delivery.delivery_tag)
                    taken += 1
            channel.flush()
    return 2 * LETTERS


def sample(broker: LeveretProcess) -> dict[str, float]:
    """Return the present value of every figure."""
    process = Path(f"/proc/{broker.pid}")
    status = dict(each.split(":", 1) for each in (process / "status").read_text().splitlines())
    counts: Counter[str] = Counter()
    octets = 0
    for path in broker.data_dir.rglob("*"):
        try:
            if path.is_file():
                counts[path.relative_to(broker.data_dir).parts[0]] += 1
                octets += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # the process or file has gone meanwhile
    return {
        "rss_mib": int(status["VmRSS"].split()[0]) / 1024,
        "files": float(len(list((process / "fd").iterdir()))),
        "threads": float(status["Threads"]),
        "journal": float(counts["journal"]),
        "segments": float(counts["segments"]),
        "stream_files": float(counts["streams"]),
        "data_mib": octets / (1 << 20),
    }


class Verdict(NamedTuple):
    thirds: tuple[float, float, float]  # the lowest decile of each third
    allowed: float  # the most that the last third may have

    @property
    def has_grown(self) -> bool:
        return self.thirds[2] > self.allowed


def verdict(values: Sequence[float], figure: Figure) -> Verdict:
    """Compare samples at equal distances, warm-up included. Raises ValueError if fewer than six follow it."""
    kept = values[int(len(values) * WARM_SHARE) :]
    size = len(kept) // 3
    if size < 2:
        raise ValueError("the day was too short to say anything")
    parts = (kept[:size], kept[size : 2 * size], kept[-size:])
    first, middle, last = (statistics.quantiles(part, n=10, method="inclusive")[0] for part in parts)
    before = max(first, middle)
    return Verdict((first, middle, last), before + max(figure.share * before, figure.amount))


def table(rows: Sequence[dict[str, float]]) -> tuple[str, list[str]]:
    """Return a table of the figures by thirds, and the titles of those that have grown."""
    lines = [line(["figure", "first third", "middle", "last third", "allowed"]), line(["---"] + ["---:"] * 4)]
    grown = []
    for name, figure in FIGURES.items():
        found = verdict([row[name] for row in rows], figure)
        lines.append(line([figure.title, *(f"{value:.1f}" for value in (*found.thirds, found.allowed))]))
        if found.has_grown:
            grown.append(figure.title)
    return "\n".join(lines), grown


def draw(rows: Sequence[dict[str, float]], path: Path) -> None:
    """Draw a picture with one strip for each figure."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "leveret", "font.size": 8})
    drawing, strips = pyplot.subplots(len(FIGURES), 1, sharex=True, figsize=(8, 1.1 * len(FIGURES)))
    minutes = [number * SAMPLE_S / 60 for number in range(len(rows))]
    for strip, (name, figure) in zip(strips, FIGURES.items(), strict=True):
        strip.plot(minutes, [row[name] for row in rows], color="#2a6f97", linewidth=0.8)
        strip.set_title(figure.title, loc="left", fontsize=8)
        strip.set_ylim(bottom=0)
        strip.spines[["top", "right"]].set_visible(False)
        strip.axvspan(0, WARM_SHARE * minutes[-1], color="#eeeeee")
    strips[-1].set_xlabel("minutes; grey: warm-up")
    drawing.tight_layout()
    drawing.savefig(path, format="svg", metadata={"Date": None})


def run(minutes: float, tell: Callable[[str], None]) -> tuple[list[dict[str, float]], Counter[str], str]:
    """Return the samples, the number of messages of each kind, and what failed ("": nothing)."""
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(dir=WORK, prefix="day-") as data, LeveretProcess(Path(data) / "broker") as broker:
        day = Day(broker)
        lanes = [threading.Thread(target=day.lane, args=(kinds,)) for kinds in LANES]
        for lane in lanes:
            lane.start()
        began = time.monotonic()
        while time.monotonic() - began < 60 * minutes and not day.over.is_set():
            rows.append(sample(broker))
            if len(rows) % 30 == 0:
                now = rows[-1]
                tell(
                    f"{len(rows) * SAMPLE_S / 60:5.1f} min {sum(day.messages.values()):12,} messages "
                    f"{now['rss_mib']:7.1f} MiB {now['files']:5.0f} files {now['data_mib']:7.0f} MiB of data"
                )
            day.over.wait(max(0.0, began + len(rows) * SAMPLE_S - time.monotonic()))
        day.over.set()
        for lane in lanes:
            lane.join()
    return rows, day.messages, day.failure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=positive, default=10)
    parser.add_argument("--svg", type=Path, help="where to draw the samples")
    options = parser.parse_args()
    build_tools()
    rows, messages, failure = run(options.minutes, lambda text: print(text, file=sys.stderr, flush=True))
    if failure:
        sys.exit(failure)
    total = sum(messages.values())
    print(f"{leveret.core()} core, {options.minutes} min, {total:,} messages: {total / DAY:.1f} days of {DAY:,}\n")
    print(", ".join(f"{kind} {count:,}" for kind, count in messages.items()))
    text, grown = table(rows)
    print(f"\nlowest tenths\n\n{text}")
    if options.svg:
        draw(rows, options.svg)
    if grown:
        sys.exit(f"the broker has grown: {', '.join(grown)}")


if __name__ == "__main__":
    main()
