"""leveret.lake.data_frame: what Spark's own reader of Parquet and the live messages give is what dataset() gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret import lake
from leveret.client import BlockingChannel, BlockingConnection
from leveret.testing.processes import LeveretProcess

from ..waiting import until
from .sealed import EVERYTHING, SCHEMA, sample

pytestmark = pytest.mark.spark
COUNT = 1200
STREAM: dict[str, str | int] = {
    "x-queue-type": "stream",
    "x-leveret-seal-after-ms": 3_600_000,
    "x-stream-max-segment-size-bytes": 100_000,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker whose directory has a name that would be a pattern for Spark."""
    with LeveretProcess(tmp_path_factory.mktemp("lake") / "a [b]{c,d} 100%20*", admin=True) as process:
        yield process


@pytest.fixture
def channel(broker: LeveretProcess) -> Iterator[BlockingChannel]:
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


def publish(channel: BlockingChannel, stream: str, first: int, end: int, octets: int) -> None:
    for number in range(first, end):
        body = b"oops" if number % 7 == 1 else json.dumps({"n": number, "tags": ["x"] * (number % 3)}).encode()
        channel.publish(body + b" " * octets, "", stream, sample(number))
    channel.wait_for_confirms()


def test_rows_are_those_of_the_dataset(spark: SparkSession, broker: LeveretProcess, channel: BlockingChannel) -> None:
    """Some messages are sealed and the others are not; the columns of bodies, nested headers and the date are alike."""
    channel.declare_queue("both", durable=True, arguments={**STREAM, "x-leveret-schema": json.dumps(SCHEMA)})
    publish(channel, "both", 0, COUNT, 2000)
    until(lambda: channel.stream_facts("both")["sealed_offset"] > 0, "no file was sealed")
    publish(channel, "both", COUNT, COUNT + 20, 1)
    frame = lake.data_frame(spark, "both", broker.url, api_url=broker.admin_url)
    table = lake.dataset("both", broker.url).to_table().sort_by("offset")
    assert 0 < channel.stream_facts("both")["sealed_offset"] < COUNT + 20 == len(table)
    assert frame.columns == table.column_names
    assert EVERYTHING.message_id in table["message_id"].to_pylist()
    assert frame.orderBy("offset").toArrow().cast(table.schema).equals(table)
    publish(channel, "both", COUNT + 20, COUNT + 30, 1)
    assert frame.count() == COUNT + 20, "a frame ends where the stream ended when it was made"
    last = frame.where("offset >= 1215 AND n IS NOT NULL").select("n", "date").orderBy("n").collect()
    assert [row.n for row in last] == [number for number in range(1215, 1220) if number % 7 != 1]


def test_a_stream_without_files(spark: SparkSession, broker: LeveretProcess, channel: BlockingChannel) -> None:
    channel.declare_queue("live", durable=True, arguments=STREAM)
    assert lake.data_frame(spark, "live", broker.url).collect() == []
    channel.publish(b"one", "", "live")
    channel.wait_for_confirms()
    assert [bytes(row.body) for row in lake.data_frame(spark, "live", broker.url).collect()] == [b"one"]


def test_files_that_cannot_be_read_here(
    spark: SparkSession, broker: LeveretProcess, channel: BlockingChannel, tmp_path: Path
) -> None:
    """Spark cannot read them over HTTP, so the error does not advise that."""
    channel.declare_queue("far", durable=True, arguments=STREAM)
    with pytest.raises(lake.StreamUnreadable, match=r"tables_dir says where they are mounted$"):
        lake.data_frame(spark, "far", broker.url, tables_dir=str(tmp_path), api_url=broker.admin_url)
