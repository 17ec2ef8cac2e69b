"""The pipeline ``audit``: what became of each message on several brokers, by their firehoses."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from leveret.pipelines.audits import figures, recording, verdicts
from leveret.pipelines.audits import places as tracks
from leveret.pipelines.audits import report as reports
from leveret.pipelines.audits import table as tables
from leveret.pipelines.audits.events import CONFIRM, DELIVER, PUBLISH, arrivals, events
from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.reporter import Reporter
from leveret.pipelines.summary import Summary, Table, Value

KINDS: Final = (PUBLISH, CONFIRM, DELIVER)

REPLY_TO: Final = "amq.rabbitmq.reply-to."
"""Prefix of routing keys of direct replies, which belong to their requests."""

FINDINGS_MAX: Final = 100
"""Findings of each kind that the summary lists; the table has all."""


@dataclass(frozen=True)
class Recording:
    """Totals of a broker's recorded firehose.

    Attributes:
        broker: its name in the audit.
        nodes: the broker's own names, which links use.
        events: number of events by kind.
        begun_us, ended_us: times of the first and last event, µs since 1970; None if events have no times.
        streams: queues that are streams.
        anonymous: publishes without any identity, except direct replies.
        scheduled: number of publishes to a delayed exchange.
    """

    broker: str
    nodes: tuple[str, ...]
    events: dict[str, int]
    begun_us: int | None
    ended_us: int | None
    streams: tuple[str, ...]
    anonymous: int
    scheduled: int


def audit(
    spark: SparkSession,
    firehoses: Mapping[str, str | DataFrame],
    *,
    lakes: Mapping[str, str | DataFrame | Sequence[str | DataFrame]] | None = None,
    waiting: Mapping[tuple[str, str], int] | None = None,
    brokers: Mapping[str, str] | None = None,
    table: str | None = None,
    report: str | None = None,
    stream: str = "audit",
    identity: str = "message_id",
    clusters: Mapping[str, str] | None = None,
    delay_units_ms: Mapping[str, int] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    grace_ms: int = 0,
    dry_run: bool = False,
    reporter: Reporter = Reporter(),  # noqa: B008  (it has no state)
) -> Summary:
    """Find out what became of each message. docs/guides/spark/audit.md defines lost, duplicated and early messages.

    Args:
        spark: the session.
        firehoses: by broker's name, its recorded firehose: an AMQP URL, the path of a lake, rows of messages, or the
            result of ``events``.
        lakes: by broker's name, archived streams: exactly the messages in them have arrived.
        waiting: number of messages still in a queue, by broker and queue; that many are not lost.
        brokers: by broker's name, the AMQP URL to ask for the number of messages in its queues.
        table: directory for a Parquet table with a row per message; an existing table is replaced.
        report: file for the report, as HTML.
        stream: stream into which firehoses were recorded.
        identity: ``message_id`` or ``content``.
        clusters: names of brokers by cluster name, if links use another name than the firehose.
        delay_units_ms: units of delay levels by prefix, unless they are seconds or those of ``nsb.ms``.
        since: judge messages published from this time on, which has a zone.
        until: judge messages published before this time, which has a zone.
        grace_ms: messages published or due in this period before the last event are not judged yet.
        dry_run: tell what there is to audit, and change nothing.
        reporter: receives the progress.

    Returns:
        Figures and tables; ``adds_up`` is false if a message is lost, duplicated or early.

    Raises:
        PipelineError: there is nothing to audit, it cannot be read, or the results cannot be written.
    """
    began_s = time.monotonic()
    if not firehoses:
        raise PipelineError("there is nothing to audit: name at least one broker and the recording of its firehose")
    for name, limit in (("since", since), ("until", until)):
        if limit is not None and limit.tzinfo is None:
            raise PipelineError(f"{name}: {limit.isoformat()} needs a time zone, as in {limit.isoformat()}+00:00")
    strangers = sorted(
        ({broker for broker, _ in waiting or {}} | set(lakes or {}) | set(brokers or {})) - set(firehoses)
    )
    if strangers:
        raise PipelineError(f"there is no firehose of broker {', '.join(strangers)}")
    units_ms = delay_units_ms or {}
    reporter.phase("reading the recordings of the firehoses: " + ", ".join(firehoses))
    try:
        told = _union([
            events(spark, source, stream, identity=identity, delay_units_ms=units_ms).withColumn("broker", F.lit(name))
            for name, source in firehoses.items()
        ])  # fmt: skip
        kept = [
            arrivals(spark, source, identity=identity, delay_units_ms=units_ms).withColumn("broker", F.lit(broker))
            for broker, sources in (lakes or {}).items()
            for source in ([sources] if isinstance(sources, (str, DataFrame)) else sources)
        ]  # fmt: skip
        # cached as columns, so that recordings are read and parsed once, and each of many passes reads what it needs
        with _cached(_union([told, *kept])) as everything:
            recordings = _recordings(everything, list(firehoses))
            if dry_run:
                return _planned(recordings)
            counts = dict(waiting or {}) | _asked(everything, brokers or {}, reporter)
            reporter.phase("following the messages")
            followed = _messages(spark, everything, recordings, lakes or {}, counts, clusters or {}, grace_ms)
            with _cached(followed.where(_published(since, until))) as messages:
                return _told(everything, messages, recordings, table, report, reporter, began_s)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"the audit failed: {cause(error)}") from error


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows on the executors' disks while the block runs."""
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def _union(frames: list[DataFrame]) -> DataFrame:
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionByName(frame)
    return union


