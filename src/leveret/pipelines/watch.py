"""Watches a streaming query: its rows, whether it is busy, and whether it failed."""

from __future__ import annotations

import time
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.reporter import Reporter

POLL_S: Final = 1


def observed(progress: StreamingQueryProgress, name: str) -> dict[str, Any] | None:
    """Return the metrics of ``observe(name, …)`` in a query's progress by their names, None if it has none."""
    found = progress.observedMetrics.get(name)
    told: dict[str, Any] | None = None if found is None else found.asDict()
    if told is not None and told.keys() == {"values", "schema"}:  # as a Connect client gets it from Spark 4.3
        return dict(zip([field["name"] for field in told["schema"]["fields"]], told["values"], strict=True))
    return told


class WatchedQuery:
    """A running query.

    Attributes:
        rows: input rows of its finished micro-batches, as of the last ``look``.
        grown_s: when ``rows`` grew last (``time.monotonic``).
    """

    def __init__(self, query: StreamingQuery) -> None:
        self.rows = 0
        self.grown_s = time.monotonic()
        self._query = query
        self._rows_by_batch: dict[int, int] = {}

    def look(self) -> None:
        """Update ``rows``.

        Raises:
            PipelineError: the query has failed.
        """
        failure = self._query.exception()
        if failure is not None:
            raise PipelineError(f"Spark's query {self._query.name or self._query.id} failed: {cause(failure)}")
        # Spark keeps the progress of the last micro-batches only, so it is noted in time.
        self._rows_by_batch.update({one.batchId: one.numInputRows for one in self._query.recentProgress})
        rows = sum(self._rows_by_batch.values())
        if rows > self.rows:
            self.rows, self.grown_s = rows, time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a micro-batch is running."""
        return bool(self._query.status["isDataAvailable"])

    @property
    def is_over(self) -> bool:
        """Whether the query has ended, for any reason."""
        return not self._query.isActive

    def catch_up(self) -> None:
        """Wait until the query has read and committed everything that is now in its source.

        Raises:
            StreamingQueryException: the query has failed.
        """
        self._query.processAllAvailable()

    def stop(self) -> None:
        """End the query; does nothing if it has ended."""
        self._query.stop()

    def run(self, reporter: Reporter, stage: str, total: int | None = None) -> int:
        """Watch the query until it ends or the reporter requests the end; return the input rows of finished
        micro-batches.

        On request the query is stopped at once; its next run replays an unfinished micro-batch.

        Raises:
            PipelineError: the query has failed.
        """
        try:
            while not self._query.awaitTermination(POLL_S) and not reporter.is_ended:
                self.look()
                reporter.show(stage, self.rows, total)
        except Exception as error:
            self.look()
            raise PipelineError(f"Spark's query failed: {cause(error)}") from error
        finally:
            self._query.stop()
        self.look()
        reporter.show(stage, self.rows, total)
        return self.rows
