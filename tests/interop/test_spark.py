"""The Spark source and sink on live brokers: the same tests on leveret and on a RabbitMQ, one session for all."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from leveret import spark as leveret_spark
from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.delay import MILLISECONDS

pytestmark = pytest.mark.spark

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.adaptive.enabled": False,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(params=["broker", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a broker: leveret's own, then RabbitMQ."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = leveret_spark.session("leveret-tests", **SETTINGS)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def channel(url: str) -> Iterator[BlockingChannel]:
    with BlockingConnection(url) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


@pytest.fixture
def queue(channel: BlockingChannel) -> Iterator[str]:
    name = f"spark.{uuid.uuid4().hex[:12]}"
    channel.declare_queue(name)
    yield name
    channel.delete_queue(name)


def fill(channel: BlockingChannel, queue: str, first: int, count: int) -> set[str]:
    """Publish messages numbered from ``first``: their ids."""
    ids = [f"id-{number}" for number in range(first, first + count)]
    for message_id in ids:
        properties = Properties(message_id=message_id, delivery_mode=2)
        channel.publish(message_id.encode(), routing_key=queue, properties=properties)
    channel.wait_for_confirms(30)
    return set(ids)


def messages(channel: BlockingChannel, queue: str) -> int:
    """Messages that are ready in the queue."""
    return channel.declare_queue(queue, passive=True).message_count


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, and fail with ``what`` after 20 s."""
    deadline = time.monotonic() + 20
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        pause.wait(0.05)


def unattended(channel: BlockingChannel, queue: str) -> None:
    """Wait until the broker has noticed that the query's consumer is gone, and has put its messages back."""
    until(lambda: channel.declare_queue(queue, passive=True).consumer_count == 0, "the consumer is still there")


def stream(spark: SparkSession, url: str, queue: str, rows_max: int = 1000) -> DataFrame:
    options = {"url": url, "queue": queue, "maxRowsPerTrigger": str(rows_max)}
    return spark.readStream.format("leveret").options(**options).load()


def run_available(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(60), "AvailableNow does not end"
    return query


def ids_in(spark: SparkSession, directory: Path) -> list[str]:
    return [row.message_id for row in spark.read.parquet(str(directory)).select("message_id").collect()]


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
        # Spark has asked for more and found nothing: that is when the last batch is acknowledged
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


def test_columns_make_the_way_through_sink_broker_and_source(
    spark: SparkSession, url: str, queue: str, tmp_path: Path
) -> None:
    properties = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
    }
    frame = spark.range(1).select(
        F.lit("body").alias("body"),
        F.lit(queue).alias("routing_key"),
        F.expr("map('x', 'y', 'none', null)").alias("headers"),
        F.lit(5).alias("priority"),
        F.expr("timestamp_seconds(1700000000)").alias("timestamp"),
        *(F.lit(value).alias(name) for name, value in properties.items()),
    )
    frame.write.format("leveret").mode("append").option("url", url).save()
    writer = stream(spark, url, queue).writeStream.format("parquet").option("path", str(tmp_path / "out"))
    run_available(writer, tmp_path / "checkpoint")
    row = spark.read.parquet(str(tmp_path / "out")).withColumn("seconds", F.unix_seconds("timestamp")).collect()[0]
    assert bytes(row.body) == b"body"
    assert (row.exchange, row.routing_key, row.redelivered) == ("", queue, False)
    assert row.headers == {"x": "y", "none": None}
    assert (row.delivery_mode, row.priority, row.seconds) == (2, 5, 1700000000)
    assert {name: row[name] for name in properties} == properties


