"""The sink with a clock: every message carries the time at which it was published.

The account needs it: a notice is early if less than its delay lies between publishing and arrival, and no column that
Spark computes knows when the sink will come to that row.
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
"""Rows that share one reading of the clock; it comes before the first of them is sent, so few, for a strict account."""

_HEADERS = pa.map_(pa.string(), pa.string())


class TimedDataSource(LeveretDataSource):
    """``leveret``, whose sink adds the header ``x-sent-ns`` to rows that have a column ``headers``."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(…)``."""
        return "leveret-timed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The sink of a streaming query."""
        return TimedSink(SinkOptions.parse(self.options), schema)


class TimedSink(StreamSink):
    """The sink, which is handed a few rows at a time, each time with the present time in their headers."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publishes one partition; errors as those of the sink."""
        return super().write(stamped(iterator))


def stamped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in small batches, stamped with the time at which each batch is taken (nanoseconds since the epoch)."""
    for batch in batches:
        place = batch.schema.get_field_index("headers")
        for start in range(0, batch.num_rows, ROWS_PER_STAMP):
            rows = batch.slice(start, ROWS_PER_STAMP)
            now = (SENT_HEADER, str(time.time_ns()))
            headers = [[*(pairs or ()), now] for pairs in rows.column(place).to_pylist()]
            yield rows.set_column(place, "headers", pa.array(headers, _HEADERS))
