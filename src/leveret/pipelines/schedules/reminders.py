"""The reminders that the rows of a table ask for, and the reasons why a row is invalid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, MapType, NumericType, StringType, StructType

from leveret.delay import NSERVICEBUS
from leveret.delay.layout import ROUTING_KEY_BYTES_MAX
from leveret.pipelines.errors import PipelineError, cause

__all__ = ["Columns"]

SCHEDULE: Final = "x-schedule"
"""The header with the name of a message's schedule."""
RUN: Final = "x-schedule-run"
"""The header with the number of the run that published a message."""
DELAY_MAX: Final = timedelta(milliseconds=NSERVICEBUS.units_max * NSERVICEBUS.unit_ms) - timedelta(days=2)
"""The longest delay: that of the delay levels, less the time needed to replace a reminder."""
DAY_US: Final = 86_400_000_000
"""How long after its time an old version is held while a new one replaces it, in microseconds."""
ID_OCTETS_MAX: Final = 255
DESTINATION_OCTETS_MAX: Final = ROUTING_KEY_BYTES_MAX - 2 * NSERVICEBUS.levels


@dataclass(frozen=True)
class Columns:
    """The columns of the table that make a reminder; None for a column that it does not have.

    Attributes:
        at: time, as a timestamp, a date, text that Spark casts to a timestamp, or seconds since 1970. Either this or
            ``delay_s``.
        delay_s: delay in seconds from the run that sees the row first.
        queue_name: the queue for all rows, if no column has it.
        body: the body; None for all columns that are not named here, as a JSON object.
        headers: a map, or JSON as text.
    """

    id: str = "id"
    at: str | None = None
    delay_s: str | None = None
    queue: str | None = None
    queue_name: str | None = None
    body: str | None = None
    headers: str | None = None

    def check(self, schema: StructType) -> None:
        """Raise ``PipelineError`` if a column is missing, or given twice."""
        if (self.at is None) == (self.delay_s is None):
            raise PipelineError("set when to send: a column with times (at) or one with delays in seconds (delay)")
        if (self.queue is None) == (self.queue_name is None):
            raise PipelineError(
                "set where to send: one queue for all (queue), or the column that names it (queue column)"
            )
        for column in (self.id, self.at, self.delay_s, self.queue, self.body, self.headers):
            if column is not None and column not in schema.names:
                raise PipelineError(f"the table has no column {column!r}; it has {', '.join(schema.names)}")

    @property
    def has_json(self) -> bool:
        """Whether bodies are JSON made of columns."""
        return self.body is None


def opened(spark: SparkSession, table: DataFrame | str | Path, form: str, options: Mapping[str, str]) -> DataFrame:
    """Return the table as a frame. ``PipelineError`` if it cannot be read."""
    if isinstance(table, DataFrame):
        return table
    reader = spark.read.format(form).options(**options)
    try:
        frame = reader.load() if form == "jdbc" else reader.load(str(table))
        frame.schema  # noqa: B018  (a Connect server reads the table only now)
    except PySparkException as error:
        raise PipelineError(f"the table {table} can't be read as {form}: {cause(error)}") from error
    return frame


def reminders(table: DataFrame, columns: Columns, now: datetime) -> DataFrame:
    """Return a row for each of the table's rows.

    Its columns are ``id``, ``at``, ``said`` (the table's value of the time, as text), ``destination``, ``body``,
    ``headers``, ``content`` (a hash of everything but the time) and ``reason`` (null for valid rows). Delays count from
    ``now``, a time with a zone. Raises ``PipelineError`` for missing columns.
    """
    columns.check(table.schema)
    said, at = _time(table, columns, now)
    found = table.select(
        F.col(_quoted(columns.id)).cast("string").alias("id"),
        at.alias("at"),
        said.alias("said"),
        _destination(columns).alias("destination"),
        _body(table.schema, columns).alias("body"),
        _headers(table.schema, columns).alias("headers"),
    )
    copies = F.count(F.lit(1)).over(Window.partitionBy("id"))
    return found.withColumn("reason", _reason(now, copies)).withColumn("content", _content())


