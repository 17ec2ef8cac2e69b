"""Helpers for tests of queries: fill a queue, run a query over the available messages, check the results."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from leveret.client import BlockingChannel, Delivery, Properties
from leveret.client.protocol.delivering import RawDeliveries

from ..waiting import until

T = TypeVar("T")
COMPILED = (b"leveret.wire", b"leveret.session", b"leveret.broker")


def sent(value: T) -> T:
    """Return a pickled copy of the value, as executors get it. It must not need compiled classes, which they may
    lack."""
    data = pickle.dumps(value)
    assert not [name for name in COMPILED if name in data]
    copy: T = pickle.loads(data)
    return copy


def received(deliveries: Iterable[Delivery]) -> RawDeliveries:
    """Return deliveries as readers of queues take them from the wire."""
    raw = RawDeliveries(1)
    for delivery in deliveries:
        raw.add(delivery)
    return raw


def fill(channel: BlockingChannel, queue: str, first: int, count: int) -> set[str]:
    """Publish messages numbered from ``first``; return their ids."""
    ids = [f"id-{number}" for number in range(first, first + count)]
    for message_id in ids:
        properties = Properties(message_id=message_id, delivery_mode=2)
        channel.publish(message_id.encode(), routing_key=queue, properties=properties)
    channel.wait_for_confirms(30)
    return set(ids)


def messages(channel: BlockingChannel, queue: str) -> int:
    return channel.declare_queue(queue, passive=True).message_count


def unattended(channel: BlockingChannel, queue: str) -> None:
    """Wait until the broker has noticed that the query's consumer is gone, and has requeued its messages."""
    until(lambda: channel.declare_queue(queue, passive=True).consumer_count == 0, "the consumer is still there")


def left(channel: BlockingChannel, queue: str) -> int:
    """Return the number of messages in the queue when no consumer is left."""
    unattended(channel, queue)
    return messages(channel, queue)


def stream(spark: SparkSession, url: str, queue: str, rows_max: int = 1000) -> DataFrame:
    options = {"url": url, "queue": queue, "maxRowsPerTrigger": str(rows_max)}
    return spark.readStream.format("leveret").options(**options).load()


def run_available(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    """Run the query over the available messages, to its end."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(200), "AvailableNow does not end"
    return query


def reason(error: PySparkException) -> str:
    """Return the first lines of a Spark error: its own message and its cause."""
    text = str(error)
    assert "Traceback (most recent call last)" not in text, text
    return " ".join(text.splitlines()[:2])


def ids_in(spark: SparkSession, directory: Path) -> list[str]:
    """Return the ids in the Parquet files of a directory, with duplicates."""
    return [row.message_id for row in spark.read.parquet(str(directory)).select("message_id").collect()]
