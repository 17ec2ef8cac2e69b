"""Enrichment by RPC: every row asks a service over AMQP and gets its reply as a new column."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from leveret.client import ChannelClosed, ClientError, ConnectionClosed, Unroutable
from leveret.client.url import parse_url
from leveret.spark.brief import brief
from leveret.spark.calls import Calls
from leveret.spark.options import URL_DEFAULT
from leveret.spark.refusals import no_connection
from leveret.wire.errors import ACCESS_REFUSED, NOT_FOUND

ON_ERROR: Final = ("fail", "column")
BATCHES_MAX: Final = 16
"""Record batches of a task that may wait for replies: a slow reply holds up those behind it, and memory is limited."""


class RpcError(Exception):
    """Why the service can't be asked, and which argument of :func:`rpc` to change."""


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
    """``df`` with one more binary column ``reply``: what the service at ``exchange`` and ``key`` says to each row.

    The column ``request`` (binary or string) is what is asked; replies come by direct reply-to, told apart by their
    correlation ids. Each task has one connection to the broker at ``url`` and keeps up to ``window`` requests
    unanswered. The order of rows is kept; a null request asks nothing and gets a null reply. Batch and streaming.

    Calls are made at least once: a task that Spark repeats asks again, and so does a task that loses its connection,
    for the requests without a reply. No reply within ``timeout`` seconds, or no queue that takes the request (312),
    fails the task, or (``on_error="column"``) gives a null reply and the reason in the column ``<reply>_error``.
    A refusal by the broker (wrong exchange, no permission) and a broker that stays away always fail the task.

    Raises ``ValueError`` that names the argument: a URL that is none, a request column that is not there or of another
    type, a new column that is there, a window or a timeout that is not positive, another ``on_error``.
    """
    check(df.schema, window, timeout, request, reply, on_error, url)
    caller = Caller(url, exchange, key, request, reply, window, timeout, on_error == "column")
    return df.mapInArrow(caller, caller.schema(df.schema))


@dataclass(frozen=True)
class Caller:
    """The function of ``mapInArrow``: calls the service for every row of a partition."""

    url: str
    exchange: str
    routing_key: str
    request: str
    reply: str
    window: int
    timeout_s: float
    errors: bool = False

    def schema(self, given: StructType) -> StructType:
        """The columns of the result: those given, the reply and, if asked for, the error."""
        added = [StructField(self.reply, BinaryType())]
        if self.errors:
            added.append(StructField(f"{self.reply}_error", StringType()))
        return StructType([*given.fields, *added])

    @brief(RpcError, ClientError)
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with their replies, in order; errors as those of :func:`rpc`'s tasks.

        Requests of the next batches go out while those of earlier ones wait, so that the window stays full.
        """
        with _explained(), Calls(self.url, self.exchange, self.routing_key, self.window, self.timeout_s) as calls:
            waiting: deque[Answers] = deque()
            for batch in batches:
                answers = Answers(batch, self.errors)
                waiting.append(answers)
                answers.ask(calls, batch.column(batch.schema.get_field_index(self.request)))
                while len(waiting) > BATCHES_MAX and waiting[0].missing:
                    calls.receive()
                while waiting and not waiting[0].missing:
                    yield waiting.popleft().batch(self.reply)
            while waiting:
                while waiting[0].missing:
                    calls.receive()
                yield waiting.popleft().batch(self.reply)


class Answers:
    """A record batch that waits for replies. ``missing`` is the number of those that have not come."""

    def __init__(self, batch: pa.RecordBatch, errors: bool) -> None:
        self.missing = 0
        self._batch = batch
        self._replies: list[bytes | None] = [None] * batch.num_rows
        self._errors: list[str | None] | None = [None] * batch.num_rows if errors else None

    def ask(self, calls: Calls, requests: pa.Array) -> None:
        """Ask for every row whose request is not null."""
        self.missing = len(requests) - requests.null_count
        for row, request in enumerate(requests.to_pylist()):
            if request is not None:
                calls.ask(self, row, request.encode() if isinstance(request, str) else request)

    def reply(self, row: int, body: bytes) -> None:
        """The reply to a row's request has come."""
        self._replies[row] = body
        self.missing -= 1

    def failure(self, row: int, error: Exception) -> None:
        """A row's request has no reply: raises the error, unless there is a column for it."""
        if self._errors is None:
            raise error
        self._errors[row] = _advised(error) if isinstance(error, Unroutable) else str(error)
        self.missing -= 1

    def batch(self, reply: str) -> pa.RecordBatch:
        """The rows with their replies, and with their errors if there is a column for them."""
        columns = [*self._batch.columns, pa.array(self._replies, pa.binary())]
        names = [*self._batch.schema.names, reply]
        if self._errors is not None:
            columns.append(pa.array(self._errors, pa.string()))
            names.append(f"{reply}_error")
        return pa.RecordBatch.from_arrays(columns, names=names)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what the broker objects to, and that it can't be reached, into an ``RpcError``."""
    try:
        yield
    except ConnectionClosed as error:
        raise RpcError(no_connection(error, "url=")) from error
    except (ChannelClosed, Unroutable) as error:
        raise RpcError(_advised(error)) from error


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
    """Check the arguments of :func:`rpc`; ``ValueError`` names the one that is wrong."""
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
