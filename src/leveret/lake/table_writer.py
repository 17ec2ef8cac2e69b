"""Parquet files of one stream, made so that a reader of the folder sees whole files only, and each row in one of them.

A file is written aside, synced, renamed to the name that says its offsets, and the name is synced. Once there it never
changes: whoever has read it need not look again. It holds messages of one day (UTC, of arrival) and of one native file,
without a gap.
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
"""A row group ends when it has so many rows, or octets in memory: what a query skips, and what it must hold, is one."""

_DAY_US: Final = 86_400_000_000
# all others are written plainly: ids and bodies are told apart in vain, and readers are slower
_DICTIONARIES: Final = [
    "exchange", "routing_key", "properties.content_type", "properties.content_encoding", "properties.type",
    "properties.app_id", "properties.user_id", "headers.key_value.key", "headers.key_value.value.type",
]  # fmt: skip
_ENCODINGS: Final = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
# of these octets nobody asks for a range, and their extremes take room
_UNCOUNTED: Final = ("raw_properties", "body")


@dataclass(frozen=True, slots=True)
class Sealed:
    """A file that was made: first, last: offsets, inclusive; date: YYYY-MM-DD; octets: its size."""

    path: str
    first: int
    last: int
    date: str
    octets: int


class TableWriter:
    """Writes rows, in the order of their offsets, to the files of the stream in `directory`.

    aside: where files are written, in the same file system. made: the files so far. Methods raise OSError where the
    system refuses; `abandon` then.
    """

    def __init__(self, disk: Disk, directory: str, creation: str, aside: str, schema: pa.Schema) -> None:
        self.made: list[Sealed] = []
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
        """Take rows; they are in a file after `finish`."""
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
        """Whatever was added is in files with their names, on the medium."""
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
        self.made.append(Sealed(path, self._first, self._end - 1, self._date, octets))

    def abandon(self) -> None:
        """Leave what is not finished; a file that is half made goes."""
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
    """The rows of each day with its date."""
    days: Numbers = rows["timestamp"].cast(pa.int64()).to_numpy() // _DAY_US
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(rows)]
    for start, stop in pairwise(starts):
        day = datetime.fromtimestamp(int(days[start]) * (_DAY_US // 1_000_000), UTC)
        yield day.date().isoformat(), rows.slice(start, stop - start)


@lru_cache(16)
def _leaves(schema: pa.Schema) -> list[str]:
    """The paths of the columns as they stand in a Parquet file."""
    file = pa.BufferOutputStream()
    with pq.ParquetWriter(file, schema):
        pass
    parquet = pq.read_metadata(pa.BufferReader(file.getvalue())).schema
    return [parquet.column(index).path for index in range(len(parquet))]
