"""The sink in queries: the same tests on leveret and on RabbitMQ."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from leveret.client import BlockingChannel
from leveret.delay import MILLISECONDS

from .support import fill, run_available, stream

pytestmark = pytest.mark.spark


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
    got = [channel.next_delivery(60) for _ in range(300)]
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
        delivery = channel.next_delivery(60)
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
