"""The stream reader of a stream: offsets in Spark's checkpoint, so each message once as far as the sink.

It runs in the one long-lived Python process that the driver keeps for the source, which asks the broker how far its
streams go; tasks read on executors. Two offsets alone say what a micro-batch has, so one that Spark repeats has the
same messages, whatever was sealed meanwhile.
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
from leveret.spark.streams.bounds import Bounds, Streams
from leveret.spark.streams.continuity import going_on, readable
from leveret.spark.streams.errors import NoStream, StreamError, explained
from leveret.spark.streams.loss import DataLoss, lost
from leveret.spark.streams.offsets import Position, Span, format_offset, parse_offset, spans
from leveret.spark.streams.options import StreamOptions
from leveret.spark.streams.places import begin, check_names
from leveret.spark.streams.planning import Planner, StreamTask, read_task
from leveret.spark.streams.shares import rows_of_octets, shares

LISTEN_S: Final = 0.02
"""Spark asks every 10 ms while there is nothing new. So long it is kept waiting for something; a query that reads other
sources, too, waits as long for each of their micro-batches."""

ASK_S: Final = 1.0
"""How old what is known of streams may be while nothing comes: retention goes on."""

T = TypeVar("T")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream, or all partitions of a super stream. Offsets: see streams/offsets.py.

    Methods raise ``DataLoss``, and ``StreamError`` where there is no such stream, or the broker objects or stays away
    for :data:`leveret.spark.retry.RECONNECT_S`. Spark makes a second instance that it pickles for the executors, so
    nothing connects before the first question.
    """

    def __init__(self, options: StreamOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape
        self._streams = Streams(options)
        self._planner = Planner(options, shape)
        self._bounds: dict[str, Bounds] = {}
        self._asked_s = 0.0
        self._missing: set[str] = set()
        self._is_fixed = self._is_idle = False
        # where streams are begun with, until that is in the checkpoint
        self._begun: dict[str, int] = {}
        self._planned: dict[str, Position] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Nothing is said here: Spark asks again after a crash, when "latest" would be somewhere else."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The bound of a micro-batch; where there are two, the one of octets counts beside the one of rows."""
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    @brief(StreamError)
    def prepareForTriggerAvailableNow(self) -> None:
        """Note how far the streams go now: the query goes so far and ends."""
        self._is_fixed = False
        self._ask({})
        self._is_fixed = True

    @brief(StreamError, DataLoss)
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes; ``start`` itself where nothing new is there.

        The first one says where the streams are begun with and may be empty, so that a query that begins with the
        latest message has a place of its own from then on.
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
                ends[name] = Position(first + rows[name], self._bounds[name].id, first if is_begun else None)
        self._planned = ends
        self._is_idle = ends == read
        return start if self._is_idle else format_offset(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the streams go, and how many messages lie behind what was planned: in the query's progress."""
        return {
            name: {"id": bounds.id, "next": bounds.next, "lag": bounds.next - self._planned[name].next}
            for name, bounds in self._bounds.items()
            if name in self._planned
        } or None

    @brief(StreamError, DataLoss)
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks that read what lies between two offsets."""
        parts = []
        for planned in spans(parse_offset(start), parse_offset(end)):
            bounds = self._bounds_for(planned)
            span = readable(planned, bounds, self._options.is_loss_failure)
            if span is not None and bounds is not None:
                parts.append((span, bounds.facts))
        return self._planner.tasks(parts)

    @brief(StreamError, DataLoss)
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
        assert isinstance(partition, StreamTask)
        yield from read_task(self._options, self._shape, partition)

    def stop(self) -> None:
        """Close the connection, and give back what was held."""
        self._streams.close()
        self._planner.close()

    def _ask(self, read: dict[str, Position]) -> None:
        """Learn how far all streams go; ``read`` are those that the query knows."""
        if self._is_fixed:
            return
        if self._is_idle and time.monotonic() < self._asked_s + ASK_S and not self._hears():
            return
        self._bounds = self._with_retries(lambda: self._all_bounds(read))
        self._asked_s = time.monotonic()

    def _hears(self) -> bool:
        """Whether something has come, or comes just now."""
        if not self._bounds:
            time.sleep(LISTEN_S)
            return True
        nexts = {name: bounds.next for name, bounds in self._bounds.items()}
        return self._with_retries(lambda: self._streams.wait(nexts, LISTEN_S))

    def _all_bounds(self, read: dict[str, Position]) -> dict[str, Bounds]:
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

    def _first(self, name: str, position: Position | None) -> int:
        """The offset that the next micro-batch begins with in this stream."""
        bounds = self._bounds[name]
        if position is not None:
            return going_on(name, position, bounds, self._options.is_loss_failure)
        if name not in self._begun:
            self._begun[name] = self._with_retries(lambda: begin(self._streams, self._options, name, bounds))
        return self._begun[name]

    def _limited(self, lags: dict[str, int], firsts: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """How many rows of each stream the micro-batch has."""
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
        """How far the span's stream goes; it is asked for again only if what latestOffset knew does not cover it."""
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
        """Ask the broker, and again while it is away; then ``StreamError`` says why."""
        with explained():
            return Retry(f"stream {self._options.stream}", OSError).run(ask, self._streams.close)
