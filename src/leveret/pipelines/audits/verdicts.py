"""The verdict on each message: a row for each, made of its places."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from leveret.pipelines.audits.places import KEY, PUBLISHED

DELIVERED, IN_STREAM, DEAD, EXPIRED, OPEN, UNCONFIRMED, WAITING, LOST = (
    "delivered", "in stream", "dead-lettered", "expired", "open", "unconfirmed", "waiting", "lost",
)  # fmt: skip
"""States of a message in a queue that it was routed to."""

_UNFLAGGED: Final = "filter(seen, d -> NOT d.redelivered)"
_TIMES: Final = f"""
greatest(
  size(array_distinct(transform(filter({_UNFLAGGED}, d -> d.offset IS NOT NULL), d -> d.offset))),
  coalesce(array_max(transform(filter({_UNFLAGGED}, d -> d.offset IS NULL), d ->
    size(filter({_UNFLAGGED}, other -> other.offset IS NULL AND other.deaths = d.deaths)))), 0))
"""
"""How often a queue had a message: deliveries without the redelivered flag after the same number of deaths, or distinct
offsets of a stream."""


def judged(places: DataFrame, end_us: int | None, grace_ms: int) -> DataFrame:
    """Return places with ``state``, null if the message was not expected there; LOST if nothing excuses its absence.

    ``end_us`` is the time of the last event, µs since 1970, None if events have no times. Messages published or due
    within ``grace_ms`` before it are OPEN.
    """
    end = F.timestamp_micros(F.lit(end_us).cast("bigint"))
    judged_at = F.timestamp_micros(F.lit(None if end_us is None else end_us - grace_ms * 1000).cast("bigint"))
    is_stream = F.col("is_told_stream") | F.col("is_kept").isNotNull()
    state = (
        F.when(F.col("place") == PUBLISHED, None)
        .when(F.size("seen") > 0, DELIVERED)
        .when(~F.col("is_expected"), None)
        .when(is_stream & ~F.coalesce("is_kept", F.lit(False)), IN_STREAM)
        .when(F.col("has_died"), DEAD)
        .when(~F.col("is_judged"), UNCONFIRMED)
        .when(F.col("expires_at") <= end, EXPIRED)
        .when(F.coalesce("due_at", "at") > judged_at, OPEN)
        .when(F.col("has_delay") & F.col("due_at").isNull(), OPEN)
        .otherwise(LOST)
    )
    delayed = places.withColumn("has_delay", F.col("delay_ms").isNotNull())
    return delayed.withColumn("state", state).withColumn("times", F.expr(_TIMES)).drop("has_delay", "is_kept")


def excused(places: DataFrame, waiting: DataFrame) -> DataFrame:
    """Mark missing messages as WAITING: the newest ones of a queue, as many as it still has.

    ``waiting`` has the columns ``broker``, ``place`` and ``count``.
    """
    missing = places.where(F.col("state") == LOST).join(F.broadcast(waiting), ["broker", "place"])
    line = Window.partitionBy("broker", "place").orderBy(F.desc("seq"), F.desc("at"))
    first = (
        missing.withColumn("rank", F.row_number().over(line))
        .where("rank <= count")
        .groupBy("broker", "place")
        .agg(F.min(F.struct("seq", "at")).alias("first"))
    )
    is_waiting = (F.col("state") == LOST) & (F.struct("seq", "at") >= F.col("first"))
    return (
        places.join(F.broadcast(first), ["broker", "place"], "left")
        .withColumn("state", F.when(is_waiting, WAITING).otherwise(F.col("state")))
        .drop("first")
    )


def messages(places: DataFrame) -> DataFrame:
    """Return a row for each message, as docs/guides/spark/audit.md describes it."""
    entry = F.struct(
        "at",
        "exchange",
        "routing_key",
        "publishes",
        "copies",
        "has_confirmed",
        "asked",
        "delay_ms",
        "due_at",
        "reply_ms",
        "queues",
    )
    grouped = places.groupBy(*KEY).agg(
        F.max(F.when((F.col("place") == PUBLISHED) & (F.col("publishes") > 0), entry)).alias("e"),
        F.min("reply_ms").alias("reply_ms"),
        F.collect_list(
            F.when(F.col("place") != PUBLISHED, F.struct("broker", "place", "state", "times", "seen"))
        ).alias("places"),
        F.min("at").alias("first_seen"),
    )
    is_link = "p.place LIKE 'federation: % -> %'"
    flat = (
        "array_sort(flatten(transform(filter(places, p -> NOT ({link})), p -> transform(p.seen, d -> "
        "struct(d.at AS at, p.broker AS broker, p.place AS queue, d.redelivered AS redelivered)))))"
    )
    hops = (
        "array_sort(flatten(transform(filter(places, p -> {link}), p -> transform(p.seen, d -> "
        "struct(d.at AS at, substring_index(p.place, ' -> ', -1) AS broker, p.broker AS upstream)))))"
    )
    where = "transform(filter(places, p -> {condition}), p -> concat(p.broker, ': ', p.place))"
    found = grouped.withColumns({
        "deliveries": F.expr(flat.format(link=is_link)),
        "hops": F.expr(hops.format(link=is_link)),
        "lost_in": F.expr(where.format(condition=f"p.state = '{LOST}'")),
        "duplicated_in": F.expr(where.format(condition="p.times > greatest(coalesce(e.copies, 1), 1)")),
    })  # fmt: skip
    is_to_queue = F.col("subject").startswith("@")
    states = "transform(filter(places, p -> p.state IS NOT NULL), p -> struct(p.broker, p.place, p.state))"
    delivered_at = F.expr("try_element_at(deliveries, 1).at")
    return found.select(
        F.col("id").alias("message_id"),
        F.col("origin").alias("broker"),
        F.coalesce("e.exchange", F.when(~is_to_queue, F.col("subject")), F.lit("")).alias("exchange"),
        F.col("e.routing_key").alias("routing_key"),
        F.when(is_to_queue, F.expr("substring(subject, 2)")).alias("destination"),
        F.col("e").isNotNull().alias("recorded"),
        F.col("e.at").alias("published_at"),
        F.coalesce("e.publishes", F.lit(0)).alias("publishes"),
        F.coalesce("e.copies", F.lit(0)).alias("copies"),
        F.when(F.col("e.has_confirmed"), True).when(F.col("e.asked") == F.col("e.publishes"), False).alias("confirmed"),
        F.col("e.queues").alias("queues"),
        F.expr(states).alias("places"),
        "deliveries", "hops",
        F.col("e.delay_ms").alias("delay_ms"), F.col("e.due_at").alias("due_at"), delivered_at.alias("delivered_at"),
        F.expr("timestampdiff(MICROSECOND, e.due_at, try_element_at(deliveries, 1).at) / 1000e0").alias("lateness_ms"),
        "reply_ms",
        (F.size("lost_in") > 0).alias("lost"), "lost_in",
        (F.size("duplicated_in") > 0).alias("duplicated"), "duplicated_in",
        F.coalesce("e.at", "first_seen").alias("seen_at"),
    )  # fmt: skip
