"""Parses bodies into fields by the lake's schema, which grows with the messages; the others are dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from leveret.pipelines.archives.census import ValueCensus, grown, strangers
from leveret.pipelines.archives.schemas import BodySchema, Schemas, of_json, to_json
from leveret.spark.rows.bodies import REASON_OCTETS_MAX, BodyParser
from leveret.spark.rows.json_bodies import JsonBodies
from leveret.spark.rows.typed import arrow_type
from leveret.wire.body_schema import JSON, Column, Schema

DATA: Final = "data"
ERROR: Final = "error"
CENSUS: Final = "census STRING"
"""The columns of :func:`counted`."""

NO_COLUMN: Final = "the lake has no column for "
"""How the error of a body begins that has a value outside the schema."""


@dataclass(frozen=True)
class Parsing:
    """How bodies are parsed; ``fields_max`` limits the fields of ``data``, nested ones included. Bodies with further
    fields are dead letters."""

    fields_max: int = 1000


def grow(schemas: Schemas, parsing: Parsing, parts: Iterable[str]) -> BodySchema:
    """Grow the lake's schema by the fields in these results of :func:`counted`."""
    census = ValueCensus.merged(map(ValueCensus.parse, parts))
    return schemas.grow(lambda newest: replace(newest, columns=grown(newest.columns, census, parsing.fields_max)))


def counted(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Count the fields of the bodies in batches of messages, as one row."""
    census = ValueCensus()
    decode = JsonBodies([], []).decode
    for batch in batches:
        objects = []
        for body in batch.column("body").to_pylist():
            try:
                objects.append(decode(body))
            except (ValueError, RecursionError):
                pass  # the parser reports the reason
        census.add(objects)
    return pa.record_batch({"census": pa.array([census.text()])})


class Parser:
    """Adds ``data`` and ``error`` to batches of rows; one of them is null.

    It is sent to executors, which may lack the compiled core, so it holds the schema as JSON.
    """

    def __init__(self, schema: BodySchema) -> None:
        self._columns = [to_json(column) for column in schema.columns]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = [of_json(column) for column in self._columns]
        parser = BodyParser(Schema(JSON, columns, ""), _Strangers(columns))
        kind = pa.struct([pa.field(column.name, arrow_type(column)) for column in columns])
        for batch in batches:
            found = dict(zip(batch.schema.names, batch.columns, strict=True))
            *parsed, errors = parser.parse(batch.column("body"))
            if columns:
                found[DATA] = pa.StructArray.from_arrays(parsed, fields=list(kind), mask=errors.is_valid())
            yield pa.record_batch({**found, ERROR: errors})


class _Strangers:
    """Tells why an object has values outside the schema, which would be lost silently; None if it has not."""

    def __init__(self, columns: list[Column]) -> None:
        self._columns = columns
        self._known = frozenset(column.name for column in columns)
        self._nested = [column for column in columns if column.parts]

    def __call__(self, found: dict[str, Any]) -> str | None:
        columns = self._columns
        if self._known.issuperset(found):
            if not self._nested:
                return None
            columns = self._nested
            found = {column.name: found[column.name] for column in columns if column.name in found}
        for path in strangers(found, columns):
            return f"{NO_COLUMN}`{path}`"[:REASON_OCTETS_MAX]
        return None
