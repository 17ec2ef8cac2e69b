"""Reads a queue once: mode=peek reads and requeues, mode=drain takes the messages away.

Spark never tells a batch reader that its rows are safe. So a drain spools messages before it acknowledges them, and the
spool stays until its owner deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from leveret.spark.brief import brief
from leveret.spark.queues.errors import SourceError
from leveret.spark.queues.options import PREFETCH_MAX, BatchLimits, QueueOptions, SpoolOptions
from leveret.spark.queues.retry import with_retries
from leveret.spark.queues.spool.filling import Filling
from leveret.spark.queues.spool.segment import SegmentPart
from leveret.spark.queues.spool.spool import Spool
from leveret.spark.queues.subscription import Subscription
from leveret.spark.rows.deliveries import ROWS_PER_BATCH
from leveret.spark.rows.shape import RowShape

RUN_OCTETS: Final = 8 << 20
"""Octets that a peek collects at a time."""


class PeekReader(DataSourceReader):
    """Reads the ready messages of a queue, in order, in one task, and acknowledges nothing.

    Until the task has read all, other consumers do not see the messages; then they are requeued in their old places,
    marked as redelivered. Methods raise ``SourceError``.
    """

    def __init__(self, options: QueueOptions, limits: BatchLimits, shape: RowShape) -> None:
        self._options = options
        self._limits = limits
        self._shape = shape

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition, to keep the queue's order."""
        return [InputPartition(0)]

    @brief(SourceError)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages that are ready when the task begins, at most ``maxRows``."""
        rows, octets = self._limits.rows_max, self._limits.octets_max
        subscription = with_retries(self._options.queue, self._subscribe)
        try:
            rows = subscription.ready if rows is None else min(rows, subscription.ready)
            taken = 0
            while taken < rows and not subscription.is_drained:
                found = subscription.collect_all(min(rows - taken, ROWS_PER_BATCH), RUN_OCTETS)
                taken += len(found)
                octets -= found.octets
                if octets < 0:
                    raise SourceError(
                        f"queue {self._options.queue!r} holds more than {self._limits.octets_max} octets: raise option "
                        "maxBytes, or read fewer messages with option maxRows"
                    )
                yield from self._shape.batches(found)
            subscription.put_back(taken)
        finally:
            subscription.close()

    def _subscribe(self) -> Subscription:
        # no higher prefetch than needed: each requeued message counts as delivered
        rows = self._limits.rows_max
        prefetch_count = rows if rows is not None and rows <= PREFETCH_MAX else 0
        return Subscription(self._options.queue, self._options.url, prefetch_count)


class DrainReader(DataSourceReader):
    """Moves the ready messages of a queue into a spool, acknowledges them, and reads the whole spool.

    Each evaluation of a frame does so, and reads earlier messages again: whether their rows were used is unknown.
    Methods raise ``SourceError``.
    """

    def __init__(
        self, options: QueueOptions, spool_options: SpoolOptions, limits: BatchLimits, shape: RowShape
    ) -> None:
        self._options = options
        self._spool_options = spool_options
        self._limits = limits
        self._shape = shape

    @brief(SourceError)
    def partitions(self) -> Sequence[InputPartition]:
        """Drain the queue, in the driver, and return ranges of the spool's files."""
        spool = with_retries(self._options.queue, lambda: Spool(self._options, self._spool_options, "batch"))
        try:
            with_retries(self._options.queue, lambda: self._drain(spool))
            return spool.parts(0, spool.end, self._spool_options.min_partitions)
        finally:
            spool.close()

    @brief(SourceError)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, on an executor."""
        assert isinstance(partition, SegmentPart), partition
        yield from partition.read(self._shape)

    def _drain(self, spool: Spool) -> None:
        filling = Filling(spool, self._options, self._spool_options)
        try:
            rows = filling.waiting if self._limits.rows_max is None else min(filling.waiting, self._limits.rows_max)
            end = spool.end + rows
            while spool.end < end and filling.fill_wholly(end):
                pass
        finally:
            filling.close()
