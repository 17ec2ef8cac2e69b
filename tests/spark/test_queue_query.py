"""The queue source in queries: the same tests on leveret and on RabbitMQ."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from leveret.client import BlockingChannel

from ..waiting import until
from .support import fill, ids_in, messages, run_available, stream, unattended

pytestmark = pytest.mark.spark


def test_available_now_takes_what_is_there_and_acknowledges_all_of_it(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    sent = fill(channel, queue, 0, 2500)
    writer = stream(spark, url, queue).writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = run_available(writer, tmp_path / "checkpoint")
    found = ids_in(spark, tmp_path / "out")
    assert set(found) == sent
    assert len(found) == 2500
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [1000, 1000, 500]
    unattended(channel, queue)
    assert messages(channel, queue) == 0


def test_a_second_run_goes_on_where_the_first_ended(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    sent: set[str] = set()
    for run in range(3):
        sent |= fill(channel, queue, 100 * run, 100 * run)
        writer = stream(spark, url, queue).writeStream.format("parquet").option("path", str(tmp_path / "out"))
        run_available(writer, tmp_path / "checkpoint")
        unattended(channel, queue)
    assert sorted(ids_in(spark, tmp_path / "out")) == sorted(sent)
    assert len(sent) == 300


def test_a_running_query_acknowledges_its_last_batch_without_another_message(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    seen: list[str] = []

    def sink(frame: DataFrame, batch: int) -> None:
        seen.extend(row.message_id for row in frame.collect())

    writer = stream(spark, url, queue, rows_max=50).writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        sent = fill(channel, queue, 0, 20)
        until(lambda: set(seen) == sent, "the messages do not come")
        sent |= fill(channel, queue, 20, 20)
        until(lambda: set(seen) == sent, "the later messages do not come")
        # Spark has asked for more and found nothing: this acknowledges the last batch
        until(lambda: query.status["message"] == "Waiting for data to arrive", "the query does not rest")
    finally:
        query.stop()
    unattended(channel, queue)
    assert messages(channel, queue) == 0
    assert len(seen) == 40, "a message came twice"


def test_a_failing_sink_loses_nothing_and_the_next_run_gets_all_of_it(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    sent = fill(channel, queue, 0, 250)

    def broken(frame: DataFrame, batch: int) -> None:
        assert frame.count() == 100
        raise RuntimeError("the sink is broken")

    writer = stream(spark, url, queue, rows_max=100).writeStream.foreachBatch(broken)
    with pytest.raises(PySparkException, match="the sink is broken"):
        run_available(writer, tmp_path / "checkpoint")
    unattended(channel, queue)
    assert messages(channel, queue) == 250

    seen: list[str] = []
    mended = stream(spark, url, queue, rows_max=100).writeStream.foreachBatch(
        lambda frame, batch: seen.extend(row.message_id for row in frame.collect())
    )
    run_available(mended, tmp_path / "checkpoint")
    assert sorted(seen) == sorted(sent)
    unattended(channel, queue)
    assert messages(channel, queue) == 0


def test_a_missing_queue_is_told_before_the_query_begins(
    spark: SparkSession, channel: BlockingChannel, url: str, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match=r"there is no queue 'spark\.missing'"):
        stream(spark, url, "spark.missing")
    channel.declare_queue("spark.missing")
    writer = stream(spark, url, "spark.missing").writeStream.format("noop")
    channel.delete_queue("spark.missing")
    with pytest.raises(PySparkException, match=r"no queue 'spark\.missing'"):
        run_available(writer, tmp_path / "checkpoint")
