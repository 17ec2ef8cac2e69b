"""Messages of a stream as events: parsed, with a time, and joined with those of other streams."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leveret.pipelines.errors import PipelineError, cause

__all__ = ["Events", "Join", "joined", "read"]

ERROR: Final = "error"
"""The column with the reason why a message cannot be enriched, null for all others."""
CORRUPT: Final = "_corrupt"
HOW: Final = ("inner", "left_outer")


@dataclass(frozen=True)
class Events:
    """A stream of JSON bodies.

    Attributes:
        schema: fields of the bodies, as Spark DDL.
        time: SQL for the time of an event.
        late: how late an event may be compared with others, like ``10 minutes``, to be joined.
        name: name of the event in SQL; "" for the stream's name, with ``_`` for other characters than letters and
            digits.
    """

    stream: str
    schema: str
    time: str = ""
    late: str = "0 seconds"
    name: str = ""

    @property
    def alias(self) -> str:
        """The name of the event in SQL."""
        return self.name or re.sub(r"\W", "_", self.stream)

    @property
    def time_column(self) -> str:
        """The column with the event's time."""
        return f"{self.alias}_time"


@dataclass(frozen=True)
class Join:
    """A stream to join.

    Attributes:
        on: SQL condition on both events, with an equality.
        within: largest difference between the times of both, like ``10 minutes``.
        how: ``inner``, or ``left_outer``, which keeps an event alone when it is too late for a match.
    """

    events: Events
    on: str
    within: str
    how: str = "inner"


def read(spark: SparkSession, events: Events, url: str, rows_max: int, **options: str) -> DataFrame:
    """Return a stream as a streaming frame.

    It has ``message_id``, ``body``, the event as a struct by its name (null if the body does not parse; then ``error``
    tells so), and its time with a watermark, if it has one. ``options`` are added to the source's. ``PipelineError`` if
    schema or time is invalid.
    """
    source = spark.readStream.format("leveret").schema("message_id STRING, body BINARY")
    source = source.options(url=url, stream=events.stream, maxRowsPerTrigger=str(rows_max), **options)
    parse = {"columnNameOfCorruptRecord": CORRUPT}
    text = F.col("body").cast("string")
    try:
        parsed = source.load().withColumn("parsed", F.from_json(text, f"{events.schema}, {CORRUPT} STRING", parse))
        is_wrong = F.col("parsed").isNull() | F.col(f"parsed.{CORRUPT}").isNotNull()
        found = parsed.select(
            "message_id",
            "body",
            F.when(~is_wrong, F.col("parsed").dropFields(CORRUPT)).alias(events.alias),
            F.when(is_wrong, F.lit("the body is not JSON of this schema")).alias(ERROR),
        )
        if not events.time:
            return found
        timed = found.withColumn(events.time_column, F.expr(f"cast({events.time} as timestamp)"))
        return timed.withWatermark(events.time_column, events.late)
    except PySparkException as error:
        raise PipelineError(f"stream {events.stream}: {cause(error)}") from error


def joined(frame: DataFrame, events: Events, other: DataFrame, join: Join) -> DataFrame:
    """Join a frame of ``read`` with the events of another stream.

    ``PipelineError`` if the condition is invalid, or events have no times: their state would grow without bound.
    """
    if not events.time or not join.events.time:
        raise PipelineError(
            "a join needs the time of an event of both streams; otherwise all events would be kept forever"
        )
    if join.how not in HOW:
        raise PipelineError(f"a join must be {' or '.join(HOW)}, not {join.how!r}")
    mine, its = events.time_column, join.events.time_column
    bounds = f"{its} BETWEEN {mine} - INTERVAL {join.within} AND {mine} + INTERVAL {join.within}"
    try:
        right = other.where(F.col(join.events.alias).isNotNull()).select(join.events.alias, its)
        return frame.join(right, F.expr(f"({join.on}) AND {bounds}"), join.how)
    except PySparkException as error:
        raise PipelineError(f"the join with {join.events.stream}: {cause(error)}") from error
