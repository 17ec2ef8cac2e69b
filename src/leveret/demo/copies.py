"""A record of what came over the links, before Spark drops the repeats of publishers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from leveret.demo.lookups import record_name
from leveret.demo.plan import Plan
from leveret.demo.role import write_records

FOLDER = "crossed"

SCHEMA = "message_id STRING, app_id STRING, body BINARY"
"""The columns that this needs of the source."""


def without_repeats(flights: DataFrame, plan: Plan) -> DataFrame:
    """Columns message_id and body: the first copy of each flight that comes. Leaves all copies in ``records/crossed``.

    This is what any consumer does whose publishers repeat what was not confirmed: it knows messages by their ids.
    """
    (plan.records / FOLDER).mkdir()
    recorded = flights.mapInArrow(RecordedCopies(plan.records / FOLDER), SCHEMA)
    return recorded.dropDuplicates(["message_id"]).drop("app_id")


@dataclass(frozen=True)
class RecordedCopies:
    """The function of ``mapInArrow``: rows as they are, and a record of their ids. folder: for the records."""

    folder: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        ids: list[str] = []
        app_ids: list[str] = []
        for batch in batches:
            ids += [value or "" for value in batch.column("message_id").to_pylist()]
            app_ids += [value or "" for value in batch.column("app_id").to_pylist()]
            yield batch
        write_records(self.folder / record_name(), id=ids, app_id=app_ids)
