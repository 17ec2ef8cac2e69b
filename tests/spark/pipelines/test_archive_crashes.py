"""The archive is killed, or loses power, before each operation on its files: every row is in the lake exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leveret.pipelines import PipelineError
from leveret.pipelines.archives.batches import DEAD, LAKE, STATE, ArchiveBatches
from leveret.pipelines.archives.files import PartitionedWriter, WrittenFile
from leveret.pipelines.archives.merging import MergeSizes, Merging, hidden
from leveret.pipelines.archives.schemas import Schemas
from leveret.pipelines.archives.storage import Storage

from .bodies import census_of, grow

SOURCE = "flights-1a2b3c4d"
BATCHES = 3
SIZES = MergeSizes(files_min=2)


class Killed(BaseException):
    """Simulates the end of the process."""


class QuickStorage(Storage):
    """Does not sync: only MortalStorage simulates power loss, and it decides what is forgotten."""

    def __init__(self, root: Path) -> None:
        plain = Storage.at(str(root))
        super().__init__(plain.location, plain._fs, plain.root)

    def sync(self, path: str) -> None:
        assert os.path.isfile(self._full(path))

    def sync_directory(self, path: str) -> None:
        assert os.path.isdir(self._full(path))


class MortalStorage(QuickStorage):
    """Raises Killed at a given operation; a power loss undoes changes that were not synced, as a disk may do."""

    def __init__(self, root: Path, life: Life) -> None:
        super().__init__(root)
        self._life = life

    def make_directory(self, path: str) -> None:
        self._life.count()
        super().make_directory(path)

    def create(self, path: str) -> pa.NativeFile:
        self._life.count()
        self._life.unsynced.add(self._full(path))
        return super().create(path)

    def write(self, path: str, data: bytes) -> None:
        super().write(path, data[: len(data) // 2])
        super().write(path, data)

    def sync(self, path: str) -> None:
        self._life.count()
        super().sync(path)
        self._life.unsynced.discard(self._full(path))

    def sync_directory(self, path: str) -> None:
        self._life.count()
        super().sync_directory(path)
        self._life.keep_names(self._full(path))

    def move(self, old: str, new: str) -> None:
        self._life.count()
        super().move(old, new)
        self._life.renamed.append((self._full(old), self._full(new)))

    def link(self, old: str, new: str) -> None:
        self._life.count()
        super().link(old, new)

    def delete(self, path: str) -> None:
        self._life.count()
        full = self._full(path)
        self._life.deleted.append((full, Path(full).read_bytes()))
        super().delete(path)

    def delete_directory(self, path: str) -> None:
        self._life.count()
        super().delete_directory(path)


class Life:
    """The operations that a process has left, and what its disk may forget on a power loss."""

    def __init__(self, operations: int, *, is_power: bool) -> None:
        self.operations = operations
        self.is_power = is_power
        # a disk may undo the last deletions but not the renames before them, or undo both
        self.forgets_deletes = operations % 2 == 0
        self.unsynced: set[str] = set()
        self.renamed: list[tuple[str, str]] = []
        self.deleted: list[tuple[str, bytes]] = []

    def count(self) -> None:
        self.operations -= 1
        if self.operations < 0:
            if self.is_power:
                self._forget()
            raise Killed

    def keep_names(self, directory: str) -> None:
        """Make renames into a directory, and deletions from it, permanent, as a sync of the directory does."""
        self.renamed = [one for one in self.renamed if os.path.dirname(one[1]) != directory]
        self.deleted = [one for one in self.deleted if os.path.dirname(one[0]) != directory]

    def _forget(self) -> None:
        for path in self.unsynced:
            if os.path.exists(path):
                os.truncate(path, os.path.getsize(path) // 2)
        for path, content in self.deleted if self.forgets_deletes else ():
            if os.path.isdir(os.path.dirname(path)):
                Path(path).write_bytes(content)
        for old, new in reversed(self.renamed):
            if os.path.exists(new) and os.path.isdir(os.path.dirname(old)):
                os.rename(new, old)


class Archiving:
    """A source that is archived in batches 0, 1, 2, each with a dead letter; small files are merged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.committed = 0

    def storage(self, life: Life | None, name: str = "lake") -> Storage:
        root = self.root / name
        return QuickStorage(root) if life is None else MortalStorage(root, life)

    def run(self, life: Life | None) -> None:
        """Continue after the last life as Spark would: it repeats the batch that was not committed."""
        lake, dead = self.storage(life), self.storage(life, "dead")
        batches, merging = ArchiveBatches(SOURCE, {LAKE: lake, DEAD: dead}), Merging(SOURCE, lake, SIZES)
        batches.recover()
        merging.recover()
        while self.committed < BATCHES:
            batch = self.committed
            record = batches.replayed(batch, f"plan {batch}")
            if record is None:
                stage = batches.stage(batch)
                days = [f"2013-01-0{1 + batch % 2}"] * 2 + ["2013-01-01"]
                rows = {"n": [10 * batch + row for row in range(3)], "day": days, "exchange": ["x", "x", "amq.default"]}
                letters = {"n": [10 * batch + 3], "day": ["2013-01-01"]}
                files = {LAKE: self._write(lake, stage, rows), DEAD: self._write(dead, stage, letters)}
                record = batches.seal(batch, files, f"plan {batch}")
            batches.move(record)
            self.committed += 1
            for partition in merging.partitions():
                merging.run(partition)

    def _write(self, storage: Storage, stage: str, rows: dict[str, Any]) -> list[WrittenFile]:
        """Write files as tasks do."""
        writer = PartitionedWriter(storage, stage, [name for name in rows if name != "n"])
        writer.add(pa.record_batch(rows))
        return writer.finish()

    def rows(self, name: str = "lake") -> list[int]:
        """Return the rows that a reader finds that respects merges."""
        storage = self.storage(None, name)
        passed_over = hidden(storage)
        files = [one.path for one in storage.files("", ".parquet") if not one.path.startswith(f"{STATE}/")]
        paths = [Path(storage.root) / path for path in files if path not in passed_over]
        return sorted(row for path in paths for row in pq.ParquetFile(path).read()["n"].to_pylist())


