"""Which rows are meant, as people say it: a predicate of SQL."""

from __future__ import annotations

from pyspark.sql import DataFrame

from leveret.pipelines.errors import PipelineError, cause


def matching(rows: DataFrame, where: str | None) -> DataFrame:
    """Those that a predicate of SQL is true of. ``PipelineError`` where it can't be understood."""
    if where is None:
        return rows
    try:
        found = rows.where(where)
        _ = found.columns  # through Spark Connect nothing is looked at before
        return found
    except Exception as error:
        raise PipelineError(f"--where {where!r}: {cause(error)}") from error
