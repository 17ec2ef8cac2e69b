"""A reader that stands in for a stream reader whose construction failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from leveret.spark.brief import brief


class RefusedReader(DataSourceStreamReader):
    """Raises ``error`` at the first call. Spark loses errors that are raised while a stream reader is constructed: it
    tries to stop the reader that does not exist, and reports that failure instead."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @brief(Exception)
    def initialOffset(self) -> dict[str, Any]:
        """Raise the error; Spark calls this first for a new query."""
        raise self._error

    @brief(Exception)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raise the error; Spark calls this first for a resumed query."""
        raise self._error

    @brief(Exception)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error; Spark calls this first for a query that repeats its last micro-batch."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error; never called, since there are no partitions."""
        raise self._error
