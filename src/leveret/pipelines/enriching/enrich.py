"""A stream, with what a service and other streams know, into a stream. docs/guides/spark/enrich.md."""

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
from leveret.pipelines.watch import WatchedQuery

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
    """Messages of a stream, joined with those of others and with replies of a service, into a stream: exactly once into
    leveret, at least once elsewhere.

    Args:
        events: the stream.
        into: the stream or queue that gets the results; with ``exchange`` their routing key, unless ``key`` makes it.
        url: the broker, as executors see it.
        checkpoint: a directory; the next run goes on from there.
        joins: other streams, in this order.
        service: what is asked about each event that is left.
        select: SQL expressions, with commas between them, that make the fields of the result's JSON; "" = all that is
            known, by the names of the streams and ``reply``. The result has the message id of the event.
        exchange: where results are published; "" = the default exchange.
        key: SQL that makes each result's routing key.
        on_error: ``fail``, or ``column``: what can't be parsed or gets no reply goes to the queue ``dead_letters``,
            with its old body and the reason in the header ``x-error``, and the others go on.
        follow: go on until the reporter asks for the end; else end with what is there.
        rows_max: of a micro-batch.

    Raises:
        PipelineError: what is wrong with the arguments, or why the query failed. Nothing is lost or twice by then.
    """
    began_s = time.monotonic()
    reporter = reporter if reporter is not None else Reporter()
    if on_error not in (FAILS, COLUMN) or (on_error == COLUMN) != bool(dead_letters):
        raise PipelineError("on_error is 'fail', or 'column' with a queue for dead_letters")
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
    notes = (f"What failed is in {dead_letters}, with the reason in the header x-error.",) if counting.dead else ()
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
        # no join keeps what can't be parsed, so it goes another way
        frame = frame.where(f"{ERROR} IS NULL OR {events.alias} IS NOT NULL")
        frame = frame.unionByName(whole.where(f"{ERROR} IS NOT NULL"), allowMissingColumns=True)
    return _insisting(frame) if fails else frame


def _insisting(frame: DataFrame) -> DataFrame:
    """The same; a row with an error fails its task."""
    text = F.concat(F.lit("message "), F.coalesce("message_id", F.lit("without an id")), F.lit(": "), F.col(ERROR))
    return frame.withColumn(ERROR, F.when(F.col(ERROR).isNotNull(), F.raise_error(text)).cast("string"))


def _results(
    frame: DataFrame, events: Events, joins: Sequence[Join], service: Service | None, select: str
) -> DataFrame:
    """With the column ``result``, a struct."""
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
    """Counts what a query has written, as its progress tells, while another reporter hears of it."""

    def __init__(self, query: StreamingQuery, reporter: Reporter) -> None:
        self._query = query
        self._reporter = reporter
        self._counts: dict[int, tuple[int, int]] = {}

    @property
    def is_ended(self) -> bool:
        return self._reporter.is_ended

    @property
    def rows(self) -> int:
        """Messages that were written, dead ones among them."""
        return sum(rows for rows, _ in self._counts.values())

    @property
    def dead(self) -> int:
        """Those that failed."""
        return sum(dead for _, dead in self._counts.values())

    def show(self, stage: str, done: int, total: int | None = None) -> None:
        self.look()
        self._reporter.show(stage, done, total)

    def look(self) -> None:
        """Spark keeps the progress of its last micro-batches only, so it is noted while it is there."""
        for progress in self._query.recentProgress:
            found = progress.observedMetrics.get(OBSERVED)
            if found is not None:
                self._counts[progress.batchId] = (found["rows"], found["dead"])
