"""The sinks: tasks publish their rows, and the driver commits what the tasks have published.

Spark makes a writer in each Python process, and the committing one knows only the tasks' messages.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from leveret.client import ClientError
from leveret.spark.brief import brief
from leveret.spark.connection_cache import cached_connection
from leveret.spark.sink.columns import check_columns
from leveret.spark.sink.connecting import SinkError, connect
from leveret.spark.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from leveret.spark.sink.publisher import RowPublisher, forget_levels
from leveret.spark.sink.staged import Batch, Published, attached, drop, release
from leveret.spark.sink.task import Task

TASK: Final = "leveret spark sink"


class StreamSink(DataSourceStreamArrowWriter):
    """The sink of a streaming query.

    With stages, writes are exactly once: a micro-batch becomes visible when Spark commits it, and a repeated one is not
    published again. Without stages, they are at least once.

    A row without a message_id gets ``<query>-<batch>-<partition>-<row>``; a repeated task gives the same ids if its
    rows come in the same order. Raises ``ValueError`` for columns that cannot be published.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options)
        if options.query:
            raise ValueError(
                "options query and batch are for df.write: a streaming query has its own name and batch numbers"
            )
        self._options = options

    @brief(SinkError, ClientError)
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish one partition, on an executor. Raises the errors of :func:`write_partition`."""
        task = Task.current()
        return write_partition(self._options, iterator, Batch(task.query, task.batch), task)

    @brief(SinkError, ClientError)
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the rows of all tasks visible. Raises the errors of :func:`release`."""
        release(self._options, Batch(_query(messages), batchId), messages, once=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop the rows of the tasks that had published when another task failed."""
        query = _query(messages)
        if query:
            drop(self._options, Batch(query, batchId))


class BatchSink(DataSourceArrowWriter):
    """The sink of ``df.write``: like :class:`StreamSink`; all rows of the job become visible at once, or none.

    Options ``query`` and ``batch`` name a write that may be repeated, as in foreachBatch: the repetition does nothing.
    A write without them is a query of its own, with a random name that the tasks get with the writer.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options
        self._once = not options.query
        self._batch = Batch(f"write-{uuid.uuid4().hex}", 0) if self._once else Batch(options.query, options.batch)

    @brief(SinkError, ClientError)
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish one partition, on an executor. Raises the errors of :func:`write_partition`."""
        return write_partition(self._options, iterator, self._batch, Task.current())

    @brief(SinkError, ClientError)
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks visible. Raises the errors of :func:`release`."""
        release(self._options, self._batch, messages, self._once)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the rows of the tasks that had published when another task failed."""
        if _query(messages):
            drop(self._options, self._batch)


def write_partition(options: SinkOptions, batches: Iterator[pa.RecordBatch], batch: Batch, task: Task) -> Published:
    """Publish the rows of all batches over one connection and wait until the broker has confirmed them.

    Nothing connects for a partition without rows. Raises ``SinkError`` like :meth:`RowPublisher.publish` and
    :func:`attached`, and if the broker is unreachable or refuses the login. Raises ``ConnectionClosed`` if the
    connection breaks: what was published is then in no queue, or is published again.
    """
    if options.delivery == EXACTLY_ONCE and not batch.query:
        raise SinkError("option delivery=exactly-once: Spark does not say which query and batch this task writes")
    first = next((each for each in batches if each.num_rows), None)
    if first is None:
        return Published(task.partition, 0)
    try:
        with cached_connection(options.url, TASK, connect) as connection:
            is_staged = options.delivery != AT_LEAST_ONCE and bool(batch.query)
            found = attached(connection, options, batch, task.attempt) if is_staged else (connection.channel(), False)
            if found is None:
                # a Spark worker must read its input to the end, or it is not reused
                return Published(task.partition, first.num_rows + sum(each.num_rows for each in batches))
            channel, is_staged = found
            channel.confirm_select()
            prefix = "-".join(str(part) for part in (batch.query, batch.batch, task.partition)) if batch.query else ""
            publisher = RowPublisher(channel, options, prefix)
            publisher.publish(first)
            for each in batches:
                publisher.publish(each)
            channel.close()
    except (ClientError, SinkError) as error:
        forget_levels(options)
        if isinstance(error, SinkError):
            raise SinkError(f"partition {task.partition}, {error}") from None
        raise
    if not is_staged:
        return Published(task.partition, publisher.rows)
    return Published(task.partition, publisher.rows, batch.query, batch.batch, task.attempt)


def _query(messages: list[WriterCommitMessage | None]) -> str:
    """Return the query whose stages the messages name, "" if there are no stages."""
    return next((each.query for each in messages if isinstance(each, Published) and each.attempt), "")
