"""Where each message should arrive, and where it did: a row for each message and queue, and one for its publishes.

A place is a queue of a broker, or a federation link. A link has the name of its upstream queue in RabbitMQ, with the
broker's name in place of the cluster's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from leveret.pipelines.audits.events import ARRIVE, CONFIRM, DELIVER, PUBLISH

KEY: Final = ("id", "subject", "origin")
"""What identifies a message: its id, where it was first published, and at which broker."""

PUBLISHED: Final = ""
"""The place that stands for a message's publishes."""

_LINK: Final = "federation: "
_FACTS: Final = {
    "broker": "string", "place": "string", "at": "timestamp", "seq": "bigint",
    # facts of a publish by which the message entered, and of each publish for each queue
    "copy": "bigint", "exchange": "string", "routing_key": "string", "confirmed": "boolean", "delay_ms": "bigint",
    "queues": "array<string>", "is_expected": "boolean", "is_judged": "boolean", "due_at": "timestamp",
    "expires_at": "timestamp", "is_stream": "boolean",
    # facts of a delivery or arrival
    "seen": "struct<at: timestamp, redelivered: boolean, deaths: bigint, offset: bigint>",
    "has_died": "boolean", "reply_ms": "double",
}  # fmt: skip


def confirmed(told: DataFrame) -> DataFrame:
    """Return the publishes with ``confirmed``: true, false if refused, null if no answer is recorded.

    The answer to a publish is the next event of its channel with its number: numbers, channels and connection names are
    reused, but not in between. A broker that dies may have sent answers that it has not recorded; what it recorded as
    published was on its disk.
    """
    publishes = told.where(F.col("kind") == PUBLISH)
    plain = publishes.where("tag IS NULL").withColumn("confirmed", F.lit(None).cast("boolean"))
    numbered = publishes.where("tag IS NOT NULL")
    answers = told.where((F.col("kind") == CONFIRM) & F.col("first_tag").isNotNull()).withColumn(
        "tag", F.explode(F.sequence("first_tag", "last_tag"))
    )
    line = Window.partitionBy("broker", "connection", "channel", "tag").orderBy("seq", "at", F.desc("kind"))
    answered = numbered.unionByName(answers).withColumn("confirmed", F.lead("outcome").over(line) == "ack")
    return plain.unionByName(answered.where(F.col("kind") == PUBLISH))


def named(told: DataFrame, brokers: Mapping[str, str]) -> DataFrame:
    """Return events with ``origin``, the broker where the message entered, and ``upstream`` and ``came_by``, the link
    that it came over. Queues of links are renamed after their brokers, by ``brokers``: names by cluster."""
    clusters = F.create_map(*[F.lit(text) for pair in brokers.items() for text in pair]) if brokers else None

    def broker_of(cluster: Column) -> Column:
        return F.coalesce(clusters[cluster], cluster) if clusters is not None else cluster

    oldest, newest = F.expr("try_element_at(hops, -1)"), F.expr("try_element_at(hops, 1)")
    upstream = broker_of(newest["cluster"])
    return told.withColumns({
        "origin": F.coalesce(broker_of(oldest["cluster"]), F.col("broker")),
        "upstream": upstream,
        "came_by": F.concat(F.lit(_LINK), newest["exchange"], F.lit(" -> "), F.col("broker")),
        "queue": _called(F.col("queue"), brokers),
        "queues": F.transform("queues", lambda queue: _called(queue, brokers)),
    })  # fmt: skip


def _called(queue: Column, brokers: Mapping[str, str]) -> Column:
    """Return a queue's name; an upstream queue of a link to an audited broker gets the link's name."""
    name = queue
    exchange = F.regexp_extract(queue, r"^federation: (.*) -> ", 1)
    for cluster, broker in brokers.items():
        behind = F.substring_index(queue, " -> ", -1)
        is_to = queue.startswith(_LINK) & ((behind == cluster) | behind.startswith(f"{cluster}:"))
        name = F.when(is_to, F.concat(F.lit(_LINK), exchange, F.lit(f" -> {broker}"))).otherwise(name)
    return name


