"""The pipeline ``enrich``: a stream, joined with replies of a service and with other streams. See
docs/guides/spark/enrich.md."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from leveret.pipelines.enriching.events import ERROR, Events, Join, joined, read
from leveret.pipelines.enriching.lookups import Service, lookups
from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.summary import Summary, Value
from leveret.pipelines.watch import WatchedQuery, observed

ROWS_MAX: Final = 50_000
OBSERVED: Final = "enriched"
FAILS: Final = "fail"
COLUMN: Final = "column"


def enrich(
    spark: SparkSession,
    events: Events,
    into: str,
    *,
    url: str,
    checkpoint: str | Path,
    joins: Sequence[Join] = (),
    service: Service | None = None,
    select: str = "",
    exchange: str = "",
    key: str = "",
    on_error: str = FAILS,
    dead_letters: str = "",
    follow: bool = False,
    rows_max: int = ROWS_MAX,
    dry_run: bool = False,
    reporter: Reporter | None = None,
) -> Summary:
    """Join messages of a stream with those of others and with replies of a service, and publish the results.

    Results are published exactly once into leveret, at least once elsewhere.

    Args:
        spark: the session.
        events: the stream.
        into: stream or queue for the results; with ``exchange`` their routing key, unless ``key`` is given.
        url: the broker, as executors reach it.
        checkpoint: a directory; the next run resumes from it.
        joins: other streams, joined in this order.
        service: the service to call for each event that is left after the joins.
        select: SQL expressions, separated by commas, for the fields of the result's JSON; "" for everything, by the
            names of the streams and ``reply``. A result has the message id of its event.
        exchange: where results are published; "" is the default exchange.
        key: SQL for each result's routing key.
        on_error: ``fail``, or ``column``: messages that cannot be parsed or get no reply go to the queue
            ``dead_letters``, unchanged but for the reason in the header ``x-error``, and the others go on.
        dead_letters: queue for failed messages.
        follow: go on until the reporter requests the end; otherwise end with the current messages.
        rows_max: rows of a micro-batch.
        dry_run: check the query, and start nothing.
        reporter: receives the progress.

    Raises:
        PipelineError: an argument is wrong, or the query failed. No message is lost or published twice by then.
    """
    began_s = time.monotonic()
    reporter = reporter if reporter is not None else Reporter()
    if on_error not in (FAILS, COLUMN) or (on_error == COLUMN) != bool(dead_letters):
        raise PipelineError("on_error must be 'fail', or 'column' with a queue for dead_letters")
    fails = on_error == FAILS
    frame = _enriched(spark, events, joins, service, url, rows_max, fails)
    results = _results(frame, events, joins, service, select)
    messages = _messages(results, into, exchange, key, "" if fails else dead_letters)
    if dry_run:
        return Summary("enrich", {"reads": events.stream, "into": into, "fields": _fields(results)}, is_dry=True)
    counted = messages.observe(OBSERVED, F.count("*").alias("rows"), F.count_if(F.col("is_dead")).alias("dead"))
    writer = counted.drop("is_dead").writeStream.format("leveret").queryName(f"enrich {events.alias}")
    writer = writer.options(url=url, checkpointLocation=str(checkpoint), contentType="application/json")
    reporter.phase(f"{events.stream} into {into}")
    try:
        query = (writer if follow else writer.trigger(availableNow=True)).start()
    except PySparkException as error:
        raise PipelineError(cause(error)) from error
    counting = _Counting(query, reporter)
    rows = WatchedQuery(query).run(counting, "rows read")
    counting.look()
    seconds = time.monotonic() - began_s
    figures: dict[str, Value] = {
        "rows_read": rows, "written": counting.rows - counting.dead, "dead_letters": counting.dead,
        "seconds": round(seconds, 1), "rows_per_second": round(rows / seconds, 1),
    }  # fmt: skip
    notes = (f"Failed messages are in {dead_letters}, with the reason in the header x-error.",) if counting.dead else ()
    return Summary("enrich", figures, notes=notes, adds_up=not counting.dead)


def _enriched(
    spark: SparkSession, events: Events, joins: Sequence[Join], service: Service | None, url: str, rows_max: int,
    fails: bool,
) -> DataFrame:  # fmt: skip
    frame = whole = read(spark, events, url, rows_max)
    for join in joins:
        frame = joined(frame, events, read(spark, join.events, url, rows_max), join)
    if fails:
        frame = _insisting(frame)
    if service is not None:
        frame = lookups(frame, service, url, fails)
    if joins and not fails:
        # joins drop messages that cannot be parsed, so these are added again
        frame = frame.where(f"{ERROR} IS NULL OR {events.alias} IS NOT NULL")
        frame = frame.unionByName(whole.where(f"{ERROR} IS NOT NULL"), allowMissingColumns=True)
    return _insisting(frame) if fails else frame


def _insisting(frame: DataFrame) -> DataFrame:
    """Make a row with an error fail its task."""
    text = F.concat(F.lit("message "), F.coalesce("message_id", F.lit("without an id")), F.lit(": "), F.col(ERROR))
    return frame.withColumn(ERROR, F.when(F.col(ERROR).isNotNull(), F.raise_error(text)).cast("string"))


def _results(
    frame: DataFrame, events: Events, joins: Sequence[Join], service: Service | None, select: str
) -> DataFrame:
    """Add the column ``result``, a struct."""
    known = [events.alias, *(join.events.alias for join in joins), *(["reply"] if service is not None else [])]
    try:
        return frame.selectExpr("*", f"struct({select or ', '.join(known)}) AS result")
    except PySparkException as error:
        raise PipelineError(f"select: {cause(error)}") from error


def _messages(results: DataFrame, into: str, exchange: str, key: str, dead_letters: str) -> DataFrame:
    is_dead = F.col(ERROR).isNotNull()
    try:
        return results.select(
            "message_id",
            F.when(is_dead, F.col("body")).otherwise(F.to_json("result").cast("binary")).alias("body"),
            F.when(is_dead, F.lit("")).otherwise(F.lit(exchange)).alias("exchange"),
            F.when(is_dead, F.lit(dead_letters))
            .otherwise(F.expr(key).cast("string") if key else F.lit(into))
            .alias("routing_key"),
            F.when(is_dead, F.create_map(F.lit("x-error"), F.col(ERROR))).alias("headers"),
            is_dead.alias("is_dead"),
        )
    except PySparkException as error:
        raise PipelineError(f"the routing key: {cause(error)}") from error


def _fields(results: DataFrame) -> str:
    return results.select("result").schema["result"].dataType.simpleString()


class _Counting(Reporter):
    """Counts what a query has written, from its progress, and passes reports on to another reporter."""

    def __init__(self, query: StreamingQuery, reporter: Reporter) -> None:
        self._query = query
        self._reporter = reporter
        self._counts: dict[int, tuple[int, int]] = {}

    @property
    def is_ended(self) -> bool:
        return self._reporter.is_ended

    @property
    def rows(self) -> int:
        """Number of messages written, including failed ones."""
        return sum(rows for rows, _ in self._counts.values())

    @property
    def dead(self) -> int:
        """Number of failed messages."""
        return sum(dead for _, dead in self._counts.values())

    def show(self, stage: str, done: int, total: int | None = None) -> None:
        self.look()
        self._reporter.show(stage, done, total)

    def look(self) -> None:
        """Note the observed counts, since Spark keeps the progress of the last micro-batches only."""
        for progress in self._query.recentProgress:
            found = observed(progress, OBSERVED)
            if found is not None:
                self._counts[progress.batchId] = (found["rows"], found["dead"])
