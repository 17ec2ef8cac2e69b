"""The sink of the demo: it records when each notice was published.

The account needs this: a notice is early if less than its delay lies between publishing and arrival.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from leveret.demo.lookups import record_name
from leveret.demo.roles.role import write_records
from leveret.spark.sink.options import SinkOptions
from leveret.spark.sink.staged import Published
from leveret.spark.sink.writer import StreamSink
from leveret.spark.source import LeveretDataSource


class TimedDataSource(LeveretDataSource):
    """The data source ``leveret``, whose sink writes times to the directory of option ``records``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "leveret-timed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the sink of a streaming query."""
        return TimedSink(SinkOptions.parse(self.options), schema, Path(self.options["records"]))


class TimedSink(StreamSink):
    """The sink; it reads the clock before it publishes rows, and before it releases the rows of a micro-batch."""

    def __init__(self, options: SinkOptions, schema: StructType, records: Path) -> None:
        super().__init__(options, schema)
        self._records = records

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish one partition. Raises the errors of the parent class."""
        ids: list[str] = []
        sent_ns: list[int] = []
        published = super().write(_noting(iterator, ids, sent_ns))
        write_records(self._records / "sent" / record_name(), id=ids, sent_ns=sent_ns)
        return published

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the rows of all tasks visible; a repeated commit, which has no effect, does not change the record."""
        released = self._records / "released" / str(batchId)
        if any(isinstance(each, Published) and each.attempt for each in messages) and not released.exists():
            released.write_text(str(time.time_ns()))
        super().commit(messages, batchId)


def _noting(batches: Iterator[pa.RecordBatch], ids: list[str], sent_ns: list[int]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids += batch.column("message_id").to_pylist()
        sent_ns += [time.time_ns()] * batch.num_rows
        yield batch
