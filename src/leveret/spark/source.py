"""The data source ``leveret``: what ``spark.readStream.format("leveret")`` and ``writeStream`` find."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from leveret.spark.columns import SOURCE_SCHEMA, arrow_schema
from leveret.spark.options import SinkOptions, SourceOptions
from leveret.spark.reader import QueueReader
from leveret.spark.sink import BatchSink, StreamSink


class LeveretDataSource(DataSource):
    """Messages of an AMQP 0-9-1 broker as a stream of rows, and rows as messages.

    Options and columns stand in docs/SPARK.md. All methods raise ``ValueError`` for an option or a column that cannot
    be used; nothing connects before the query runs.
    """

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(…)``."""
        return "leveret"

    def schema(self) -> StructType:
        """All columns of the source. A query may name fewer with ``.schema(…)``, and saves decoding the others."""
        return SOURCE_SCHEMA

    def simpleStreamReader(self, schema: StructType) -> QueueReader:
        """The reader of option ``queue``."""
        return QueueReader(SourceOptions.parse(self.options), arrow_schema(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The sink of a streaming query; ``overwrite`` means nothing to a broker."""
        return StreamSink(SinkOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The sink of ``df.write``; ``overwrite`` means nothing to a broker."""
        return BatchSink(SinkOptions.parse(self.options), schema)
