"""Merges many small files of a partition into few larger ones. After a crash, :func:`hidden` tells what to skip.

Only files of one source are merged, by the process that archives it. The merged file is written aside; then a note
names it and the files that it replaces; then it is moved into the partition, and they are deleted. From the note on,
the merged file counts.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from leveret.pipelines.archives.batches import STATE
from leveret.pipelines.archives.storage import Storage, StoredFile

MIB: Final = 1 << 20
ROW_GROUP_OCTETS: Final = 128 * MIB
"""Size in memory of the rows that are written at a time."""

_NAME: Final = re.compile(r"(?P<source>.+?)-(?P<first>\d{9})(?:-(?P<last>\d{9}))?-[0-9a-f]{5,8}\.parquet")
_SMALLEST_TIER_OCTETS: Final = 64 << 10
_TIER: Final = 4
"""Ratio of size between tiers. Only files of a tier are merged, so that a row is copied once per tier."""


@dataclass(frozen=True)
class MergeSizes:
    """What to merge: ``files_min`` files of about the same size, each below ``below_octets``, into files of up to
    ``target_octets``."""

    below_octets: int = 32 * MIB
    target_octets: int = 128 * MIB
    files_min: int = 8


@dataclass(frozen=True)
class Merge:
    """A merge that is written: the merged file, its destination, and the files that it replaces."""

    aside: str
    merged: str
    replaced: tuple[str, ...]

    @staticmethod
    def parse(text: bytes) -> Merge:
        """Parse a merge's note."""
        found = json.loads(text)
        return Merge(found["aside"], found["merged"], tuple(found["replaced"]))


class Merging:
    """Merges the files of one source in a lake."""

    def __init__(self, source: str, storage: Storage, sizes: MergeSizes) -> None:
        self._source = source
        self._storage = storage
        self._sizes = sizes
        self._aside = f"{STATE}/{source}/merged"
        self._notes = _notes(source)

    def run(self, partition: str, *, all_tiers: bool = False) -> tuple[int, int]:
        """Merge small files of a partition; return the number of replaced files and of new ones.

        ``all_tiers`` merges any two or more small files, not only many of about the same size.
        """
        groups = list(self._groups(partition, all_tiers))
        for group in groups:
            self._finish(*self._merge(partition, group))
        return sum(len(group) for group in groups), len(groups)

    def planned(self, partition: str) -> tuple[int, int]:
        """Return what ``run`` with ``all_tiers`` would return."""
        groups = list(self._groups(partition, all_tiers=True))
        return sum(map(len, groups)), len(groups)

    def partitions(self) -> list[str]:
        """Return all directories of the lake with files of this source."""
        files = self._storage.files("", ".parquet")
        paths = (one.path for one in files if not one.path.startswith(f"{STATE}/"))
        return sorted({path.rpartition("/")[0] for path in paths if self._is_ours(path.rpartition("/")[2])})

    def recover(self) -> None:
        """Complete the merges that have a note, and delete the files of others."""
        for name in _noted(self._storage, self._notes):
            note = f"{self._notes}/{name}"
            self._finish(note, Merge.parse(self._storage.read(note)))
        for directory in (self._aside, self._notes):
            self._storage.delete_tree(directory)

    def _groups(self, partition: str, all_tiers: bool) -> Iterator[list[StoredFile]]:
        """Yield the groups of files to merge, in order of names."""
        tiers: dict[int, list[StoredFile]] = {}
        for file in self._storage.files(partition, ".parquet"):
            folder, _, name = file.path.rpartition("/")
            if folder == partition and self._is_ours(name) and file.octets < self._sizes.below_octets:
                tiers.setdefault(0 if all_tiers else _tier(file.octets), []).append(file)
        for files in tiers.values():
            if len(files) < (2 if all_tiers else self._sizes.files_min):
                continue
            yield from (group for group in _filled(files, self._sizes.target_octets) if len(group) > 1)

    def _merge(self, partition: str, files: Sequence[StoredFile]) -> tuple[str, Merge]:
        names = [_NAME.fullmatch(file.path.rpartition("/")[2]) for file in files]
        first = min(int(name["first"]) for name in names if name)
        last = max(int(name["last"] or name["first"]) for name in names if name)
        merged = f"{self._source}-{first:09d}-{last:09d}-{uuid.uuid4().hex[:8]}.parquet"
        aside, note = f"{self._aside}/{merged}", f"{self._notes}/{merged}.json"
        for directory in (self._aside, self._notes):
            self._storage.make_directory(directory)
        write_merged(self._storage, [file.path for file in files], aside)
        self._storage.sync(aside)
        self._storage.sync_directories({self._aside, self._notes})
        path = f"{partition}/{merged}" if partition else merged
        merge = Merge(aside, path, tuple(file.path for file in files))
        self._storage.publish(note, json.dumps(asdict(merge)).encode())
        return note, merge

    def _finish(self, note: str, merge: Merge) -> None:
        if self._storage.exists(merge.aside):
            self._storage.move(merge.aside, merge.merged)
        folder = merge.merged.rpartition("/")[0]
        self._storage.sync_directory(folder)
        for path in merge.replaced:
            if self._storage.exists(path):
                self._storage.delete(path)
        # the note is deleted last, when the replaced files are gone for good
        self._storage.sync_directory(folder)
        self._storage.delete(note)

    def _is_ours(self, name: str) -> bool:
        match = _NAME.fullmatch(name)
        return match is not None and match["source"] == self._source


