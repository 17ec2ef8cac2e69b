"""Enrichment by RPC: every row asks a service over AMQP and gets its reply as a new column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from leveret.client import BlockingConnection


def rpc(
    df: DataFrame,
    url: str,
    exchange: str,
    routing_key: str,
    request_column: str,
    reply_column: str,
    window: int = 256,
    timeout_s: float = 30.0,
) -> DataFrame:
    """``df`` with one more binary column ``reply_column``: the service's replies to ``request_column``.

    Requests (binary or string) go to ``exchange`` with ``routing_key``; replies come by direct reply-to, matched by
    their correlation ids, so no queue is made for them. Every task has one connection and keeps up to ``window``
    requests outstanding. The order of rows is kept; a null request makes no call and gets a null reply. A task that
    Spark repeats asks again. Works on batch and streaming frames alike.

    Tasks fail with ``RpcTimeout`` where a reply stays away for ``timeout_s`` seconds, and with ``Unroutable`` where no
    service listens. Raises ``ValueError`` for a request column that is not there or of another type, and for a reply
    column that is.
    """
    names = df.schema.fieldNames()
    if request_column not in names:
        raise ValueError(f"there is no column {request_column!r} to send as request; there are {', '.join(names)}")
    if reply_column in names:
        raise ValueError(f"there is a column {reply_column!r} already")
    kind = df.schema[request_column].dataType
    if not isinstance(kind, (BinaryType, StringType)):
        raise ValueError(f"requests are binary or string; column {request_column!r} is {kind.simpleString()}")
    schema = StructType([*df.schema.fields, StructField(reply_column, BinaryType(), True)])
    caller = Caller(url, exchange, routing_key, request_column, reply_column, window, timeout_s)
    return df.mapInArrow(caller, schema)


@dataclass(frozen=True)
class Caller:
    """The function of ``mapInArrow``: calls the service for every row of a partition."""

    url: str
    exchange: str
    routing_key: str
    request_column: str
    reply_column: str
    window: int
    timeout_s: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with their replies; errors as those of :func:`rpc`'s tasks."""
        with BlockingConnection(self.url, name="leveret spark rpc") as connection, connection.rpc() as caller:
            for batch in batches:
                requests = batch.column(batch.schema.get_field_index(self.request_column)).to_pylist()
                asked = [index for index, request in enumerate(requests) if request is not None]
                bodies = [_bytes(requests[index]) for index in asked]
                answers = caller.calls(
                    bodies, self.exchange, self.routing_key, self.window, self.timeout_s, mandatory=True
                )
                replies: list[bytes | None] = [None] * len(requests)
                for index, answer in zip(asked, answers, strict=True):
                    replies[index] = answer.body
                names = [*batch.schema.names, self.reply_column]
                yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(replies, pa.binary())], names=names)


def _bytes(request: str | bytes) -> bytes:
    return request.encode() if isinstance(request, str) else request
