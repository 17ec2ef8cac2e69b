"""Plans spans of streams as tasks: sealed segments where they exist, the rest over AMQP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from leveret.client import BlockingConnection
from leveret.client.segments.errors import SegmentGone, SegmentsUnavailable
from leveret.spark.connection_cache import cached_connection
from leveret.spark.retry import Retry
from leveret.spark.rows.content_headers import CONTENT_HEADER
from leveret.spark.rows.shape import RowShape
from leveret.spark.segments.options import HTTP, PATH
from leveret.spark.segments.planner import Facts, SealedPlanner
from leveret.spark.segments.pruning import EVERYTHING, Pruning
from leveret.spark.segments.task import SealedTask
from leveret.spark.streams.errors import explained
from leveret.spark.streams.loss import log
from leveret.spark.streams.offsets import Span
from leveret.spark.streams.options import StreamOptions
from leveret.spark.streams.tail import read_tail

TASK: Final = "leveret spark stream task"

ROWS_PER_TASK: Final = 250_000
"""Rows that one task reads over AMQP at most: seconds of work, so that several executors share it and a repeated task
repeats little."""


class StreamTask(InputPartition):
    """What one task reads: a span, over AMQP or from sealed segments."""

    def __init__(self, span: Span, sealed: SealedTask | None = None, is_typed: bool = False) -> None:
        self.span = span
        self.sealed = sealed  # None to read over AMQP
        self.is_typed = is_typed  # the segments have the columns of bodies, just as parsing would make them


class Planner:
    """Plans tasks for spans, in the driver; connects only when it is called."""

    def __init__(self, options: StreamOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape
        self._sealed: dict[str, SealedPlanner] = {}

    def hold(self, stream: str, facts: Facts | None, first: int) -> None:
        """Have the broker keep the messages of this stream from ``first`` on, if the options ask for a lease."""
        if facts is not None:
            self._of(stream).hold(facts, first)

    def tasks(self, parts: Sequence[tuple[Span, Facts | None]], pruning: Pruning = EVERYTHING) -> list[StreamTask]:
        """Return tasks that read these spans; each span comes with the broker's facts of its stream (None: not a
        leveret)."""
        rows = sum(len(span) for span, _ in parts)
        found: list[StreamTask] = []
        spans: list[Span] = []
        is_sealed_enough = CONTENT_HEADER not in self._shape.raw.names
        if not is_sealed_enough and self._options.segments.segments in (PATH, HTTP):
            raise SegmentsUnavailable(
                f"sealed files have no {CONTENT_HEADER}: omit the column, or omit option segments to read everything "
                "over AMQP"
            )
        for span, facts in parts:
            done = span.first
            if facts is not None and is_sealed_enough:
                tasks_min = -(-self._options.tasks_min * len(span) // rows)
                sealed = self._of(span.stream).plan(facts, span.first, span.end, tasks_min, pruning)
                is_typed = bool(self._shape.typed) and self._shape.agrees(facts["schema"])
                found += [
                    StreamTask(Span(span.stream, span.id, each.first, each.end), each, is_typed) for each in sealed
                ]
                done = SealedPlanner.planned_until(sealed, span.first)
            if done < span.end:
                spans.append(Span(span.stream, span.id, done, span.end))
        return found + [StreamTask(span) for span in cut(spans, self._options.tasks_min - len(found))]

    def close(self) -> None:
        """End all leases."""
        for sealed in self._sealed.values():
            sealed.close()

    def _of(self, stream: str) -> SealedPlanner:
        if stream not in self._sealed:
            self._sealed[stream] = SealedPlanner(self._options.url, self._options.segments, stream)
        return self._sealed[stream]


def cut(spans: Sequence[Span], tasks_min: int) -> list[Span]:
    """Cut spans into at least ``tasks_min`` pieces of about equal length, none longer than :data:`ROWS_PER_TASK`."""
    size = max(1, min(ROWS_PER_TASK, sum(map(len, spans)) // max(1, tasks_min)))
    found = []
    for span in spans:
        pieces = -(-len(span) // size)
        for piece in range(pieces):
            first = span.first + len(span) * piece // pieces
            end = span.first + len(span) * (piece + 1) // pieces
            found.append(Span(span.stream, span.id, first, end))
    return found


def read_task(options: StreamOptions, shape: RowShape, task: StreamTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, on an executor; raises the errors of :meth:`SealedTask.read` and :func:`read_tail`."""
    span = task.span
    if task.sealed is not None:
        try:
            if task.is_typed:
                yield from task.sealed.read(shape.arrow, shape.typed)
            else:
                yield from map(shape.finish, task.sealed.read(shape.raw))
            return
        except SegmentGone as gone:
            log.warning("%s; reading them over AMQP", gone)
            span = Span(span.stream, span.id, gone.first, gone.end)
    with explained(), cached_connection(options.url, TASK, _connected) as connection:
        for batch in read_tail(connection, span, shape.raw, options.is_loss_failure):
            yield shape.finish(batch)


def _connected(url: str, name: str) -> BlockingConnection:
    return Retry("task of a stream").run(lambda: BlockingConnection(url, name=name, reconnect=False))
