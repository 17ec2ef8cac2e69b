"""Watches archiving queries side by side, and merges the small files that they leave."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.streaming.query import StreamingQuery

from leveret.pipelines.archives.batches import LAKE, ArchiveBatches, BatchRecord
from leveret.pipelines.archives.merging import Merging
from leveret.pipelines.archives.sources import ArchiveSource
from leveret.pipelines.errors import PipelineError
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.watch import POLL_S, WatchedQuery


class Followed:
    """A source that is being archived.

    Attributes:
        source: which one.
        waiting: messages that waited at the start.
        records: of the batches of this run; empty for tables with a log of their own.
        replaced, merged: number of files that were merged, and of the resulting files.
    """

    def __init__(
        self, source: ArchiveSource, waiting: int, batches: ArchiveBatches | None, merging: Merging | None
    ) -> None:
        self.source = source
        self.waiting = waiting
        self.records: list[BatchRecord] = []
        self.replaced = self.merged = 0
        self._batches = batches
        self._merging = merging
        self._seen = max(batches.numbers(), default=-1) if batches is not None else -1
        self._query: StreamingQuery | None = None
        self._watched: WatchedQuery | None = None

    @property
    def rows(self) -> int:
        """The number of messages that are written."""
        if self._batches is None:
            return self._watched.rows if self._watched is not None else 0
        return sum(move.rows for record in self.records for move in record.moves)

    def begin(self, query: StreamingQuery) -> None:
        """Watch this query."""
        self._query, self._watched = query, WatchedQuery(query)

    def wait(self) -> bool:
        """Wait for a moment; return whether the query has ended.

        Raises:
            PipelineError: the query has failed.
        """
        assert self._query is not None
        assert self._watched is not None
        try:
            return bool(self._query.awaitTermination(POLL_S))
        except Exception:
            self._watched.look()
            raise

    def look(self) -> None:
        """Read the records of new batches, and merge small files in their partitions.

        Raises:
            PipelineError: the query has failed, or files cannot be merged.
        """
        assert self._watched is not None
        self._watched.look()
        if self._batches is None:
            return
        new = [number for number in self._batches.numbers() if number > self._seen]
        records = [record for record in map(self._batches.record, new) if record is not None]
        self.records += records
        self._seen = max([self._seen, *new])
        if self._merging is not None:
            self._merge(self._merging, records)
        self._batches.prune()

    def stop(self) -> None:
        """End the query; does nothing if it has ended."""
        if self._watched is not None:
            self._watched.stop()

    def _merge(self, merging: Merging, records: Sequence[BatchRecord]) -> None:
        moves = [move for record in records for move in record.moves if move.table == LAKE]
        for partition in sorted({move.new.rpartition("/")[0] for move in moves}):
            try:
                replaced, merged = merging.run(partition)
            except OSError as error:
                raise PipelineError(f"files of {partition} can't be merged: {error}") from error
            self.replaced += replaced
            self.merged += merged


def follow_all(followed: Sequence[Followed], reporter: Reporter) -> None:
    """Watch the queries until all have ended or the reporter requests the end; then stop them.

    Raises:
        PipelineError: a query has failed. The others are stopped.
    """
    going = list(followed)
    try:
        while going and not reporter.is_ended:
            going = [one for one in going if not one.wait()]
            for one in followed:
                one.look()
                reporter.show(one.source.name, one.rows, one.waiting)
    finally:
        for one in followed:
            one.stop()
    for one in followed:
        one.look()
        reporter.show(one.source.name, one.rows, one.waiting)
