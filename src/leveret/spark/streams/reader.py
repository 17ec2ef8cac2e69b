"""The streaming reader of a stream: offsets are in Spark's checkpoint, so each message reaches the sink once.

The driver keeps one long-lived Python process for the source, which asks the broker for the ends of its streams; tasks
read on executors. Two offsets alone define a micro-batch, so one that Spark repeats has the same messages, whatever was
sealed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from leveret.spark.brief import brief
from leveret.spark.retry import Retry
from leveret.spark.rows.shape import RowShape
from leveret.spark.streams.bounds import Bounds, QueryStreams
from leveret.spark.streams.continuity import going_on, readable
from leveret.spark.streams.errors import NoStream, StreamError, explained
from leveret.spark.streams.loss import DataLoss, lost
from leveret.spark.streams.offsets import Span, StreamPosition, format_offset, parse_offset, spans
from leveret.spark.streams.options import StreamOptions
from leveret.spark.streams.places import begin, check_names
from leveret.spark.streams.planning import Planner, StreamTask, read_task
from leveret.spark.streams.shares import rows_of_octets, shares

LISTEN_S: Final = 0.02
"""Seconds to wait for new messages before an idle reader answers: Spark asks every 10 ms. A query with several sources
waits this long in each micro-batch of the others, too."""

ASK_S: Final = 1.0
"""Seconds for which the known bounds of idle streams are used: retention goes on meanwhile."""

T = TypeVar("T")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream, or all partitions of a super stream. streams/offsets.py describes the offsets.

    Methods raise ``DataLoss``, and ``StreamError`` if the stream does not exist or the broker refuses or is unreachable
    for :data:`leveret.spark.retry.RECONNECT_S`. Spark pickles a second instance for the executors, so nothing connects
    before the first call.
    """

    def __init__(self, options: StreamOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape
        self._streams = QueryStreams(options)
        self._planner = Planner(options, shape)
        self._bounds: dict[str, Bounds] = {}
        self._asked_s = 0.0
        self._missing: set[str] = set()
        self._is_fixed = self._is_idle = False
        # the first offset of each stream, until it is in the checkpoint
        self._begun: dict[str, int] = {}
        self._planned: dict[str, StreamPosition] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Return an empty offset: Spark calls this again after a crash, when "latest" would mean another offset."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch; if rows and octets are limited, ``latestOffset`` also applies the
        octets."""
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    @brief(StreamError)
    def prepareForTriggerAvailableNow(self) -> None:
        """Note the current ends of the streams: the query reads up to there and ends."""
        self._is_fixed = False
        self._ask({})
        self._is_fixed = True

    @brief(StreamError, DataLoss)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch, or ``start`` itself if there is nothing new.

        The first end tells where each stream begins, and may be empty of messages, so that a query that starts at the
        latest message keeps its place from then on.
        """
        read = parse_offset(start)
        self._ask(read)
        firsts = {name: self._first(name, read.get(name)) for name in self._bounds}
        for name, first in firsts.items():
            self._planner.hold(name, self._bounds[name].facts, first)
        lags = {name: max(0, self._bounds[name].next - first) for name, first in firsts.items()}
        rows = self._limited(lags, firsts, limit)
        ends = dict(read)
        for name, first in firsts.items():
            is_begun = name not in read or first != read[name].next or self._bounds[name].id != read[name].id
            if is_begun or rows[name]:
                ends[name] = StreamPosition(first + rows[name], self._bounds[name].id, first if is_begun else None)
        self._planned = ends
        self._is_idle = ends == read
        return start if self._is_idle else format_offset(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the streams and the messages beyond the planned end; Spark shows them in the query's
        progress."""
        return {
            name: {"id": bounds.id, "next": bounds.next, "lag": bounds.next - self._planned[name].next}
            for name, bounds in self._bounds.items()
            if name in self._planned
        } or None

    @brief(StreamError, DataLoss)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks that read the messages between two offsets."""
        parts = []
        for planned in spans(parse_offset(start), parse_offset(end)):
            bounds = self._bounds_for(planned)
            span = readable(planned, bounds, self._options.is_loss_failure)
            if span is not None and bounds is not None:
                parts.append((span, bounds.facts))
        return self._planner.tasks(parts)

    @brief(StreamError, DataLoss)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, on an executor."""
        assert isinstance(partition, StreamTask)
        yield from read_task(self._options, self._shape, partition)

    def stop(self) -> None:
        """Close the connection and end the leases."""
        self._streams.close()
        self._planner.close()

    def _ask(self, read: dict[str, StreamPosition]) -> None:
        """Update the bounds of all streams; ``read`` has those in the query's offset."""
        if self._is_fixed:
            return
        if self._is_idle and time.monotonic() < self._asked_s + ASK_S and not self._hears():
            return
        self._bounds = self._with_retries(lambda: self._all_bounds(read))
        self._asked_s = time.monotonic()

    def _hears(self) -> bool:
        """Whether new messages have arrived, or arrive within :data:`LISTEN_S`."""
        if not self._bounds:
            time.sleep(LISTEN_S)
            return True
        nexts = {name: bounds.next for name, bounds in self._bounds.items()}
        return self._with_retries(lambda: self._streams.wait(nexts, LISTEN_S))

    def _all_bounds(self, read: dict[str, StreamPosition]) -> dict[str, Bounds]:
        found = {}
        names = self._streams.partitions(read)
        check_names(self._options.starting, "startingOffsets", names)
        for name in names:
            try:
                found[name] = self._streams.bounds(name)
            except NoStream as error:
                if name not in read:
                    raise
                if name not in self._missing:
                    lost(str(error), self._options.is_loss_failure)
                    self._missing.add(name)
            else:
                self._missing.discard(name)
        return found

    def _first(self, name: str, position: StreamPosition | None) -> int:
        """Return the offset at which the next micro-batch begins in this stream."""
        bounds = self._bounds[name]
        if position is not None:
            return going_on(name, position, bounds, self._options.is_loss_failure)
        if name not in self._begun:
            self._begun[name] = self._with_retries(lambda: begin(self._streams, self._options, name, bounds))
        return self._begun[name]

    def _limited(self, lags: dict[str, int], firsts: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the number of rows that the micro-batch has of each stream."""
        if not isinstance(limit, (ReadMaxRows, ReadMaxBytes)):
            return lags
        rows = sum(lags.values())
        octets = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_max
        if isinstance(limit, ReadMaxRows):
            rows = min(rows, limit.max_rows)
        if octets is not None and rows:
            sizes = self._with_retries(lambda: self._sizes(lags, firsts))
            rows = min(rows, rows_of_octets(lags, sizes, octets))
        return shares(lags, rows)

    def _sizes(self, lags: dict[str, int], firsts: dict[str, int]) -> dict[str, int]:
        return {
            name: self._streams.octets_per_message(name, firsts[name], firsts[name] + lag) if lag else 1
            for name, lag in lags.items()
        }

    def _bounds_for(self, span: Span) -> Bounds | None:
        """Return the bounds of the span's stream; the broker is asked only if the known bounds do not cover the
        span."""
        bounds = self._bounds.get(span.stream)
        if bounds is None or bounds.id != span.id or bounds.next < span.end:
            bounds = self._with_retries(lambda: self._bounds_or_none(span.stream))
        return bounds

    def _bounds_or_none(self, name: str) -> Bounds | None:
        try:
            return self._streams.bounds(name)
        except NoStream:
            return None

    def _with_retries(self, ask: Callable[[], T]) -> T:
        """Ask the broker, with retries while it is away; raises ``StreamError`` when they are used up."""
        with explained():
            return Retry(f"stream {self._options.stream}", OSError).run(ask, self._streams.close)
