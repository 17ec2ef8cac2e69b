"""What is to be replayed: numbered rows in files of the checkpoint, which stay the same however often they are sent."""

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
"""Rows of a file: what is decoded for a micro-batch, however few of them it has."""

TOP: Final = 10
"""How many exchanges and routing keys are told of, those with most messages."""

PUBLISHED: Final = ("body", "routing_key", *(name for name in PROPERTIES if name != "user_id"), "content_header")
"""The columns that become messages. ``user_id`` is that of who published first, and a broker refuses it of others."""

ARROW_ROWS: Final = pa.schema([pa.field(name, ARROW[name]) for name in PUBLISHED])

_DIRECTORY: Final = "selection"
_MANIFEST: Final = "manifest.json"
_PART: Final = re.compile(r"part-(\d+)-.*-c(\d+)(?:\.\w+)*\.parquet")


@dataclass(frozen=True)
class Totals:
    """What a selection has. first_us, last_us: µs since 1970, None where no message has a time; keys: rows of the
    exchanges and routing keys with most messages; key_count: how many there are."""

    messages: int
    first_us: int | None
    last_us: int | None
    key_count: int
    keys: tuple[tuple[str, str, int], ...]


def totals(rows: DataFrame) -> Totals:
    """Counts rows with the columns ``exchange``, ``routing_key`` and ``due``. ``PipelineError`` where Spark fails."""
    groups = rows.groupBy("exchange", "routing_key").agg(
        F.count("*").alias("messages"), F.min("due").alias("first"), F.max("due").alias("last")
    )
    try:
        found = groups.collect()
    except Exception as error:
        raise PipelineError(f"the messages can't be selected: {cause(error)}") from error
    top = sorted(found, key=lambda row: (-row.messages, row.exchange or "", row.routing_key or ""))[:TOP]
    return Totals(
        sum(row.messages for row in found),
        min((row["first"] for row in found if row["first"] is not None), default=None),
        max((row["last"] for row in found if row["last"] is not None), default=None),
        len(found),
        tuple((row.exchange or "", row.routing_key or "", row.messages) for row in top),
    )


@dataclass(frozen=True)
class Selection:
    """A selection that is complete.

    Attributes:
        directory: where its files are; driver and executors see it.
        files: names and rows of the files, in order.
        octets: of all rows, about, in memory.
    """

    directory: Path
    files: tuple[tuple[str, int], ...]
    octets: int
    totals: Totals

    @staticmethod
    def of(checkpoint: Path, asked: dict[str, Any]) -> Selection | None:
        """That of a checkpoint; None if it has none that is complete.

        Raises:
            PipelineError: it was made for something else than ``asked``.
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
        whole = Totals(**{**told, "keys": tuple(tuple(row) for row in told["keys"])})
        return Selection(directory, tuple((name, rows) for name, rows in found["files"]), found["octets"], whole)

    @staticmethod
    def make(rows: DataFrame, checkpoint: Path, asked: dict[str, Any]) -> Selection:
        """Write down the rows, which are in order: all of them, or there is no selection.

        Raises:
            PipelineError: Spark failed, or the directory can't be written.
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
        made = Selection.of(checkpoint, asked)
        assert made is not None
        return made


def _place(path: Path) -> tuple[int, int]:
    """Spark numbers a sorted frame's partitions, and the files of each, in their order."""
    match = _PART.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2])


class Rows:
    """The rows of a selection by their numbers. May be pickled."""

    def __init__(self, directory: str, files: tuple[tuple[str, int], ...]) -> None:
        self._directory = directory
        self._files = files
        self._ends = list(accumulate(rows for _, rows in files))
        self._times: tuple[int, list[int | None]] = (-1, [])

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def batches(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Those with the numbers first ≤ n < end, as they are to be published."""
        while first < end:
            place = bisect_right(self._ends, first)
            name, rows = self._files[place]
            begin = self._ends[place] - rows
            stop = min(end, self._ends[place])
            table = pq.read_table(os.path.join(self._directory, name), columns=list(PUBLISHED), partitioning=None)
            yield from _published(table.slice(first - begin, stop - first))
            first = stop

    def time(self, number: int) -> int | None:
        """When the message was there first, in µs since 1970."""
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
        if field.name == "timestamp":  # seconds, which no time zone and no Parquet has another idea of
            column = pc.multiply(column, 1_000_000)
        arrays.append(column.cast(field.type))
    return iter(pa.Table.from_arrays(arrays, schema=ARROW_ROWS).to_batches())
