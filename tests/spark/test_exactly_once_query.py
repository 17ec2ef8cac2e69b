"""Exactly once into leveret, by real queries: repeated tasks have no effect, and an unfinished batch is not visible."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from leveret.client import BlockingChannel, BlockingConnection
from leveret.spark.sink.options import SinkOptions
from leveret.spark.sink.staged import Published
from leveret.spark.sink.writer import StreamSink
from leveret.spark.source import LeveretDataSource

from .support import run_available

pytestmark = pytest.mark.spark


@pytest.fixture
def url(broker: str) -> str:
    """Only leveret has stages."""
    return broker


@pytest.fixture
def numbers(channel: BlockingChannel) -> Iterator[str]:
    """A stream of 40 messages, "0" to "39", so that a repeated batch has the same messages."""
    name = f"numbers.{uuid.uuid4().hex[:12]}"
    channel.declare_queue(name, arguments={"x-queue-type": "stream"})
    for number in range(40):
        channel.publish(b"%d" % number, routing_key=name)
    channel.wait_for_confirms(30)
    yield name
    channel.delete_queue(name)


def rows_of(spark: SparkSession, url: str, stream: str) -> DataFrame:
    """Read micro-batches of 20 rows each."""
    options = {"url": url, "stream": stream, "columns": "body,offset", "maxRowsPerTrigger": "20"}
    return spark.readStream.format("leveret").options(**options).load()


def copy(rows: DataFrame, url: str, queue: str, checkpoint: Path) -> StreamingQuery:
    return run_available(rows.writeStream.format("leveret").options(url=url, queue=queue), checkpoint)


def bodies(channel: BlockingChannel, queue: str) -> list[int]:
    found = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        found.append(int(delivery.body))
    return found


def last_batch(url: str, query_id: str) -> int:
    with BlockingConnection(url, reconnect=False) as connection:
        known = connection.channel().staged(query_id)
        assert known is not None
        assert known["stages"] == []
        return int(known["last_batch"])


def test_a_replayed_batch_is_not_published_again(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, numbers: str, tmp_path: Path
) -> None:
    query = copy(rows_of(spark, url, numbers), url, queue, tmp_path / "checkpoint")
    assert last_batch(url, query.id) == 1
    # as if the driver had died after the sink's commit and before Spark's
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    again = copy(rows_of(spark, url, numbers), url, queue, tmp_path / "checkpoint")
    assert again.id == query.id
    assert [progress["batchId"] for progress in again.recentProgress if progress["numInputRows"]] == [1]
    assert sorted(bodies(channel, queue)) == list(range(40))


def test_a_batch_that_fails_midway_is_seen_once_when_it_is_repeated(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, numbers: str, tmp_path: Path
) -> None:
    """The broker refuses the last row of the second batch, when most others have been published."""
    rows = rows_of(spark, url, numbers).select("body", F.lit(queue).alias("routing_key"), "offset")
    odd = rows.withColumn("routing_key", F.when(F.col("offset") == 39, "no.such").otherwise(F.col("routing_key")))
    with pytest.raises(PySparkException, match=r"row \d+: 312 NO_ROUTE: .*'no\.such'"):
        run_available(odd.writeStream.format("leveret").option("url", url), tmp_path / "checkpoint")
    assert bodies(channel, queue) == list(range(20)), "rows of an unfinished batch are seen"
    query = run_available(rows.writeStream.format("leveret").option("url", url), tmp_path / "checkpoint")
    assert sorted(bodies(channel, queue)) == list(range(20, 40))
    assert last_batch(url, query.id) == 1


def test_a_task_that_spark_repeats_is_seen_once(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, numbers: str, tmp_path: Path
) -> None:
    # a class inside a function is pickled by value; workers cannot import this module
    class FailingSink(StreamSink):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
            published = super().write(iterator)
            if TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("the first attempt has published all of its rows")
            return published

    class FailingSource(LeveretDataSource):
        @classmethod
        def name(cls) -> str:
            return "leveret-failing"

        def streamWriter(self, schema: StructType, overwrite: bool) -> FailingSink:
            return FailingSink(SinkOptions.parse(self.options), schema)

    spark.dataSource.register(FailingSource)
    rows = rows_of(spark, url, numbers).select("body").limit(20)
    query = run_available(
        rows.writeStream.format("leveret-failing").options(url=url, queue=queue), tmp_path / "checkpoint"
    )
    found = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        found.append((int(delivery.body), delivery.properties.message_id))
    assert found == [(number, f"{query.id}-0-0-{number}") for number in range(20)]


def test_rows_of_a_job_that_fails_are_not_seen(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str
) -> None:
    frame = spark.range(40).repartition(4).select(F.col("id").cast("string").alias("body"))
    frame.write.format("leveret").mode("append").options(url=url, queue=queue).save()
    assert sorted(bodies(channel, queue)) == list(range(40))
    broken = frame.withColumn("body", F.expr("if(body = '33', raise_error('broken'), body)"))
    with pytest.raises(PySparkException, match="broken"):
        broken.write.format("leveret").mode("append").options(url=url, queue=queue).save()
    assert bodies(channel, queue) == []


def test_a_write_in_foreach_batch_is_done_once_for_each_batch(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, numbers: str, tmp_path: Path
) -> None:
    name = f"foreach-{uuid.uuid4().hex}"
    seen: list[int] = []

    def sink(frame: DataFrame, batch: int) -> None:
        seen.append(batch)
        write = frame.select("body").write.format("leveret").mode("append").options(url=url, queue=queue)
        write.options(query=name, batch=batch).save()
        if seen == [0, 1]:
            raise RuntimeError("behind the write")

    rows = rows_of(spark, url, numbers)
    with pytest.raises(PySparkException, match="behind the write"):
        run_available(rows.writeStream.foreachBatch(sink), tmp_path / "checkpoint")
    run_available(rows.writeStream.foreachBatch(sink), tmp_path / "checkpoint")
    assert seen == [0, 1, 1]
    assert sorted(bodies(channel, queue)) == list(range(40))
    assert last_batch(url, name) == 1
    channel.forget_query(name)


def test_typed_rows_and_their_dead_letters(spark: SparkSession, url: str, channel: BlockingChannel, queue: str) -> None:
    for body in (b'{"station": "JFK", "delay_min": 3}', b"oops", b'{"station": "EWR"}'):
        channel.publish(body, routing_key=queue)
    channel.wait_for_confirms(30)
    options = {"parse": "json", "bodySchema": "station string, delay_min int", "mode": "peek"}
    source = spark.read.format("leveret").options(url=url, queue=queue, **options)
    found = source.load().select("station", "delay_min", F.col("parse_error").isNull().alias("good"), "body").collect()
    assert [(row.station, row.delay_min, row.good, bytes(row.body)[:4]) for row in found] == [
        ("JFK", 3, True, b'{"st'), (None, None, False, b"oops"), ("EWR", None, True, b'{"st'),
    ]  # fmt: skip
    named = spark.read.format("leveret").options(url=url, queue=queue, parse="json", mode="peek")
    rows = named.load(schema="delay_min bigint, routing_key string").collect()
    assert [(row.delay_min, row.routing_key) for row in rows] == [(3, queue), (None, queue), (None, queue)]
    pruned = source.option("columns", "station").load()
    assert pruned.columns == ["station"]
