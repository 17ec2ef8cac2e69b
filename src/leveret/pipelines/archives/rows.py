"""Converts messages into the rows of a lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.pipelines.archives.lake import CONTENT_HEADER, DEFAULT_EXCHANGE
from leveret.pipelines.archives.sources import QUEUE, ArchiveSource
from leveret.spark.rows.columns import ARROW, MESSAGE

_TIME: Final = pa.timestamp("us", tz="UTC")


def source_columns(source: ArchiveSource, is_exact: bool) -> list[str]:
    """Return the columns to read from the source; others are not decoded."""
    own = [] if source.kind == QUEUE else ["stream", "offset", "arrived"]
    return [*MESSAGE, *own, *([CONTENT_HEADER.name] if is_exact else [])]


@dataclass(frozen=True)
class LakeRows:
    """Adds a lake's columns to batches of messages. Can be pickled.

    Attributes:
        columns: the message's own columns.
        source: name of the queue; None for a stream, whose rows name it.
        archived: the time of archiving.
    """

    columns: tuple[str, ...]
    source: str | None
    broker: str
    batch: int
    archived: datetime

    @staticmethod
    def of(source: ArchiveSource, batch: int, is_exact: bool, archived: datetime) -> LakeRows:
        """Return the rows of a micro-batch."""
        columns = (*MESSAGE, *([CONTENT_HEADER.name] if is_exact else []))
        return LakeRows(columns, source.name if source.kind == QUEUE else None, source.broker, batch, archived)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns of a lake, in its order."""
        return map(self._converted, batches)

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = len(batch)
        found = {name: _cast(batch.column(name), ARROW[name]) for name in self.columns}
        found["exchange"] = pc.if_else(pc.equal(found["exchange"], ""), DEFAULT_EXCHANGE, found["exchange"])
        content_header = found.pop(CONTENT_HEADER.name, None)
        is_stream = self.source is None
        found["source"] = batch.column("stream") if is_stream else pa.repeat(self.source, rows)
        found["broker"] = pa.repeat(self.broker, rows)
        found["offset"] = batch.column("offset") if is_stream else pa.nulls(rows, pa.int64())
        found["arrived"] = _cast(batch.column("arrived"), _TIME) if is_stream else pa.nulls(rows, _TIME)
        found["archived"] = pa.repeat(pa.scalar(self.archived, _TIME), rows)
        found["batch"] = pa.repeat(self.batch, rows)
        # rounds down, also before 1970
        found["day"] = pc.coalesce(found["arrived"], found["timestamp"], found["archived"]).cast(pa.date32())
        if content_header is not None:
            found[CONTENT_HEADER.name] = content_header
        return pa.record_batch(found)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
