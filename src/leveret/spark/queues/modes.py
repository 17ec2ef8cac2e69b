"""Which reader an option ``mode`` means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, SimpleDataSourceStreamReader

from leveret.spark.queues.batch import DrainReader, PeekReader
from leveret.spark.queues.options import (
    BATCH_MODES,
    STREAM_MODES,
    BatchLimits,
    QueueOptions,
    SpoolOptions,
    mode,
)
from leveret.spark.queues.reader import QueueReader
from leveret.spark.queues.spool.spool import is_spool
from leveret.spark.queues.spooling import SpoolReader
from leveret.spark.queues.subscription import check_there
from leveret.spark.rows.shape import RowShape

SPOOLED_ROWS: Final = 100_000
"""Rows of a spooled micro-batch at most, where maxRowsPerTrigger does not say: files are read by many tasks."""

_ROWS_LIMIT: Final = 1 << 40


def check(options: Mapping[str, str]) -> None:
    """What can be told when a frame is made: ``ValueError`` for a wrong option, ``SourceError`` for a queue that is not
    there or can't be read. What a spool has of a queue is read without it."""
    how = mode(options, STREAM_MODES + BATCH_MODES)
    queue = _spooled(options) if how == "spool" else QueueOptions.parse(options)
    spool = SpoolOptions.parse(options, how) if how in ("spool", "drain") else None
    if how == "spool" and spool is not None and is_spool(spool.directory):
        return
    check_there(queue.queue, queue.url)


def is_spooled(options: Mapping[str, str]) -> bool:
    """Whether ``spark.readStream`` is to read by way of a spool."""
    return mode(options, STREAM_MODES) == "spool"


def spool_reader(options: Mapping[str, str], shape: RowShape) -> DataSourceStreamReader:
    """The reader of mode=spool; ``ValueError`` names the option that is wrong."""
    return SpoolReader(_spooled(options), SpoolOptions.parse(options, "spool"), shape)


def ack_reader(options: Mapping[str, str], shape: RowShape) -> SimpleDataSourceStreamReader:
    """The reader of mode=ack; ``ValueError`` names the option that is wrong."""
    return QueueReader(QueueOptions.parse(options), shape)


def batch_reader(options: Mapping[str, str], shape: RowShape) -> DataSourceReader:
    """The reader of mode=peek or mode=drain; ``ValueError`` names the option that is wrong."""
    queue, limits = QueueOptions.parse(options), BatchLimits.parse(options)
    if mode(options, BATCH_MODES) == "peek":
        return PeekReader(queue, limits, shape)
    return DrainReader(queue, SpoolOptions.parse(options, "drain"), limits, shape)


def _spooled(options: Mapping[str, str]) -> QueueOptions:
    return QueueOptions.parse(options, SPOOLED_ROWS, _ROWS_LIMIT)
