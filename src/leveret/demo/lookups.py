"""Enrichment: an RPC to the lookup service for every flight, with a record of requests and replies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from leveret.demo.plan import PLANES_QUEUE, DemoPlan
from leveret.demo.roles.role import write_records
from leveret.spark.rpc import RpcCaller

WINDOW = 1_000
"""The most outstanding requests."""

TIMEOUT_S = 30.0


def look_up(flights: DataFrame, plan: DemoPlan) -> DataFrame:
    """Return columns message_id, body and ``reply``: the lookup service's answer about each flight's aircraft.

    The request is the flight itself. Writes the ids of requests and replies to ``records/read`` and
    ``records/replies``.
    """
    for kind in ("read", "replies"):
        (plan.records / kind).mkdir()
    caller = RpcCaller(plan.url, "", PLANES_QUEUE, request="body", reply="reply", window=WINDOW, timeout_s=TIMEOUT_S)
    schema = "message_id STRING, body BINARY, reply BINARY"
    return flights.select("message_id", "body").mapInArrow(RecordedCalls(caller, plan.records), schema)


@dataclass(frozen=True)
class RecordedCalls:
    """The function for ``mapInArrow`` of ``leveret.spark.rpc``, which also records the ids of requests and replies.

    Attributes:
        caller: makes the calls.
        records: directory of the records.
    """

    caller: RpcCaller
    records: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with their replies."""
        read: list[str] = []
        replied: list[str] = []
        for batch in self.caller(_noting(batches, read)):
            replied += _ids(batch.column("reply"))
            yield batch
        write_records(self.records / "read" / record_name(), id=read)
        write_records(self.records / "replies" / record_name(), id=replied)


def record_name() -> str:
    """Return this task's file name, which is the same when Spark repeats the task, so that it replaces the file."""
    context = TaskContext.get()
    assert context is not None
    return f"{context.getLocalProperty('streaming.sql.batchId')}-{context.partitionId()}.parquet"


def _noting(batches: Iterator[pa.RecordBatch], ids: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids += [flight_id or "" for flight_id in batch.column("message_id").to_pylist()]
        yield batch


def _ids(replies: pa.Array) -> list[str]:
    """Return the flight ids in the replies; ``""`` for a reply without one."""
    found = pc.extract_regex(replies.cast(pa.string()), '^{"id":"(?P<id>[^"]*)"')
    return [row["id"] if row is not None else "" for row in found.to_pylist()]
