"""Writes the rows of a task into Parquet files of a micro-batch's staging directory, on an executor."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from leveret.pipelines.archives.storage import Storage

COMPRESSION: Final = "zstd"
OPEN_MAX: Final = 100
"""Files that a task has open at most; one more closes that which was written first."""
BUFFER_OCTETS: Final = 64 << 20
"""Rows that a task holds in memory until they become a row group."""
ROW_GROUP_ROWS: Final = 1 << 20

_DISTINCT: Final = ("body", "message_id", "correlation_id", "content_header")
"""Columns whose values rarely repeat: a dictionary of them is work without effect."""
_UNSAFE: Final = re.compile(r'[\x00-\x1f\x7f"#%\'*/:=?\\{\[\]^]')
"""Characters that Spark writes as percent signs and digits in names of partitions."""


@dataclass(frozen=True)
class WrittenFile:
    """A file that is complete and on disk: its path in the table's storage, its rows and its size."""

    path: str
    rows: int
    octets: int


class PartitionedWriter:
    """Writes rows into files by partition, below the directory ``stage`` of a storage."""

    def __init__(self, storage: Storage, stage: str, partition_by: Sequence[str]) -> None:
        self._storage = storage
        self._stage = stage
        self._partition_by = list(partition_by)
        self._buffers: dict[str, list[pa.RecordBatch]] = {}
        self._buffered: dict[str, int] = {}
        self._writers: dict[str, tuple[str, Any, pq.ParquetWriter]] = {}
        self._written: list[WrittenFile] = []
        self._rows: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, whose columns must be the same each time."""
        for folder, rows in self._divided(batch):
            self._buffers.setdefault(folder, []).append(rows)
            self._buffered[folder] = self._buffered.get(folder, 0) + rows.nbytes
        while sum(self._buffered.values()) > BUFFER_OCTETS:
            self._flush(max(self._buffered, key=self._buffered.__getitem__))

    def finish(self) -> list[WrittenFile]:
        """Complete all files, and return them."""
        for folder in list(self._buffers):
            self._flush(folder)
        for folder in list(self._writers):
            self._close(folder)
        return self._written

    def _divided(self, batch: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
        """Yield the rows of each partition without the partition's columns, in their order."""
        if not self._partition_by or not len(batch):
            return [("", batch)] if len(batch) else []
        names = [batch.column(name).cast(pa.string()) for name in self._partition_by]
        keys = pc.binary_join_element_wise(*names, "\0").dictionary_encode()
        folders = [self._folder(key.split("\0")) for key in keys.dictionary.to_pylist()]
        rows = batch.drop_columns(self._partition_by)
        if len(folders) == 1:
            return [(folders[0], rows)]
        return [(folder, rows.filter(pc.equal(keys.indices, place))) for place, folder in enumerate(folders)]

    def _folder(self, values: Sequence[str]) -> str:
        pairs = zip(self._partition_by, values, strict=True)
        return "/".join(f"{name}={_UNSAFE.sub(lambda found: f'%{ord(found[0]):02X}', value)}" for name, value in pairs)

    def _flush(self, folder: str) -> None:
        """Write the buffered rows of a partition as a row group."""
        del self._buffered[folder]
        rows = pa.Table.from_batches(self._buffers.pop(folder))
        if folder not in self._writers:
            if len(self._writers) == OPEN_MAX:
                self._close(next(iter(self._writers)))
            self._open(folder, rows.schema)
        self._writers[folder][2].write_table(rows, ROW_GROUP_ROWS)
        self._rows[folder] = self._rows.get(folder, 0) + len(rows)

    def _open(self, folder: str, schema: pa.Schema) -> None:
        directory = f"{self._stage}/{folder}" if folder else self._stage
        self._storage.make_directory(directory)
        path = f"{directory}/{uuid.uuid4().hex}.parquet"
        repeating = [name for name in schema.names if name not in _DISTINCT]
        file = self._storage.create(path)
        writer = pq.ParquetWriter(file, schema, compression=COMPRESSION, use_dictionary=repeating)
        self._writers[folder] = path, file, writer

    def _close(self, folder: str) -> None:
        path, file, writer = self._writers.pop(folder)
        writer.close()
        octets = file.tell()
        file.close()
        self._storage.sync(path)
        self._written.append(WrittenFile(path, self._rows.pop(folder), octets))
