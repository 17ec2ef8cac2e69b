"""Enrichment: an RPC to the lookup service for every flight, with a record of requests and replies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json
from pyspark import TaskContext
from pyspark.sql import DataFrame

from leveret.demo.data import CODES, NUMBERS
from leveret.demo.plan import PLANES_QUEUE, DemoPlan
from leveret.demo.roles.role import write_records
from leveret.spark.rpc import RpcCaller

WINDOW = 1_000
"""The most outstanding requests."""

TIMEOUT_S = 30.0

_COLUMNS = [*((name, "INT") for name in NUMBERS), *((name, "STRING") for name in CODES)]
_PLANE = [
    *(("year", "INT"), ("type", "STRING"), ("manufacturer", "STRING"), ("model", "STRING")),
    *(("engines", "INT"), ("seats", "INT"), ("speed", "INT"), ("engine", "STRING")),
]

SCHEMA: Final = (
    f"message_id STRING, {', '.join(' '.join(column) for column in _COLUMNS)}, "
    f"plane STRUCT<{', '.join(f'{name}: {kind}' for name, kind in _PLANE)}>"
)
"""The columns of an enriched flight."""

_ARROW = {"INT": pa.int32(), "STRING": pa.string()}
_FLIGHT: Final = pa.schema([("id", pa.string()), *((name, _ARROW[kind]) for name, kind in _COLUMNS)])
_REPLY: Final = pa.schema(
    [("id", pa.string()), ("plane", pa.struct([(name, _ARROW[kind]) for name, kind in _PLANE]))]
)


def look_up(flights: DataFrame, plan: DemoPlan) -> DataFrame:
    """Return the columns of `SCHEMA`: message_id, the fields of the JSON ``body``, and the lookup service's answer
    about the flight's aircraft.

    The request is a JSON object with the flight's id and its tail number. Writes the ids of requests and replies to
    ``records/read`` and ``records/replies``.
    """
    for kind in ("read", "replies"):
        (plan.records / kind).mkdir()
    caller = RpcCaller(plan.url, "", PLANES_QUEUE, request="request", reply="reply", window=WINDOW, timeout_s=TIMEOUT_S)
    return flights.select("message_id", "body").mapInArrow(RecordedCalls(caller, plan.records), SCHEMA)


@dataclass(frozen=True)
class RecordedCalls:
    """The function for ``mapInArrow``: the calls of ``leveret.spark.rpc``, and a record of their ids.

    Attributes:
        caller: makes the calls.
        records: directory of the records.
    """

    caller: RpcCaller
    records: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the enriched flights."""
        read: list[pa.Array] = []
        replied: list[pa.Array] = []
        for batch in self.caller(_requests(batches, read)):
            reply = objects(batch.column("reply"), _REPLY)
            replied.append(reply.column("id"))
            flights = batch.drop_columns(["request", "reply"])
            yield flights.append_column("plane", reply.column("plane"))
        for kind, ids in (("read", read), ("replies", replied)):
            write_records(self.records / kind / record_name(), id=pa.chunked_array(ids, pa.string()))


def record_name() -> str:
    """Return this task's file name, which is the same when Spark repeats the task, so that it replaces the file."""
    context = TaskContext.get()
    assert context is not None
    return f"{context.getLocalProperty('streaming.sql.batchId')}-{context.partitionId()}.parquet"


def objects(texts: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """Return JSON objects as rows, with the columns of `schema`; other fields are ignored.

    Raises:
        ValueError: a text is not one JSON object on one line.
    """
    if not len(texts):
        return pa.RecordBatch.from_pylist([], schema)
    # pyarrow takes lines: a text that is none, or no object, would shift the rows after it or end the process
    if not pc.all(pc.match_substring_regex(texts, r"^\{[^\n]*\}$")).as_py():
        raise ValueError("a message is not one JSON object on one line")
    lines = b"\n".join(texts.to_pylist())
    reading = json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    parsing = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    rows = json.read_json(pa.BufferReader(lines), reading, parsing).to_batches()
    if len(rows) != 1 or rows[0].num_rows != len(texts):
        raise ValueError("a message is more than one JSON object")
    return rows[0]


def _requests(batches: Iterator[pa.RecordBatch], ids: list[pa.Array]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids.append(batch.column("message_id"))
        flights = objects(batch.column("body"), _FLIGHT)
        # no text needs escapes: data.py checks that codes are letters and digits
        known = [pc.fill_null(flights.column(name), "") for name in ("id", "tailnum")]
        request = pc.binary_join_element_wise('{"id":"', known[0], '","tailnum":"', known[1], '"}', "")
        flights = flights.set_column(0, "message_id", batch.column("message_id"))
        yield flights.append_column("request", request)