def hidden(storage: Storage) -> frozenset[str]:
    """Return the files not to read, since an unfinished merge has their rows as well."""
    found: set[str] = set()
    for source in storage.names(STATE):
        for name in _noted(storage, _notes(source)):
            merge = Merge.parse(storage.read(f"{_notes(source)}/{name}"))
            found.update(merge.replaced if storage.exists(merge.merged) else ())
    return frozenset(found)


def write_merged(storage: Storage, paths: Sequence[str], merged: str) -> None:
    """Write the rows of these files, in order, into one file; missing columns and fields are null."""
    schemas = []
    for path in paths:
        with storage.open(path) as file:
            schemas.append(pq.read_schema(file).remove_metadata())
    schema = united(schemas)
    with storage.create(merged) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for table in _row_groups(storage, paths):
            waiting.append(_fitted(table, schema))
            if sum(one.nbytes for one in waiting) >= ROW_GROUP_OCTETS:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting))


def united(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return a schema with the columns and fields of all schemas; types of shared ones must agree."""
    columns: dict[str, pa.Field] = {}
    for schema in schemas:
        for column in schema:
            known = columns.get(column.name)
            columns[column.name] = column if known is None else pa.field(column.name, _united(known.type, column.type))
    return pa.schema(list(columns.values()))


def _united(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(one):
        fields = united([pa.schema(list(one)), pa.schema(list(other))])
        return pa.struct(list(fields))
    if pa.types.is_list(one):
        return pa.list_(pa.field("element", _united(one.value_type, other.value_type)))
    return one


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[column.name].cast(column.type)
        if column.name in table.column_names
        else pa.chunked_array([pa.nulls(len(table), column.type)])
        for column in schema
    ]
    return pa.table(columns, schema=schema)


def _row_groups(storage: Storage, paths: Sequence[str]) -> Iterator[pa.Table]:
    for path in paths:
        with storage.open(path) as opened:
            file = pq.ParquetFile(opened)
            for number in range(file.num_row_groups):
                yield file.read_row_group(number)


def _filled(files: Sequence[StoredFile], target_octets: int) -> Iterator[list[StoredFile]]:
    group: list[StoredFile] = []
    octets = 0
    for file in files:
        if group and octets + file.octets > target_octets:
            yield group
            group, octets = [], 0
        group.append(file)
        octets += file.octets
    yield group


def _tier(octets: int) -> int:
    return max(0, math.ceil(math.log(max(1, octets) / _SMALLEST_TIER_OCTETS, _TIER)))


def _notes(source: str) -> str:
    return f"{STATE}/{source}/merges"


def _noted(storage: Storage, notes: str) -> list[str]:
    return [name for name in storage.names(notes) if name.endswith(".json")]
