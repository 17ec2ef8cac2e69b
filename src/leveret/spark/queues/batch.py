"""Reading a queue once: mode=peek looks and puts back, mode=drain takes away.

Spark tells a batch reader never that its rows are safe. So a drain does not leave messages to a task's memory: they
are spooled before they are acknowledged, and the spool stays until its owner deletes it.
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
"""Octets that a peek takes at a time."""


class PeekReader(DataSourceReader):
    """Reads what is ready in a queue, in order, in one task, and acknowledges nothing.

    Until the task has read all, other consumers do not see the messages; then they are where they were, marked as
    redelivered. Methods raise ``SourceError``.
    """

    def __init__(self, options: QueueOptions, limits: BatchLimits, shape: RowShape) -> None:
        self._options = options
        self._limits = limits
        self._shape = shape

    def partitions(self) -> Sequence[InputPartition]:
        """One: a queue has one order."""
        return [InputPartition(0)]

    @brief(SourceError)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages that are ready when the task begins, or the first ``maxRows`` of them."""
        rows, octets = self._limits.rows_max, self._limits.octets_max
        subscription = with_retries(self._options.queue, self._subscribe)
        try:
            rows = subscription.ready if rows is None else min(rows, subscription.ready)
            taken = 0
            while taken < rows and not subscription.is_drained:
                found = subscription.collect_all(min(rows - taken, ROWS_PER_BATCH), RUN_OCTETS)
                taken += len(found)
                octets -= sum([len(one.body) for one in found])
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
        # no more than asked for: each message that is put back counts as delivered
        rows = self._limits.rows_max
        prefetch_count = rows if rows is not None and rows <= PREFETCH_MAX else 0
        return Subscription(self._options.queue, self._options.url, prefetch_count)


class DrainReader(DataSourceReader):
    """Takes what is ready in a queue into a spool, acknowledges it, and reads all that the spool has.

    Each evaluation of a frame does so: what an earlier one took is read again, since nobody knows what became of it.
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
        """Drain the queue, in the driver; then ranges of the files."""
        spool = with_retries(self._options.queue, lambda: Spool(self._options, self._spool_options, "batch"))
        try:
            with_retries(self._options.queue, lambda: self._drain(spool))
            return spool.parts(0, spool.end, self._spool_options.min_partitions)
        finally:
            spool.close()

    @brief(SourceError)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, on an executor."""
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
