"""Enrichment by RPC: every row asks a service over AMQP and gets its reply as a new column."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from leveret.client import ChannelClosed, ClientError, ConnectionClosed, Unroutable
from leveret.client.protocol.url import parse_url
from leveret.spark.brief import brief
from leveret.spark.calls import Calls, RequestBatch
from leveret.spark.options import URL_DEFAULT
from leveret.spark.refusals import no_connection
from leveret.wire.errors import ACCESS_REFUSED, NOT_FOUND

ON_ERROR: Final = ("fail", "column")
BATCHES_MAX: Final = 16
"""Record batches of a task that may wait for replies: a slow reply delays those behind it, and memory is limited."""


class RpcError(Exception):
    """The service cannot be called; the text says why, and which argument of :func:`rpc` to change."""


def rpc(
    df: DataFrame,
    exchange: str,
    key: str,
    window: int = 256,
    timeout: float = 30.0,
    *,
    url: str = URL_DEFAULT,
    request: str = "body",
    reply: str = "reply",
    on_error: str = "fail",
) -> DataFrame:
    """Add a binary column with the service's reply to each row's request; for batch and streaming frames.

    Replies come by direct reply-to and are matched by correlation id. Each task has one connection. The order of rows
    is kept; a null request is not sent and gets a null reply.

    Calls are made at least once: a task that Spark repeats calls again, and a task that loses its connection repeats
    the requests without a reply. A refusal by the broker (wrong exchange, no permission) and a broker that stays
    unreachable always fail the task.

    Args:
        df: the rows.
        exchange: where requests are published; "" is the default exchange.
        key: routing key of the requests.
        window: requests of a task that may be unanswered at a time.
        timeout: seconds to wait for a reply.
        url: the broker.
        request: the column that is sent, binary or string.
        reply: the new column.
        on_error: what to do if no reply arrives in time or no queue takes the request (312): "fail" fails the task,
            "column" gives a null reply and the reason in a column ``<reply>_error``.

    Raises:
        ValueError: an argument is wrong; the text names it.
    """
    check(df.schema, window, timeout, request, reply, on_error, url)
    caller = RpcCaller(url, exchange, key, request, reply, window, timeout, on_error == "column")
    return df.mapInArrow(caller, caller.schema(df.schema))


@dataclass(frozen=True)
class RpcCaller:
    """The function that ``mapInArrow`` gets: calls the service for every row of a partition."""

    url: str
    exchange: str
    routing_key: str
    request: str
    reply: str
    window: int
    timeout_s: float
    errors: bool = False

    def schema(self, given: StructType) -> StructType:
        """Return the columns of the result: the given ones, the reply, and the error column if there is one."""
        added = [StructField(self.reply, BinaryType())]
        if self.errors:
            added.append(StructField(f"{self.reply}_error", StringType()))
        return StructType([*given.fields, *added])

    @brief(RpcError, ClientError)
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with their replies, in order; raises ``RpcError`` and ``ClientError``.

        Requests of the next batches are sent while earlier ones wait for replies, so that the window stays full.
        """
        with _explained(), Calls(self.url, self.exchange, self.routing_key, self.window, self.timeout_s) as calls:
            waiting: deque[tuple[pa.RecordBatch, RequestBatch]] = deque()
            for batch in batches:
                bodies = batch.column(batch.schema.get_field_index(self.request))
                requests = RequestBatch(bodies.drop_null().cast(pa.binary()), self.errors)
                waiting.append((batch, requests))
                calls.ask(requests)
                while len(waiting) > BATCHES_MAX and waiting[0][1].missing:
                    calls.receive()
                while waiting and not waiting[0][1].missing:
                    yield self._answered(*waiting.popleft())
            while waiting:
                while waiting[0][1].missing:
                    calls.receive()
                yield self._answered(*waiting.popleft())

    def _answered(self, batch: pa.RecordBatch, requests: RequestBatch) -> pa.RecordBatch:
        """Return the rows with their replies, and with their errors if there is an error column."""
        added = [pa.array(requests.replies, pa.binary())]
        names = [self.reply]
        if self.errors:
            told = requests.errors
            added.append(pa.array([_told(told.get(row)) for row in range(len(requests.replies))], pa.string()))
            names.append(f"{self.reply}_error")
        given = batch.column(batch.schema.get_field_index(self.request))
        if given.null_count:  # these rows have no request
            places = pc.subtract(pc.cumulative_sum(given.is_valid().cast(pa.int64())), 1)
            added = [column.take(pc.if_else(given.is_valid(), places, None)) for column in added]
        return pa.RecordBatch.from_arrays([*batch.columns, *added], names=[*batch.schema.names, *names])


@contextmanager
def _explained() -> Iterator[None]:
    """Turn a refusal by the broker, or a lost connection, into an ``RpcError``."""
    try:
        yield
    except ConnectionClosed as error:
        raise RpcError(no_connection(error, "url=")) from error
    except (ChannelClosed, Unroutable) as error:
        raise RpcError(_advised(error)) from error


def _told(error: Exception | None) -> str | None:
    if error is None:
        return None
    return _advised(error) if isinstance(error, Unroutable) else str(error)


def _advised(error: ChannelClosed | Unroutable) -> str:
    if isinstance(error, Unroutable):
        return f"{error}; start the service that reads it, or correct exchange= and key="
    if error.code == NOT_FOUND:
        return f"{error}; declare it first, or correct exchange="
    if error.code == ACCESS_REFUSED:
        return f"{error}; give the user of url= the permission to write there, or correct exchange="
    return str(error)


def check(
    schema: StructType,
    window: int,
    timeout: float,
    request: str,
    reply: str,
    on_error: str,
    url: str = URL_DEFAULT,
) -> None:
    """Check the arguments of :func:`rpc`; ``ValueError`` names the wrong one."""
    try:
        parse_url(url)
    except ValueError as error:
        raise ValueError(f"url: {error}") from None
    names = schema.fieldNames()
    if request not in names:
        raise ValueError(f"there is no column {request!r} to send as request=; the columns are {', '.join(names)}")
    kind = schema[request].dataType
    if not isinstance(kind, (BinaryType, StringType)):
        raise ValueError(
            f"requests must be binary or string, but the column of request={request!r} is {kind.simpleString()}"
        )
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error must be 'fail' or 'column', not {on_error!r}")
    for added in [reply, f"{reply}_error"] if on_error == "column" else [reply]:
        if added in names:
            raise ValueError(f"there is already a column {added!r}: choose another reply=")
    if window < 1:
        raise ValueError(f"window is the number of requests unanswered at a time, at least 1, not {window}")
    if timeout <= 0:
        raise ValueError(f"timeout must be more than 0 seconds, not {timeout:g}")
