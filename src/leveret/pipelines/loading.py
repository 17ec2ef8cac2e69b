"""Loads frames, with one-line errors."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from leveret.pipelines.errors import PipelineError, cause


def loaded(reader: DataFrameReader | DataStreamReader, what: str) -> DataFrame:
    """Load a reader's frame. ``PipelineError`` says that ``what`` cannot be read, and why."""
    try:
        return reader.load()
    except Exception as error:
        raise PipelineError(f"{what} can't be read: {cause(error)}") from error
