"""Two clients whose latency is measured: a stream of 10,000 msg/s, and a publisher that awaits each confirm."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from leveret.testing.processes import ServerProcess
from run import WORK

RATE = 10_000
WARMUP_S = 0.3


class Felt(NamedTuple):
    """Latencies of one window in milliseconds: of deliveries, from when they were due, and of confirms."""

    p50: float
    p99: float
    max: float
    confirm_p50: float
    confirm_p99: float
    confirm_max: float


class Victims:
    """Both clients, for one window; `felt` waits for its end."""

    def __init__(self, broker: ServerProcess, seconds: float) -> None:
        where = ["-port", str(broker.port), "-seconds", str(seconds), "-warmup", str(WARMUP_S), "-size", "16"]
        modes = (["throughput", "-rate", str(RATE)], ["confirm-latency"])
        self._running = [loaded(put_first, *mode, *where) for mode in modes]

    def felt(self) -> Felt:
        """Return the latencies. Raises SystemExit if a client failed or messages were lost."""
        stream, confirms = (ended(process, "the victim") for process in self._running)
        if stream["lost"] or stream["out_of_order"]:
            sys.exit(f"messages of the victim were lost or out of order: {stream}")
        of_stream, of_confirms = stream["latency_us"], confirms["confirm_latency_us"]
        return Felt(*(found[key] / 1e3 for found in (of_stream, of_confirms) for key in ("p50", "p99", "max")))


def put_first() -> None:
    """Give the calling child process real-time priority, if permitted."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))


def step_back() -> None:
    """Give the calling child process the lowest priority, so that its own load disturbs nothing but the broker."""
    os.nice(19)


def aside(*command: str | Path) -> subprocess.Popen[str]:
    """Start a load of low priority, which disturbs the broker, but not the machine."""
    return loaded(step_back, *command)


def loaded(first: Callable[[], None], *command: str | Path) -> subprocess.Popen[str]:
    """Start a load whose process calls `first` before it runs."""
    return subprocess.Popen(
        [WORK / "amqpload", *command],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=first,  # noqa: PLW1509
    )


def ended(process: subprocess.Popen[str], what: str = "the disturbance") -> dict[str, Any]:
    """Wait for a load and return its JSON output. Raises SystemExit if it failed."""
    said, _ = process.communicate()
    row: dict[str, Any] = json.loads(said)
    if "error" in row:
        sys.exit(f"{what} failed: {row['error']}")
    return row


def middle(samples: Sequence[Felt]) -> Felt:
    """Return the median of each figure."""
    return Felt(*(statistics.median(column) for column in zip(*samples, strict=True)))


def least(samples: Sequence[Felt]) -> Felt:
    """Return the best of each figure: the effect present in every round."""
    return Felt(*(min(column) for column in zip(*samples, strict=True)))


def most(samples: Sequence[Felt]) -> Felt:
    """Return the worst of each figure."""
    return Felt(*(max(column) for column in zip(*samples, strict=True)))
