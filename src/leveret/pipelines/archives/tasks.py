"""The tasks of a micro-batch as rows: whoever processes such a row reads its messages, so that they do not pass through
Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, StructField, StructType

from leveret.spark.refused import RefusedReader
from leveret.spark.segments.files import covering
from leveret.spark.source import LeveretDataSource
from leveret.spark.streams.planning import StreamTask, cut

TASK: Final = "task"


class TaskSource(LeveretDataSource):
    """``format("leveret-tasks")``: like ``leveret``, but a row is a task; :func:`messages` reads its messages."""

    @classmethod
    def name(cls) -> str:
        return "leveret-tasks"

    def schema(self) -> StructType:
        """Return the one column; fails if the queue or stream does not exist."""
        super().schema()
        return StructType([StructField(TASK, BinaryType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader = super().streamReader(super().schema())
        return reader if isinstance(reader, RefusedReader) else TaskReader(reader)


class TaskReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans as the source's own reader does, and yields each task instead of its messages."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def initialOffset(self) -> dict[str, Any]:
        found: dict[str, Any] = self._reader.initialOffset()
        return found

    def getDefaultReadLimit(self) -> ReadLimit:
        limit: ReadLimit = self._reader.getDefaultReadLimit()
        return limit

    def prepareForTriggerAvailableNow(self) -> None:
        self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        found: dict[str, Any] = self._reader.latestOffset(start, limit)
        return found

    def reportLatestOffset(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._reader.reportLatestOffset()
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [piece for task in self._reader.partitions(start, end) for piece in _pieces(task)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({TASK: pa.array([pickle.dumps((self._reader, partition))], pa.binary())})

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()


def _pieces(task: InputPartition) -> list[InputPartition]:
    """Cut a task that reads more sealed messages than one over AMQP would: parsing them is work for several cores."""
    if not isinstance(task, StreamTask) or task.sealed is None:
        return [task]
    sealed = task.sealed
    return [
        StreamTask(
            span,
            replace(sealed, first=span.first, end=span.end, files=tuple(covering(sealed.files, span.first, span.end))),
            task.is_typed,
        )
        for span in cut([task.span], 1)
    ]


def messages(tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the messages of these tasks, on an executor."""
    for batch in tasks:
        for task in batch.column(TASK).to_pylist():
            reader, partition = pickle.loads(task)  # written by this query's own reader
            yield from reader.read(partition)
