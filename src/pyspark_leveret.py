"""Spark looks for top-level modules named ``pyspark_*``: this one makes ``format("leveret")`` known to it."""

from leveret.spark.source import LeveretDataSource as DefaultSource

__all__ = ["DefaultSource"]
