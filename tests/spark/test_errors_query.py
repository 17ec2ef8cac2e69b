"""Errors of queries, through Spark: each failure names the option to change, and loses no message."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leveret.cli.main import main
from leveret.client import BlockingChannel

from ..waiting import until
from .support import fill, ids_in, messages, reason, run_available, unattended

pytestmark = pytest.mark.spark


@pytest.fixture
def url(broker: str) -> str:
    """Leveret only; the tests of each part check RabbitMQ's errors."""
    return broker


@pytest.fixture
def full(channel: BlockingChannel) -> Iterator[str]:
    """A queue that takes five messages and refuses the sixth."""
    name = f"full.{uuid.uuid4().hex[:12]}"
    channel.declare_queue(name, arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    yield name
    channel.delete_queue(name)


def load(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.readStream.format("leveret").options(**{"url": url, **options}).load()


def wrong(url: str) -> str:
    found = url.replace("guest:guest@", "guest:wrong@")
    assert found != url
    return found


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"stream": "no.such"}, r"no stream 'no\.such'.* option stream"),
        ({"queue": "no.such"}, r"no queue 'no\.such'.* option queue"),
        ({"queue": "no.such", "mode": "spool", "spoolDir": "{tmp}/spool"}, r"no queue 'no\.such'.* option queue"),
        ({"queue": "no.such", "mode": "spool"}, r"option spoolDir is missing"),
        ({"queue": "{queue}", "mode": "peek"}, r"option mode: peek is not available for spark\.readStream"),
        ({"queue": "a", "stream": "b"}, r"options stream and queue: set exactly one of them"),
        ({"queue": "no.such", "columns": "body,nothing"}, r"option columns.*'nothing'"),
        ({"queue": "no.such", "parse": "json"}, r"option bodySchema"),
        ({"queue": "no.such", "maxRowsPerTrigger": "0"}, r"option maxRowsPerTrigger must be 1 to"),
    ],
)
def test_a_source_that_cannot_be_read_names_the_option(
    spark: SparkSession, url: str, queue: str, tmp_path: Path, options: dict[str, str], text: str
) -> None:
    placed = {name: value.format(tmp=tmp_path, queue=queue) for name, value in options.items()}
    with pytest.raises(PySparkException) as caught:
        run_available(load(spark, url, **placed).writeStream.format("noop"), tmp_path / "checkpoint")
    assert re.search(text, reason(caught.value))


@pytest.mark.parametrize("mode", ["ack", "spool"])
def test_a_query_that_cannot_begin_says_so_first(spark: SparkSession, url: str, tmp_path: Path, mode: str) -> None:
    """The schema is given, because load() would otherwise ask the broker for one."""
    options = {"url": url, "queue": "no.such", "mode": mode, "spoolDir": str(tmp_path / "spool")}
    rows = spark.readStream.format("leveret").schema("body binary").options(**options).load()
    with pytest.raises(StreamingQueryException) as caught:
        run_available(rows.writeStream.format("noop"), tmp_path / "checkpoint")
    assert re.search(r"there is no queue 'no\.such' .*: declare it first, or .* option queue", reason(caught.value))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["deadletters", "--queue", "no.such"], r"dead letters can't be read: there is no queue 'no\.such'"),
        (
            ["archive", "--queue", "no.such", "{tmp}/lake"],
            r"queue 'no\.such' at .*: there is no queue .*: declare it",
        ),
        (
            ["replay", "--stream", "no.such", "--exchange", "", "--name", "again", "--checkpoint", "{tmp}/again"],
            r"stream 'no\.such' can't be read: there is no stream 'no\.such'",
        ),
    ],
)
def test_a_command_says_the_reason_in_one_line(
    spark: SparkSession, url: str, tmp_path: Path, words: list[str], text: str
) -> None:
    placed = [word.format(tmp=tmp_path) for word in words]
    result = CliRunner().invoke(main, ["spark", *placed, "--url", url], catch_exceptions=False)
    assert result.exit_code == 3, result.output
    *_, told = result.stderr.splitlines()
    assert re.match(f"Error: {text}", told)
    assert "Traceback" not in result.output


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_wrong_credentials_name_the_url(spark: SparkSession, url: str, queue: str, tmp_path: Path, kind: str) -> None:
    with pytest.raises(PySparkException) as caught:
        run_available(load(spark, wrong(url), **{kind: queue}).writeStream.format("noop"), tmp_path / "checkpoint")
    assert "user and password in option url" in reason(caught.value)


