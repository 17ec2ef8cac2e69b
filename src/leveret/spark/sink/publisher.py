"""Publishes rows of one partition with pipelining, and waits for the confirm of each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.client import BlockingChannel, ChannelClosed, ClientError, Nacked, Properties, Unroutable
from leveret.delay import Layout
from leveret.delay.instant import now
from leveret.spark.rows.frames import FrameEncoder, PublishFrames, RowError
from leveret.spark.rows.properties import HEAD_SIZE
from leveret.spark.sink.columns import Columns, bodies, content_headers, delays, message_columns, own_properties
from leveret.spark.sink.connecting import SinkError
from leveret.spark.sink.merging import merged
from leveret.spark.sink.options import SinkOptions
from leveret.spark.sink.timed import timed
from leveret.wire.errors import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED
from leveret.wire.properties import decode_header

RUN_OCTETS_MAX: Final = 256 * 1024
"""Approximate octets of frames that are passed to the socket at a time."""

BODY_OCTETS_MAX: Final = 64 << 20
"""Octets of bodies above which an Arrow batch is published in parts."""

DESTINATIONS_MAX: Final = 10_000

_declared: dict[tuple[str, Layout], set[str]] = {}
"""By broker and layout: destinations bound to the delay levels; this worker process has declared those levels."""


class RowPublisher:
    """Publishes rows on a channel with confirms. ``id_prefix`` is that of :func:`message_columns`."""

    def __init__(self, channel: BlockingChannel, options: SinkOptions, id_prefix: str) -> None:
        self.rows = 0  # rows that the broker has confirmed
        self._channel = channel
        self._options = options
        self._id_prefix = id_prefix
        self._encoder = FrameEncoder(channel.number, channel.frame_max, options.mandatory)
        self._returned: Unroutable | None = None
        channel.confirm_window = options.confirm_window
        channel.on_return(self._on_return)

    def publish(self, batch: pa.RecordBatch) -> None:
        """Publish these rows and wait until the broker has confirmed all of them.

        Raises ``SinkError`` for a row that cannot be a message, that no queue takes (mandatory) or that the broker
        refuses, for an exchange or destination that does not exist, and if confirms do not arrive in time.
        """
        found = bodies(batch)
        if batch.num_rows > 1 and (pc.sum(pc.binary_length(found)).as_py() or 0) > BODY_OCTETS_MAX:
            half = batch.num_rows // 2
            self.publish(batch.slice(0, half))
            self.publish(batch.slice(half))
            return
        try:
            self._publish(batch, found)
            # waiting per Arrow batch costs little, and a task with an unroutable row fails early
            self._channel.wait_for_confirms(self._options.confirm_timeout_s)
            self._check_returned()
        except RowError as error:
            raise SinkError(f"row {self.rows + error.row}: {error.reason}") from None
        except Unroutable as error:
            hint = "bind a queue" if error.exchange else "declare the queue"
            text = f"{error}; {hint} first, or let option mandatory=false drop such rows"
            raise SinkError(f"{self._row_of(error, found)}{text}") from None
        except Nacked as error:
            hint = "its queue is full or could not store it (options exchange, routingKey and queue)"
            raise SinkError(f"row {error.sequence - 1}: the broker refused it (basic.nack): {hint}") from None
        except ChannelClosed as error:
            raise SinkError(f"{error}; {_advice(error)}") from None
        except TimeoutError as error:
            raise SinkError(f"{error}: option confirmTimeout sets the seconds") from None
        self.rows += batch.num_rows

    def _publish(self, batch: pa.RecordBatch, body: pa.BinaryArray) -> None:
        if body.null_count:
            raise RowError(pc.index(body.is_null(), True).as_py(), "it has no body")
        columns = message_columns(batch, self._options, self._id_prefix, self.rows)
        headers = content_headers(batch)
        given = None if headers is None else merged(headers, own_properties(batch, self._options))
        if given is not None:
            self._check_room(given)
        delayed = delays(batch)
        is_large = (pc.max(pc.binary_length(body)).as_py() or 0) > self._encoder.body_max
        if delayed is not None and given is None and not is_large:
            timely = timed(columns, delayed, self._options.layout, now())
            if timely is not None:
                self._bind_all(columns["routing_key"])
                columns, delayed = timely, None
        if delayed is not None or is_large:
            self._publish_one_by_one(body, columns, delayed, given)
            return
        frames = PublishFrames(self._encoder.encode(body, columns, given))
        for first, end in _runs(frames.ends, batch.num_rows, max(1, self._options.confirm_window // 4)):
            self._channel.publish_frames(frames.octets(first, end), end - first)
            self._check_returned()

    def _check_room(self, given: pa.BinaryArray) -> None:
        """Raise ``RowError`` if properties do not fit into a frame; the broker would close the connection."""
        sizes = pc.binary_length(given)
        room = self._encoder.properties_max
        row = pc.index(pc.greater(sizes, room).fill_null(False), True).as_py()
        if row >= 0:
            raise RowError(
                row, f"its properties have {sizes[row].as_py()} octets, but a frame has room for only {room}"
            )

    def _publish_one_by_one(
        self,
        body: pa.BinaryArray,
        columns: Columns,
        delayed: pa.RecordBatch | None,
        encoded: pa.BinaryArray | None,
    ) -> None:
        waits = delayed.to_pylist() if delayed is not None else [{}] * len(body)
        names = list(columns)
        values = [
            value.to_pylist() if isinstance(value, pa.Array) else [value] * len(body) for value in columns.values()
        ]
        headers = [None] * len(body) if encoded is None else encoded.to_pylist()
        for index, (payload, wait, header, *row) in enumerate(
            zip(body.to_pylist(), waits, headers, *values, strict=True)
        ):
            given = dict(zip(names, row, strict=True))
            try:
                if header is not None and wait.get("delay") is None and wait.get("at") is None:
                    frames = self._encoder.encode_one(payload, given["exchange"], given["routing_key"], header)
                    self._channel.publish_frames(frames, 1)
                    continue
                exchange, key, properties = self._message(given, wait, header)
                self._channel.publish(payload, exchange, key, properties, self._options.mandatory)
            except (ValueError, TypeError) as error:
                raise RowError(index, str(error)) from None

    def _message(
        self, given: dict[str, Any], wait: dict[str, Any], header: bytes | None
    ) -> tuple[str, str, Properties]:
        exchange, key = given.pop("exchange"), given.pop("routing_key")
        if header is not None:  # the delay adds headers, so the properties are encoded again
            return self._delayed(exchange, key, decode_header(bytes(HEAD_SIZE) + header)[0], wait)
        if given.get("headers") is not None:
            given["headers"] = dict(given["headers"])  # Arrow's maps are lists of pairs
        return self._delayed(exchange, key, Properties(**given), wait)

    def _delayed(
        self, exchange: str, key: str, properties: Properties, wait: dict[str, Any]
    ) -> tuple[str, str, Properties]:
        delay, at = wait.get("delay"), wait.get("at")
        if delay is None and at is None:
            return exchange, key, properties
        if delay is not None and at is not None:
            raise ValueError("it has both a delay and a time (columns delay and at)")
        if wait.get("exchange"):
            raise ValueError(f"a delayed row must go to a queue, but it names exchange {wait['exchange']!r}")
        self._bind(key)
        assert at is None or isinstance(at, datetime)
        return self._options.layout.message(key, None if delay is None else float(delay), properties, at=at)

    def _bind_all(self, destinations: pa.Array | str | int) -> None:
        found = destinations.unique().to_pylist() if isinstance(destinations, pa.Array) else [str(destinations)]
        for destination in found:
            self._bind(destination)

    def _bind(self, destination: str) -> None:
        """Declare the levels and bind a delayed row's destination to them.

        Without the binding the broker would drop the row when it is due, when no publisher is left to learn of it.
        """
        layout = self._options.layout
        known = (self._options.url, layout)
        bound = _declared.get(known)
        try:
            if bound is None:
                layout.declare_blocking(self._channel)
                bound = _declared[known] = set()
            if destination not in bound:
                layout.bind_destination_blocking(self._channel, destination)
                if len(bound) >= DESTINATIONS_MAX:
                    bound.clear()
                bound.add(destination)
        except ClientError:
            # the levels may have been lost with the broker's data, or deleted: the next task declares them again
            forget_levels(self._options)
            raise

    def _on_return(self, error: Unroutable) -> None:
        self._returned = self._returned or error

    def _check_returned(self) -> None:
        if self._returned is not None:
            raise self._returned

    def _row_of(self, error: Unroutable, body: pa.BinaryArray) -> str:
        """Name the first row of the batch with the returned body."""
        index = pc.index(body, pa.scalar(error.body, pa.binary())).as_py()
        return f"row {self.rows + index}: " if index >= 0 else ""


def forget_levels(options: SinkOptions) -> None:
    """Forget the declared levels, so that the next delayed row declares them again."""
    _declared.pop((options.url, options.layout), None)


def _advice(error: ChannelClosed) -> str:
    named = "options exchange, routingKey and queue, and columns of that name"
    if error.code == NOT_FOUND:
        return f"declare it first, or correct what names it ({named})"
    if error.code == ACCESS_REFUSED:
        return f"give the user of option url the permission to write there, or name another one ({named})"
    if error.code == PRECONDITION_FAILED and "has expired" in error.text:
        return "option stageExpires sets how many seconds a stage is kept after its last row"
    return f"see {named}"


def _runs(ends: memoryview, rows: int, rows_max: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of about :data:`RUN_OCTETS_MAX`, at most ``rows_max`` rows. ``ends`` has the start of each
    row."""
    first = 0
    while first < rows:
        end = min(rows, first + rows_max)
        while end > first + 1 and ends[end] - ends[first] > RUN_OCTETS_MAX:
            end = first + (end - first) // 2
        yield first, end
        first = end
