"""A declarative pipeline: the stream "flights" as a table, and its late flights as messages in the queue "late"."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

URL = os.environ.get("LEVERET_URL", "amqp://guest:guest@localhost:5672/")


def spark() -> SparkSession:
    found = SparkSession.active()
    assert found is not None
    return found


@dp.table
def flights() -> DataFrame:
    options = {"url": URL, "stream": "flights", "parse": "json", "bodySchema": "flight STRING, delay_min INT"}
    messages = spark().readStream.format("leveret").options(**options).load()
    return messages.select("offset", "flight", "delay_min")


dp.create_sink("late", "leveret", {"url": URL, "queue": "late"})


@dp.append_flow(target="late")
def late_flights() -> DataFrame:
    return spark().readStream.table("flights").where("delay_min > 15").selectExpr("to_json(struct(*)) AS body")
