"""Options and columns are checked before anything connects, with messages that name what is wrong."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from leveret.delay import MILLISECONDS, SECONDS, Layout
from leveret.spark.columns import SOURCE_SCHEMA
from leveret.spark.options import SinkOptions, SourceOptions
from leveret.spark.sink import check_columns
from leveret.spark.source import LeveretDataSource
from pyspark_leveret import DefaultSource


def test_spark_finds_the_source_by_its_module() -> None:
    assert DefaultSource is LeveretDataSource
    assert DefaultSource.name() == "leveret"
    assert DefaultSource({"queue": "q"}).schema() == SOURCE_SCHEMA


def test_the_options_of_the_source() -> None:
    assert SourceOptions.parse({"queue": "q"}) == SourceOptions("q", "amqp://guest:guest@localhost:5672/", 10_000)
    options = SourceOptions.parse({"queue": "q", "url": "amqp://h", "maxRowsPerTrigger": "50000"})
    assert options == SourceOptions("q", "amqp://h", 50_000)
    assert options.prefetch_count == 65_535
    assert SourceOptions("q", rows_max=100).prefetch_count == 200


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
        SourceOptions.parse(options)


def test_the_options_of_the_sink() -> None:
    assert SinkOptions.parse({}) == SinkOptions(layout=SECONDS)
    given = {"exchange": "x", "routingKey": "k", "mandatory": "false", "persistent": "False", "confirmWindow": "7"}
    assert SinkOptions.parse(given) == SinkOptions(
        exchange="x", routing_key="k", mandatory=False, persistent=False, confirm_window=7
    )
    assert SinkOptions.parse({"queue": "q"}).routing_key == "q"


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
    ],
)
def test_wrong_options_of_the_sink(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SinkOptions.parse(options)


def test_columns_of_the_sink() -> None:
    check_columns(SOURCE_SCHEMA)
    check_columns(StructType([StructField("body", StringType()), StructField("delay", IntegerType())]))


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
        check_columns(StructType(fields))
