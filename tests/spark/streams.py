"""Helpers for tests of streams as a source; readers are called as Spark calls them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from leveret.client import BlockingChannel, Properties
from leveret.spark.rows.columns import STREAM_SCHEMA
from leveret.spark.rows.shape import RowOptions
from leveret.spark.streams.batch import StreamBatchReader
from leveret.spark.streams.options import StreamOptions
from leveret.spark.streams.reader import StreamReader

ALL = ReadAllAvailable()
SHAPE = RowOptions().shape(STREAM_SCHEMA, STREAM_SCHEMA)


def declare(channel: BlockingChannel, name: str, **arguments: Any) -> None:
    """Declare a stream; arguments as ``x_max_length_bytes=1000``."""
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    channel.declare_queue(name, arguments={"x-queue-type": "stream", **given})


def append(channel: BlockingChannel, stream: str, first: int, count: int, body: bytes = b"") -> list[bytes]:
    """Publish messages numbered from ``first``; return their bodies, which are the numbers followed by ``body``."""
    bodies = [b"%d" % number + body for number in range(first, first + count)]
    for number, each in enumerate(bodies, first):
        channel.publish(each, "", stream, Properties(message_id=f"id-{number}", headers={"n": number % 3}))
    channel.wait_for_confirms(30)
    return bodies


def reader(url: str, stream: str, **options: str) -> StreamReader:
    return StreamReader(StreamOptions.parse({"url": url, "stream": stream, **options}), SHAPE)


def batch_reader(url: str, stream: str, **options: str) -> StreamBatchReader:
    return StreamBatchReader(StreamOptions.parse({"url": url, "stream": stream, **options}), SHAPE)


def latest(source: StreamReader, start: dict[str, Any], limit: ReadLimit = ALL) -> dict[str, Any]:
    """Return the next offset, after a round trip through a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(source.latestOffset(json.loads(json.dumps(start)), limit)))
    return found


def rows(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that the tasks between two offsets read, on executors."""
    return task_rows(source, source.partitions(start, end))


def task_rows(source: StreamReader | StreamBatchReader, tasks: Any) -> list[dict[str, Any]]:
    """Return the rows that these tasks read; everything is pickled, as for an executor."""
    found = []
    read = pickle.loads(pickle.dumps(type(source)(source._options, source._shape).read))
    for task in pickle.loads(pickle.dumps(list(tasks))):
        found += pa.Table.from_batches(list(read(task)), SHAPE.arrow).to_pylist()
    return found


def bodies(found: list[dict[str, Any]]) -> list[bytes]:
    return [row["body"] for row in found]
