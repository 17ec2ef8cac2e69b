"""Writes the Parquet files of a stream, so that readers of the directory see only complete files, and each row once.

A file is written in another directory, synced, and renamed to a name with its offsets; then the directory is synced.
After that it never changes, so readers need not read it again. It holds messages of one day (UTC, of arrival) and of
one native file, without a gap.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from leveret.lake.octets import Numbers
from leveret.store.disk import Disk
from leveret.store.tables import date_directory, file_name

ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_OCTETS: Final = 32 << 20
"""Limit of a row group in bytes in memory, beside that in rows: a query skips, or holds in memory, whole row groups."""

_DAY_US: Final = 86_400_000_000
# dictionary-encoded columns; for others (ids, bodies) dictionaries would save nothing and make readers slower
_DICTIONARIES: Final = [
    "exchange", "routing_key", "properties.content_type", "properties.content_encoding", "properties.type",
    "properties.app_id", "properties.user_id", "headers.key_value.key", "headers.key_value.value.type",
]  # fmt: skip
_ENCODINGS: Final = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
# columns without statistics: no query asks for a range of their values, and minimum and maximum take space
_UNCOUNTED: Final = ("raw_properties", "body")


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """A finished file with its first and last offset (inclusive), its date (YYYY-MM-DD), and its size in bytes."""

    path: str
    first: int
    last: int
    date: str
    octets: int


class TableWriter:
    """Writes rows, in the order of their offsets, to Parquet files of the stream in `directory`.

    aside is a directory of the same file system, where unfinished files are written. After an OSError, call `abandon`.
    """

    def __init__(self, disk: Disk, directory: str, creation: str, aside: str, schema: pa.Schema) -> None:
        self.made: list[FinishedFile] = []  # the finished files
        self._disk = disk
        self._directory = directory
        self._creation = creation
        self._aside = aside
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._path = ""
        self._date = ""
        self._first = self._end = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_octets = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows; they are certain to be in a file only after `finish`."""
        for date, part in _by_day(rows):
            first = part["offset"][0].as_py()
            if date != self._date or first != self._end:
                self.finish()
            if self._writer is None:
                self._begin(date, first)
            self._end = first + len(part)
            self._waiting.append(part)
            self._waiting_rows += len(part)
            self._waiting_octets += part.get_total_buffer_size() * len(part) // len(rows)
            if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_octets >= ROW_GROUP_OCTETS:
                self._write_group()

    def finish(self) -> None:
        """Write all added rows to files, with their final names and synced to the medium."""
        if self._writer is None:
            return
        self._write_group()
        self._writer.close()
        self._writer = None
        file = self._disk.open(self._path)
        try:
            file.sync()
        finally:
            file.close()
        directory = os.path.join(self._directory, date_directory(self._date))
        path = os.path.join(directory, file_name(self._first, self._end - 1, self._creation))
        octets = self._disk.size(self._path)
        self._disk.make_directory(directory)
        self._disk.rename(self._path, path)
        self._disk.sync_directory(directory)
        self.made.append(FinishedFile(path, self._first, self._end - 1, self._date, octets))

    def abandon(self) -> None:
        """Drop the rows that are in no finished file, and delete the unfinished file."""
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
            self._writer = None
        with contextlib.suppress(OSError):
            self._disk.remove(self._path)

    def _begin(self, date: str, first: int) -> None:
        self._date, self._first = date, first
        self._path = os.path.join(self._aside, file_name(first, first, self._creation))
        self._writer = pq.ParquetWriter(
            self._path,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=_DICTIONARIES,
            column_encoding=_ENCODINGS,
            write_statistics=[leaf for leaf in _leaves(self._schema) if leaf.split(".")[0] not in _UNCOUNTED],
            sorting_columns=[pq.SortingColumn(0)],
        )

    def _write_group(self) -> None:
        if self._waiting:
            assert self._writer is not None
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._waiting, self._waiting_rows, self._waiting_octets = [], 0, 0
            self._writer.write_table(table, row_group_size=len(table))


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split rows by day; yield (date, rows)."""
    days: Numbers = rows["timestamp"].cast(pa.int64()).to_numpy() // _DAY_US
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(rows)]
    for start, stop in pairwise(starts):
        day = datetime.fromtimestamp(int(days[start]) * (_DAY_US // 1_000_000), UTC)
        yield day.date().isoformat(), rows.slice(start, stop - start)


@lru_cache(16)
def _leaves(schema: pa.Schema) -> list[str]:
    """Return the paths of a schema's leaf columns in a Parquet file."""
    file = pa.BufferOutputStream()
    with pq.ParquetWriter(file, schema):
        pass
    parquet = pq.read_metadata(pa.BufferReader(file.getvalue())).schema
    return [parquet.column(index).path for index in range(len(parquet))]
