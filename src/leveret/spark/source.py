"""The data source ``leveret``: what ``spark.readStream.format("leveret")`` and ``writeStream`` find."""

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

    Option ``stream`` reads a stream, option ``queue`` a queue. Options and columns stand in
    docs/guides/spark/. All methods raise ``ValueError`` for an option or a column that cannot be
    used; nothing connects before the query runs, but for the schema: ``load()`` fails where there is no such queue or
    stream, and ``parse=stream`` asks for its types.
    """

    _stream_schema: str | None = None
    """The stream's x-leveret-schema, asked for once: Spark pickles this object for its other processes."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(…)``."""
        return "leveret"

    @brief(ValueError, SourceError, StreamError)
    def schema(self) -> StructType:
        """All columns of the source, or those of option ``columns``; ``.schema(…)`` may name fewer, too."""
        columns = self._row_options().schema(self._columns())
        if self._is_stream():
            check_there(StreamOptions.parse(self.options))
        else:
            modes.check(self.options)
        return columns

    @brief(ValueError)
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of ``spark.read``."""
        if self._is_stream():
            # a reader that takes filters is an error where Spark is not to push them
            kind = FilteredBatchReader if pruning.is_offered() else StreamBatchReader
            return kind(StreamOptions.parse(self.options), self._shape(schema))
        return modes.batch_reader(self.options, self._shape(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of ``spark.readStream`` with tasks of its own; Spark asks for the simple one if there is none."""
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
        """The reader of a queue in the driver."""
        return modes.ack_reader(self.options, self._shape(schema))

    @brief(ValueError)
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The sink of a streaming query; ``overwrite`` means nothing to a broker."""
        return StreamSink(SinkOptions.parse(self.options), schema)

    @brief(ValueError)
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The sink of ``df.write``; ``overwrite`` means nothing to a broker."""
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
                "options stream and queue: say one of them, the name of what to read; "
                + ("both are there" if has_stream else "neither is there")
            )
        if has_stream and "mode" in self.options:
            raise ValueError("option mode says how a queue is read; a stream has none")
        return has_stream
