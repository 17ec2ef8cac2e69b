"""A stream that is completely sealed, and readers of its files without Spark."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from leveret.client import BlockingChannel, Properties
from leveret.spark.rows.columns import PROPERTIES
from leveret.spark.segments.options import SegmentOptions
from leveret.spark.segments.planner import SealedPlanner

STREAM = "flights"
COUNT = 3000
SCHEMA = [
    {"name": "n", "type": "long"},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "type", "type": "string"},
]
PROPERTY_TYPES = {name: kind for name, (_, kind) in PROPERTIES.items() if name != "headers"}
ARROW = pa.schema(
    [
        ("body", pa.binary()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        *[(name, kind) for name, (_, kind) in PROPERTIES.items()],
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("arrived", pa.timestamp("us", "UTC")),
    ]
)
EVERYTHING = Properties(
    content_type="application/json", content_encoding="gzip", delivery_mode=1, priority=9, correlation_id="c",
    reply_to="r", expiration="60000", message_id="m", timestamp=1_700_000_000, type="t", user_id="guest", app_id="app",
    headers={
        "text": "ä", "octets": b"\xff\0", "int": -7, "double": 0.5, "yes": True, "none": None,
        "time": datetime(2013, 1, 1, tzinfo=UTC), "list": [1, "a", None], "table": {"deep": {"er": [True]}},
    },
)  # fmt: skip


def sample(number: int) -> Properties:
    """Return properties: all of them for some messages, a few headers for others, nothing for most."""
    if number % 500 == 7:
        return EVERYTHING
    if number % 5 == 0:
        return Properties(message_id=f"m{number}", headers={"number": number, "parity": ("even", "odd")[number % 2]})
    return Properties()


def fill(channel: BlockingChannel) -> None:
    """Publish files of some hundred messages each; each is sealed when complete, the last one a moment later."""
    channel.confirm_select()
    arguments = {
        "x-queue-type": "stream", "x-leveret-seal-after-ms": 1, "x-stream-max-segment-size-bytes": 100_000,
        "x-leveret-schema": json.dumps(SCHEMA),
    }  # fmt: skip
    channel.declare_queue(STREAM, arguments=arguments)
    channel.bind_queue(STREAM, "amq.topic", "odd.*")
    for number in range(COUNT):
        said: dict[str, object] = {"n": number, "tags": ["x"] * (number % 3)}
        if number % 10 == 0:
            said["type"] = "late"
        body = b"oops" if number == 11 else json.dumps(said).encode()
        place = ("amq.topic", f"odd.{number % 7}") if number % 2 else ("", STREAM)
        channel.publish(body + b" " * 200, *place, sample(number))
        if number % 1000 == 999:
            channel.wait_for_confirms()


def sealed(url: str = "amqp://guest:guest@localhost/%2F", **options: str) -> SealedPlanner:
    return SealedPlanner(url, SegmentOptions.parse(options), STREAM)


def rows(
    of: SealedPlanner, facts: dict[str, Any], first: int, end: int, schema: pa.Schema = ARROW, **more: Any
) -> pa.Table:
    """Return what all tasks read, in the form that executors get."""
    tasks = pickle.loads(pickle.dumps(of.plan(facts, first, end, **more)))
    return pa.Table.from_batches([batch for task in tasks for batch in task.read(schema)], schema)


def files(facts: dict[str, Any]) -> list[Path]:
    return sorted(Path(facts["tables_dir"]).glob("*/*.parquet"))


def only(*names: str) -> pa.Schema:
    return pa.schema([ARROW.field(name) for name in names])
