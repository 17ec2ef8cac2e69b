"""Options and columns are checked before anything connects, with messages that name the error."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from leveret.delay import MILLISECONDS, Layout
from leveret.spark.queues.options import QueueOptions
from leveret.spark.rows.columns import QUEUE_SCHEMA, STREAM_SCHEMA
from leveret.spark.sink.columns import check_columns
from leveret.spark.sink.options import SinkOptions
from leveret.spark.source import LeveretDataSource
from pyspark_leveret import DefaultSource


def test_spark_finds_the_source_by_its_module() -> None:
    assert DefaultSource is LeveretDataSource
    assert DefaultSource.name() == "leveret"
    assert DefaultSource({"queue": "q"}).schema() == QUEUE_SCHEMA


def test_the_options_of_the_source() -> None:
    assert QueueOptions.parse({"queue": "q"}) == QueueOptions("q", "amqp://guest:guest@localhost:5672/", 10_000)
    options = QueueOptions.parse({"queue": "q", "url": "amqp://h", "maxRowsPerTrigger": "50000"})
    assert options == QueueOptions("q", "amqp://h", 50_000)
    assert options.prefetch_count == 65_535
    assert QueueOptions("q", rows_max=100).prefetch_count == 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option queue is missing"),
        ({"queue": "q", "maxRowsPerTrigger": "many"}, "maxRowsPerTrigger must be a whole number, not 'many'"),
        ({"queue": "q", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger must be 1 to 65535, not 0"),
        ({"queue": "q", "maxRowsPerTrigger": "65536"}, "maxRowsPerTrigger must be 1 to 65535, not 65536"),
    ],
)
def test_wrong_options_of_the_source(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QueueOptions.parse(options)


def test_the_options_of_the_sink() -> None:
    assert SinkOptions.parse({}) == SinkOptions()
    given = {"exchange": "x", "routingKey": "k", "mandatory": "false", "persistent": "False", "confirmWindow": "7"}
    assert SinkOptions.parse(given) == SinkOptions(
        exchange="x", routing_key="k", mandatory=False, properties={"delivery_mode": 1}, confirm_window=7
    )
    assert SinkOptions.parse({"queue": "q"}).routing_key == "q"
    assert SinkOptions.parse({"stream": "s"}).routing_key == "s"


@pytest.mark.parametrize(
    ("options", "layout"),
    [
        ({"delayUnitMs": "1"}, MILLISECONDS),
        ({"delayPrefix": "mine"}, Layout("mine")),
        ({"delayPrefix": "mine", "delayUnitMs": "10"}, Layout("mine", unit_ms=10)),
    ],
)
def test_the_delay_layout_of_the_sink(options: dict[str, str], layout: Layout) -> None:
    assert SinkOptions.parse(options).layout == layout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mandatory": "yes"}, "mandatory must be true or false, not 'yes'"),
        ({"confirmWindow": "0"}, "confirmWindow must be 1 to"),
        ({"delayUnitMs": "10"}, "delayUnitMs 10 needs a delayPrefix"),
        ({"queue": "q", "exchange": "x"}, "queue excludes exchange"),
        ({"stream": "s", "routingKey": "k"}, "stream excludes exchange and routingKey"),
        ({"stream": "s", "queue": "q"}, "queue excludes stream"),
        ({"delivery": "once"}, "delivery must be auto, exactly-once or at-least-once, not 'once'"),
        ({"query": "q1"}, "query and batch together name a write"),
        ({"batch": "1"}, "query and batch together name a write"),
        ({"query": "", "batch": "1"}, "query must have 1 to 200 octets, not 0"),
        ({"query": "q", "batch": "-1"}, "batch must be 0 to"),
        ({"stageExpires": "0"}, "stageExpires must be 1 to"),
        ({"priority": "256"}, "priority must be 0 to 255"),
        ({"contentType": "x" * 256}, "contentType has 256 octets, but AMQP allows only 255"),
        ({"routingKey": "x" * 256}, "routingKey has 256 octets, but AMQP allows only 255"),
    ],
)
def test_wrong_options_of_the_sink(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SinkOptions.parse(options)


def test_columns_of_the_sink() -> None:
    check_columns(QUEUE_SCHEMA, SinkOptions())
    check_columns(StructType([*STREAM_SCHEMA.fields, StructField("parse_error", StringType())]), SinkOptions())
    body, due = StructField("body", StringType()), StructField("at", TimestampType())
    check_columns(StructType([body, StructField("delay", IntegerType()), due]), SinkOptions())
    check_columns(StructType([body, StructField("flight", LongType())]), SinkOptions(message_id_column="flight"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([StructField("delay", IntegerType())], "needs a column body"),
        ([StructField("body", IntegerType())], "column 'body' of the sink cannot be int"),
        ([StructField("body", StringType()), StructField("key", StringType())], "no column 'key'"),
        ([StructField("body", StringType()), StructField("priority", StringType())], "'priority' .* cannot be string"),
        ([StructField("body", StringType()), StructField("headers", StringType())], "'headers' .* cannot be string"),
    ],
)
def test_wrong_columns_of_the_sink(fields: list[StructField], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_columns(StructType(fields), SinkOptions())


def test_the_column_of_message_ids_must_be_there_and_say_something() -> None:
    body = StructField("body", StringType())
    with pytest.raises(ValueError, match="messageIdColumn: there is no column 'flight'; the columns are body"):
        check_columns(StructType([body]), SinkOptions(message_id_column="flight"))
    with pytest.raises(ValueError, match="messageIdColumn: 'flight' is double, but must be text or a whole number"):
        check_columns(StructType([body, StructField("flight", DoubleType())]), SinkOptions(message_id_column="flight"))


def test_defaults_of_properties_are_options() -> None:
    given = {"contentType": "application/json", "appId": "a", "priority": "3", "persistent": "false"}
    assert SinkOptions.parse(given).properties == {
        "delivery_mode": 1, "content_type": "application/json", "app_id": "a", "priority": 3,
    }  # fmt: skip


def test_a_streaming_query_has_a_name_of_its_own() -> None:
    schema = StructType([StructField("body", StringType())])
    with pytest.raises(ValueError, match=r"query and batch are for df\.write"):
        LeveretDataSource({"query": "q", "batch": "1"}).streamWriter(schema=schema, overwrite=False)
