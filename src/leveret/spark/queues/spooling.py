"""The stream reader of mode=spool: from the queue to files, and from the files to Spark, on any executor, again and
again.

A message is acknowledged when its file is synced, without waiting for Spark; from then on the file is what counts: an
offset is a number of messages in the spool, and a micro-batch that Spark plans again is the same rows again.

While Spark works on a micro-batch, a thread brings the next one from the queue to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from leveret.spark.brief import brief
from leveret.spark.queues.errors import AcknowledgedTooLate, SourceError
from leveret.spark.queues.options import QueueOptions, SpoolOptions
from leveret.spark.queues.retry import with_retries
from leveret.spark.queues.spool.files import Files
from leveret.spark.queues.spool.filling import Filling
from leveret.spark.queues.spool.segment import SegmentPart
from leveret.spark.queues.spool.spool import Spool
from leveret.spark.rows.shape import RowShape


class SpoolReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one queue by way of a spool. An offset is ``{"spool": id, "messages": n}``.

    Spark makes a second instance that it pickles for the executors, so nothing is opened before the first call.
    Methods raise ``SourceError``.
    """

    def __init__(
        self, options: QueueOptions, spool_options: SpoolOptions, shape: RowShape, files: Files | None = None
    ) -> None:
        self._options = options
        self._spool_options = spool_options
        self._shape = shape
        self._files = files
        self._spool: Spool | None = None
        self._filling: Filling | None = None
        self._target: int | None = None
        self._filler: ThreadPoolExecutor | None = None
        self._ahead: Future[None] | None = None

    @brief(SourceError)
    def initialOffset(self) -> dict[str, Any]:
        """The first message on the disk that no query is done with: what was acknowledged is not passed over."""
        spool = self._opened()
        return {"spool": spool.id, "messages": spool.first}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Option maxRowsPerTrigger."""
        return ReadMaxRows(self._options.rows_max)

    @brief(SourceError)
    def prepareForTriggerAvailableNow(self) -> None:
        """Note how many messages are there: the query takes that many and ends."""
        self._opened()
        self._with_retries(self._aim)

    @brief(SourceError)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch: what is on the disk behind ``start``, or else what the queue has now."""
        spool = self._opened()
        first = self._checked(start)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_max
        if isinstance(limit, ReadAllAvailable):
            self._with_retries(self._fill_all)
            end = spool.end
        else:
            self._with_retries(lambda: self._fill(first, rows_max))
            end = min(spool.end, first + rows_max)
        if end > first:
            self._fill_ahead(end)
        return {"spool": spool.id, "messages": end}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far it could be: what is on the disk and in the queue, as of the last message that was taken."""
        if self._spool is None:
            return None
        waiting = self._filling.waiting if self._filling is not None else 0
        return {"spool": self._spool.id, "messages": self._spool.end + waiting}

    @brief(SourceError)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Ranges of the files."""
        spool = self._opened()
        return spool.parts(self._checked(start), self._checked(end), self._spool_options.min_partitions)

    @brief(SourceError)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, on an executor."""
        assert isinstance(partition, SegmentPart), partition
        yield from partition.read(self._shape)

    @brief(SourceError)
    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything up to ``end``, and its checkpoint says so."""
        self._opened().release(self._checked(end))

    def stop(self) -> None:
        """Give up connection and directory. Messages that are not on the disk go back into the queue."""
        self._disconnect()
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _opened(self) -> Spool:
        if self._spool is None:
            self._spool = with_retries(self._options.queue, self._open)  # the query before may be about to end
        return self._spool

    def _open(self) -> Spool:
        return Spool(self._options, self._spool_options, "stream", self._files)

    def _checked(self, offset: dict[str, Any]) -> int:
        spool = self._opened()
        messages = int(offset["messages"])
        if offset["spool"] != spool.id or messages > spool.end:
            raise SourceError(
                f"the checkpoint is at message {messages} of spool {offset['spool']}, but "
                f"{self._spool_options.directory} is spool {spool.id} with {spool.end} messages: use the "
                "checkpointLocation and the option spoolDir that belong together"
            )
        return messages

    def _with_retries(self, action: Callable[[], None]) -> None:
        with_retries(self._options.queue, action, self._disconnect, AcknowledgedTooLate)

    def _connected(self) -> Filling:
        if self._filling is None:
            self._filling = Filling(self._opened(), self._options, self._spool_options)
        return self._filling

    def _disconnect(self) -> None:
        filling, self._filling = self._filling, None
        if filling is not None:
            filling.close()
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.exception()  # it ends with its connection, and nothing else writes before

    def _aim(self) -> None:
        self._target = self._opened().end + self._connected().waiting

    def _fill_all(self) -> None:
        """Bring everything to the disk that is in the queue now."""
        self._await_ahead()
        filling = self._connected()
        end = self._opened().end + filling.count_waiting()
        while self._opened().end < end and filling.fill_wholly(end):
            pass

    def _fill(self, first: int, rows_max: int) -> None:
        """Bring messages to the disk, if there are none behind ``first``."""
        self._await_ahead()
        if self._opened().end == first:
            self._fill_to(self._connected(), first + rows_max)

    def _await_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.result()

    def _fill_ahead(self, first: int) -> None:
        """Start on the micro-batch behind this one; nothing more if some of it is there."""
        if self._ahead is None and self._filling is not None and self._opened().end == first:
            if self._filler is None:
                self._filler = ThreadPoolExecutor(1, "leveret-spool")
            self._ahead = self._filler.submit(self._fill_to, self._filling, first + self._options.rows_max)

    def _fill_to(self, filling: Filling, end: int) -> None:
        if self._target is None:
            filling.fill(end)
        elif not filling.fill_wholly(min(end, self._target)):
            self._target = self._opened().end
