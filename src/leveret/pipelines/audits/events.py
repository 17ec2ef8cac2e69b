"""A firehose's events as rows: each a publish, a delivery, a confirm, or an arrival in an archived stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from leveret.pipelines.archives import lake
from leveret.pipelines.audits import delays
from leveret.pipelines.audits.recording import EXCHANGE, recorded_by
from leveret.pipelines.errors import PipelineError

PUBLISH, DELIVER, CONFIRM, ARRIVE = "publish", "deliver", "confirm", "arrive"

IDENTITIES: Final = ("message_id", "content")

_PROPERTIES: Final = (
    "message_id STRING, correlation_id STRING, reply_to STRING, app_id STRING, expiration STRING, "
    "headers MAP<STRING, STRING>"
)
_RECEIVED: Final = "ARRAY<STRUCT<uri: STRING, exchange: STRING, redelivered: BOOLEAN, `cluster-name`: STRING>>"
_DEATHS: Final = "ARRAY<STRUCT<queue: STRING, exchange: STRING, `routing-keys`: ARRAY<STRING>, count: BIGINT>>"
_RETRIES: Final = "NServiceBus.Retries"
_NEEDED: Final = {
    "body": "binary", "exchange": "string", "routing_key": "string", "headers": "map<string,string>",
    "correlation_id": "string", "reply_to": "string", "app_id": "string", "expiration": "string",
    "message_id": "string", "source": "string", "offset": "bigint", "arrived": "timestamp",
}  # fmt: skip


def events(
    spark: SparkSession,
    source: str | DataFrame,
    stream: str = "audit",
    *,
    identity: str = "message_id",
    delay_units_ms: Mapping[str, int] | None = None,
) -> DataFrame:
    """Return the events of a broker's firehose.

    Args:
        spark: the session.
        source: an AMQP URL to read the stream from (on RabbitMQ the queue, which keeps its messages); the path of a
            lake with the archived stream; or rows like those of a lake or of Spark's source ``leveret``. A result of
            this function is returned unchanged.
        stream: stream into which the firehose was recorded; other sources of a lake are skipped.
        identity: ``message_id``, or ``content`` to identify messages without id by their body.
        delay_units_ms: units of delay levels by prefix, unless they are seconds or those of ``nsb.ms``.

    Returns:
        A row for each event, with columns that only ``audit`` uses.

    Raises:
        PipelineError: ``identity`` is invalid, or the rows lack columns of messages.
    """
    if identity not in IDENTITIES:
        raise PipelineError(f"identity must be one of {', '.join(IDENTITIES)}")
    frame = rows(spark, source, stream)
    if is_events(frame):
        return frame
    told = frame.where(F.col("exchange") == EXCHANGE)
    return _described(_told(told), identity, delay_units_ms or {})


def arrivals(
    spark: SparkSession, source: str | DataFrame, *, identity: str, delay_units_ms: Mapping[str, int]
) -> DataFrame:
    """Return rows of archived streams as events: each message has arrived in its stream, at its offset."""
    frame = rows(spark, source, None)
    kept = frame.where((F.col("exchange") != EXCHANGE) & F.col("source").isNotNull())
    seen = kept.select(
        F.lit(ARRIVE).alias("kind"),
        F.col("offset").alias("seq"),
        F.col("arrived").alias("at"),
        *_nothing("node", "connection", "user", "outcome"),
        F.lit(None).cast("bigint").alias("channel"),
        F.col("exchange"),
        F.array("routing_key").alias("keys"),
        F.struct("message_id", "correlation_id", "reply_to", "app_id", "expiration", "headers").alias("p"),
        F.lit(None).cast("array<string>").alias("queues"),
        F.lit(None).cast("array<string>").alias("streams"),
        F.col("source").alias("queue"),
        F.lit(False).alias("redelivered"),
        *[F.lit(None).cast("bigint").alias(name) for name in ("tag", "first_tag", "last_tag")],
        F.lit(False).alias("is_provisional"),
        F.col("offset").alias("stream_offset"),
        F.col("body"),
    )
    return _described(seen, identity, delay_units_ms)


def rows(spark: SparkSession, source: str | DataFrame, stream: str | None) -> DataFrame:
    """Read messages of a stream over AMQP or from a lake, or take given rows; columns that a lake may lack are null."""
    if isinstance(source, str) and source.startswith(("amqp://", "amqps://")):
        if stream is None:
            raise PipelineError("a lake is a path, not a broker")
        columns = "body,exchange,routing_key,headers"
        if recorded_by(source) == "stream":
            options = {"stream": stream, "columns": f"{columns},offset,arrived"}
        else:
            # by mode=peek, the default: the messages stay
            options = {"queue": stream, "columns": f"{columns},delivery_tag"}
        frame = spark.read.format("leveret").options(url=source, **options).load()
        if "delivery_tag" in frame.columns:
            frame = frame.withColumnRenamed("delivery_tag", "offset")
    else:
        frame = lake.read(spark, source) if isinstance(source, str) else source
        if is_events(frame):
            return frame
        if stream is not None and "source" in frame.columns:
            frame = frame.where(F.col("source").isNull() | (F.col("source") == stream))
    missing = {"routing_key", "headers"} - set(frame.columns)
    if missing:
        raise PipelineError(f"these are not rows of messages: they lack the column {', '.join(sorted(missing))}")
    absent = {name: F.lit(None).cast(kind) for name, kind in _NEEDED.items() if name not in frame.columns}
    return frame.withColumns(absent) if absent else frame


def is_events(frame: DataFrame) -> bool:
    """Whether the frame is a result of ``events``."""
    return {"kind", "seq", "hops", "subject"} <= set(frame.columns)


def _told(rows: DataFrame) -> DataFrame:
    headers = F.col("headers")
    kind = F.substring_index("routing_key", ".", 1)
    rest = F.expr("substring(routing_key, locate('.', routing_key) + 1)")
    properties = F.from_json(headers["properties"], _PROPERTIES)
    micros = headers["timestamp_in_us"].try_cast("bigint")
    return rows.where(kind.isin(PUBLISH, DELIVER, CONFIRM)).select(
        kind.alias("kind"),
        F.col("offset").alias("seq"),
        F.coalesce(F.timestamp_micros(micros), F.col("arrived")).alias("at"),
        headers["node"].alias("node"),
        headers["connection"].alias("connection"),
        headers["user"].alias("user"),
        F.when(kind == CONFIRM, rest).alias("outcome"),
        headers["channel"].try_cast("bigint").alias("channel"),
        headers["exchange_name"].alias("exchange"),
        _texts(headers["routing_keys"]).alias("keys"),
        properties.alias("p"),
        _texts(headers["routed_queues"]).alias("queues"),
        _texts(headers["routed_streams"]).alias("streams"),
        F.when(kind == DELIVER, rest).alias("queue"),
        F.coalesce(headers["redelivered"].isin("1", "true"), F.lit(False)).alias("redelivered"),
        headers["publish_seq_no"].try_cast("bigint").alias("tag"),
        headers["first_seq_no"].try_cast("bigint").alias("first_tag"),
        headers["last_seq_no"].try_cast("bigint").alias("last_tag"),
        F.coalesce(headers["is_provisional"] == "true", F.lit(False)).alias("is_provisional"),
        properties["headers"]["x-stream-offset"].try_cast("bigint").alias("stream_offset"),
        F.col("body"),
    )


def _texts(column: Column) -> Column:
    """Parse a JSON array of texts; the usual ones, with one text or none, without a parser."""
    is_one = column.startswith('["') & (F.locate('"', column, 3) == F.length(column) - 1) & column.endswith('"]')
    one = F.array(F.substr(column, F.lit(3), F.length(column) - 4))
    return (
        F.when(column == "[]", F.array().cast("array<string>"))
        .when(is_one & ~column.contains("\\"), one)
        .otherwise(F.from_json(column, "ARRAY<STRING>"))
    )


def _described(told: DataFrame, identity: str, units_ms: Mapping[str, int]) -> DataFrame:
    """Derive a message's identity, origin and due time from its properties and headers.

    Its ``subject`` is where it was first published: the exchange, or the queue if that was the default exchange or a
    delay. Different messages may share an id, like a flight and the notice of it.
    """
    with_lists = told.withColumns(
        {
            "received": F.from_json(F.col("p.headers")["x-received-from"], _RECEIVED),
            "deaths": F.from_json(F.col("p.headers")["x-death"], _DEATHS),
        }
    )
    first_hop, first_death = F.expr("try_element_at(received, -1)"), F.expr("try_element_at(deaths, -1)")
    named = with_lists.withColumns(
        {
            "first_exchange": F.coalesce(first_hop["exchange"], first_death["exchange"], F.col("exchange")),
            "first_key": F.coalesce(
                F.expr("try_element_at(try_element_at(deaths, -1).`routing-keys`, 1)"),
                F.expr("try_element_at(keys, 1)"),
            ),
        }
    )
    exchange, key = F.col("first_exchange"), F.col("first_key")
    is_delayed = delays.in_levels(exchange, key)
    properties = F.col("p")
    ids = [properties["message_id"]]
    if identity == "content":
        ids.append(F.sha2(F.col("body"), 256))
    ids.append(F.concat_ws("#", properties["reply_to"], properties["correlation_id"]))
    is_call = properties["reply_to"].isNotNull() & properties["correlation_id"].isNotNull()
    ids[-1] = F.when(is_call, ids[-1])
    return named.select(
        "kind", "seq", "at", "node", "connection", "user", "outcome", "channel", "exchange", "queues", "streams",
        "queue", "redelivered", "tag", "first_tag", "last_tag", "is_provisional", "stream_offset",
        F.expr("try_element_at(keys, 1)").alias("routing_key"),
        F.when(F.col("kind") != CONFIRM, F.coalesce(*ids)).alias("id"),
        F.when(is_delayed, F.concat(F.lit("@"), delays.destination(key)))
        .when(exchange == "", F.concat(F.lit("@"), key))
        .otherwise(exchange).alias("subject"),
        F.when(is_delayed, delays.level_delay_ms(exchange, key, units_ms))
        .otherwise(delays.header_delay_ms(properties["headers"])).alias("delay_ms"),
        F.when(is_delayed, delays.destination(key)).alias("destination"),
        properties["headers"]["x-delay"].isNotNull().alias("is_scheduled"),
        properties["correlation_id"].alias("correlation_id"), properties["reply_to"].alias("reply_to"),
        properties["expiration"].try_cast("bigint").alias("expiration_ms"),
        properties["headers"][_RETRIES].alias("retries"),
        F.expr("transform(received, h -> struct(h.`cluster-name` AS cluster, h.exchange AS exchange, "
               "coalesce(h.redelivered, false) AS redelivered))").alias("hops"),
        F.expr("transform(deaths, d -> d.queue)").alias("died_in"),
        F.expr("coalesce(aggregate(deaths, 0L, (sum, d) -> sum + coalesce(d.count, 1L)), 0L)").alias("deaths"),
    )  # fmt: skip


def _nothing(*names: str) -> list[Column]:
    return [F.lit(None).cast("string").alias(name) for name in names]
