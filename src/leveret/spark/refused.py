"""A reader that stands for one that can't be made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from leveret.spark.brief import brief


class RefusedReader(DataSourceStreamReader):
    """Raises ``error`` whatever it is asked first. Spark loses an error that is raised where a stream reader is made:
    it stops the reader that there is not, and reports that."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @brief(Exception)
    def initialOffset(self) -> dict[str, Any]:
        """The first question of a new query."""
        raise self._error

    @brief(Exception)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The first question of a query that goes on."""
        raise self._error

    @brief(Exception)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The first question of a query that repeats its last micro-batch."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """There are no partitions."""
        raise self._error
