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
    # a publish has one number, an answer a range of them, each null without numbers
    numbers = F.when(F.col("kind") == CONFIRM, F.sequence("first_tag", "last_tag")).when(
        (F.col("kind") == PUBLISH) & F.col("tag").isNotNull(), F.array("tag")
    )
    line = Window.partitionBy("broker", "connection", "channel", "tag").orderBy("seq", "at", F.desc("kind"))
    numbered = told.where(F.col("kind").isin(PUBLISH, CONFIRM)).withColumn("tag", F.explode(numbers))
    answered = numbered.withColumn("confirmed", F.lead("outcome").over(line) == "ack")
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


def places(
    told: DataFrame, audited: list[str], streams: DataFrame, replies: DataFrame, has_scheduled: bool
) -> DataFrame:
    """Return a row for each message and place, and one with the place ``PUBLISHED`` for each message.

    Args:
        told: events as ``named`` returns them.
        audited: brokers whose firehoses are given.
        streams: queues that are streams: ``broker``, ``place``; ``is_kept`` if a lake has all their messages.
        replies: duration of requests, ``reply_ms`` by ``KEY``.
        has_scheduled: whether there are publishes to a delayed exchange.
    """
    publishes = confirmed(told.where((F.col("kind") == CONFIRM) | F.col("id").isNotNull()))
    deliveries = told.where(F.col("kind").isin(DELIVER, ARRIVE) & F.col("id").isNotNull())
    links = [f" -> {broker}" for broker in audited]
    if has_scheduled:
        publishes = _with_seen_queues(publishes, deliveries)
    else:
        publishes = publishes.withColumn("seen_queues", F.lit(None).cast("array<string>"))
    of_publishes = _facts(publishes, _entry(audited), _expected(), _crossing())
    of_deliveries = _facts(deliveries, _delivery(links), _death())
    union = of_publishes.unionByName(of_deliveries).unionByName(_facts(replies, _reply()))
    grouped = union.repartition(*KEY).groupBy(*KEY, "broker", "place").agg(
        F.min("at").alias("at"), F.max("seq").alias("seq"),
        F.count("copy").alias("publishes"), F.size(F.collect_set("copy")).cast("bigint").alias("copies"),
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


_Fact = tuple[Column, dict[str, Column | str]]
"""The places that a row has something to say about, an array or null, and the columns of what it says."""


def _facts(rows: DataFrame, *facts: _Fact) -> DataFrame:
    """Return a row for each fact and place; the rows are read once."""
    listed = [
        F.coalesce(_numbered(number, places), F.array().cast("array<struct<number: int, place: string>>"))
        for number, (places, _) in enumerate(facts)
    ]
    each = rows.withColumn("fact", F.explode(F.concat(*listed)))
    defaults: dict[str, Column | str] = {name: name for name in ("broker", "at", "seq") if name in rows.columns}
    columns = [{**defaults, **told, "place": "fact.place"} for _, told in facts]
    return each.select(*KEY, *[_chosen(name, columns).cast(kind).alias(name) for name, kind in _FACTS.items()])


def _numbered(number: int, places: Column) -> Column:
    return F.transform(places, lambda place: F.struct(F.lit(number).alias("number"), place.alias("place")))


def _chosen(name: str, facts: list[dict[str, Column | str]]) -> Column:
    """Return a column's value in the fact of this row."""
    found = F.lit(None)
    for number, columns in enumerate(facts):
        given = columns.get(name)
        if given is not None:
            value = F.col(given) if isinstance(given, str) else given
            found = F.when(F.col("fact.number") == number, value.cast(_FACTS[name])).otherwise(found)
    return found


def _is_entry(audited: list[str]) -> Column:
    """Whether a publish is a message's first known one: not by a link, or from a broker without a firehose."""
    return F.col("upstream").isNull() | ~F.col("origin").isin(audited)


def _entry(audited: list[str]) -> _Fact:
    # a publisher without an answer repeats a message on another connection; a delayed retry has another retry number
    copy = F.xxhash64("connection", "exchange", "routing_key", "retries")
    names = ("exchange", "routing_key", "confirmed", "delay_ms", "queues")
    return F.when(_is_entry(audited), F.array(F.lit(PUBLISHED))), {
        "broker": "origin", "copy": copy, "due_at": _due(), **{name: name for name in names},
    }  # fmt: skip


def _due() -> Column:
    return F.expr("timestampadd(MILLISECOND, delay_ms, at)")


def _with_seen_queues(publishes: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Add to publishes to a delayed exchange the queues where other messages with their key came out."""
    seen = deliveries.where("is_scheduled").groupBy("broker", "exchange", "routing_key").agg(
        F.collect_set("queue").alias("seen_queues")
    )  # fmt: skip
    held = publishes.where("is_scheduled").join(seen, ["broker", "exchange", "routing_key"], "left")
    known = publishes.where("NOT is_scheduled").withColumn("seen_queues", F.lit(None).cast("array<string>"))
    return known.unionByName(held)


def _expected() -> _Fact:
    """A publish for each queue that it went to. In delay levels that is the destination; what a delayed exchange holds
    is expected where other messages with its key came out."""
    is_routed = F.size("queues") > 0
    held = F.when(is_routed, F.col("queues")).otherwise(F.col("seen_queues"))
    in_levels = F.col("destination").isNotNull() & is_routed
    sent = F.when(in_levels, F.array("destination")).otherwise(F.col("queues"))
    queues = F.when(F.col("is_scheduled"), held).otherwise(sent)
    is_judged = F.coalesce(F.col("confirmed"), F.lit(True)) & ~F.col("is_provisional")
    return F.filter(queues, lambda queue: ~queue.startswith("amq.rabbitmq.reply-to")), {
        "is_expected": F.lit(True), "is_judged": is_judged, "delay_ms": "delay_ms", "due_at": _due(),
        "expires_at": F.expr("timestampadd(MILLISECOND, expiration_ms, at)"),
        "is_stream": F.array_contains("streams", F.col("fact.place")),
    }  # fmt: skip


def _crossing() -> _Fact:
    """An arrival over a link: the message has arrived when it is published on the other side."""
    return F.when(F.col("upstream").isNotNull(), F.array("came_by")), {
        "broker": "upstream", "seq": F.lit(None), "seen": _seen(F.expr("try_element_at(hops, 1).redelivered")),
    }  # fmt: skip


def _delivery(links: list[str]) -> _Fact:
    own = F.lit(True)
    for link in links:
        own &= ~(F.col("queue").startswith(_LINK) & F.col("queue").endswith(link))
    return F.when(own, F.array("queue")), {
        "seq": F.lit(None), "seen": _seen(F.col("redelivered")), "is_stream": F.col("stream_offset").isNotNull(),
    }  # fmt: skip


def _death() -> _Fact:
    """The queues that a message has left as a dead letter, by its death history."""
    return F.col("died_in"), {"seq": F.lit(None), "has_died": F.lit(True)}


def _reply() -> _Fact:
    return F.array(F.lit(PUBLISHED)), {"broker": "origin", "reply_ms": "reply_ms"}


def _seen(redelivered: Column) -> Column:
    return F.struct("at", redelivered.alias("redelivered"), "deaths", F.col("stream_offset").alias("offset"))


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
