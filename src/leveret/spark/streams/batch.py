"""The batch reader of a stream: what it has between two places, taken at the moment that the query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from leveret.spark.brief import brief
from leveret.spark.rows.shape import RowShape
from leveret.spark.segments.planner import Facts
from leveret.spark.segments.pruning import EVERYTHING, pruning_of
from leveret.spark.streams.bounds import Streams
from leveret.spark.streams.errors import StreamError, explained
from leveret.spark.streams.loss import DataLoss
from leveret.spark.streams.offsets import Span
from leveret.spark.streams.options import StreamOptions
from leveret.spark.streams.places import begin, check_names, end
from leveret.spark.streams.planning import Planner, StreamTask, read_task


class StreamBatchReader(DataSourceReader):
    """Reads from startingOffsets to endingOffsets. Nothing connects before ``partitions``; errors as of the reader of
    streaming queries, but a broker that is away is an error at once."""

    def __init__(self, options: StreamOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape
        self._pruning = EVERYTHING

    @brief(StreamError)
    def partitions(self) -> Sequence[InputPartition]:
        """The tasks that read what is there now."""
        streams = Streams(self._options)
        try:
            with explained():
                return self._planned(streams)
        finally:
            streams.close()

    def _planned(self, streams: Streams) -> Sequence[InputPartition]:
        options = self._options
        planner = Planner(options, self._shape)
        parts: list[tuple[Span, Facts | None]] = []
        names = streams.partitions()
        check_names(options.starting, "startingOffsets", names)
        check_names(options.ending, "endingOffsets", names)
        for name in names:
            bounds = streams.bounds(name)
            first, last = begin(streams, options, name, bounds), end(streams, options, name, bounds)
            first, last = max(first, self._pruning.first), min(last, self._pruning.end)
            if first < last:
                # the lease ends by itself: nobody tells the driver when the tasks are done
                planner.hold(name, bounds.facts, first)
                parts.append((Span(name, bounds.id, first, last), bounds.facts))
        return planner.tasks(parts, self._pruning)

    @brief(StreamError, DataLoss)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
        if not isinstance(partition, StreamTask):
            return  # Spark makes up a partition where there is none
        yield from read_task(self._options, self._shape, partition)


class FilteredBatchReader(StreamBatchReader):
    """The same where Spark offers filters, which it does only with spark.sql.python.filterPushdown.enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Leave out what no filter lets through. Spark applies all of them all the same."""
        self._pruning = pruning_of(filters)
        return filters
