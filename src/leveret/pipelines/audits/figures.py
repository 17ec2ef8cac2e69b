"""Aggregates over all messages: totals, figures by exchange and hour, and the data of the charts."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from leveret.pipelines.summary import Table

BINS_PER_DECADE: Final = 10
"""Resolution of the histograms of times, whose bins are logarithmic."""

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


def sums(messages: DataFrame) -> tuple[dict[str, Any], Table]:
    """Aggregate all messages, by the names of ``_SUMS``, and by broker, exchange and hour (UTC) of publishing.

    Messages for one queue, by the default exchange or a delay, are listed under that queue: ``→ notices``.
    """
    keys = ("broker", "exchange", "hour")
    hour = F.date_format(F.date_trunc("hour", "seen_at"), "yyyy-MM-dd HH:00")
    to_queue = F.concat(F.lit("→ "), "destination")
    named = messages.withColumns({"hour": hour, "exchange": F.coalesce(to_queue, "exchange")})
    groups = named.groupingSets([[], list(keys)], *keys)
    together = F.grouping_id(*keys).alias("is_all")
    found = groups.agg(together, *[F.expr(text).alias(name) for name, text in _SUMS.items()]).collect()
    total: dict[str, Any] = dict.fromkeys(_SUMS, 0)
    for row in found:
        if row["is_all"]:
            total = {name: row[name] for name in _SUMS}
    columns = (*keys, *BY_EXCHANGE)
    rows = sorted((tuple(row[name] for name in columns) for row in found if not row["is_all"]), key=str)
    return total, Table("by exchange and hour", columns, tuple(rows))


def findings(messages: DataFrame, most: int) -> Table:
    """Return the first messages of each kind of finding."""
    columns = ("finding", "message_id", "broker", "exchange", "routing_key", "published", "where")
    kinds = F.expr("array(IF(lost, 'lost', NULL), IF(duplicated, 'twice', NULL), IF(lateness_ms < 0, 'early', NULL))")
    where = (
        F.when(F.col("finding") == "lost", F.array_join("lost_in", ", "))
        .when(F.col("finding") == "twice", F.array_join("duplicated_in", ", "))
        .otherwise(F.concat(F.expr("round(-lateness_ms, 3)"), F.lit(" ms")))
    )
    line = Window.partitionBy("finding").orderBy("published_at", "message_id")
    first = (
        messages.withColumn("finding", F.explode(F.array_compact(kinds)))
        .withColumn("place", F.row_number().over(line))
        .where(F.col("place") <= most)
        .withColumn("where", where)
        .withColumn("published", F.date_format("published_at", "yyyy-MM-dd HH:mm:ss.SSSSSS"))
    )
    found = first.orderBy(F.expr("array_position(array('lost', 'twice', 'early'), finding)"), "place")
    rows = tuple(tuple(row) for row in found.select(*columns).collect())
    return Table(f"the first {most} of each finding", columns, rows)


def over_time(events: DataFrame, width_s: int) -> list[tuple[str, str, int, int]]:
    """Return broker, kind, start of an interval (seconds since 1970), and number of publishes or deliveries."""
    seen = events.where(F.col("kind").isin("publish", "deliver") & F.col("at").isNotNull())
    interval = (F.floor(F.unix_seconds("at") / width_s) * width_s).alias("interval")
    found = seen.groupBy("broker", "kind", interval).count().orderBy("broker", "kind", "interval").collect()
    return [(row[0], row[1], int(row[2]), row[3]) for row in found]


def histograms(messages: DataFrame) -> dict[str, list[tuple[str, int, int]]]:
    """Return the histograms of ``late``, ``reply`` and ``crossing`` times: group, bin and count.

    Bin n starts at 10^(n/10) ms; the first bin also has all shorter times. A crossing is the time from the publish
    where the message entered to the publish behind its first link.
    """
    late = F.struct(F.lit("late").alias("kind"), F.lit("all").alias("group"), F.col("lateness_ms").alias("ms"))
    reply = F.struct(F.lit("reply").alias("kind"), F.col("exchange").alias("group"), F.col("reply_ms").alias("ms"))
    crossings = F.expr(
        "transform(filter(hops, h -> h.upstream = broker), h -> struct('crossing' AS kind, "
        "concat(h.upstream, ' → ', h.broker) AS group, timestampdiff(MICROSECOND, published_at, h.at) / 1000e0 AS ms))"
    )
    times = messages.select(F.explode(F.concat(F.array(late, reply), crossings)).alias("t")).where("t.ms IS NOT NULL")
    place = F.floor(F.log10(F.greatest("t.ms", F.lit(0.001))) * BINS_PER_DECADE).cast("int").alias("bin")
    found = times.groupBy("t.kind", "t.group", place).count().orderBy("group", "bin").collect()
    bins: dict[str, list[tuple[str, int, int]]] = {"late": [], "reply": [], "crossing": []}
    for kind, *row in found:
        bins[kind].append((row[0], row[1], row[2]))
    return bins
