"""Writes micro-batches into Delta or Iceberg tables, whose own logs tell which batches they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from leveret.pipelines.archives.batches import LAKE, ArchiveBatches, BatchRecord
from leveret.pipelines.archives.checkpoints import Checkpoint
from leveret.pipelines.archives.lake import COLUMNS, CONTENT_HEADER, DELTA, ICEBERG
from leveret.pipelines.archives.parsing import CENSUS, DATA, ERROR, Parser, Parsing, counted, grow
from leveret.pipelines.archives.rows import LakeRows
from leveret.pipelines.archives.schemas import BodySchema, Schemas
from leveret.pipelines.archives.sources import ArchiveSource
from leveret.pipelines.archives.storage import Storage
from leveret.pipelines.archives.writing import DEAD_PARTITION_BY, at_work
from leveret.pipelines.errors import PipelineError, cause

PACKAGES: Final = {
    DELTA: "io.delta:delta-spark_2.13:VERSION",
    ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13:VERSION",
}
BATCH_PROPERTY: Final = "leveret.batch"
"""Property in the summary of an Iceberg snapshot: the source and batch that it added."""


@dataclass(frozen=True)
class TableSink:
    """Writes micro-batches of a source into a table, each once.

    Attributes:
        form: DELTA or ICEBERG.
        lake, dead: the tables, by path or name.
        state: where schemas and notes are.
    """

    source: ArchiveSource
    form: str
    lake: str
    dead: str
    state: Storage
    checkpoint: Checkpoint
    partition_by: Sequence[str]
    parsing: Parsing | None
    is_exact: bool

    def __call__(self, frame: DataFrame, batch: int) -> None:
        with at_work(f"{self.state.location} {self.source.slug}"):
            rows = LakeRows.of(self.source, batch, self.is_exact, datetime.now(UTC))
            kinds = [*COLUMNS.fields, *([CONTENT_HEADER] if self.is_exact else [])]
            if self.parsing is None:
                self._write(frame.mapInArrow(rows, StructType(kinds)), self.lake, batch, self.partition_by)
                return
            frame.persist()  # the rows are read once
            try:
                schema = self._schema(frame, self.parsing, batch)
                kinds += [StructField(DATA, schema.struct())] if schema.columns else []
                kinds += [StructField(ERROR, StringType())]
                parsed = frame.mapInArrow(_ParsedRows(rows, Parser(schema)), StructType(kinds)).persist()
                try:
                    good, bad = parsed.where(f"{ERROR} IS NULL"), parsed.where(f"{ERROR} IS NOT NULL")
                    self._write(good.drop(ERROR), self.lake, batch, self.partition_by)
                    self._write(bad.drop(DATA), self.dead, batch, DEAD_PARTITION_BY if self.partition_by else ())
                finally:
                    parsed.unpersist()
            finally:
                frame.unpersist()

    def _schema(self, rows: DataFrame, parsing: Parsing, batch: int) -> BodySchema:
        """Return the schema for a batch; a replay has the same, since the two tables commit separately and no row may
        be in both."""
        batches, schemas = ArchiveBatches(self.source.slug, {LAKE: self.state}), Schemas(self.state)
        planned = self.checkpoint.planned(batch)
        record = batches.replayed(batch, planned)
        if record is not None:
            return schemas.version(record.schema)
        found = rows.select("body").mapInArrow(_census, CENSUS).collect()
        schema = grow(schemas, parsing, [row.census for row in found])
        batches.note(BatchRecord(batch, planned, schema.version))
        return schema

    def _write(self, rows: DataFrame, table: str, batch: int, partition_by: Sequence[str]) -> None:
        writer = f"{self.source.slug}-{self.checkpoint.id}"
        if self.form == DELTA:
            _to_delta(rows, table, writer, batch, partition_by)
        else:
            _to_iceberg(rows, table, f"{writer}-{batch}", partition_by)


@dataclass(frozen=True)
class _ParsedRows:
    rows: LakeRows
    parser: Parser

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.parser(self.rows(batches))


def _census(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield counted(batches)


def require(spark: SparkSession, form: str) -> None:
    """Raise ``PipelineError`` unless Spark can write tables of this form."""
    try:
        spark.read.format(form).load("/leveret-asks-whether-the-format-is-there").schema  # noqa: B018
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise PipelineError(
                f"Spark has no data source {form!r}: add --conf spark.jars.packages={PACKAGES[form]} with the version "
                "for your Spark, and the settings from its documentation"
            ) from None
        # the format exists; only the table does not


def compact(spark: SparkSession, form: str, table: str) -> None:
    """Merge the small files of a table, with the table's own command.

    Raises:
        PipelineError: Spark's reason why it cannot.
    """
    catalog, _, name = table.partition(".")
    statements = {
        DELTA: f"OPTIMIZE delta.`{table}`",
        ICEBERG: f"CALL {catalog}.system.rewrite_data_files(table => '{name}')",
    }
    try:
        spark.sql(statements[form]).collect()
    except Exception as error:
        raise PipelineError(f"{table} can't be compacted ({statements[form]}): {cause(error)}") from error


def _to_delta(rows: DataFrame, path: str, writer: str, batch: int, partition_by: Sequence[str]) -> None:
    # Delta skips a write if it has this version from this writer already
    options = {"txnAppId": writer, "txnVersion": str(batch), "mergeSchema": "true"}
    frames = rows.write.format(DELTA).mode("append").options(**options)
    if partition_by:
        frames = frames.partitionBy(*partition_by)
    frames.save(path)


def _to_iceberg(rows: DataFrame, table: str, batch: str, partition_by: Sequence[str]) -> None:
    spark = rows.sparkSession
    if not spark.catalog.tableExists(table):
        creation = rows.limit(0).writeTo(table).using(ICEBERG).tableProperty("write.spark.accept-any-schema", "true")
        if partition_by:
            creation = creation.partitionedBy(*map(F.col, partition_by))
        creation.create()
    snapshots = spark.table(f"{table}.snapshots").select(F.col("summary")[BATCH_PROPERTY].alias("batch"))
    if snapshots.where(F.col("batch") == batch).isEmpty():
        frames = rows.writeTo(table).option("mergeSchema", "true")
        frames.option(f"snapshot-property.{BATCH_PROPERTY}", batch).append()