def to_no_queue(url: str, full: str) -> dict[str, str]:
    return {"url": url, "queue": "no.such"}


def to_no_exchange(url: str, full: str) -> dict[str, str]:
    return {"url": url, "exchange": "no.such"}


def to_a_full_queue(url: str, full: str) -> dict[str, str]:
    return {"url": url, "queue": full}


def with_a_wrong_password(url: str, full: str) -> dict[str, str]:
    return {"url": wrong(url), "queue": full}


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (to_no_queue, r"312 NO_ROUTE.*option mandatory=false"),
        (to_no_exchange, r"404 NOT_FOUND - no exchange 'no\.such'.*options exchange"),
        (to_a_full_queue, r"the broker refused it \(basic\.nack\).*option"),
        (with_a_wrong_password, r"user and password in option url"),
    ],
)
def test_what_a_sink_does_not_take_is_not_acknowledged(
    spark: SparkSession,
    url: str,
    channel: BlockingChannel,
    queue: str,
    full: str,
    tmp_path: Path,
    target: Any,
    text: str,
) -> None:
    fill(channel, queue, 0, 30)
    rows = load(spark, url, queue=queue, columns="body,message_id", maxRowsPerTrigger="20")
    with pytest.raises(PySparkException) as caught:
        run_available(rows.writeStream.format("leveret").options(**target(url, full)), tmp_path / "checkpoint")
    assert re.search(text, reason(caught.value))
    unattended(channel, queue)
    # a queue that becomes full refuses later stages, and has all messages of the batch before
    assert messages(channel, queue) == 30 - messages(channel, full)
    assert messages(channel, full) == (20 if target is to_a_full_queue else 0), "a part of a failed batch can be seen"


def test_columns_that_a_sink_has_not_are_told_before_a_message_is_taken(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, full: str, tmp_path: Path
) -> None:
    fill(channel, queue, 0, 3)
    rows = load(spark, url, queue=queue).withColumn("price", F.lit(1))
    with pytest.raises(PySparkException, match=r"the sink has no column 'price'; it has body, "):
        run_available(rows.writeStream.format("leveret").options(url=url, queue=full), tmp_path / "checkpoint")
    unattended(channel, queue)
    assert messages(channel, queue) == 3


def test_a_stream_that_was_declared_anew_fails_the_query_and_goes_on_when_told(
    spark: SparkSession, url: str, channel: BlockingChannel, tmp_path: Path
) -> None:
    name = f"anew.{uuid.uuid4().hex[:12]}"
    stream = {"x-queue-type": "stream"}
    channel.declare_queue(name, arguments=stream)
    fill(channel, name, 0, 10)

    def run(**options: str) -> None:
        rows = load(spark, url, stream=name, columns="message_id", **options)
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        run_available(writer, tmp_path / "checkpoint")

    run()
    channel.delete_queue(name)
    channel.declare_queue(name, arguments=stream)
    fill(channel, name, 10, 10)
    with pytest.raises(PySparkException, match=r"was deleted and declared again.*option failOnDataLoss"):
        run()
    assert len(ids_in(spark, tmp_path / "out")) == 10
    run(failOnDataLoss="false")
    assert sorted(ids_in(spark, tmp_path / "out")) == sorted(f"id-{number}" for number in range(20))
    channel.delete_queue(name)


