"""A selection as a Spark stream: micro-batches are ranges of row numbers, set by the schedule.

Only these ranges pass through Spark: the task that publishes a range reads its rows from the selection's files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import LongType, StructField, StructType

from leveret.pipelines.replays.schedule import ReplaySchedule
from leveret.pipelines.replays.selection import PUBLISHED, ReplaySelection, SelectedRows
from leveret.spark.rows.columns import MESSAGE, OPTIONAL
from leveret.spark.sink.options import SinkOptions
from leveret.spark.sink.staged import Published
from leveret.spark.sink.writer import StreamSink

NAME: Final = "leveret-replay"
SCHEMA: Final = StructType([StructField("first", LongType()), StructField("end", LongType())])
"""The columns of the stream: a row is a range of the selection, from its first row to before its end."""
ROWS: Final = StructType([StructField(name, {**MESSAGE, **OPTIONAL}[name][0]) for name in PUBLISHED])
"""The columns of the rows that are published."""

BATCH_ROWS: Final = 100_000
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
    """``format("leveret-replay")``: yields ranges of a selection when they are due, and publishes their messages."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: StructType) -> ReplayReader:
        rows = self._rows()
        rate, speed = json.loads(self.options["rate"]), json.loads(self.options["speed"])
        schedule = ReplaySchedule(rate, speed, rows.time)
        return ReplayReader(rows, schedule, int(self.options["rows_max"]), int(self.options["tasks"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return ReplaySink(SinkOptions.parse(self.options), self._rows())

    def _rows(self) -> SelectedRows:
        files = tuple((name, rows) for name, rows in json.loads(self.options["files"]))
        return SelectedRows(self.options["directory"], files)


class ReplaySink(StreamSink):
    """The sink ``leveret`` for ranges of a selection."""

    def __init__(self, options: SinkOptions, rows: SelectedRows) -> None:
        super().__init__(options, ROWS)
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of these ranges, on an executor."""
        ranges = (each for batch in iterator for each in batch.to_pylist())
        return super().write(rows for each in ranges for rows in self._rows.batches(each["first"], each["end"]))


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
        """Yield the range of one task, on an executor."""
        assert isinstance(partition, NumberedRows)
        return iter([pa.record_batch({"first": pa.array([partition.first]), "end": pa.array([partition.end])})])

    def __getstate__(self) -> dict[str, Any]:
        """Leave out rows and schedule: executors do not need them to yield a range."""
        return {**self.__dict__, "_rows": None, "_schedule": None}
