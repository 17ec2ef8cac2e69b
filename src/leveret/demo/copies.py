"""A record of the messages that crossed the links, before Spark drops the publishers' repeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from leveret.demo.lookups import record_name
from leveret.demo.plan import DemoPlan
from leveret.demo.roles.role import write_records

FOLDER = "crossed"

SCHEMA = "message_id STRING, app_id STRING, body BINARY"
"""The columns that are needed of the source."""


def without_repeats(flights: DataFrame, plan: DemoPlan) -> DataFrame:
    """Return columns message_id and body of the first copy of each flight. Writes all copies to ``records/crossed``.

    Any consumer whose publishers repeat unconfirmed messages has to drop repeats like this, by message id.
    """
    (plan.records / FOLDER).mkdir()
    recorded = flights.mapInArrow(RecordedCopies(plan.records / FOLDER), SCHEMA)
    return recorded.dropDuplicates(["message_id"]).drop("app_id")


@dataclass(frozen=True)
class RecordedCopies:
    """The function for ``mapInArrow``: passes rows on unchanged, and records their ids in `folder`."""

    folder: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches."""
        ids: list[str] = []
        app_ids: list[str] = []
        for batch in batches:
            ids += [value or "" for value in batch.column("message_id").to_pylist()]
            app_ids += [value or "" for value in batch.column("app_id").to_pylist()]
            yield batch
        write_records(self.folder / record_name(), id=ids, app_id=app_ids)