def test_a_queue_that_is_purged_loses_nothing_that_was_delivered_and_the_query_goes_on(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    delivered = fill(channel, queue, 0, 10)
    seen: list[str] = []

    def sink(frame: DataFrame, batch: int) -> None:
        if not seen:
            # delivered messages are not in the queue any more
            channel.purge_queue(queue)
        seen.extend(row.message_id for row in frame.collect())

    rows = load(spark, url, queue=queue, columns="message_id", maxRowsPerTrigger="5")
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        until(lambda: len(seen) == 10, "what was delivered does not come")
        delivered |= fill(channel, queue, 10, 10)
        until(lambda: len(seen) == 20, "what came after the purge does not come")
    finally:
        query.stop()
    assert sorted(seen) == sorted(delivered)


def test_a_queue_that_is_deleted_fails_the_query(
    spark: SparkSession, url: str, channel: BlockingChannel, tmp_path: Path
) -> None:
    name = f"deleted.{uuid.uuid4().hex[:12]}"
    channel.declare_queue(name)
    seen: list[int] = []

    def sink(frame: DataFrame, batch: int) -> None:
        seen.append(frame.count())
        channel.delete_queue(name)

    fill(channel, name, 0, 5)
    rows = load(spark, url, queue=name)
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(PySparkException, match=rf"queue '{name}' was deleted while it was read; declare it"):
        query.awaitTermination(60)
    assert seen == [5]


def test_a_stage_that_expires_before_the_commit_fails_the_query_and_nothing_is_seen(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, full: str, tmp_path: Path
) -> None:
    """One task is so slow that the stage of the other one expires. On a slow machine its own one does, too, and if
    both are gone, the broker does not know the query any more."""
    fill(channel, queue, 0, 4)
    rows = load(spark, url, queue=queue, columns="body").repartition(2)
    # the function is pickled with plain values only: workers cannot import this module
    slow = rows.mapInArrow(_until_a_stage_is_gone(url, f"{queue}.looking"), "body binary")
    writer = slow.writeStream.format("leveret").options(url=url, queue=full, stageExpires="2")
    with pytest.raises(PySparkException, match=r"406 .* (does not exist|has expired|is unknown).*option stageExpires"):
        run_available(writer, tmp_path / "checkpoint")
    assert messages(channel, full) == 0
    unattended(channel, queue)
    assert messages(channel, queue) == 4
    channel.delete_queue(f"{queue}.looking")


def _until_a_stage_is_gone(url: str, looking: str) -> Any:
    """Return a function for tasks: task 1 declares the queue `looking` and waits until it has seen a stage come and go;
    task 0, whose stage that is, begins when the queue exists."""

    def waiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        from pyspark import TaskContext

        from leveret.client import BlockingConnection, ChannelClosed

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId")
        for batch in batches:
            with BlockingConnection(url, reconnect=False) as connection:
                deadline_s = time.monotonic() + 60
                was_there = is_ready = False
                if context.partitionId() == 1:
                    connection.channel().declare_queue(looking)
                while not is_ready:
                    assert time.monotonic() < deadline_s, "no other task looks, or the stage does not expire"
                    if context.partitionId() == 1:
                        stages = (connection.channel().staged(query) or {"stages": []})["stages"]
                        is_ready = was_there and not stages
                        was_there = was_there or bool(stages)
                    else:
                        try:
                            connection.channel().declare_queue(looking, passive=True)
                            is_ready = True
                        except ChannelClosed:
                            pass
                    time.sleep(0.05)
            yield batch

    waiting.__module__ = "__main__"
    return waiting


def test_bodies_of_another_schema_are_dead_letters_and_no_failure(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    for body in (b'{"n": 1}', b'{"n": "one"}', b"\xff"):
        channel.publish(body, routing_key=queue)
    channel.wait_for_confirms(30)
    rows = load(spark, url, queue=queue, parse="json", bodySchema="n int", columns="n,parse_error")
    writer = rows.writeStream.format("json").option("path", str(tmp_path / "out"))
    run_available(writer, tmp_path / "checkpoint")
    found = [json.loads(line) for path in (tmp_path / "out").glob("*.json") for line in path.read_text().splitlines()]
    assert [row["n"] for row in found if "parse_error" not in row] == [1]
    assert len([row for row in found if "parse_error" in row]) == 2
    unattended(channel, queue)
    assert messages(channel, queue) == 0
