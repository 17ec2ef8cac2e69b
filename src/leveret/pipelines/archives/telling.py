"""The tables in an archive's summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import unquote

from leveret.pipelines.archives.batches import DEAD, LAKE, BatchRecord
from leveret.pipelines.archives.following import Followed
from leveret.pipelines.summary import Table, Value

PARTITIONS_MAX: Final = 20


def by_source(followed: Iterable[Followed]) -> Table:
    """Return a table with each source's rows, dead letters and batches."""
    rows = []
    for one in followed:
        dead = sum(record.rows(DEAD) for record in one.records)
        rows.append((one.source.name, one.source.kind, one.rows - dead, dead, len(one.records)))
    return Table("sources", ("source", "kind", "rows", "dead letters", "batches"), tuple(rows))


def by_partition(records: Sequence[BatchRecord], partition_by: Sequence[str]) -> Table | None:
    """Return the partitions with most new rows, None without partitions or rows."""
    rows: dict[str, int] = {}
    files: dict[str, int] = {}
    for move in (move for record in records for move in record.moves if move.table == LAKE):
        folder = move.new.rpartition("/")[0]
        rows[folder] = rows.get(folder, 0) + move.rows
        files[folder] = files.get(folder, 0) + 1
    if not rows or not partition_by:
        return None
    largest = sorted(rows, key=lambda folder: (-rows[folder], folder))[:PARTITIONS_MAX]
    title = "partitions" if len(rows) <= PARTITIONS_MAX else f"the {PARTITIONS_MAX} largest of {len(rows)} partitions"
    found: tuple[tuple[Value, ...], ...] = tuple((*_values(folder), rows[folder], files[folder]) for folder in largest)
    return Table(title, (*partition_by, "rows", "files"), found)


def _values(folder: str) -> list[str]:
    return [unquote(part.partition("=")[2]) for part in folder.split("/")]
