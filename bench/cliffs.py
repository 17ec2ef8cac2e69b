#!/usr/bin/env python3
"""No latency cliffs: what other clients do must not slow a stream of 10,000 msg/s, nor a publisher awaiting confirms.

    LEVERET_CORE=compiled .venv/bin/python bench/cliffs.py
    ... bench/cliffs.py --only purge-10m,delete-10m
    ... bench/cliffs.py --brokers rabbitmq,leveret --only backlog-100k,dead-consumer

Both clients are measured alone and beside each disturbance of disturbances.py, alternately. The table has medians. The
exit status is 1 if leveret has a cliff:

    pause   in every disturbed round the longest latency exceeded 10 ms, and that of every round alone
    p99     in every disturbed round p99 exceeded twice that of every round alone, and 1 ms

So noise alone is not reported as a cliff: it would have to hit every disturbed round and no other one. Over a network,
nobody notices less than a millisecond at the 99th percentile. Some disturbances have a longer pause that is known and
allowed, as docs/internals/noisy-neighbours.md explains. There it also limits p99: a window is short, and one pause may
make up a hundredth of it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import leveret
from disturbances import DISTURBANCES, PAUSE_MS_MAX, Disturbance
from leveret.testing.processes import ServerProcess
from run import WORK, build_tools, server
from tables import line
from victims import WARMUP_S, Felt, Victims, least, middle, most

RATIO_MAX = 2.0
FELT_MS = 1.0
CALM_S = 1.5
"""Idle time before a window."""
BEFORE_ACT_S = 0.4
"""Start of a disturbance within the window, if it is a single event."""


class Findings:
    """Latencies on one broker without and with one disturbance, round by round."""

    def __init__(self, broker: str, name: str, pause_ms_max: float = PAUSE_MS_MAX) -> None:
        self.broker = broker
        self.name = name
        self._pause_ms_max = pause_ms_max
        self._p99_ms_min = FELT_MS if pause_ms_max == PAUSE_MS_MAX else pause_ms_max
        self.alone: list[Felt] = []
        self.beside: list[Felt] = []

    def cliffs(self) -> list[str]:
        """Return a description of each cliff that all rounds confirm."""
        best, worst = least(self.beside), most(self.alone)
        found = []
        for what, pause, before in (
            ("delivery", best.max, worst.max),
            ("confirm", best.confirm_max, worst.confirm_max),
        ):
            if pause > max(self._pause_ms_max, before):
                found.append(f"{what} pause {pause:.0f} ms")
        for what, p99, before in (("delivery", best.p99, worst.p99), ("confirm", best.confirm_p99, worst.confirm_p99)):
            if p99 > max(self._p99_ms_min, RATIO_MAX * before):
                found.append(f"{what} p99 x {p99 / before:.1f}")
        return found

    def row(self) -> str:
        alone, beside = middle(self.alone), middle(self.beside)
        cells = [self.name, self.broker]
        cells += [f"{before:.2f} → {now:.2f}" for before, now in zip(alone, beside, strict=True)]
        return line([*cells, "; ".join(self.cliffs()) or "-"])


def measure(
    broker: ServerProcess, name: str, chosen: Disturbance, findings: Findings, options: argparse.Namespace
) -> None:
    """Run all rounds of one disturbance."""
    for turn in range(min(options.rounds, chosen.rounds)):
        findings.alone.append(alone(broker, options.seconds))
        with chosen.begin(broker, options.seconds) as act:
            calm()
            victims = Victims(broker, options.seconds)
            time.sleep(WARMUP_S + BEFORE_ACT_S)
            act()
            findings.beside.append(victims.felt())
        print(f"{turn + 1} {name:14} {findings.broker:12} {told(findings)}", file=sys.stderr, flush=True)
    findings.alone.append(alone(broker, options.seconds))


def alone(broker: ServerProcess, seconds: float) -> Felt:
    """Measure both clients without a disturbance."""
    calm()
    return Victims(broker, seconds).felt()


def calm() -> None:
    """Let earlier activity end, including writes to the disk."""
    os.sync()
    time.sleep(CALM_S)


def told(findings: Findings) -> str:
    """Return the last round in one line."""
    before, now = findings.alone[-1], findings.beside[-1]
    return (
        f"p99 {before.p99:6.2f} → {now.p99:6.2f} ms, max {before.max:6.1f} → {now.max:6.1f} ms; "
        f"confirms p99 {before.confirm_p99:6.2f} → {now.confirm_p99:6.2f} ms, "
        f"max {before.confirm_max:6.1f} → {now.confirm_max:6.1f} ms"
    )


def run(options: argparse.Namespace) -> list[Findings]:
    """Measure each disturbance on a broker of its own; RabbitMQ is shared, because its start takes long."""
    found = []
    data = WORK / "cliffs"
    for broker_name in options.brokers:
        is_ours = broker_name.startswith("leveret")
        wanted = [name for name in options.only if is_ours or not DISTURBANCES[name].leveret_only]
        for group in [[name] for name in wanted] if is_ours else [wanted]:
            shutil.rmtree(data, ignore_errors=True)
            with server(broker_name, data) as broker:
                for name in group:
                    findings = Findings(broker_name, name, DISTURBANCES[name].pause_ms_max)
                    found.append(findings)
                    measure(broker, name, DISTURBANCES[name], findings, options)
    shutil.rmtree(data, ignore_errors=True)
    return found


def table(found: Sequence[Findings]) -> str:
    """Return a Markdown table of medians in milliseconds, alone → disturbed."""
    head = ["disturbance", "broker", "p50", "p99", "max", "confirm p50", "confirm p99", "confirm max", "cliffs"]
    rows = [line(head), line(["---", "---"] + ["---:"] * (len(head) - 3) + ["---"]), *(each.row() for each in found)]
    names = dict.fromkeys(each.name for each in found)
    return "\n".join([*rows, "", *(f"- `{name}`: {DISTURBANCES[name].meaning}" for name in names)])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ours = "leveret" if leveret.core() == "compiled" else "leveret-interpreted"
    parser.add_argument("--brokers", type=lambda names: names.split(","), default=[ours], help="as in run.py")
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(DISTURBANCES))
    parser.add_argument("--rounds", type=int, default=3, help="at most; what takes long has fewer")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each window")
    parser.add_argument("--output", type=Path, help="write the table there, too")
    options = parser.parse_args()
    if unknown := set(options.only) - set(DISTURBANCES):
        parser.error(f"unknown disturbances: {', '.join(sorted(unknown))}; known are {', '.join(DISTURBANCES)}")
    return options


def main() -> None:
    options = arguments()
    build_tools()
    began = time.monotonic()
    found = run(options)
    text = table(found)
    print(f"\nmilliseconds, alone → disturbed\n\n{text}\n\n{time.monotonic() - began:.0f} s")
    if options.output:
        options.output.write_text(text + "\n")
    cliffs = [each for each in found if each.broker.startswith("leveret") and each.cliffs()]
    for each in cliffs:
        print(f"cliff: {each.name}: {', '.join(each.cliffs())}", file=sys.stderr)
    sys.exit(bool(cliffs))


if __name__ == "__main__":
    main()