def test_a_stream_from_queue_to_queue_publishes_every_row(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    fill(channel, queue, 0, 300)
    target = f"{queue}.target"
    channel.declare_queue(target)
    rows = stream(spark, url, queue, rows_max=100).select("body", F.expr("map('from', routing_key)").alias("headers"))
    writer = rows.writeStream.format("leveret").option("url", url).option("queue", target)
    run_available(writer, tmp_path / "checkpoint")
    channel.consume(target, no_ack=True)
    got = [channel.next_delivery(10) for _ in range(300)]
    found = [delivery for delivery in got if delivery is not None]
    assert {delivery.body for delivery in found} == {f"id-{number}".encode() for number in range(300)}
    assert {str((delivery.properties.headers or {})["from"]) for delivery in found} == {queue}
    assert len({delivery.properties.message_id for delivery in found}) == 300, "every row gets an id of its own"
    assert {delivery.properties.delivery_mode for delivery in found} == {2}
    assert channel.delete_queue(target) == 0


def test_rows_with_a_delay_arrive_late_and_never_early(
    spark: SparkSession, url: str, channel: BlockingChannel, queue: str
) -> None:
    rows = [(f"{delay}", queue, delay) for delay in (0.0, 0.05, 0.3)] + [("now", queue, None)]
    frame = spark.createDataFrame(rows, "body string, routing_key string, delay double").coalesce(1)
    channel.consume(queue, no_ack=True)
    started_s = time.monotonic()
    frame.write.format("leveret").mode("append").option("url", url).option("delayUnitMs", "1").save()
    arrived = {}
    for _ in rows:
        delivery = channel.next_delivery(10)
        assert delivery is not None
        arrived[delivery.body.decode()] = (time.monotonic() - started_s, delivery.routing_key)
    assert set(arrived) == {"0.0", "0.05", "0.3", "now"}
    assert arrived["now"][1] == queue
    for delay_s in (0.0, 0.05, 0.3):
        assert arrived[str(delay_s)][0] >= delay_s
        assert arrived[str(delay_s)][1] == MILLISECONDS.route(delay_s, queue)[1]


def test_a_delay_to_nowhere_fails_the_task(spark: SparkSession, url: str) -> None:
    frame = spark.sql("select 'x' as body, 'spark.no.such.queue' as routing_key, 1.5 as delay")
    with pytest.raises(PySparkException, match=r"404 NOT_FOUND - no queue 'spark\.no\.such\.queue'"):
        frame.write.format("leveret").mode("append").option("url", url).save()


def test_an_unroutable_row_fails_the_task_with_exchange_key_and_text(spark: SparkSession, url: str) -> None:
    frame = spark.range(10).select(F.col("id").cast("string").alias("body"))
    write = frame.write.format("leveret").mode("append").options(url=url, exchange="amq.direct", routingKey="no.one")
    with pytest.raises(PySparkException, match=r"312 NO_ROUTE: exchange 'amq\.direct' has no queue .*'no\.one'"):
        write.save()
    write.option("mandatory", "false").save()


@pytest.fixture
def upper_service(url: str, channel: BlockingChannel) -> Iterator[str]:
    """A service that answers with the request in capitals; yields its queue."""
    name = f"spark.rpc.{uuid.uuid4().hex[:12]}"
    channel.declare_queue(name, durable=False)
    stop = threading.Event()

    def serve() -> None:
        with BlockingConnection(url) as connection:
            replies = connection.channel()
            replies.consume(name, no_ack=True)
            while not stop.is_set():
                for request in replies.deliveries(1000, 0.05):
                    answer = Properties(correlation_id=request.properties.correlation_id)
                    replies.publish(request.body.upper(), "", str(request.properties.reply_to), answer)
                replies.flush()

    thread = threading.Thread(target=serve)
    thread.start()
    yield name
    stop.set()
    thread.join()
    channel.delete_queue(name)


def test_rpc_adds_the_reply_of_each_row(spark: SparkSession, url: str, upper_service: str) -> None:
    frame = spark.range(2000).select(F.expr("if(id % 100 = 7, null, concat('row', id))").alias("question"))
    answered = leveret_spark.rpc(frame, url, "", upper_service, "question", "answer", window=64).collect()
    assert len(answered) == 2000
    for row in answered:
        assert row.answer == (None if row.question is None else row.question.upper().encode())


def test_rpc_without_a_service_fails_at_once(spark: SparkSession, url: str) -> None:
    frame = spark.sql("select 'x' as question")
    with pytest.raises(PySparkException, match="312 NO_ROUTE"):
        leveret_spark.rpc(frame, url, "", "spark.no.service", "question", "answer").collect()


def test_a_missing_queue_fails_the_query(spark: SparkSession, url: str, tmp_path: Path) -> None:
    writer = stream(spark, url, "spark.missing").writeStream.format("noop")
    with pytest.raises(PySparkException, match=r"404 NOT_FOUND - no queue 'spark\.missing'"):
        run_available(writer, tmp_path / "checkpoint")
