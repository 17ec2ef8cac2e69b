"""A sink that adds the time of publishing to every message.

The account needs it: a notice is early if less than its delay lies between publishing and arrival, and no column that
Spark computes knows when the sink will publish that row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from leveret.demo.plan import SENT_HEADER
from leveret.spark.sink.options import SinkOptions
from leveret.spark.sink.staged import Published
from leveret.spark.sink.writer import StreamSink
from leveret.spark.source import LeveretDataSource

ROWS_PER_STAMP = 100
"""Rows that share one reading of the clock, which precedes the first send; kept small for a strict account."""

_HEADERS = pa.map_(pa.string(), pa.string())


class TimedDataSource(LeveretDataSource):
    """The data source ``leveret``, whose sink adds the header ``x-sent-ns``; rows need a column ``headers``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "leveret-timed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the sink of a streaming query."""
        return TimedSink(SinkOptions.parse(self.options), schema)


class TimedSink(StreamSink):
    """The sink; it publishes a few rows at a time, each with the current time in their headers."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish one partition. Raises the errors of the parent class."""
        return super().write(stamped(iterator))


def stamped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in small batches, stamped with the time at which each is taken, in nanoseconds."""
    for batch in batches:
        place = batch.schema.get_field_index("headers")
        for start in range(0, batch.num_rows, ROWS_PER_STAMP):
            rows = batch.slice(start, ROWS_PER_STAMP)
            now = (SENT_HEADER, str(time.time_ns()))
            headers = [[*(pairs or ()), now] for pairs in rows.column(place).to_pylist()]
            yield rows.set_column(place, "headers", pa.array(headers, _HEADERS))
