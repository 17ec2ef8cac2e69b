"""The streaming reader of mode=spool: moves messages into files, which tasks can read repeatedly on any executor.

A message is acknowledged when its file is synced, without waiting for Spark. From then on the file counts: an offset is
a number of messages in the spool, and a micro-batch that Spark plans again has the same rows.

While Spark works on a micro-batch, a thread spools the next one.
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
from leveret.spark.queues.spool.files import SpoolFiles
from leveret.spark.queues.spool.filling import Filling
from leveret.spark.queues.spool.segment import SegmentPart
from leveret.spark.queues.spool.spool import Spool
from leveret.spark.rows.shape import RowShape


class SpoolReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one queue through a spool. An offset is ``{"spool": id, "messages": n}``.

    Spark pickles a second instance for the executors, so nothing is opened before the first call. Methods raise
    ``SourceError``.
    """

    def __init__(
        self, options: QueueOptions, spool_options: SpoolOptions, shape: RowShape, files: SpoolFiles | None = None
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
        """Return the first message in the spool that no query has finished, so that no acknowledged message is
        skipped."""
        spool = self._opened()
        return {"spool": spool.id, "messages": spool.first}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return option maxRowsPerTrigger as a limit."""
        return ReadMaxRows(self._options.rows_max)

    @brief(SourceError)
    def prepareForTriggerAvailableNow(self) -> None:
        """Note how many messages are ready: the query takes that many and ends."""
        self._opened()
        self._with_retries(self._aim)

    @brief(SourceError)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch: spooled messages after ``start``, or else what the queue has now."""
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
        """Return how far the query could read: the messages in the spool and in the queue when the last one was
        taken."""
        if self._spool is None:
            return None
        waiting = self._filling.waiting if self._filling is not None else 0
        return {"spool": self._spool.id, "messages": self._spool.end + waiting}

    @brief(SourceError)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return ranges of the spool's files."""
        spool = self._opened()
        return spool.parts(self._checked(start), self._checked(end), self._spool_options.min_partitions)

    @brief(SourceError)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, on an executor."""
        assert isinstance(partition, SegmentPart), partition
        yield from partition.read(self._shape)

    @brief(SourceError)
    def commit(self, end: dict[str, Any]) -> None:
        """Release messages up to ``end``: Spark's checkpoint says that they are done."""
        self._opened().release(self._checked(end))

    def stop(self) -> None:
        """Close the connection and the spool; messages that are not in the spool are requeued."""
        self._disconnect()
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _opened(self) -> Spool:
        if self._spool is None:
            self._spool = with_retries(self._options.queue, self._open)  # an earlier query may be about to end
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
            ahead.exception()  # the collector ends with its connection; wait for that, so that nothing else writes

    def _aim(self) -> None:
        self._target = self._opened().end + self._connected().waiting

    def _fill_all(self) -> None:
        """Spool everything that is in the queue now."""
        self._await_ahead()
        filling = self._connected()
        end = self._opened().end + filling.count_waiting()
        while self._opened().end < end and filling.fill_wholly(end):
            pass

    def _fill(self, first: int, rows_max: int) -> None:
        """Spool messages, unless the spool has some after ``first``."""
        self._await_ahead()
        if self._opened().end == first:
            self._fill_to(self._connected(), first + rows_max)

    def _await_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.result()

    def _fill_ahead(self, first: int) -> None:
        """Start spooling the next micro-batch, unless part of it is spooled already."""
        if self._ahead is None and self._filling is not None and self._opened().end == first:
            if self._filler is None:
                self._filler = ThreadPoolExecutor(1, "leveret-spool")
            self._ahead = self._filler.submit(self._fill_to, self._filling, first + self._options.rows_max)

    def _fill_to(self, filling: Filling, end: int) -> None:
        if self._target is None:
            filling.fill(end)
        elif not filling.fill_wholly(min(end, self._target)):
            self._target = self._opened().end
