"""How a lake is read."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, path: str) -> DataFrame:
    """Rows of a lake of Parquet."""
    return spark.read.parquet(path)
