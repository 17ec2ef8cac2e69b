"""Parses bodies into fields by the lake's schema, which grows with the messages; the others are dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from leveret.pipelines.archives.census import ValueCensus, grown, strangers
from leveret.pipelines.archives.schemas import BodySchema, Schemas, of_json, to_json
from leveret.spark.rows.bodies import REASON_OCTETS_MAX, BodyParser
from leveret.spark.rows.json_bodies import JsonBodies
from leveret.spark.rows.typed import arrow_type
from leveret.wire.body_schema import JSON, Schema

DATA: Final = "data"
ERROR: Final = "error"

_CENSUS: Final = "census STRING"


@dataclass(frozen=True)
class Parsing:
    """How bodies are parsed; ``fields_max`` limits the fields of ``data``, nested ones included. Bodies with further
    fields are dead letters."""

    fields_max: int = 1000


@contextmanager
def split(
    rows: DataFrame, parsing: Parsing, schemas: Schemas, schema: BodySchema | None = None
) -> Iterator[tuple[DataFrame, DataFrame, BodySchema]]:
    """Yield the rows with ``data``, the rows with ``error``, and the schema that parsed them, which is stored.

    The rows are read once, and cached while the block runs. ``schema`` is the one to parse by; None grows the lake's.
    """
    rows.persist()
    try:
        if schema is None:
            schema = _grown(rows, parsing, schemas)
        parsed = _parsed(rows, schema).persist()
        try:
            good = parsed.where(f"{ERROR} IS NULL").drop(ERROR)
            yield good, parsed.where(f"{ERROR} IS NOT NULL").drop(DATA), schema
        finally:
            parsed.unpersist()
    finally:
        rows.unpersist()


def _grown(rows: DataFrame, parsing: Parsing, schemas: Schemas) -> BodySchema:
    """Grow the lake's schema by the fields of these rows."""
    found = [row.census for row in rows.select("body").mapInArrow(_counted, _CENSUS).collect()]
    census = ValueCensus.merged(map(ValueCensus.parse, found))
    return schemas.grow(lambda newest: replace(newest, columns=grown(newest.columns, census, parsing.fields_max)))


def _parsed(rows: DataFrame, schema: BodySchema) -> DataFrame:
    error = StructField(ERROR, StringType())
    data = [StructField(DATA, schema.struct())] if schema.columns else []
    wanted = StructType([*rows.schema.fields, *data, error])
    return rows.mapInArrow(Parser(schema), wanted)


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the fields in the bodies of a task, as one row."""
    census = ValueCensus()
    objects = JsonBodies([], [])
    for batch in batches:
        for body in batch.column("body").to_pylist():
            try:
                census.add(objects.decode(body))
            except (ValueError, RecursionError):
                pass  # the parser reports the reason
    yield pa.record_batch({"census": pa.array([census.text()])})


class Parser:
    """Adds ``data`` and ``error`` to batches of rows; one of them is null.

    It is sent to executors, which may lack the compiled core, so it holds the schema as JSON.
    """

    def __init__(self, schema: BodySchema) -> None:
        self._columns = [to_json(column) for column in schema.columns]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = [of_json(column) for column in self._columns]
        parser = BodyParser(Schema(JSON, columns, ""))
        objects = JsonBodies([], [])
        kind = pa.struct([pa.field(column.name, arrow_type(column)) for column in columns])
        for batch in batches:
            bodies = batch.column("body")
            *parsed, reasons = parser.parse(bodies)
            errors = reasons.to_pylist()
            for index, body in enumerate(bodies.to_pylist()):
                if errors[index] is None:
                    errors[index] = _unfit(objects.decode(body), columns)
            arrays: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
            if columns:
                is_bad = pa.array([error is not None for error in errors])
                arrays[DATA] = pa.StructArray.from_arrays(parsed, fields=list(kind), mask=is_bad)
            arrays[ERROR] = pa.array(errors, pa.string())
            yield pa.record_batch(list(arrays.values()), names=list(arrays))


def _unfit(found: dict[str, Any], columns: list[Any]) -> str | None:
    """Return why an object has values outside the schema, which would be lost silently; None if it has not."""
    for path in strangers(found, columns):
        return f"the lake has no column for `{path}`"[:REASON_OCTETS_MAX]
    return None
