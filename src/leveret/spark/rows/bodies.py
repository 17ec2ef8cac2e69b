"""Bodies as the columns of a schema; a body that cannot be parsed gets an error text and spoils no other row.

Schemas, types and rules are those of streams as tables (docs/guides/streams-as-tables.md), so that a message gives the
same row wherever it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import pyarrow as pa

from leveret.spark.rows.avro_bodies import AvroBodies
from leveret.spark.rows.json_bodies import JsonBodies
from leveret.spark.rows.typed import arrow_type
from leveret.wire.body_schema import AVRO, Schema

REASON_OCTETS_MAX: Final = 500
Row = dict[str, object]


class _Kind(Protocol):
    def decode(self, body: bytes) -> Row: ...

    def arrays(self, rows: list[Row]) -> list[pa.Array]: ...


class BodyParser:
    """Parses bodies by one schema.

    ``check`` returns why a body that fits the schema is refused all the same, None if it is not; the columns of such a
    body have its values. It is not asked about JSON objects that have no fields but those of the schema.
    """

    def __init__(self, schema: Schema, check: Callable[[Row], str | None] | None = None) -> None:
        types = [arrow_type(column) for column in schema.columns]
        self._json = None if schema.bodies == AVRO else JsonBodies(schema.columns, types)
        self._kind: _Kind = self._json or AvroBodies(schema, types)
        self._types = types
        self._check = check

    def parse(self, bodies: pa.BinaryArray) -> list[pa.Array]:
        """Return the columns of the schema, and parse_error: the reason why a row has null in all of them."""
        if self._json is not None:
            flat = self._json.flat_arrays(bodies, is_strict=self._check is not None)
            if flat is not None:
                return [*flat, pa.nulls(len(bodies), pa.string())]
        rows: list[Row] = []
        reasons: list[str | None] = [None] * len(bodies)
        good: list[int] = []
        decode = self._kind.decode
        for index, body in enumerate(bodies.to_pylist()):
            try:
                rows.append(decode(body))
                good.append(index)
            except (ValueError, RecursionError) as error:
                reasons[index] = _reason(error)
        columns = self._arrays(rows, good, reasons)
        if self._check is not None:
            for index, reason in zip(good, map(self._check, rows), strict=True):
                if reason is not None and reasons[index] is None:
                    reasons[index] = reason
        if len(good) < len(bodies):
            places: list[int | None] = [None] * len(bodies)
            for place, index in enumerate(good):
                places[index] = place
            order = pa.array(places, pa.int64())
            columns = [column.take(order) for column in columns]
        return [*columns, pa.array(reasons, pa.string())]

    def _arrays(self, rows: list[Row], indexes: list[int], reasons: list[str | None]) -> list[pa.Array]:
        """Return the columns of these rows. Rows that do not fit are found by bisection; they get nulls and a
        reason."""
        try:
            return self._kind.arrays(rows)
        except ValueError as error:
            if len(rows) == 1:
                reasons[indexes[0]] = _reason(error)
                return [pa.nulls(1, kind) for kind in self._types]
        half = len(rows) // 2
        parts = (
            self._arrays(rows[:half], indexes[:half], reasons),
            self._arrays(rows[half:], indexes[half:], reasons),
        )
        return [pa.concat_arrays(both) for both in zip(*parts, strict=True)]


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.encode("utf-8", "replace")[:REASON_OCTETS_MAX].decode("utf-8", "ignore")