def _recordings(everything: DataFrame, brokers: list[str]) -> list[Recording]:
    is_told = F.col("kind") != "arrive"
    queue = F.when(F.col("stream_offset").isNotNull() & is_told, F.col("queue"))
    is_reply = F.coalesce(F.col("routing_key").startswith(REPLY_TO), F.lit(False))
    found = everything.groupBy("broker").agg(
        F.sort_array(F.collect_set("node")).alias("nodes"),
        *[F.count_if(F.col("kind") == kind).alias(kind) for kind in KINDS],
        F.unix_micros(F.min(F.when(is_told, F.col("at")))).alias("begun_us"),
        F.unix_micros(F.max(F.when(is_told, F.col("at")))).alias("ended_us"),
        F.collect_set(queue).alias("read"), F.flatten(F.collect_set("streams")).alias("routed"),
        F.count_if((F.col("kind") == PUBLISH) & F.col("id").isNull() & ~is_reply).alias("anonymous"),
        F.count_if((F.col("kind") == PUBLISH) & F.col("is_scheduled")).alias("scheduled"),
    ).collect()  # fmt: skip
    rows = {row["broker"]: row for row in found}
    empty = [broker for broker in brokers if broker not in rows or not any(rows[broker][kind] for kind in KINDS)]
    if empty:
        raise PipelineError(
            f"the firehose of {', '.join(empty)} recorded nothing: was it on (leveret ctl trace_on) and recorded "
            "(leveret spark audit --record URL)?"
        )
    return [
        Recording(
            broker, tuple(row["nodes"]), {kind: row[kind] for kind in KINDS}, row["begun_us"], row["ended_us"],
            tuple(sorted({*row["read"], *row["routed"]})), row["anonymous"], row["scheduled"],
        )
        for broker in brokers for row in [rows[broker]]
    ]  # fmt: skip


def _asked(everything: DataFrame, brokers: Mapping[str, str], reporter: Reporter) -> dict[tuple[str, str], int]:
    """Ask brokers for the number of messages in the queues that messages were routed to."""
    if not brokers:
        return {}
    reporter.phase("asking for the waiting messages at " + ", ".join(brokers))
    routed = everything.where((F.col("kind") == PUBLISH) & F.col("broker").isin(*brokers)).select(
        "broker", F.explode(F.concat("queues", F.array_compact(F.array("destination")))).alias("queue")
    )
    queues: dict[str, list[str]] = {}
    for row in routed.distinct().collect():
        queues.setdefault(row["broker"], []).append(row["queue"])
    return {
        (broker, queue): count
        for broker, url in brokers.items()
        for queue, count in recording.waiting(url, sorted(queues.get(broker, ()))).items()
    }


def _messages(
    spark: SparkSession,
    everything: DataFrame,
    recordings: Sequence[Recording],
    lakes: Mapping[str, Any],
    waiting: Mapping[tuple[str, str], int],
    clusters: Mapping[str, str],
    grace_ms: int,
) -> DataFrame:
    """Return a row for each message."""
    audited = [one.broker for one in recordings]
    brokers = {node: one.broker for one in recordings for node in one.nodes} | dict(clusters)
    named = tracks.named(everything, brokers)
    replies = tracks.replies(named)
    streams = _streams(spark, everything, recordings, lakes)
    found = tracks.places(named, audited, streams, replies, any(one.scheduled for one in recordings))
    if waiting:
        found = found.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
    ends_us = [one.ended_us for one in recordings if one.ended_us is not None]
    judged = verdicts.judged(found, max(ends_us, default=None), grace_ms)
    if waiting:
        rows = [
            (broker, tracks.link_name(queue, brokers), count) for (broker, queue), count in waiting.items() if count
        ]
        judged = verdicts.excused(judged, spark.createDataFrame(rows, "broker STRING, place STRING, count INT"))
    return verdicts.messages(judged)


