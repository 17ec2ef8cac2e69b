"""Frames of what brokers have, or one line that says why there is none."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from leveret.pipelines.errors import PipelineError, cause


def loaded(reader: DataFrameReader | DataStreamReader, what: str) -> DataFrame:
    """The frame of a reader. ``PipelineError``, which says that ``what`` can't be read, where it can't be loaded."""
    try:
        return reader.load()
    except Exception as error:
        raise PipelineError(f"{what} can't be read: {cause(error)}") from error
