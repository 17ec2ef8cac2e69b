"""The foreachBatch function that writes micro-batches as Parquet."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

from leveret.pipelines.archives.batches import DEAD, LAKE, ArchiveBatches
from leveret.pipelines.archives.checkpoints import Checkpoint
from leveret.pipelines.archives.parsing import Parsing, split
from leveret.pipelines.archives.rows import lake_rows
from leveret.pipelines.archives.schemas import BodySchema, Schemas
from leveret.pipelines.archives.sources import ArchiveSource
from leveret.pipelines.archives.storage import Storage

TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
DEAD_PARTITION_BY: Final = ("day",)

_at_work: dict[str, threading.Lock] = {}


def at_work(source: str) -> threading.Lock:
    """Return the lock for writing a batch of this source: a stopped query leaves its batch running in this process."""
    return _at_work.setdefault(source, threading.Lock())


@dataclass(frozen=True)
class ParquetSink:
    """Writes micro-batches of a source into a Parquet lake, each once, even if Spark repeats it."""

    source: ArchiveSource
    lake: Storage
    dead: Storage
    checkpoint: Checkpoint
    partition_by: Sequence[str]
    parsing: Parsing | None
    is_exact: bool

    def __call__(self, frame: DataFrame, batch: int) -> None:
        with at_work(f"{self.lake.location} {self.source.slug}"):
            batches = ArchiveBatches(self.source.slug, {LAKE: self.lake, DEAD: self.dead})
            planned = self.checkpoint.planned(batch)
            record = batches.replayed(batch, planned)
            if record is None:
                stage = batches.stage(batch)
                schema = self._write(frame, batch, stage)
                record = batches.seal(batch, stage, planned, schema.version)
            batches.move(record)

    def _write(self, frame: DataFrame, batch: int, stage: str) -> BodySchema:
        # the session is the query's own; Spark's default is INT96, which other readers take for times without a zone
        frame.sparkSession.conf.set(TIMESTAMPS, "TIMESTAMP_MICROS")
        rows = lake_rows(frame, self.source, batch, self.is_exact)
        if self.parsing is None:
            schema = Schemas(self.lake).newest()
            _write(rows, self.lake.spark(stage), self.partition_by)
            return schema
        with split(rows, self.parsing, Schemas(self.lake)) as (good, bad, schema):
            _write(good, self.lake.spark(stage), self.partition_by)
            _write(bad, self.dead.spark(stage), DEAD_PARTITION_BY)
        return schema


def _write(frame: DataFrame, path: str, partition_by: Sequence[str]) -> None:
    writer = frame.write.mode("overwrite").option("compression", "zstd")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.parquet(path)
