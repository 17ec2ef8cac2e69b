"""Queries over streams in Spark: exactly once into the sink, with their lag in the progress; on leveret and
RabbitMQ."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from leveret.client import BlockingChannel

from ..waiting import until
from .streams import append
from .support import ids_in, run_available

pytestmark = pytest.mark.spark


def read_stream(spark: SparkSession, url: str, stream: str, **options: str) -> DataFrame:
    return spark.readStream.format("leveret").options(url=url, stream=stream, **options).load()


def to_parquet(frame: DataFrame, directory: Path) -> StreamingQuery:
    """Write the available messages into Parquet files."""
    writer = frame.writeStream.format("parquet").option("path", str(directory / "rows"))
    return run_available(writer, directory / "checkpoint")


def test_each_message_is_in_the_sink_once_and_progress_tells_the_lag(
    spark: SparkSession, url: str, channel: BlockingChannel, stream: str, tmp_path: Path
) -> None:
    frame = read_stream(spark, url, stream, maxRowsPerTrigger="40", minPartitions="2")
    append(channel, stream, 0, 100)
    query = to_parquet(frame, tmp_path)
    assert [progress.numInputRows for progress in query.recentProgress] == [40, 40, 20]
    told = [json.loads(progress.json)["sources"][0]["latestOffset"][stream] for progress in query.recentProgress]
    assert [(each["next"], each["lag"]) for each in told] == [(100, 60), (100, 20), (100, 0)]
    append(channel, stream, 100, 10)
    to_parquet(frame, tmp_path)
    assert Counter(ids_in(spark, tmp_path / "rows")) == Counter(f"id-{number}" for number in range(110))


def test_a_query_goes_on_with_what_comes(
    spark: SparkSession, url: str, channel: BlockingChannel, stream: str, tmp_path: Path
) -> None:
    append(channel, stream, 0, 5)
    frame = read_stream(spark, url, stream, startingOffsets="latest", columns="message_id,offset")
    name = f"seen_{stream.replace('.', '_')}"

    def seen() -> set[tuple[str, int]]:
        return {(row.message_id, row.offset) for row in spark.table(name).collect()}

    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        until(lambda: bool(query.lastProgress), "there is no progress")
        for first in (5, 8):
            append(channel, stream, first, 3)
            until(lambda end=first + 3: seen() == {(f"id-{number}", number) for number in range(5, end)}, "none comes")
    finally:
        query.stop()
        query.awaitTermination(60)


def test_a_batch_query_reads_a_part(spark: SparkSession, url: str, channel: BlockingChannel, stream: str) -> None:
    append(channel, stream, 0, 100)
    whole = spark.read.format("leveret").options(url=url, stream=stream)
    assert whole.load().count() == 100
    part = whole.options(startingOffsets="10", endingOffsets="20", columns="offset,headers,body").load()
    assert part.columns == ["offset", "headers", "body"]
    assert sorted(row.offset for row in part.where("headers['n'] = '1'").collect()) == [10, 13, 16, 19]
    assert whole.options(startingOffsets="20", endingOffsets="20").load().collect() == []


def test_what_is_wrong_stands_in_the_error(spark: SparkSession, url: str, channel: BlockingChannel, queue: str) -> None:
    for options, message in (
        ({"stream": "nowhere"}, "there is no stream 'nowhere'"),
        ({"stream": queue}, "use option queue instead of option stream"),
        ({"stream": queue, "queue": queue}, "options stream and queue: set exactly one of them"),
        ({"stream": queue, "startingOffsets": "newest"}, "option startingOffsets must be earliest, latest"),
    ):
        with pytest.raises(Exception, match=message):
            spark.read.format("leveret").options(url=url, **options).load().collect()
