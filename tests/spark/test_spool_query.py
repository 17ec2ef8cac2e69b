"""Queries that read a queue through a spool, and peek and drain batches, with Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from leveret.client import BlockingChannel

from ..waiting import until
from .support import fill, ids_in, messages, run_available, unattended

pytestmark = pytest.mark.spark

leveret_alone = pytest.mark.parametrize("url", ["broker"], indirect=True)
"""The readers' own tests run on RabbitMQ, too, so these do not."""


def spooled(spark: SparkSession, url: str, queue: str, directory: Path, **options: str) -> DataFrame:
    reader = spark.readStream.format("leveret").options(url=url, queue=queue, mode="spool", **options)
    return reader.option("spoolDir", str(directory)).load()


def to_parquet(frame: DataFrame, path: Path) -> DataStreamWriter:
    return frame.writeStream.format("parquet").option("path", str(path))


def offsets(query: StreamingQuery, name: str) -> list[int]:
    """Return the number of messages up to an offset in the query's progress, for each micro-batch with rows."""
    found = [p["sources"][0][name] for p in query.recentProgress if p["numInputRows"]]
    return [(json.loads(one) if isinstance(one, str) else one)["messages"] for one in found]


def test_available_now_twice_by_way_of_a_spool(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    sent: set[str] = set()
    for run in range(2):
        sent |= fill(channel, queue, 1000 * run, 250)
        frame = spooled(spark, url, queue, tmp_path / "spool", maxRowsPerTrigger="100", minPartitions="2")
        query = run_available(to_parquet(frame, tmp_path / "out"), tmp_path / "checkpoint")
        assert offsets(query, "endOffset") == [250 * run + 100, 250 * run + 200, 250 * run + 250]
        assert offsets(query, "latestOffset")[-1] == 250 * run + 250
        unattended(channel, queue)
        assert messages(channel, queue) == 0
    assert sorted(ids_in(spark, tmp_path / "out")) == sorted(sent)


@leveret_alone
def test_a_batch_that_failed_is_the_same_batch_again(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    seen: list[tuple[int, list[str]]] = []

    def sink(frame: DataFrame, batch: int) -> None:
        seen.append((batch, [row.message_id for row in frame.collect()]))
        if len(seen) == 1:
            raise RuntimeError("the sink fails")

    sent = fill(channel, queue, 0, 60)
    frame = spooled(spark, url, queue, tmp_path / "spool", maxRowsPerTrigger="50")
    writer = frame.writeStream.foreachBatch(sink)
    with pytest.raises(PySparkException, match="the sink fails"):
        run_available(writer, tmp_path / "checkpoint")
    run_available(writer, tmp_path / "checkpoint")
    assert [batch for batch, _ in seen] == [0, 0, 1]
    assert seen[0] == seen[1]
    assert sorted(seen[1][1] + seen[2][1]) == sorted(sent)


@leveret_alone
def test_a_running_query_reads_what_comes(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    seen: list[str] = []

    def sink(frame: DataFrame, batch: int) -> None:
        seen.extend(row.message_id for row in frame.collect())

    writer = spooled(spark, url, queue, tmp_path / "spool").writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        sent = fill(channel, queue, 0, 20)
        until(lambda: set(seen) == sent, "the messages do not come")
        sent |= fill(channel, queue, 20, 20)
        until(lambda: set(seen) == sent, "the later messages do not come")
    finally:
        query.stop()
    unattended(channel, queue)
    assert messages(channel, queue) == 0
    assert len(seen) == 40, "a message came twice"


@leveret_alone
def test_peek_and_drain(spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path) -> None:
    sent = fill(channel, queue, 0, 50)
    reader = spark.read.format("leveret").options(url=url, queue=queue)
    peeked = reader.load()
    assert {row.message_id for row in peeked.collect()} == sent
    unattended(channel, queue)
    assert peeked.count() == 50, "a second look at the same"
    unattended(channel, queue)
    assert messages(channel, queue) == 50
    drained = reader.options(mode="drain", spoolDir=str(tmp_path / "spool")).load()
    drained.write.parquet(str(tmp_path / "out"))
    assert sorted(ids_in(spark, tmp_path / "out")) == sorted(sent)
    unattended(channel, queue)
    assert messages(channel, queue) == 0
    assert drained.count() == 50, "what was drained is read again"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "drain"}, "option spoolDir is missing: mode=drain"),
        ({"mode": "spool"}, "option spoolDir is missing: mode=spool"),
        ({"mode": "look"}, "option mode must be ack or spool or peek or drain, not 'look'"),
        ({"url": "http://h"}, "option url: a connection URL begins with amqp://"),
        ({"queue": "nowhere"}, "there is no queue 'nowhere'"),
    ],
)
def test_options_that_cannot_be_used(spark: SparkSession, broker: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(PySparkException) as error:
        spark.read.format("leveret").options(**{"url": broker, "queue": "q", **options}).load().collect()
    assert text in str(error.value)