def link_name(queue: str, brokers: Mapping[str, str]) -> str:
    """Return a queue's name like ``_called``, for one string."""
    middle, is_there, behind = queue.removeprefix(_LINK).rpartition(" -> ")
    if queue.startswith(_LINK) and is_there:
        for cluster, broker in brokers.items():
            if behind == cluster or behind.startswith(f"{cluster}:"):
                return f"{_LINK}{middle} -> {broker}"
    return queue


def places(told: DataFrame, audited: list[str], streams: DataFrame, replies: DataFrame) -> DataFrame:
    """Return a row for each message and place, and one with the place ``PUBLISHED`` for each message.

    Args:
        told: events as ``named`` returns them.
        audited: brokers whose firehoses are given.
        streams: queues that are streams: ``broker``, ``place``; ``is_kept`` if a lake has all their messages.
        replies: duration of requests, ``reply_ms`` by ``KEY``.
    """
    known = told.where("id IS NOT NULL")
    publishes = confirmed(known.where(F.col("kind") == PUBLISH).unionByName(told.where(F.col("kind") == CONFIRM)))
    deliveries = known.where(F.col("kind").isin(DELIVER, ARRIVE))
    links = [f" -> {broker}" for broker in audited]
    facts = [_entries(publishes, audited), _expected(publishes, deliveries), _crossings(publishes),
             _deliveries(deliveries, links), _deaths(deliveries), _replied(replies)]  # fmt: skip
    union = facts[0]
    for more in facts[1:]:
        union = union.unionByName(more)
    grouped = union.repartition(*KEY).groupBy(*KEY, "broker", "place").agg(
        F.min("at").alias("at"), F.max("seq").alias("seq"),
        F.count("copy").alias("publishes"), F.count_distinct("copy").alias("copies"),
        F.min_by("exchange", "at").alias("exchange"), F.min_by("routing_key", "at").alias("routing_key"),
        F.bool_or("confirmed").alias("has_confirmed"), F.count("confirmed").alias("asked"),
        F.max("delay_ms").alias("delay_ms"), F.max("queues").alias("queues"),
        F.coalesce(F.bool_or("is_expected"), F.lit(False)).alias("is_expected"),
        F.coalesce(F.bool_or("is_judged"), F.lit(False)).alias("is_judged"),
        F.max("due_at").alias("due_at"), F.max("expires_at").alias("expires_at"),
        F.coalesce(F.bool_or("is_stream"), F.lit(False)).alias("is_told_stream"),
        F.collect_list("seen").alias("seen"), F.coalesce(F.bool_or("has_died"), F.lit(False)).alias("has_died"),
        F.min("reply_ms").alias("reply_ms"),
    )  # fmt: skip
    return grouped.join(F.broadcast(streams), ["broker", "place"], "left")


def _fact(frame: DataFrame, place: Column | str, **columns: Column | str) -> DataFrame:
    values: dict[str, Column | str] = {"broker": "broker", "at": "at", "seq": "seq", **columns, "place": place}
    chosen = [
        (F.col(given) if isinstance(given := values[name], str) else given).cast(kind).alias(name)
        if name in values else F.lit(None).cast(kind).alias(name)
        for name, kind in _FACTS.items()
    ]  # fmt: skip
    return frame.select(*KEY, *chosen)


def _is_entry(audited: list[str]) -> Column:
    """Whether a publish is a message's first known one: not by a link, or from a broker without a firehose."""
    return F.col("upstream").isNull() | ~F.col("origin").isin(audited)


def _entries(publishes: DataFrame, audited: list[str]) -> DataFrame:
    # a publisher without an answer repeats a message on another connection; a delayed retry has another retry number
    copy = F.xxhash64("connection", "exchange", "routing_key", "retries")
    entered = publishes.where(_is_entry(audited))
    return _fact(entered, F.lit(PUBLISHED), broker="origin", copy=copy, exchange="exchange", routing_key="routing_key",
                 confirmed="confirmed", delay_ms="delay_ms", queues="queues", due_at=_due())  # fmt: skip


