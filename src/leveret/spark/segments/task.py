"""The part of a sealed stream that one task reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from leveret.client.segments.api import StreamApi
from leveret.client.segments.errors import SealedFileDamaged, SegmentGone, SegmentsUnavailable
from leveret.client.segments.ranged import RangedFile
from leveret.spark.segments.columns import Projection, columns_of
from leveret.spark.segments.files import SealedFile
from leveret.spark.segments.lease import Keeper
from leveret.spark.segments.options import PATH
from leveret.spark.segments.pruning import EVERYTHING, Pruning

ROWS_PER_BATCH: Final = 8192
"""Larger batches exceed the processor's cache and slow Spark down."""


@dataclass(frozen=True)
class SealedTask:
    """The messages [first, end) of a stream, in these files. It can be pickled, and connects only in `read`.

    Attributes:
        segments: the option.
        api: the HTTP API that serves the files, or None.
        lease: id of the lease that keeps the files, or None.
        pruning: the rows that may be left out.
    """

    stream: str
    first: int
    end: int
    files: tuple[SealedFile, ...]
    segments: str
    api: StreamApi | None = None
    lease: str | None = None
    pruning: Pruning = EVERYTHING

    def read(self, schema: pa.Schema, typed: Iterable[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order of offsets, except those that `pruning` leaves out.

        schema: columns of the source by name; typed: those of them that are columns of the stream's schema. Raises
        SegmentGone if a file is gone, SegmentDamaged if rows are missing or a file has other content,
        SegmentsUnavailable if the options do not fit.
        """
        projection, keeper = Projection(schema, self.stream, frozenset(typed)), Keeper(self.api, self.lease)
        at = self.first
        for file in self.files:
            keeper.keep()
            try:
                source = self._open(file)
            except FileNotFoundError as error:
                raise SegmentGone(file.name, at, self.end, str(error)) from None
            with contextlib.closing(source):
                end = min(self.end, file.last + 1)
                yield from _Rows(file, projection, self.pruning).read(source, at, end)
            at = end
        if at != self.end:
            raise SealedFileDamaged(self.files[-1].name, f"it should continue to offset {self.end - 1}")

    def _open(self, file: SealedFile) -> Any:
        """Open a file by its path if that exists here, else over HTTP."""
        if file.path is not None:
            try:
                return pa.OSFile(file.path)
            except OSError as error:
                if self.segments == PATH and not os.path.isdir(os.path.dirname(os.path.dirname(file.path))):
                    raise SegmentsUnavailable(
                        f"{file.path} can't be read here ({error.strerror}): options segments=path and tablesDir need "
                        "a directory that all executors can access; option apiUrl does not"
                    ) from error
                if self.api is None or self.segments == PATH:
                    raise FileNotFoundError(f"{file.path}: {error.strerror}") from error
        if self.api is None:
            raise FileNotFoundError(f"{file.name}: no path and no option apiUrl")
        return RangedFile(self.api, file.name)


class _Rows:
    """The rows of one file."""

    def __init__(self, file: SealedFile, projection: Projection, pruning: Pruning) -> None:
        self._file = file
        self._projection = projection
        self._pruning = pruning

    def read(self, source: Any, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with offsets [first, end)."""
        try:
            parquet = pq.ParquetFile(source, pre_buffer=True)
            self._check_count(parquet.metadata.num_rows)
            at = self._file.first
            for index in range(parquet.num_row_groups):
                group = parquet.metadata.row_group(index)
                stop = at + group.num_rows
                if stop > first and at < end and self._pruning.may_want(columns_of(group)):
                    yield from self._group(parquet, index, at, first, end)
                at = stop
        except pa.ArrowException as error:
            raise SealedFileDamaged(self._file.name, str(error)) from error

    def _group(self, parquet: Any, index: int, at: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows of the row group that begins at offset `at`."""
        group = parquet.metadata.row_group(index)
        leaves = self._projection.leaves(columns_of(group))
        stop = at + group.num_rows
        for batch in parquet.iter_batches(ROWS_PER_BATCH, [index], leaves):
            if at >= end:
                return
            begins, at = at, at + len(batch)
            if at <= first:
                continue
            self._check_offsets(batch.column(batch.schema.get_field_index("offset")), begins)
            rows = self._projection.rows(batch)
            skipped = max(0, first - begins)
            yield rows.slice(skipped, min(at, end) - begins - skipped)
        if at != stop:
            raise SealedFileDamaged(self._file.name, f"it ends before offset {at}")

    def _check_count(self, rows: int) -> None:
        told = self._file.last + 1 - self._file.first
        if rows != told:
            raise SealedFileDamaged(self._file.name, f"it has {rows} rows instead of {told}")

    def _check_offsets(self, offsets: pa.Int64Array, first: int) -> None:
        """Raise SegmentDamaged unless each row exists exactly once: a lost message is never skipped."""
        last = first + len(offsets) - 1
        steps = pc.min_max(pc.pairwise_diff(offsets)).as_py()
        is_consecutive = len(offsets) == 1 or (steps["min"], steps["max"]) == (1, 1)
        if not is_consecutive or offsets[0].as_py() != first:
            raise SealedFileDamaged(self._file.name, f"some of its offsets {first} to {last} are missing")
