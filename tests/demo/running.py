"""Runs the demo as its user does, and looks for what it has left behind."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

DEMO = [sys.executable, "-m", "leveret.cli.main", "demo"]
FLIGHTS = 400


def demo(output: Path, *options: str, flights: int = FLIGHTS) -> subprocess.CompletedProcess[str]:
    command = [*DEMO, "--flights", str(flights), "--output", str(output), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=marked(output))


def marked(output: Path) -> dict[str, str]:
    """An environment that every process of the run inherits and by which it can be told from others."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", "LEVERET_TEST_RUN": str(output)}


def report(output: Path) -> dict[str, dict[str, dict[str, list[str]]]]:
    return json.loads((output / "report.json").read_text())


def processes(mark: str) -> Iterator[tuple[int, str]]:
    """Process ids and command lines of those with this text in their environment."""
    for entry in Path("/proc").iterdir():
        try:
            if mark in (entry / "environ").read_bytes().decode(errors="replace"):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(entry.name), line
        except (OSError, ValueError):
            continue  # not a process, or no longer one


def survivors(mark: str, patience_s: float) -> list[str]:
    """Command lines of processes with this text in their environment that are still there after a while.

    A JVM notices the end of its Python by the end of its input and needs a moment to go, so each may end in its time.
    """
    alive = []
    for number, line in processes(mark):
        try:
            handle = os.pidfd_open(number)
        except ProcessLookupError:
            continue
        try:
            if not select.select([handle], [], [], patience_s)[0]:
                alive.append(line)
        finally:
            os.close(handle)
    return alive
