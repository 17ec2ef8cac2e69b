"""What people want to know of all messages: totals, per exchange and hour, and what pictures are drawn of."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leveret.pipelines.summary import Table

BINS_PER_DECADE: Final = 10
"""Histograms of times have logarithmic bins."""

_SUMS: Final = {
    "published": "count_if(recorded)",
    "confirmed": "count_if(confirmed)",
    "delivered": "count_if(size(deliveries) > 0)",
    "lost": "count_if(lost)",
    "duplicated": "count_if(duplicated)",
    "early": "count_if(lateness_ms < 0)",
    "repeated": "count_if(copies > 1)",
    "unrecorded": "count_if(NOT recorded)",
    "delayed": "count(due_at)",
    "calls": "count(reply_ms)",
    "late_p50_ms": "percentile_approx(lateness_ms, 0.5, 1000)",
    "late_p95_ms": "percentile_approx(lateness_ms, 0.95, 1000)",
    "late_p99_ms": "percentile_approx(lateness_ms, 0.99, 1000)",
    "late_max_ms": "max(lateness_ms)",
    "reply_p50_ms": "percentile_approx(reply_ms, 0.5, 1000)",
    "reply_p99_ms": "percentile_approx(reply_ms, 0.99, 1000)",
}

BY_EXCHANGE: Final = (
    "published", "confirmed", "delivered", "lost", "duplicated", "early",
    "late_p50_ms", "late_p95_ms", "late_p99_ms", "late_max_ms", "reply_p50_ms", "reply_p99_ms",
)  # fmt: skip


def totals(messages: DataFrame) -> dict[str, Any]:
    """All messages together, by the names of ``_SUMS``."""
    return messages.agg(*_sums(_SUMS)).collect()[0].asDict()


def by_exchange(messages: DataFrame) -> Table:
    """A row for each broker, exchange and hour (UTC) of publishing."""
    keys = ("broker", "exchange", "hour")
    hour = F.date_format(F.date_trunc("hour", "seen_at"), "yyyy-MM-dd HH:00")
    found = messages.groupBy("broker", "exchange", hour.alias("hour")).agg(*_sums(BY_EXCHANGE)).orderBy(*keys).collect()
    columns = (*keys, *BY_EXCHANGE)
    return Table("by exchange and hour", columns, tuple(tuple(row[name] for name in columns) for row in found))


def _sums(names: Any) -> list[Column]:
    return [F.expr(_SUMS[name]).alias(name) for name in names]


def findings(messages: DataFrame, most: int) -> Table:
    """The first messages of each kind of what is wrong."""
    wrong = (
        messages.withColumn(
            "findings",
            F.expr("filter(array(IF(lost, 'lost', NULL), IF(duplicated, 'twice', NULL), "
                "IF(lateness_ms < 0, 'early', NULL)), "
                   "f -> f IS NOT NULL)"),
        )
        .withColumn("finding", F.explode("findings"))
        .withColumn("where", F.expr(
            "CASE finding WHEN 'lost' THEN array_join(lost_in, ', ') WHEN 'twice' THEN array_join(duplicated_in, ', ') "
            "ELSE concat(round(-lateness_ms, 3), ' ms') END"
        ))
        .withColumn("published", F.date_format("published_at", "yyyy-MM-dd HH:mm:ss.SSSSSS"))
    )  # fmt: skip
    columns = ("finding", "message_id", "broker", "exchange", "routing_key", "published", "where")
    found: list[tuple[Any, ...]] = []
    for kind in ("lost", "twice", "early"):
        rows = wrong.where(F.col("finding") == kind).orderBy("published_at", "message_id").select(*columns).limit(most)
        found += [tuple(row) for row in rows.collect()]
    return Table(f"the first {most} of each finding", columns, tuple(found))


def per_minute(events: DataFrame) -> list[tuple[str, str, Any, int]]:
    """Broker, kind, minute and count of publishes and deliveries."""
    seen = events.where(F.col("kind").isin("publish", "deliver") & F.col("at").isNotNull())
    minute = F.unix_seconds(F.date_trunc("minute", "at")).alias("minute")
    found = seen.groupBy("broker", "kind", minute).count().orderBy("broker", "kind", "minute").collect()
    return [tuple(row) for row in found]


def histogram(frame: DataFrame, group: Column, value_ms: Column) -> list[tuple[str, int, int]]:
    """Group, bin and count; bin n holds what is from 10^(n/10) ms on, and the first one what is shorter."""
    place = F.floor(F.log10(F.greatest(value_ms, F.lit(0.001))) * BINS_PER_DECADE).cast("int").alias("bin")
    found = (
        frame.where(value_ms.isNotNull()).groupBy(group.alias("group"), place).count().orderBy("group", "bin").collect()
    )
    return [tuple(row) for row in found]


def crossings(messages: DataFrame) -> DataFrame:
    """Each hop of each message: ``link`` and ``ms`` from publish to publish; null where a publish is not recorded."""
    hop = messages.select("published_at", "broker", F.explode("hops").alias("hop"))
    first = hop.where(F.col("hop.upstream") == F.col("broker"))
    return first.select(
        F.concat("hop.upstream", F.lit(" → "), "hop.broker").alias("link"),
        F.expr("timestampdiff(MICROSECOND, published_at, hop.at) / 1000e0").alias("ms"),
    )
