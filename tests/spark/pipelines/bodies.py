"""Bodies and the lake columns made of them, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from leveret.pipelines.archives.census import ValueCensus, grown
from leveret.pipelines.archives.parsing import Parser
from leveret.pipelines.archives.schemas import BodySchema

from ..support import sent


def census_of(*values: Any) -> ValueCensus:
    census = ValueCensus()
    census.add(values)
    return census


def grow(census: ValueCensus, fields_max: int = 1000) -> Callable[[BodySchema], BodySchema]:
    """Return a function that extends a schema by the census."""
    return lambda newest: replace(newest, columns=grown(newest.columns, census, fields_max))


def schema_of(*values: Any, fields_max: int = 1000) -> BodySchema:
    return grow(census_of(*values), fields_max)(BodySchema())


def parsed(schema: BodySchema, *bodies: Any) -> tuple[list[Any], list[str | None]]:
    """Return ``data`` and ``error`` of bodies, as an executor computes them; values other than bytes become JSON."""
    octets = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
    [batch] = sent(Parser(schema))(iter([pa.record_batch({"body": pa.array(octets, pa.binary())})]))
    has_data = "data" in batch.schema.names
    return batch.column("data").to_pylist() if has_data else [], batch.column("error").to_pylist()
