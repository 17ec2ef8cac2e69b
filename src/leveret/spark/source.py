"""The data source ``leveret``, as found by ``spark.readStream.format("leveret")`` and ``writeStream``."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

from leveret.spark.brief import brief
from leveret.spark.queues import modes
from leveret.spark.queues.errors import SourceError
from leveret.spark.refused import RefusedReader
from leveret.spark.rows.columns import QUEUE_SCHEMA, STREAM_SCHEMA
from leveret.spark.rows.shape import OF_STREAM, RowOptions, RowShape
from leveret.spark.segments import pruning
from leveret.spark.sink.options import SinkOptions
from leveret.spark.sink.writer import BatchSink, StreamSink
from leveret.spark.streams.batch import FilteredBatchReader, StreamBatchReader
from leveret.spark.streams.bounds import check_there, stream_schema
from leveret.spark.streams.errors import StreamError
from leveret.spark.streams.options import StreamOptions
from leveret.spark.streams.reader import StreamReader


class LeveretDataSource(DataSource):
    """Messages of an AMQP 0-9-1 broker as rows, and rows as messages.

    Option ``stream`` reads a stream, option ``queue`` a queue; pages in docs/guides/spark/ list options and columns.
    All methods raise ``ValueError`` for an unusable option or column. Nothing connects before the query runs, except
    for the schema: ``load()`` fails if the queue or stream does not exist, and ``parse=stream`` reads the stream's
    schema.
    """

    _stream_schema: str | None = None
    """The stream's x-leveret-schema, read once: Spark pickles this object for its other processes."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "leveret"

    @brief(ValueError, SourceError, StreamError)
    def schema(self) -> StructType:
        """Return all columns of the source, or those of option ``columns``; ``.schema(…)`` may also name fewer."""
        columns = self._row_options().schema(self._columns())
        if self._is_stream():
            check_there(StreamOptions.parse(self.options))
        else:
            modes.check(self.options)
        return columns

    @brief(ValueError)
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``."""
        if self._is_stream():
            # Spark rejects a reader with pushFilters while filter pushdown is disabled
            kind = FilteredBatchReader if pruning.is_offered() else StreamBatchReader
            return kind(StreamOptions.parse(self.options), self._shape(schema))
        return modes.batch_reader(self.options, self._shape(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for ``spark.readStream`` that plans its own tasks, or have Spark ask for the simple one."""
        try:
            if self._is_stream():
                return StreamReader(StreamOptions.parse(self.options), self._shape(schema))
            if modes.is_spooled(self.options):
                return modes.spool_reader(self.options, self._shape(schema))
            self.simpleStreamReader(schema)
        except (ValueError, StreamError) as error:
            return RefusedReader(error)
        return super().streamReader(schema)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        """Return the reader for ``spark.readStream`` that reads a queue in the driver."""
        return modes.ack_reader(self.options, self._shape(schema))

    @brief(ValueError)
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the sink of a streaming query; ``overwrite`` is ignored."""
        return StreamSink(SinkOptions.parse(self.options), schema)

    @brief(ValueError)
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the sink of ``df.write``; ``overwrite`` is ignored."""
        return BatchSink(SinkOptions.parse(self.options), schema)

    def _columns(self) -> StructType:
        return STREAM_SCHEMA if self.options.get("stream") else QUEUE_SCHEMA

    def _shape(self, schema: StructType) -> RowShape:
        return self._row_options().shape(schema, self._columns())

    def _row_options(self) -> RowOptions:
        options = RowOptions.parse(self.options)
        if options.body_format != OF_STREAM:
            return options
        if not self.options.get("stream"):
            raise ValueError("option parse=stream needs option stream: a queue has no schema")
        if self._stream_schema is None:
            self._stream_schema = stream_schema(StreamOptions.parse(self.options))
        return options.of_stream(self._stream_schema)

    def _is_stream(self) -> bool:
        has_stream, has_queue = bool(self.options.get("stream")), bool(self.options.get("queue"))
        if has_stream == has_queue:
            raise ValueError(
                "options stream and queue: set exactly one of them, to the name of what to read; "
                + ("both are set" if has_stream else "neither is set")
            )
        if has_stream and "mode" in self.options:
            raise ValueError("option mode is only for queues, not for streams")
        return has_stream
