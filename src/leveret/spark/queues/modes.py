"""The reader for each value of option ``mode``."""

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
"""Default limit of rows in a spooled micro-batch; larger than in mode=ack, since many tasks read the files."""

_ROWS_LIMIT: Final = 1 << 40


def check(options: Mapping[str, str]) -> None:
    """Check what can be checked when a frame is made: ``ValueError`` for a wrong option, ``SourceError`` for a queue
    that does not exist or cannot be read. An existing spool is read without the queue."""
    how = mode(options, STREAM_MODES + BATCH_MODES)
    queue = _spooled(options) if how == "spool" else QueueOptions.parse(options)
    spool = SpoolOptions.parse(options, how) if how in ("spool", "drain") else None
    if how == "spool" and spool is not None and is_spool(spool.directory):
        return
    check_there(queue.queue, queue.url)


def is_spooled(options: Mapping[str, str]) -> bool:
    """Whether ``spark.readStream`` reads through a spool."""
    return mode(options, STREAM_MODES) == "spool"


def spool_reader(options: Mapping[str, str], shape: RowShape) -> DataSourceStreamReader:
    """Return the reader of mode=spool; ``ValueError`` names the wrong option."""
    return SpoolReader(_spooled(options), SpoolOptions.parse(options, "spool"), shape)


def ack_reader(options: Mapping[str, str], shape: RowShape) -> SimpleDataSourceStreamReader:
    """Return the reader of mode=ack; ``ValueError`` names the wrong option."""
    return QueueReader(QueueOptions.parse(options), shape)


def batch_reader(options: Mapping[str, str], shape: RowShape) -> DataSourceReader:
    """Return the reader of mode=peek or mode=drain; ``ValueError`` names the wrong option."""
    queue, limits = QueueOptions.parse(options), BatchLimits.parse(options)
    if mode(options, BATCH_MODES) == "peek":
        return PeekReader(queue, limits, shape)
    return DrainReader(queue, SpoolOptions.parse(options, "drain"), limits, shape)


def _spooled(options: Mapping[str, str]) -> QueueOptions:
    return QueueOptions.parse(options, SPOOLED_ROWS, _ROWS_LIMIT)
