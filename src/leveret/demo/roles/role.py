"""Code shared by the child processes of the demo: reporting to the parent, and noticing that they shall stop.

A child writes one JSON object per line to its standard output. It stops when its standard input ends, i.e. when the
demo closes it or is killed, so that no child outlives the demo.
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
"""The interval of progress reports, in seconds."""


class ProgressReporter:
    """A reporter of progress to the parent process, a few times per second."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def state(self, **fields: int | float | str) -> None:
        """Report at once."""
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()

    def progress(self, count: int) -> None:
        """Report a count, unless the last report was a moment ago."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + REPORT_S
            self.state(count=count)


def stop_signal(told: threading.Event | None = None) -> threading.Event:
    """Return an event that is set when standard input ends. `told` is set when something is read from it."""
    stop = threading.Event()

    def watch() -> None:
        # os.read, since a thread blocked in sys.stdin holds its lock, and the interpreter could not exit
        while os.read(0, 1024):
            if told is not None:
                told.set()
        stop.set()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    return stop


def write_records(path: Path, **columns: list[str] | list[int] | pa.ChunkedArray) -> None:
    """Write columns of equal length as a Parquet file; readers never see an incomplete file."""
    unfinished = path.with_suffix(".unfinished")
    # an empty column would have the null type and could not be read together with others, so give it type string
    arrays = {
        name: values if isinstance(values, pa.ChunkedArray) else pa.array(values, None if values else pa.string())
        for name, values in columns.items()
    }
    pq.write_table(pa.table(arrays), unfinished)
    unfinished.rename(path)
