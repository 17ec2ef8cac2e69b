"""The foreachBatch function that writes micro-batches as Parquet: tasks read, parse and write on executors."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from leveret.pipelines.archives.batches import DEAD, LAKE, ArchiveBatches
from leveret.pipelines.archives.checkpoints import Checkpoint
from leveret.pipelines.archives.files import PartitionedWriter, WrittenFile
from leveret.pipelines.archives.parsing import CENSUS, DATA, ERROR, NO_COLUMN, Parser, Parsing, counted, grow
from leveret.pipelines.archives.rows import LakeRows
from leveret.pipelines.archives.schemas import BodySchema, Schemas
from leveret.pipelines.archives.sources import ArchiveSource
from leveret.pipelines.archives.storage import Storage
from leveret.pipelines.archives.tasks import messages

DEAD_PARTITION_BY: Final = ("day",)

_WRITTEN: Final = "kind STRING, path STRING, rows BIGINT, octets BIGINT"
_NEW_FIELDS: Final = "new fields"

_Files = dict[str, list[WrittenFile]]

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
                schema, files = self._written(frame, batch, batches)
                record = batches.seal(batch, files, planned, schema.version)
            batches.move(record)

    def _written(self, tasks: DataFrame, batch: int, batches: ArchiveBatches) -> tuple[BodySchema, _Files]:
        """Write the files of a batch, and again if they show that the lake's schema has to grow."""
        schemas = Schemas(self.lake)
        known = schemas.newest()
        files: _Files | None = None
        if self.parsing is None or known.columns:
            files, has_new_fields = self._files(tasks, batch, batches.stage(batch), known)
            if self.parsing is None or not has_new_fields:
                return known, files
        grown = grow(schemas, self.parsing, [row.census for row in tasks.mapInArrow(_count, CENSUS).collect()])
        if files is None or grown.version != known.version:
            files, _ = self._files(tasks, batch, batches.stage(batch), grown)
        return grown, files

    def _files(self, tasks: DataFrame, batch: int, stage: str, schema: BodySchema) -> tuple[_Files, bool]:
        """Return the files of all tasks, and whether bodies have fields that the schema lacks."""
        rows = LakeRows.of(self.source, batch, self.is_exact, datetime.now(UTC))
        parser = None if self.parsing is None else Parser(schema)
        task = _WriteTask(rows, parser, self.lake, self.dead, stage, tuple(self.partition_by))
        files: _Files = {LAKE: [], DEAD: []}
        has_new_fields = False
        for row in tasks.mapInArrow(task, _WRITTEN).collect():
            if row.kind == _NEW_FIELDS:
                has_new_fields = True
            else:
                files[row.kind].append(WrittenFile(row.path, row.rows, row.octets))
        return files, has_new_fields


def _count(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield counted(messages(tasks))


@dataclass(frozen=True)
class _WriteTask:
    """Writes the messages of a task into files, and yields a row for each. For ``mapInArrow``."""

    rows: LakeRows
    parser: Parser | None
    lake: Storage
    dead: Storage
    stage: str
    partition_by: tuple[str, ...]

    def __call__(self, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lake = PartitionedWriter(self.lake, self.stage, self.partition_by)
        dead = PartitionedWriter(self.dead, self.stage, DEAD_PARTITION_BY)
        has_new_fields = False
        for batch in self._batches(messages(tasks)):
            errors = batch.column(ERROR) if self.parser is not None else None
            if errors is None or errors.null_count == len(batch):
                lake.add(batch if errors is None else batch.drop_columns([ERROR]))
                continue
            is_good = errors.is_null()
            lake.add(batch.filter(is_good).drop_columns([ERROR]))
            bad = batch.filter(pc.invert(is_good))
            dead.add(bad.drop_columns([DATA]) if DATA in bad.schema.names else bad)
            has_new_fields |= pc.any(pc.starts_with(bad.column(ERROR), NO_COLUMN)).as_py()
        found: list[dict[str, Any]] = [
            {"kind": kind, "path": file.path, "rows": file.rows, "octets": file.octets}
            for kind, writer in ((LAKE, lake), (DEAD, dead)) for file in writer.finish()
        ]  # fmt: skip
        if has_new_fields:
            found.append({"kind": _NEW_FIELDS})
        kinds = pa.schema([("kind", pa.string()), ("path", pa.string()), ("rows", pa.int64()), ("octets", pa.int64())])
        yield pa.RecordBatch.from_pylist(found, kinds)

    def _batches(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = self.rows(found)
        return rows if self.parser is None else self.parser(rows)