def _due() -> Column:
    return F.expr("timestampadd(MILLISECOND, delay_ms, at)")


def _expected(publishes: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Return each publish for each queue that it went to. In delay levels that is the destination; what a delayed
    exchange holds is expected where other messages with its key came out."""
    learned = deliveries.where("is_scheduled").groupBy("broker", "exchange", "routing_key").agg(
        F.collect_set("queue").alias("seen_queues")
    )  # fmt: skip
    known = publishes.where("NOT is_scheduled").withColumn(
        "to",
        F.when(F.col("destination").isNotNull() & (F.size("queues") > 0), F.array("destination")).otherwise(
            F.col("queues")
        ),
    )
    scheduled = publishes.where("is_scheduled").join(learned, ["broker", "exchange", "routing_key"], "left")
    held = scheduled.withColumn(
        "to", F.when(F.size("queues") > 0, F.col("queues")).otherwise(F.col("seen_queues"))
    ).drop("seen_queues")  # fmt: skip
    each = (
        known.unionByName(held)
        .withColumn("to", F.explode("to"))
        .where(~F.col("to").startswith("amq.rabbitmq.reply-to"))
    )
    is_judged = F.coalesce(F.col("confirmed"), F.lit(True)) & ~F.col("is_provisional")
    return _fact(each, "to", is_expected=F.lit(True), is_judged=is_judged, delay_ms="delay_ms", due_at=_due(),
                 expires_at=F.expr("timestampadd(MILLISECOND, expiration_ms, at)"),
                 is_stream=F.array_contains("streams", F.col("to")))  # fmt: skip


def _crossings(publishes: DataFrame) -> DataFrame:
    """Return arrivals over links: the message has arrived when it is published on the other side."""
    crossed = publishes.where("upstream IS NOT NULL")
    return _fact(crossed, "came_by", broker="upstream", seq=F.lit(None), seen=_seen(F.expr("hops[0].redelivered")))


def _deliveries(deliveries: DataFrame, links: list[str]) -> DataFrame:
    own = F.lit(True)
    for link in links:
        own &= ~(F.col("queue").startswith(_LINK) & F.col("queue").endswith(link))
    return _fact(deliveries.where(own), "queue", seq=F.lit(None), seen=_seen(F.col("redelivered")),
                 is_stream=F.col("stream_offset").isNotNull())  # fmt: skip


def _deaths(deliveries: DataFrame) -> DataFrame:
    """Return the queues that a message has left as a dead letter, by its death history."""
    dead = deliveries.where("died_in IS NOT NULL").withColumn("died", F.explode("died_in"))
    return _fact(dead, "died", seq=F.lit(None), has_died=F.lit(True))


def _seen(redelivered: Column) -> Column:
    return F.struct("at", redelivered.alias("redelivered"), "deaths", F.col("stream_offset").alias("offset"))


def _replied(replies: DataFrame) -> DataFrame:
    return _fact(replies, F.lit(PUBLISHED), broker="origin", at=F.lit(None), seq=F.lit(None), reply_ms="reply_ms")


def replies(told: DataFrame) -> DataFrame:
    """Return answered requests: ``KEY`` and ``reply_ms``, from the publish of a request to that of its first reply,
    which goes by the default exchange to the queue named in the request, with its correlation id."""
    asked = told.where((F.col("kind") == PUBLISH) & F.col("reply_to").isNotNull() & F.col("correlation_id").isNotNull())
    said = told.where(
        (F.col("kind") == PUBLISH) & (F.col("exchange") == "") & F.col("correlation_id").isNotNull()
    ).select("broker", F.col("routing_key").alias("reply_to"), "correlation_id", F.col("at").alias("said_at"))
    ms = F.expr("timestampdiff(MICROSECOND, at, said_at) / 1000e0")
    return asked.where("id IS NOT NULL").join(said, ["broker", "reply_to", "correlation_id"]).groupBy(*KEY).agg(
        F.min(ms).alias("reply_ms")
    )  # fmt: skip