def expected(batches: int) -> list[int]:
    return [10 * batch + row for batch in range(batches) for row in range(3)]


@pytest.mark.needs("minutes")
@pytest.mark.parametrize("is_power", [False, True])
def test_each_row_is_there_once_wherever_it_ends(tmp_path: Path, is_power: bool) -> None:
    ends = merges_seen = 0
    while True:
        archiving = Archiving(tmp_path / str(ends))
        try:
            archiving.run(Life(ends, is_power=is_power))
        except Killed:
            ends += 1
        else:
            break
        # after each end: all rows of committed batches, no duplicates, and at most all rows of the batch in progress
        rows = archiving.rows()
        assert len(rows) == len(set(rows)), f"twice, after {ends - 1} operations"
        assert set(expected(archiving.committed)) <= set(rows) <= set(expected(archiving.committed + 1))
        merges_seen += bool(hidden(archiving.storage(None)))
        archiving.run(None)
        assert archiving.rows() == expected(BATCHES), f"after {ends - 1} operations"
        assert archiving.rows("dead") == [3, 13, 23]
        home = tmp_path / str(ends - 1) / "lake" / STATE / SOURCE
        assert not any(list((home / name).glob("*")) for name in ("staging", "merged", "merges"))
    assert ends > 100, f"only {ends} points"
    assert merges_seen, "no end fell between a merged file and those that it replaces"


def test_a_second_death_in_what_the_first_one_left(tmp_path: Path) -> None:
    for first in range(20, 120, 9):
        for second in range(0, 30, 4):
            archiving = Archiving(tmp_path / f"{first}-{second}")
            for operations in (first, second):
                with pytest.raises(Killed):
                    archiving.run(Life(operations, is_power=True))
            archiving.run(None)
            assert archiving.rows() == expected(BATCHES)


def test_a_lake_is_not_filled_by_another_checkpoint(tmp_path: Path) -> None:
    archiving = Archiving(tmp_path)
    archiving.run(None)
    batches = ArchiveBatches(SOURCE, {LAKE: archiving.storage(None), DEAD: archiving.storage(None, "dead")})
    with pytest.raises(PipelineError, match="has a batch 1 of flights-1a2b3c4d that is not from this checkpoint"):
        batches.replayed(1, "another plan")


def ending(tmp_path: Path, action: Callable[[Storage], None]) -> int:
    """Run an action repeatedly, killing it at each of its operations; return their number."""
    ends = 0
    while True:
        try:
            action(MortalStorage(tmp_path, Life(ends, is_power=True)))
        except Killed:
            ends += 1
        else:
            return ends


def test_a_schema_is_there_wholly_or_not_at_all(tmp_path: Path) -> None:
    def action(storage: Storage) -> None:
        grown = Schemas(storage).grow(grow(census_of({"id": "a", "delay": 7})))
        assert grown.version == 1

    assert ending(tmp_path, action) > 4
    schema = Schemas(Storage.at(str(tmp_path))).newest()
    assert {column.name: column.kind for column in schema.columns} == {"id": "string", "delay": "long"}
