"""A part of a sealed stream that one task reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from leveret.spark.segments.api import Api
from leveret.spark.segments.columns import Projection, columns_of
from leveret.spark.segments.errors import SegmentDamaged, SegmentGone, SegmentsUnavailable
from leveret.spark.segments.files import SealedFile
from leveret.spark.segments.lease import Keeper
from leveret.spark.segments.options import PATH
from leveret.spark.segments.pruning import EVERYTHING, Pruning
from leveret.spark.segments.ranged import RangedFile

ROWS_PER_BATCH: Final = 8192
"""More do not fit into the processor's cache, and Spark is slower with them."""


@dataclass(frozen=True)
class SealedTask:
    """The messages [first, end) of a stream, from these files. It pickles, and connects to nothing before `read`.

    segments: the option; api: where files are to be had over HTTP, None = nowhere; lease: the id of the one that keeps
    them, None = nothing does; pruning: which rows nobody will miss.
    """

    stream: str
    first: int
    end: int
    files: tuple[SealedFile, ...]
    segments: str
    api: Api | None = None
    lease: str | None = None
    pruning: Pruning = EVERYTHING

    def read(self, schema: pa.Schema, typed: Iterable[str] = ()) -> Iterator[pa.RecordBatch]:
        """All rows, in the order of their offsets; without those that `pruning` lets be left out.

        schema: columns of the source by their names; typed: which of them are those of the stream's schema. Raises
        SegmentGone where a file is not there any more, SegmentDamaged where rows are missing or files hold something
        else, SegmentsUnavailable where the options do not fit.
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
            raise SegmentDamaged(self.files[-1].name, f"it should continue to offset {self.end - 1}")

    def _open(self, file: SealedFile) -> Any:
        """By its path, if it has one that leads somewhere here, else over HTTP."""
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
        """Those with offsets [first, end)."""
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
            raise SegmentDamaged(self._file.name, str(error)) from error

    def _group(self, parquet: Any, index: int, at: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Those of a row group that begins with the offset `at`."""
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
            raise SegmentDamaged(self._file.name, f"it ends before offset {at}")

    def _check_count(self, rows: int) -> None:
        told = self._file.last + 1 - self._file.first
        if rows != told:
            raise SegmentDamaged(self._file.name, f"it has {rows} rows instead of {told}")

    def _check_offsets(self, offsets: pa.Int64Array, first: int) -> None:
        """Each row must be there, once: a lost message is never passed over."""
        last = first + len(offsets) - 1
        steps = pc.min_max(pc.pairwise_diff(offsets)).as_py()
        is_consecutive = len(offsets) == 1 or (steps["min"], steps["max"]) == (1, 1)
        if not is_consecutive or offsets[0].as_py() != first:
            raise SegmentDamaged(self._file.name, f"some of its offsets {first} to {last} are missing")