def _streams(
    spark: SparkSession, everything: DataFrame, recordings: Sequence[Recording], lakes: Mapping[str, Any]
) -> DataFrame:
    """Return which queues are streams, and whether a lake has all their messages."""
    kept: set[tuple[str, str]] = set()
    if lakes:
        arrived = everything.where("kind = 'arrive' AND stream_offset IS NOT NULL")
        kept = {(row["broker"], row["queue"]) for row in arrived.select("broker", "queue").distinct().collect()}
    told = {(one.broker, stream) for one in recordings for stream in one.streams}
    rows = [(broker, stream, (broker, stream) in kept) for broker, stream in sorted(told | kept)]
    return spark.createDataFrame(rows, "broker STRING, place STRING, is_kept BOOLEAN")


def _published(since: datetime | None, until: datetime | None) -> Any:
    chosen = F.lit(True)
    if since is not None:
        chosen &= F.col("seen_at") >= F.lit(since)
    if until is not None:
        chosen &= F.col("seen_at") < F.lit(until)
    return chosen


def _told(
    everything: DataFrame,
    messages: DataFrame,
    recordings: Sequence[Recording],
    table: str | None,
    report: str | None,
    reporter: Reporter,
    began_s: float,
) -> Summary:
    total, by_exchange = figures.sums(messages)
    summary = _summary(total, recordings, by_exchange, figures.findings(messages, FINDINGS_MAX))
    notes = list(summary.notes)
    if table is not None:
        reporter.phase(f"writing {table}")
        tables.replace(messages.drop("seen_at"), table)
        notes.append(f"A row for each message: {table}")
    if report is not None:
        reporter.phase(f"drawing {report}")
        times = figures.histograms(messages)
        width_s = _width_s(recordings)
        intervals = figures.over_time(everything, width_s)
        pictures = reports.Pictures(width_s, intervals, times["late"], times["reply"], times["crossing"])
        reports.write(report, replace(summary, notes=tuple(notes)), pictures)
        notes.append(f"The report: {report}")
    seconds = round(time.monotonic() - began_s, 1)
    return replace(summary, figures={**summary.figures, "seconds": seconds}, notes=tuple(notes))


def _width_s(recordings: Sequence[Recording]) -> int:
    """Return the interval of the chart over time, in seconds: a second, minute or hour, so that there are not too
    many."""
    spans_us = [one.ended_us - one.begun_us for one in recordings if one.ended_us and one.begun_us]
    span_s = max(spans_us, default=0) / 1e6
    return 1 if span_s <= 600 else 60 if span_s <= 48 * 3600 else 3600


def _summary(total: Mapping[str, Any], recordings: Sequence[Recording], by_exchange: Table, findings: Table) -> Summary:
    wrong = {name: int(total[name]) for name in ("lost", "duplicated", "early")}
    counted = ("published", "confirmed", "delivered", *wrong, "repeated", "unrecorded", "delayed", "calls")
    numbers: dict[str, Value] = {
        "brokers": len(recordings),
        "events": sum(sum(one.events.values()) for one in recordings),
    }
    numbers |= {name: int(total[name]) for name in counted}
    numbers |= {name: total[name] for name in total if name.endswith("_ms") and total[name] is not None}
    notes = []
    if any(wrong.values()):
        notes.append("Problems found: " + ", ".join(f"{count} {name}" for name, count in wrong.items() if count) + ".")
    anonymous = sum(one.anonymous for one in recordings)
    if anonymous:
        notes.append(
            f"{anonymous} publishes have no message_id and could not be followed; with identity=content they are "
            "identified by their bodies."
        )
    if total["unrecorded"]:
        notes.append(
            f"{total['unrecorded']} messages were seen although no firehose recorded their publish: it was off, or not "
            "recorded. They are not checked at the place where they entered."
        )
    timeless = [one.broker for one in recordings if one.ended_us is None]
    if timeless:
        notes.append(
            f"The firehose of {', '.join(timeless)} has no times, so there is no lateness and nothing by hour."
        )
    unasked = [one.broker for one in recordings if not one.events["confirm"]]
    if unasked:
        notes.append(f"The firehose of {', '.join(unasked)} has no confirms, so every published message counts.")
    return Summary("audit", numbers, (by_exchange, findings), tuple(notes), adds_up=not any(wrong.values()))


def _planned(recordings: Sequence[Recording]) -> Summary:
    columns = ("broker", "calls itself", *KINDS, "from", "to")
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (one.broker, ", ".join(one.nodes), *one.events.values(), _time(one.begun_us), _time(one.ended_us))
        for one in recordings
    )
    total = sum(sum(one.events.values()) for one in recordings)
    return Summary(
        "audit", {"brokers": len(recordings), "events": total}, (Table("firehoses", columns, rows),), is_dry=True
    )


def _time(us: int | None) -> str:
    return "" if us is None else datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