def _time(table: DataFrame, columns: Columns, now: datetime) -> tuple[Column, Column]:
    """Return the table's value as text, and the time that it means, null if invalid."""
    if columns.at is not None:
        name = _quoted(columns.at)
        at = F.expr(f"try_cast({name} as timestamp)")
        text = F.col(name).cast("string")
        # another spelling of the same time is no change; an invalid time keeps its text for the report
        return F.coalesce(F.concat(F.lit("at "), F.unix_micros(at).cast("string")), text), at
    name = _quoted(columns.delay_s or "")
    delay = F.expr(f"try_cast({name} as double)")
    micros = F.when(delay.between(0.0, DELAY_MAX.total_seconds()), F.ceil(delay * 1e6).cast("bigint"))
    start_us = int(now.timestamp() * 1_000_000)
    text = F.col(name).cast("string")
    return F.coalesce(F.concat(F.lit("in "), delay.cast("string")), text), F.timestamp_micros(micros + start_us)


def _destination(columns: Columns) -> Column:
    if columns.queue is None:
        return F.lit(columns.queue_name)
    return F.col(_quoted(columns.queue)).cast("string")


def _body(schema: StructType, columns: Columns) -> Column:
    if columns.body is None:
        # without the time, so that a changed time is not also a changed body
        aside = (columns.id, columns.at, columns.delay_s, columns.queue, columns.headers)
        named = [F.col(_quoted(name)) for name in schema.names if name not in aside]
        return F.to_json(F.struct(*named), {"ignoreNullFields": "false"}).cast("binary")
    column = F.col(_quoted(columns.body))
    kind = schema[columns.body].dataType
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, (StringType, NumericType)):
        return column.cast("string").cast("binary")
    raise PipelineError(f"column {columns.body!r} is {kind.simpleString()}; a body must be binary or text")


def _headers(schema: StructType, columns: Columns) -> Column:
    none = F.expr("cast(map() as map<string,string>)")
    if columns.headers is None:
        return none
    column = F.col(_quoted(columns.headers))
    kind = schema[columns.headers].dataType
    if isinstance(kind, StringType):
        return F.coalesce(F.from_json(column, "map<string,string>"), none)
    if isinstance(kind, MapType):
        return F.coalesce(column.cast("map<string,string>"), none)
    raise PipelineError(f"column {columns.headers!r} is {kind.simpleString()}; headers must be a map, or JSON as text")


def _reason(now: datetime, copies: Column) -> Column:
    horizon = F.timestamp_micros(F.lit(int((now + DELAY_MAX).timestamp() * 1_000_000)))
    years = DELAY_MAX.days / 365.25
    checks = (
        (F.col("id").isNull() | (F.col("id") == ""), F.lit("no id")),
        (F.octet_length("id") > ID_OCTETS_MAX, F.lit(f"an id of more than {ID_OCTETS_MAX} octets")),
        (copies > 1, F.concat(F.lit("the id occurs "), copies.cast("string"), F.lit(" times"))),
        (F.col("said").isNull(), F.lit("no time")),
        (F.col("at").isNull(), F.concat(F.lit("an invalid time: "), F.substring("said", 1, 40))),
        (F.col("at") > horizon, F.lit(f"further away than {years:.1f} years")),
        (F.col("destination").isNull() | (F.col("destination") == ""), F.lit("no queue")),
        (F.octet_length("destination") > DESTINATION_OCTETS_MAX,
         F.lit(f"a queue's name of more than {DESTINATION_OCTETS_MAX} octets")),
        (F.col("body").isNull(), F.lit("no body")),
    )  # fmt: skip
    return F.coalesce(*(F.when(is_wrong, text) for is_wrong, text in checks))


def _content() -> Column:
    headers = F.array_sort(F.map_entries("headers")).cast("string")
    return F.xxhash64("body", "destination", headers)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
