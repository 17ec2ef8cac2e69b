"""A streaming query as the pipeline watches it: how many rows it has done, whether it is at work, whether it failed."""

from __future__ import annotations

import time
from itertools import pairwise

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from leveret.demo.errors import DemoError


class WatchedQuery:
    """A running query.

    Attributes:
        rows: input rows of its finished micro-batches, as of the last ``look``.
        grown_s: when that was first seen (``time.monotonic``).
    """

    def __init__(self, query: StreamingQuery) -> None:
        self.rows = 0
        self.grown_s = time.monotonic()
        self._query = query
        self._rows_by_batch: dict[int, int] = {}

    def look(self) -> None:
        """Brings ``rows`` up to date.

        Raises:
            DemoError: the query has failed.
        """
        failure = self._query.exception()
        if failure is not None:
            raise DemoError(f"Spark's query {self._query.name} failed: {_cause(failure)}")
        # Spark keeps the progress of its last micro-batches only, so it is noted while it is there.
        self._rows_by_batch.update({one.batchId: one.numInputRows for one in self._query.recentProgress})
        rows = sum(self._rows_by_batch.values())
        if rows > self.rows:
            self.rows, self.grown_s = rows, time.monotonic()

    @property
    def busy(self) -> bool:
        """True while it works on a micro-batch."""
        return bool(self._query.status["isDataAvailable"])

    def stop(self) -> None:
        """Ends it; without effect if it has ended."""
        self._query.stop()


def _cause(failure: StreamingQueryException) -> str:
    """The line that tells a person most: what a Python traceback ends with, else the first line."""
    lines = str(failure).splitlines()
    ends = [line for above, line in pairwise(lines) if above.startswith("  ") and line and not line[0].isspace()]
    return (ends or lines or ["unknown"])[0]
