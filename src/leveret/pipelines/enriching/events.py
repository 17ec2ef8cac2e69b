"""Messages of a stream as events: their bodies parsed, with a time, and joined with those of other streams."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from leveret.pipelines.errors import PipelineError, cause

ERROR: Final = "error"
"""The column that says why a message can't be enriched, null for all others."""
CORRUPT: Final = "_corrupt"
HOW: Final = ("inner", "left_outer")


@dataclass(frozen=True)
class Events:
    """A stream of JSON bodies.

    schema: what they hold, in Spark's words. time: SQL that makes the time of an event of it; late: how much later than
    others an event may come (``10 minutes``), and still be joined. name: what the event is called in SQL, "" = the
    stream's name, with ``_`` for what is no letter or digit.
    """

    stream: str
    schema: str
    time: str = ""
    late: str = "0 seconds"
    name: str = ""

    @property
    def alias(self) -> str:
        """What the event is called in SQL."""
        return self.name or re.sub(r"\W", "_", self.stream)

    @property
    def time_column(self) -> str:
        """The column with its time."""
        return f"{self.alias}_time"


@dataclass(frozen=True)
class Join:
    """A stream that is joined: where ``on`` is true (SQL with the names of both events, and an equality), and the times
    of both are no more than ``within`` (``10 minutes``) apart. how: ``inner``, or ``left_outer``, which lets an event
    go alone when it is too late for anything to fit."""

    events: Events
    on: str
    within: str
    how: str = "inner"


def read(spark: SparkSession, events: Events, url: str, rows_max: int, **options: str) -> DataFrame:
    """A streaming frame: ``message_id``, ``body``, the event as a struct of its name (null where the body is no such
    JSON, and ``error`` says so), and its time with a watermark, if it has one.

    rows_max: of a micro-batch. options: more of the source's. ``PipelineError`` for a schema or time that is none.
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
    """A frame of ``read`` with the event of another stream beside its own.

    ``PipelineError`` for a condition that is none, and for events without times: their state would grow for ever.
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
