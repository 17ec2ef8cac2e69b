"""Requests to a service from a query: the same tests on leveret and on RabbitMQ."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from leveret import spark as leveret_spark
from leveret.spark.rpc import check

from .service import Service
from .support import reason

pytestmark = pytest.mark.spark


def test_rpc_adds_the_reply_of_each_row(spark: SparkSession, url: str) -> None:
    frame = spark.range(2000).select(F.expr("if(id % 100 = 7, null, concat('row', id))").alias("question"))
    with Service(url) as service:
        answered = leveret_spark.rpc(frame, "", service.queue, window=64, url=url, request="question").collect()
    assert len(answered) == 2000
    for row in answered:
        assert row.reply == (None if row.question is None else row.question.upper().encode())


def test_rpc_without_a_service_fails_or_says_so_in_a_column(spark: SparkSession, url: str) -> None:
    frame = spark.sql("select 'x' as body")
    with pytest.raises(PySparkException) as caught:
        leveret_spark.rpc(frame, "", "spark.no.service", url=url).collect()
    assert re.search("312 NO_ROUTE: .*; start the service that reads it, or correct", reason(caught.value))
    [row] = leveret_spark.rpc(frame, "", "spark.no.service", url=url, on_error="column").collect()
    assert row.reply is None
    assert row.reply_error.startswith("312 NO_ROUTE")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"request": "x"}, "no column 'x' to send as request=; the columns are body, key, number"),
        ({"request": "number"}, "the column of request='number' is int"),
        ({"reply": "key"}, "there is already a column 'key': choose another reply="),
        ({"on_error": "ignore"}, "on_error must be 'fail' or 'column', not 'ignore'"),
        ({"window": 0}, "window is the number of requests unanswered at a time, at least 1, not 0"),
        ({"timeout": 0.0}, "timeout must be more than 0 seconds, not 0"),
        ({"url": "http://localhost"}, "url: "),
    ],
)
def test_wrong_arguments_of_rpc(given: dict[str, object], message: str) -> None:
    fields = [StructField("body", StringType()), StructField("key", StringType()), StructField("number", IntegerType())]
    arguments = {"window": 1, "timeout": 1.0, "request": "body", "reply": "reply", "on_error": "fail"}
    with pytest.raises(ValueError, match=message):
        check(StructType(fields), **{**arguments, **given})
