"""The micro-batches of a source: staged, recorded, moved. Wherever a crash happens, each row arrives once.

The files of a batch are written into a staging directory of the attempt. Then the batch's record names them and their
destinations: a batch with a record is completed, and never written again. Then the files are moved to names made of
source and batch. A crash before the record leaves files that nobody reads; a crash after it leaves a batch that the
next start, or Spark's replay, completes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from leveret.pipelines.archives.files import WrittenFile
from leveret.pipelines.archives.storage import Storage
from leveret.pipelines.errors import PipelineError

STATE: Final = "_leveret"
"""The lake's directory for everything that is not data; readers of Parquet skip directories with such names."""

LAKE: Final = "lake"
DEAD: Final = "dead_letters"
RECORDS_KEPT: Final = 10

_SUFFIX: Final = ".parquet"
_STAGE_DEPTH: Final = 4
"""Parts of the path of a staging directory."""


@dataclass(frozen=True)
class Move:
    """A file of a batch.

    Attributes:
        table: LAKE or DEAD.
        old: staged path in that table's storage.
        new: final path.
    """

    table: str
    old: str
    new: str
    rows: int
    octets: int


@dataclass(frozen=True)
class BatchRecord:
    """A batch that is written; ``planned`` tells it from other batches with the same number (see Batches)."""

    batch: int
    planned: str
    schema: int = 0
    moves: tuple[Move, ...] = field(default=())

    def rows(self, table: str) -> int:
        """Return the number of rows that went into this table."""
        return sum(move.rows for move in self.moves if move.table == table)

    @staticmethod
    def parse(text: bytes) -> BatchRecord:
        """Parse a stored record."""
        found = json.loads(text)
        return BatchRecord(**{**found, "moves": tuple(Move(**move) for move in found["moves"])})


class ArchiveBatches:
    """The batches of a source, in the storages of its tables.

    Args:
        source: its name in paths, of letters, digits, dots, dashes and underscores.
        tables: storages by LAKE and DEAD; records are in that of LAKE.
    """

    def __init__(self, source: str, tables: Mapping[str, Storage]) -> None:
        self.source = source
        self.tables = tables
        self._storage = tables[LAKE]
        self._home = f"{STATE}/{source}"

    def stage(self, batch: int) -> str:
        """Return a new directory for the files of a batch, as a path in the storage of each table.

        Each attempt has its own: a driver that was killed may leave a Spark that still writes for a moment.
        """
        return f"{self._home}/staging/{batch:09d}-{uuid.uuid4().hex[:12]}"

    def record(self, batch: int) -> BatchRecord | None:
        """Return the record of a batch, None if it is not written."""
        path = self._record_path(batch)
        return BatchRecord.parse(self._storage.read(path)) if self._storage.exists(path) else None

    def numbers(self) -> list[int]:
        """Return the batches that have a record, in order; old records may be pruned."""
        names = self._storage.names(f"{self._home}/batches")
        return [int(name.removesuffix(".json")) for name in names if name.endswith(".json")]

    def seal(
        self, batch: int, files: Mapping[str, Sequence[WrittenFile]], planned: str, schema: int = 0
    ) -> BatchRecord:
        """Record a batch whose files, by table, are all staged and synced; from then on its content is fixed.

        ``planned`` identifies the batch's plan in Spark's checkpoint; a replay has the same.
        """
        moves: list[Move] = []
        for table, storage in self.tables.items():
            staged = sorted(files.get(table, ()), key=lambda file: file.path)
            storage.sync_directories({file.path.rpartition("/")[0] for file in staged})
            for number, file in enumerate(staged):
                folder = "/".join(file.path.split("/")[_STAGE_DEPTH:-1])
                name = f"{self.source}-{batch:09d}-{number:05d}{_SUFFIX}"
                moves.append(Move(table, file.path, f"{folder}/{name}" if folder else name, file.rows, file.octets))
        record = BatchRecord(batch, planned, schema, tuple(moves))
        self.note(record)
        return record

    def note(self, record: BatchRecord) -> None:
        """Store the record of a batch."""
        home = f"{self._home}/batches"
        self._storage.make_directory(home)
        self._storage.sync_directories({home})
        self._storage.publish(self._record_path(record.batch), json.dumps(asdict(record)).encode())

    def move(self, record: BatchRecord) -> None:
        """Move the files of a batch to their destinations, unless they are there already."""
        for table, storage in self.tables.items():
            moves = [move for move in record.moves if move.table == table]
            folders = {move.new.rpartition("/")[0] for move in moves}
            for folder in sorted(folders):
                storage.make_directory(folder)
            for move in moves:
                if storage.exists(move.old):
                    storage.move(move.old, move.new)
            storage.sync_directories(folders)
        self._tidy(record.batch)

    def replayed(self, batch: int, planned: str) -> BatchRecord | None:
        """Return the record of a batch that Spark replays, None for a new batch.

        Raises:
            PipelineError: the record belongs to another batch with this number, so the checkpoint is another one.
        """
        record = self.record(batch)
        if record is not None and record.planned != planned:
            raise PipelineError(
                f"the lake in {self._storage.location} has a batch {batch} of {self.source} that is not from this "
                "checkpoint: use the checkpoint with which the lake was filled, or archive into another lake"
            )
        return record

    def recover(self) -> None:
        """Complete batches with a record, and remove staged files of those without, after an earlier run."""
        staging = f"{self._home}/staging"
        staged = {int(name[:9]) for storage in self.tables.values() for name in storage.names(staging)}
        for number in sorted(staged.intersection(self.numbers())):
            record = self.record(number)
            assert record is not None
            self.move(record)
        for storage in self.tables.values():
            storage.delete_tree(staging)

    def prune(self) -> None:
        """Delete old records; Spark replays only the last batch."""
        for number in self.numbers()[:-RECORDS_KEPT]:
            self._storage.delete(self._record_path(number))

    def _tidy(self, batch: int) -> None:
        """Remove the staging directories of a batch that is moved: Spark's markers, and failed attempts."""
        for storage in self.tables.values():
            for name in storage.names(f"{self._home}/staging"):
                if name.startswith(f"{batch:09d}-"):
                    storage.delete_tree(f"{self._home}/staging/{name}")

    def _record_path(self, batch: int) -> str:
        return f"{self._home}/batches/{batch:09d}.json"


def totals(records: list[BatchRecord]) -> dict[str, Any]:
    """Return the sums over batches: rows, dead letters, files and octets of both tables."""
    return {
        "rows": sum(record.rows(LAKE) for record in records),
        "dead_letters": sum(record.rows(DEAD) for record in records),
        "batches": len(records),
        "files": sum(len(record.moves) for record in records),
        "size_octets": sum(move.octets for record in records for move in record.moves),
    }
