"""Selects the rows of a replay from a lake or a stream, in their original order, ready to be published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from leveret.pipelines.archives import lake
from leveret.pipelines.errors import PipelineError, cause
from leveret.pipelines.loading import loaded
from leveret.spark.rows.columns import PROPERTIES, STREAM_SCHEMA

_NEEDED: Final = {
    "exchange": "string", "routing_key": "string",
    **{name: kind.simpleString() for name, (kind, _) in PROPERTIES.items()},
    "content_header": "binary", "source": "string", "broker": "string", "offset": "bigint", "batch": "bigint",
    "arrived": "timestamp", "archived": "timestamp",
}  # fmt: skip
"""Columns that rows may have; a missing one is null."""

_NOT_AS_TEXT: Final = ("CC", "BCC", "x-death")
"""Headers that brokers expect in another form than text; rows that have them only as text are sent without them."""


def of_lake(spark: SparkSession, path: str) -> DataFrame:
    """Return all rows of a lake, with the needed columns. ``PipelineError`` if it is unusable."""
    try:
        rows = lake.read(spark, path)
        missing = [name for name in _NEEDED if name not in rows.columns]
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"the lake {path} can't be read: {cause(error)}") from error
    if "body" not in rows.columns:
        raise PipelineError(f"{path} is not a lake of messages: it has no column body")
    return rows.withColumns({name: F.lit(None).cast(_NEEDED[name]) for name in missing})


def of_stream(spark: SparkSession, options: Mapping[str, str], with_times: bool) -> DataFrame:
    """Return the messages of a stream; ``options`` are those of the data source.

    ``with_times`` adds times of arrival, as far as sealed segments have them. Segments have no content_header, so this
    reads the stream a second time.
    """
    columns = [name for name in STREAM_SCHEMA.names if name != "arrived"]
    reader = spark.read.format("leveret").options(**options)
    rows = loaded(reader.option("columns", ",".join([*columns, "content_header"])), f"stream {options['stream']!r}")
    if with_times:
        times = spark.read.format("leveret").options(**options).option("columns", "stream,offset,arrived").load()
        rows = rows.join(times, ["stream", "offset"], "left")
    else:
        rows = rows.withColumn("arrived", F.lit(None).cast("timestamp"))
    rows = rows.withColumn("source", F.col("stream"))
    return rows.withColumns({name: F.lit(None).cast(_NEEDED[name]) for name in ("broker", "batch", "archived")})


def ordered(rows: DataFrame) -> DataFrame:
    """Sort rows in original order, and add ``due``, the time of their first appearance, in µs.

    Rows of one source are in order of offsets. Between sources times decide: a message counts as no earlier than those
    before it in its source, whatever its own time is.
    """
    time = F.unix_micros(F.coalesce("arrived", "timestamp", "archived"))
    place = [F.col(name).asc_nulls_first() for name in ("offset", "batch", "time")]
    so_far = Window.partitionBy("broker", "source").orderBy(*place).rowsBetween(Window.unboundedPreceding, 0)
    timed = rows.withColumn("time", time)
    timed = timed.withColumn("due", F.max("time").over(so_far))
    return timed.orderBy(F.col("due").asc_nulls_first(), "broker", "source", *place)


def published(rows: DataFrame, marker: str, name: str, routing_key: str | None) -> DataFrame:
    """Return rows as the replay's source reads them. A row with a content_header has no other properties but the
    marker."""
    has_header = F.col("content_header").isNotNull()
    mark: list[Column] = [F.lit(marker), F.lit(name)]
    # with a routing key for all, CC must not send a message elsewhere
    raw_headers = F.create_map(*mark, *([F.lit("CC"), F.lit(None)] if routing_key is not None else []))
    left_out = [*_NOT_AS_TEXT, marker]
    kept = F.map_filter(
        F.coalesce("headers", F.create_map().cast("map<string,string>")), lambda key, _: ~key.isin(left_out)
    )
    columns = [F.col("body"), F.col("exchange"), F.col("due")]
    columns.append(F.col("routing_key") if routing_key is None else F.lit(routing_key).alias("routing_key"))
    columns.append(F.when(has_header, raw_headers).otherwise(F.map_concat(kept, F.create_map(*mark))).alias("headers"))
    for column in PROPERTIES:
        if column not in ("headers", "user_id"):
            value = F.unix_seconds(column) if column == "timestamp" else F.col(column)
            columns.append(F.when(~has_header, value).alias(column))
    return rows.select(*columns, "content_header")
