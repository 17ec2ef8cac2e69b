"""The lake of archived messages, as its readers see it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, path: str) -> DataFrame:
    """The rows of a lake."""
    return spark.read.parquet(path)
