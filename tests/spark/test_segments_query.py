"""Sealed segments in queries of Spark: the rows are the same by every access path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from leveret.testing.processes import LeveretProcess

from .sealed import COUNT, SCHEMA, STREAM

pytestmark = pytest.mark.spark


def load(spark: SparkSession, broker: LeveretProcess, segments: str, **options: Any) -> DataFrame:
    """Read the stream in one of the ways; over HTTP like a client that does not see the directory."""
    given = {"url": broker.url, "stream": STREAM, "segments": segments, **options}
    if segments == "http":
        given["apiUrl"] = broker.admin_url
    return spark.read.format("leveret").options(**given).load()


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: row["offset"])


def test_rows_are_the_same_by_path_http_and_amqp(spark: SparkSession, sealed_broker: LeveretProcess) -> None:
    """All columns but the time of arrival, which AMQP does not carry."""
    by_path = rows_of(load(spark, sealed_broker, "path", minPartitions=3))
    assert [row["offset"] for row in by_path] == list(range(COUNT))
    assert all(row["arrived"] is not None for row in by_path)
    assert by_path == rows_of(load(spark, sealed_broker, "http"))
    assert by_path == rows_of(load(spark, sealed_broker, "auto"))
    over_amqp = rows_of(load(spark, sealed_broker, "amqp"))
    assert {row["arrived"] for row in over_amqp} == {None}
    assert [row.asDict() | {"arrived": None} for row in by_path] == [row.asDict() for row in over_amqp]


def test_columns_of_bodies_come_from_the_files_just_as_they_are_parsed(
    spark: SparkSession, sealed_broker: LeveretProcess
) -> None:
    options = {"parse": "json", "bodySchema": json.dumps(SCHEMA), "columns": "offset,n,tags,type,parse_error"}
    sealed, parsed = (rows_of(load(spark, sealed_broker, how, **options)) for how in ("path", "amqp"))
    assert (sealed[10].n, sealed[10].tags, sealed[10].type, sealed[10].parse_error) == (10, ["x"], "late", None)
    assert sealed[11].parse_error is not None
    without_error = [[row[:4] for row in each] for each in (sealed, parsed)]
    assert without_error[0] == without_error[1]
    assert [row.parse_error is None for row in sealed] == [row.parse_error is None for row in parsed]


def test_filters_are_taken_where_spark_offers_them(spark: SparkSession, sealed_broker: LeveretProcess) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    wanted = "offset >= 1000 AND offset < 1010 AND routing_key LIKE 'odd.%' AND exchange = 'amq.topic'"
    expected = [1001, 1003, 1005, 1007, 1009]
    assert spark.conf.get(name) == "false"
    assert [row.offset for row in rows_of(load(spark, sealed_broker, "path").where(wanted))] == expected
    spark.conf.set(name, "true")
    try:
        frame = load(spark, sealed_broker, "path", minPartitions=4).where(wanted)
        assert [row.offset for row in rows_of(frame)] == expected
        # nothing else was read: four tasks for ten rows
        assert load(spark, sealed_broker, "path", minPartitions=4).where("offset = 7").rdd.getNumPartitions() == 1
        assert load(spark, sealed_broker, "path").where("offset > 5000").count() == 0
    finally:
        spark.conf.unset(name)


def test_what_cannot_be_had_is_told_with_the_option_to_change(
    spark: SparkSession, sealed_broker: LeveretProcess
) -> None:
    with pytest.raises(PySparkException, match=r"option segments=path.*tablesDir"):
        load(spark, sealed_broker, "path", tablesDir="/nowhere").count()
    with pytest.raises(PySparkException, match="segments=http needs option apiUrl"):
        spark.read.format("leveret").options(url=sealed_broker.url, stream=STREAM, segments="http").load().count()
