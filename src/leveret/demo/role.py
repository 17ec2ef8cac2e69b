"""What the child processes of the demo have in common: how they report and how they learn that they shall stop.

A child writes one JSON object per line to its standard output. It stops when its standard input ends: that happens when
the demo closes it, and also when the demo is killed, so that no child outlives it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

REPORT_S = 0.2
"""Seconds between two reports of progress."""


class Reporter:
    """Tells the parent process how far this one is, a few times per second."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def state(self, **fields: int | float | str) -> None:
        """Reports at once."""
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()

    def progress(self, count: int) -> None:
        """Reports a count, unless the last report was a moment ago."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + REPORT_S
            self.state(count=count)


def stop_signal(told: threading.Event | None = None) -> threading.Event:
    """An event that is set when standard input ends. told: one that is set when something is said there."""
    stop = threading.Event()

    def watch() -> None:
        # A plain read: a thread that sits in sys.stdin holds its lock, and the interpreter could not exit.
        while os.read(0, 1024):
            if told is not None:
                told.set()
        stop.set()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    return stop


def write_records(path: Path, **columns: list[str] | list[int]) -> None:
    """Writes lists of equal length as a Parquet file; readers never see half of one."""
    unfinished = path.with_suffix(".unfinished")
    # Of strings where there is nothing: an empty column has no type of its own, and could not be read with others.
    arrays = {name: pa.array(values, None if values else pa.string()) for name, values in columns.items()}
    pq.write_table(pa.table(arrays), unfinished)
    unfinished.rename(path)
