"""The plan of a run: a row for each reminder in which the table and the broker differ."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

NEW: Final = "new"
TIME: Final = "time"
"""The time differs, nothing else."""
CONTENT: Final = "content"
"""Body, queue or headers differ, perhaps also the time."""
GONE: Final = "gone"
INVALID: Final = "invalid"
PAST: Final = "past"
"""New, but its time is past, and such rows are skipped."""
SAME: Final = "same"
EDITS: Final = (TIME, CONTENT, GONE)
ACTIONS: Final = (NEW, TIME, CONTENT, GONE, INVALID, PAST, SAME)


def compared(found: DataFrame, known: DataFrame, now: datetime, skips_past: bool) -> DataFrame:
    """Compare ``reminders`` with those that the broker was given: returns rows with ``action``, and ``was_at``, the old
    time.

    An id that is in the table, valid or not, is not gone: an invalid row may be a mistake.
    """
    old = known.select(
        F.col("id").alias("was_id"),
        F.col("at").alias("was_at"),
        F.col("said").alias("was_said"),
        F.col("content").alias("was_content"),
    )
    both = found.withColumn("is_there", F.lit(True)).join(old, found.id == old.was_id, "full_outer")
    is_published = F.col("action").isin(NEW, CONTENT)
    return both.withColumn("action", _action(now, skips_past)).select(
        F.coalesce("id", "was_id").alias("id"),
        "action",
        "at",
        "was_at",
        "said",
        "destination",
        "content",
        F.when(is_published, F.col("body")).alias("body"),
        F.when(is_published, F.col("headers")).alias("headers"),
        "reason",
    )


def _action(now: datetime, skips_past: bool) -> Column:
    start = F.timestamp_micros(F.lit(int(now.timestamp() * 1_000_000)))
    is_skipped = F.lit(skips_past) & (F.col("at") <= start)
    return (
        F.when(F.col("is_there").isNull(), GONE)
        .when(F.col("reason").isNotNull(), INVALID)
        .when(F.col("was_id").isNull() & is_skipped, PAST)
        .when(F.col("was_id").isNull(), NEW)
        .when(F.col("content") != F.col("was_content"), CONTENT)
        .when(F.col("said") != F.col("was_said"), TIME)
        .otherwise(SAME)
    )


def counted() -> list[Column]:
    """Return aggregates that count the rows of each action."""
    return [F.count_if(F.col("action") == action).alias(action) for action in ACTIONS]


def remembered(known: DataFrame, plan: DataFrame, has_edits: bool) -> DataFrame:
    """Return the reminders after the plan was carried out, with or without its edits."""
    done = [NEW, *EDITS] if has_edits else [NEW]
    changed = plan.where(F.col("action").isin(done))
    kept = known.join(changed.select("id"), "id", "left_anti") if has_edits else known
    return kept.select(*known.columns).unionByName(changed.where(F.col("action") != GONE).select(*known.columns))
