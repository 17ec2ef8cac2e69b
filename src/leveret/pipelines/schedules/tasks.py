"""Spark tasks that talk to the broker for a schedule, so that the driver need not reach it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from leveret.client import BlockingChannel, StagesMissing
from leveret.pipelines.schedules.api import DelayedApi, slices
from leveret.spark.connection_cache import cached_connection
from leveret.spark.sink.connecting import connect

SLICE: Final = 20_000
"""Ids per call; their JSON stays below 10 MB even if all ids have the maximum length."""
FOUND: Final = "id STRING, found BOOLEAN"
POLL_S: Final = 0.05
CONNECTION: Final = "leveret spark schedule"


@dataclass(frozen=True)
class Retime:
    """Sets the time ``at_ms`` of each ``id``, and yields whether it was pending. For ``mapInArrow``."""

    api: DelayedApi

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for times in slices(_pairs(batches), SLICE):
            yield _answer(times, self.api.retime(times))


@dataclass(frozen=True)
class TakeBack:
    """Cancels messages by id, except those of the run ``but_of_run`` (None: all). For ``mapInArrow``."""

    api: DelayedApi
    but_of_run: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for ids in slices(_pairs(batches), SLICE):
            yield _answer(ids, self.api.cancel(list(ids), self.but_of_run))


@dataclass(frozen=True)
class Settled:
    """Waits until all published messages of the query are in their queues; returns whether the broker has stages.

    ``abort`` is the batch to give up, -1 for none; its stages that are not released are dropped.
    """

    url: str
    query: str
    abort: int = -1

    def __call__(self) -> int:
        with cached_connection(self.url, CONNECTION, connect) as connection:
            channel = connection.channel()
            try:
                return self._wait(channel)
            except StagesMissing:
                return 0
            finally:
                channel.close()

    def _wait(self, channel: BlockingChannel) -> int:
        if channel.staged(self.query) is not None and self.abort >= 0:
            channel.abort_stages(self.query, self.abort)
        # a released stage enters its queues in parts, and searches do not find its remaining messages
        while (known := channel.staged(self.query)) is not None and known["stages"]:
            time.sleep(POLL_S)
        return 1


@dataclass(frozen=True)
class Released:
    """Returns whether this batch of the query was released; if so, all of its messages exist, else none."""

    url: str
    query: str
    batch: int

    def __call__(self) -> int:
        with cached_connection(self.url, CONNECTION, connect) as connection:
            channel = connection.channel()
            try:
                known = channel.staged(self.query)
            except StagesMissing:
                return 0
            finally:
                channel.close()
        return int(known is not None and known["last_batch"] is not None and known["last_batch"] >= self.batch)


@dataclass(frozen=True)
class CancelAll:
    """Cancels all pending messages of a schedule, or counts them."""

    api: DelayedApi
    dry_run: bool

    def __call__(self) -> int:
        return self.api.cancel_all(self.dry_run)


@dataclass(frozen=True)
class ApiCheck:
    """Checks that the API exists and accepts the login."""

    api: DelayedApi

    def __call__(self) -> int:
        self.api.check()
        return 1


@dataclass(frozen=True)
class _Single:
    job: Callable[[], int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"value": pa.array([self.job()], pa.int64())})


def answer(spark: SparkSession, job: Callable[[], int]) -> int:
    """Run the job in one task and return its result."""
    rows = spark.range(0, 1, 1, 1).mapInArrow(_Single(job), "value BIGINT").collect()
    return int(rows[0].value)


def asked(rows: DataFrame, job: Retime | TakeBack, count: int) -> DataFrame:
    """Run the job on ``count`` rows (``id``, ``at_ms``), in as few calls as possible; returns whether each was
    found."""
    return rows.coalesce(1 + count // (4 * SLICE)).mapInArrow(job, FOUND)


def _pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int]]:
    for batch in batches:
        yield from zip(batch.column("id").to_pylist(), batch.column("at_ms").to_pylist(), strict=True)


def _answer(asked_for: dict[str, int], found: set[str]) -> pa.RecordBatch:
    ids = list(asked_for)
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.string()), "found": pa.array([i in found for i in ids])})
