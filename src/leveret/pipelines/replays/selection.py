"""The selection of a replay: numbered rows in files of the checkpoint, which never change."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leveret.pipelines.errors import PipelineError, cause
from leveret.spark.rows.columns import ARROW, PROPERTIES

FILE_ROWS: Final = 10_000
"""Rows of a file: a micro-batch decodes whole files."""

TOP: Final = 10
"""Number of pairs of exchange and routing key in the summary, those with most messages."""

PUBLISHED: Final = ("body", "routing_key", *(name for name in PROPERTIES if name != "user_id"), "content_header")
"""The columns that are published. ``user_id`` is the first publisher's, and brokers refuse it from other users."""

ARROW_ROWS: Final = pa.schema([pa.field(name, ARROW[name]) for name in PUBLISHED])

_DIRECTORY: Final = "selection"
_MANIFEST: Final = "manifest.json"
_PART: Final = re.compile(r"part-(\d+)-.*-c(\d+)(?:\.\w+)*\.parquet")


@dataclass(frozen=True)
class SelectionTotals:
    """Totals of a selection.

    Attributes:
        first_us, last_us: first and last time, µs since 1970; None if no message has a time.
        key_count: number of pairs of exchange and routing key.
        keys: rows of the pairs with most messages.
    """

    messages: int
    first_us: int | None
    last_us: int | None
    key_count: int
    keys: tuple[tuple[str, str, int], ...]


def totals(rows: DataFrame) -> SelectionTotals:
    """Sum up rows with the columns ``exchange``, ``routing_key`` and ``due``. ``PipelineError`` if Spark fails."""
    groups = rows.groupBy("exchange", "routing_key").agg(
        F.count("*").alias("messages"), F.min("due").alias("first"), F.max("due").alias("last")
    )
    try:
        found = groups.collect()
    except Exception as error:
        raise PipelineError(f"the messages can't be selected: {cause(error)}") from error
    top = sorted(found, key=lambda row: (-row.messages, row.exchange or "", row.routing_key or ""))[:TOP]
    return SelectionTotals(
        sum(row.messages for row in found),
        min((row["first"] for row in found if row["first"] is not None), default=None),
        max((row["last"] for row in found if row["last"] is not None), default=None),
        len(found),
        tuple((row.exchange or "", row.routing_key or "", row.messages) for row in top),
    )


@dataclass(frozen=True)
class ReplaySelection:
    """A complete selection.

    Attributes:
        directory: directory of its files, shared by driver and executors.
        files: names and numbers of rows of the files, in order.
        octets: approximate size of all rows in memory.
    """

    directory: Path
    files: tuple[tuple[str, int], ...]
    octets: int
    totals: SelectionTotals

    @staticmethod
    def of(checkpoint: Path, asked: dict[str, Any]) -> ReplaySelection | None:
        """Return the selection of a checkpoint, None if it has no complete one.

        Raises:
            PipelineError: it was made for other arguments than ``asked``.
        """
        directory = checkpoint / _DIRECTORY
        try:
            found = json.loads((directory / _MANIFEST).read_text())
        except FileNotFoundError:
            return None
        different = [name for name, value in asked.items() if found["asked"].get(name) != value]
        if different:
            name = different[0]
            raise PipelineError(
                f"{checkpoint} belongs to another replay: its {name} is {found['asked'].get(name)!r}, not "
                f"{asked[name]!r}; use another checkpoint"
            )
        told = found["totals"]
        whole = SelectionTotals(**{**told, "keys": tuple(tuple(row) for row in told["keys"])})
        return ReplaySelection(directory, tuple((name, rows) for name, rows in found["files"]), found["octets"], whole)

    @staticmethod
    def make(rows: DataFrame, checkpoint: Path, asked: dict[str, Any]) -> ReplaySelection:
        """Write the sorted rows into a selection, atomically.

        Raises:
            PipelineError: Spark failed, or the directory cannot be written.
        """
        try:
            for left in checkpoint.glob(f".{_DIRECTORY}-*"):
                shutil.rmtree(left)
            draft = checkpoint / f".{_DIRECTORY}-{uuid.uuid4().hex}"
            checkpoint.mkdir(parents=True, exist_ok=True)
            rows.write.option("maxRecordsPerFile", FILE_ROWS).parquet(str(draft))
            files, octets = [], 0
            for path in sorted((path for path in draft.iterdir() if _PART.fullmatch(path.name)), key=_place):
                footer = pq.read_metadata(path)
                octets += sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
                if footer.num_rows:
                    files.append((path.name, footer.num_rows))
        except Exception as error:
            raise PipelineError(f"the messages can't be selected into {checkpoint}: {cause(error)}") from error
        found = totals(rows.sparkSession.read.parquet(str(draft)))
        if found.messages != sum(count for _, count in files):
            raise PipelineError(f"{checkpoint} must be a directory that this process and Spark's executors share")
        document = {"asked": asked, "files": files, "octets": octets, "totals": asdict(found)}
        with (draft / _MANIFEST).open("w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(checkpoint / _DIRECTORY)
        descriptor = os.open(checkpoint, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        made = ReplaySelection.of(checkpoint, asked)
        assert made is not None
        return made


def _place(path: Path) -> tuple[int, int]:
    """Return the numbers of partition and file, by which Spark numbers a sorted frame in order."""
    match = _PART.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2])


class SelectedRows:
    """The rows of a selection by number. Can be pickled."""

    def __init__(self, directory: str, files: tuple[tuple[str, int], ...]) -> None:
        self._directory = directory
        self._files = files
        self._ends = list(accumulate(rows for _, rows in files))
        self._times: tuple[int, list[int | None]] = (-1, [])

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def batches(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows first ≤ n < end, as they are to be published."""
        while first < end:
            place = bisect_right(self._ends, first)
            name, rows = self._files[place]
            begin = self._ends[place] - rows
            stop = min(end, self._ends[place])
            table = pq.read_table(os.path.join(self._directory, name), columns=list(PUBLISHED), partitioning=None)
            yield from _published(table.slice(first - begin, stop - first))
            first = stop

    def time(self, number: int) -> int | None:
        """Return when the message first appeared, in µs since 1970."""
        place = bisect_right(self._ends, number)
        if self._times[0] != place:
            name, _ = self._files[place]
            column = pq.read_table(os.path.join(self._directory, name), columns=["due"], partitioning=None)
            self._times = place, column.column("due").to_pylist()
        return self._times[1][number - self._ends[place] + self._files[place][1]]


def _published(table: pa.Table) -> Iterator[pa.RecordBatch]:
    arrays = []
    for field in ARROW_ROWS:
        column = table.column(field.name)
        if field.name == "timestamp":  # stored as seconds, independent of time zones and Parquet's units
            column = pc.multiply(column, 1_000_000)
        arrays.append(column.cast(field.type))
    return iter(pa.Table.from_arrays(arrays, schema=ARROW_ROWS).to_batches())
