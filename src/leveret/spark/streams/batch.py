"""The batch reader of a stream: reads what lies between two places when the query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from leveret.spark.brief import brief
from leveret.spark.rows.shape import RowShape
from leveret.spark.segments.planner import Facts
from leveret.spark.segments.pruning import EVERYTHING, pruning_of
from leveret.spark.streams.bounds import QueryStreams
from leveret.spark.streams.errors import StreamError, explained
from leveret.spark.streams.loss import DataLoss
from leveret.spark.streams.offsets import Span
from leveret.spark.streams.options import StreamOptions
from leveret.spark.streams.places import begin, check_names, end
from leveret.spark.streams.planning import Planner, StreamTask, read_task


class StreamBatchReader(DataSourceReader):
    """Reads from startingOffsets to endingOffsets. Nothing connects before ``partitions``. Errors are those of the
    streaming reader, but an unreachable broker fails at once, without retries."""

    def __init__(self, options: StreamOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape
        self._pruning = EVERYTHING

    @brief(StreamError)
    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks that read the messages in the stream now."""
        streams = QueryStreams(self._options)
        try:
            with explained():
                return self._planned(streams)
        finally:
            streams.close()

    def _planned(self, streams: QueryStreams) -> Sequence[InputPartition]:
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
                # the lease expires by itself: Spark does not tell the driver when the tasks are done
                planner.hold(name, bounds.facts, first)
                parts.append((Span(name, bounds.id, first, last), bounds.facts))
        return planner.tasks(parts, self._pruning)

    @brief(StreamError, DataLoss)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, on an executor."""
        if not isinstance(partition, StreamTask):
            return  # Spark adds an empty partition if none is returned
        yield from read_task(self._options, self._shape, partition)


class FilteredBatchReader(StreamBatchReader):
    """A batch reader that uses Spark's filters, which need spark.sql.python.filterPushdown.enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters to skip data; return all of them, since Spark applies them to the rows again."""
        self._pruning = pruning_of(filters)
        return filters
