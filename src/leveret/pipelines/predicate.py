"""Filters rows by an SQL predicate from the user."""

from __future__ import annotations

from pyspark.sql import DataFrame

from leveret.pipelines.errors import PipelineError, cause


def matching(rows: DataFrame, where: str | None) -> DataFrame:
    """Return the rows for which an SQL predicate is true. ``PipelineError`` if the predicate is invalid."""
    if where is None:
        return rows
    try:
        found = rows.where(where)
        _ = found.columns  # Spark Connect checks nothing before this
        return found
    except Exception as error:
        raise PipelineError(f"--where {where!r}: {cause(error)}") from error
