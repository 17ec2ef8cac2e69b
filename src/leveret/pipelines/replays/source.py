"""A selection as a Spark stream: micro-batches are ranges of row numbers, set by the schedule."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructField, StructType

from leveret.pipelines.replays.schedule import ReplaySchedule
from leveret.pipelines.replays.selection import PUBLISHED, ReplaySelection, SelectedRows
from leveret.spark.rows.columns import MESSAGE, OPTIONAL

NAME: Final = "leveret-replay"
SCHEMA: Final = StructType([StructField(name, {**MESSAGE, **OPTIONAL}[name][0]) for name in PUBLISHED])

BATCH_ROWS: Final = 50_000
BATCH_OCTETS: Final = 64 << 20
TASK_ROWS_MIN: Final = 10_000
"""Least rows per task; fewer do not justify another task."""

WAIT_S: Final = 0.01
"""Seconds to wait before Spark is told that nothing is due."""


def options(selection: ReplaySelection, rate: float | None, speed: float | None, tasks: int) -> dict[str, str]:
    """Return the options for :class:`ReplaySource`; ``tasks`` is the most tasks of a micro-batch."""
    rows = selection.totals.messages
    octets = max(1, selection.octets // max(1, rows))
    return {
        "directory": str(selection.directory),
        "files": json.dumps(selection.files),
        "rows_max": str(max(1, min(BATCH_ROWS, BATCH_OCTETS // octets))),
        "rate": json.dumps(rate),
        "speed": json.dumps(speed),
        "tasks": str(tasks),
    }


class ReplaySource(DataSource):
    """``format("leveret-replay")``: yields the messages of a selection when they are due."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> ReplayReader:
        files = tuple((name, rows) for name, rows in json.loads(self.options["files"]))
        rows = SelectedRows(self.options["directory"], files)
        rate, speed = json.loads(self.options["rate"]), json.loads(self.options["speed"])
        schedule = ReplaySchedule(rate, speed, rows.time)
        return ReplayReader(rows, schedule, int(self.options["rows_max"]), int(self.options["tasks"]))


@dataclass
class NumberedRows(InputPartition):
    """The rows first ≤ n < end, read by one task."""

    first: int
    end: int


class ReplayReader(DataSourceStreamReader):
    """Reads a selection by a schedule. Offsets are ``{"next": n}``: the messages below n were read."""

    def __init__(self, rows: SelectedRows, schedule: ReplaySchedule, rows_max: int, tasks: int) -> None:
        self._rows = rows
        self._schedule = schedule
        self._rows_max = rows_max
        self._tasks = tasks

    def initialOffset(self) -> dict[str, Any]:
        return {"next": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the due messages, at most a micro-batch further."""
        at = start["next"]
        end = self._schedule.due(at, min(len(self._rows), at + self._rows_max))
        if end == at:
            time.sleep(WAIT_S)
        return {"next": end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return consecutive ranges, since the sink releases stages in their order."""
        first, count = start["next"], end["next"] - start["next"]
        tasks = max(1, min(self._tasks, count // TASK_ROWS_MIN))
        bounds = [first + count * number // tasks for number in range(tasks + 1)]
        return [NumberedRows(bounds[number], bounds[number + 1]) for number in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, on an executor."""
        assert isinstance(partition, NumberedRows)
        return self._rows.batches(partition.first, partition.end)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the schedule: executors do not need it."""
        return {**self.__dict__, "_schedule": None}
