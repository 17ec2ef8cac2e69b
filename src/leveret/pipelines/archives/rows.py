"""Converts the rows of a micro-batch into a lake's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from leveret.pipelines.archives.lake import COLUMNS, CONTENT_HEADER, DEFAULT_EXCHANGE
from leveret.pipelines.archives.sources import QUEUE, ArchiveSource
from leveret.spark.rows.columns import MESSAGE

_DAY_US: Final = 86_400_000_000


def source_columns(source: ArchiveSource, is_exact: bool) -> list[str]:
    """Return the columns to read from the source; others are not decoded."""
    own = [] if source.kind == QUEUE else ["stream", "offset", "arrived"]
    return [*MESSAGE, *own, *([CONTENT_HEADER.name] if is_exact else [])]


def lake_rows(frame: DataFrame, source: ArchiveSource, batch: int, is_exact: bool) -> DataFrame:
    """Convert a source's rows to a lake's columns, with the batch and the time of archiving."""
    found: dict[str, Column] = {name: F.col(name) for name in MESSAGE}
    found["exchange"] = F.when(F.col("exchange") == "", DEFAULT_EXCHANGE).otherwise(F.col("exchange"))
    if source.kind == QUEUE:
        found |= {"source": F.lit(source.name), "offset": _null("offset"), "arrived": _null("arrived")}
    else:
        found |= {"source": F.col("stream"), "offset": F.col("offset"), "arrived": F.col("arrived")}
    now = datetime.now(UTC)
    archived = F.timestamp_micros(F.lit(round(now.timestamp() * 1_000_000)))
    found |= {"broker": F.lit(source.broker), "archived": archived, "batch": F.lit(batch).cast("bigint")}
    found["day"] = _utc_day(F.coalesce(found["arrived"], F.col("timestamp"), archived))
    names = COLUMNS.names
    if is_exact:
        found[CONTENT_HEADER.name] = F.col(CONTENT_HEADER.name)
        names = [*names, CONTENT_HEADER.name]
    return frame.select(*(found[name].alias(name) for name in names))


def _null(name: str) -> Column:
    return F.lit(None).cast(COLUMNS[name].dataType)


def _utc_day(time: Column) -> Column:
    """Return the day in UTC, whatever the session's time zone is."""
    micros = F.unix_micros(time)
    # Spark divides as doubles, and the result may be a little below the day
    days = F.rint((micros - F.pmod(micros, F.lit(_DAY_US))) / F.lit(_DAY_US))
    return F.date_from_unix_date(days.cast("int"))
