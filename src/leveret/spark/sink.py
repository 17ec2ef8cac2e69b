"""The sinks: a task publishes its rows with pipelined confirms, and succeeds when the broker has confirmed them all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegralType, MapType, NumericType, StringType, StructType, TimestampType

from leveret.client import BlockingChannel, BlockingConnection, ClientError, Properties
from leveret.delay import Layout
from leveret.spark.columns import PROPERTIES, column_values
from leveret.spark.options import SinkOptions

COLUMNS: Final = ("body", "exchange", "routing_key", "delay", *PROPERTIES)
"""The columns of the sink; ``body`` must be there, and ``delay`` is in seconds."""

IGNORED: Final = ("redelivered", "delivery_tag")
"""Columns of the source that say something of a delivery, not of a message."""

DESTINATIONS_MAX: Final = 10_000

_declared: dict[tuple[str, Layout], set[str]] = {}
"""Delay levels that this worker process has declared, by broker, and the destinations that it has bound to them."""


@dataclass
class Published(WriterCommitMessage):
    """What a task tells the driver: how many rows of which partition the broker has confirmed."""

    partition: int
    rows: int


class StreamSink(DataSourceStreamArrowWriter):
    """The sink of a streaming query. At least once: a micro-batch that Spark repeats is published again.

    A row without a message_id gets ``<query>-<batch>-<partition>-<row>``, which a repeated task gives it again as long
    as its rows come in the same order. Raises ``ValueError`` for columns that cannot be published.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish one partition; runs on an executor. Errors as in :func:`publish`."""
        return publish(self._options, iterator, _id_prefix())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: every task has waited for its confirms."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what the broker has taken cannot be called back."""


class BatchSink(DataSourceArrowWriter):
    """The sink of ``df.write``: as :class:`StreamSink`, without message ids of its own."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish one partition; runs on an executor. Errors as in :func:`publish`."""
        return publish(self._options, iterator, None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: every task has waited for its confirms."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: what the broker has taken cannot be called back."""


def check_columns(schema: StructType) -> None:
    """``ValueError`` unless every column is one of :data:`COLUMNS` (or :data:`IGNORED`) and of a fitting type."""
    if "body" not in schema.fieldNames():
        raise ValueError("the sink needs a column body (binary or string)")
    for field in schema.fields:
        if field.name in IGNORED:
            continue
        if field.name not in COLUMNS:
            raise ValueError(f"the sink has no column {field.name!r}; it has {', '.join(COLUMNS)}")
        if not _fits(field.name, field.dataType):
            raise ValueError(f"column {field.name!r} of the sink cannot be {field.dataType.simpleString()}")


def _fits(name: str, kind: Any) -> bool:
    if name == "body":
        return isinstance(kind, (BinaryType, StringType))
    if name == "headers":
        return isinstance(kind, MapType) and kind.keyType == StringType()
    if name == "timestamp":
        return isinstance(kind, TimestampType)
    if name in ("delivery_mode", "priority"):
        return isinstance(kind, IntegralType)
    if name == "delay":
        return isinstance(kind, NumericType)
    return isinstance(kind, StringType)


def publish(options: SinkOptions, batches: Iterator[pa.RecordBatch], id_prefix: str | None) -> Published:
    """Publish the rows of all batches over one connection and wait until the broker has confirmed them.

    ``id_prefix`` begins the ids of rows without a message_id. Raises ``Unroutable`` for a mandatory row that no queue
    took, ``Nacked`` for a row that the broker refused, ``ChannelClosed`` for an exchange or destination that is not
    there, ``TimeoutError`` where confirms stay away, and ``ValueError`` for a row that cannot be a message.
    """
    rows = 0
    try:
        with BlockingConnection(options.url, name="leveret spark sink") as connection:
            channel = connection.channel()
            channel.confirm_window = options.confirm_window
            channel.confirm_select()
            for batch in batches:
                _publish_batch(channel, options, batch, id_prefix, rows)
                # once per Arrow batch costs little, and a task with an unroutable row fails before all others are out
                channel.wait_for_confirms(options.confirm_timeout_s)
                rows += batch.num_rows
    except ClientError:
        # the levels may have gone, with the broker's data or by hand: the next task declares them again
        _declared.pop((options.url, options.layout), None)
        raise
    context = TaskContext.get()
    return Published(context.partitionId() if context else 0, rows)


def _publish_batch(
    channel: BlockingChannel, options: SinkOptions, batch: pa.RecordBatch, id_prefix: str | None, first_row: int
) -> None:
    columns = column_values(batch, COLUMNS)
    bodies = columns.pop("body")
    absent = [None] * len(bodies)
    exchanges = columns.pop("exchange", absent)
    keys = columns.pop("routing_key", absent)
    delays = columns.pop("delay", absent)
    mode = 2 if options.persistent else 1
    shared = Properties(delivery_mode=mode)
    names = list(columns)
    rows: Iterator[tuple[Any, ...]] = iter(zip(*columns.values(), strict=True)) if names else iter([()] * len(bodies))
    for row, (body, exchange, key, delay, values) in enumerate(zip(bodies, exchanges, keys, delays, rows, strict=True)):
        if body is None:
            raise ValueError(f"row {first_row + row} has no body")
        properties = _properties(names, values, mode) if names else shared
        if id_prefix is not None and properties.message_id is None:
            properties = _properties(names, values, mode) if properties is shared else properties
            properties.message_id = f"{id_prefix}-{first_row + row}"
        target = options.exchange if exchange is None else exchange
        routing_key = options.routing_key if key is None else key
        if delay is not None:
            if exchange:
                raise ValueError(
                    f"a delayed row goes to a queue, but row {first_row + row} names exchange {exchange!r}"
                )
            target, routing_key = _delayed(channel, options, float(delay), routing_key)
            Layout.sendable(properties)
        payload = body.encode() if isinstance(body, str) else body
        channel.publish(payload, target, routing_key, properties, options.mandatory)


def _properties(names: list[str], values: tuple[Any, ...], mode: int) -> Properties:
    given = dict(zip(names, values, strict=True))
    if given.get("headers") is not None:
        given["headers"] = dict(given["headers"])  # Arrow's maps are lists of pairs
    properties = Properties(**given)
    if properties.delivery_mode is None:
        properties.delivery_mode = mode
    return properties


def _delayed(channel: BlockingChannel, options: SinkOptions, delay_s: float, destination: str) -> tuple[str, str]:
    """Exchange and key of a delayed row, with the levels declared and the destination bound to them.

    Without the binding the broker would drop the row when it is due, when nobody is left to be told.
    """
    known = (options.url, options.layout)
    bound = _declared.get(known)
    if bound is None:
        options.layout.declare_blocking(channel)
        bound = _declared[known] = set()
    if destination not in bound:
        options.layout.bind_destination_blocking(channel, destination)
        if len(bound) >= DESTINATIONS_MAX:
            bound.clear()
        bound.add(destination)
    return options.layout.route(delay_s, destination)


def _id_prefix() -> str | None:
    """``<query>-<batch>-<partition>`` of the running task: the same again when Spark repeats the micro-batch."""
    context = TaskContext.get()
    if context is None:
        return None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return f"{query}-{batch}-{context.partitionId()}" if query and batch else None
