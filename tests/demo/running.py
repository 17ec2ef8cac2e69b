"""Runs the demo as its user does, and looks for processes that it has left behind."""

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
    """Return an environment that every process of the run inherits, with a mark that identifies them."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", "LEVERET_TEST_RUN": str(output)}


def report(output: Path) -> dict[str, dict[str, dict[str, list[str]]]]:
    return json.loads((output / "report.json").read_text())


def processes(mark: str) -> Iterator[tuple[int, str]]:
    """Yield process ids and command lines of processes whose environment contains the mark."""
    for entry in Path("/proc").iterdir():
        try:
            if mark in (entry / "environ").read_bytes().decode(errors="replace"):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(entry.name), line
        except (OSError, ValueError):
            continue  # not a process, or it has ended


def survivors(mark: str, patience_s: float) -> list[str]:
    """Return command lines of marked processes that have not ended after `patience_s`.

    A JVM notices the end of its Python process by the end of its input, and needs a moment to exit.
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
