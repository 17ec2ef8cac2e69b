"""The columns that a query asks for, and how rows are made of messages: the same for queues and streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from leveret.client.protocol.delivering import RawDeliveries
from leveret.spark.rows import typed
from leveret.spark.rows.avro_bodies import fingerprint
from leveret.spark.rows.bodies import BodyParser
from leveret.spark.rows.columns import ARROW, OPTIONAL, PARSE_ERROR, PROPERTIES, check_column
from leveret.spark.rows.deliveries import to_batches
from leveret.wire.body_schema import AVRO, JSON, Column, Schema, SchemaRefused, parse_schema

OF_STREAM: Final = "stream"
"""Value of option ``parse``: bodies are parsed by the stream's own x-leveret-schema."""

_OPTION: Final = {JSON: "bodySchema", AVRO: "avroSchema"}


@dataclass(frozen=True)
class RowOptions:
    """The options that define a source's columns.

    Attributes:
        columns: names in option ``columns``; empty without that option.
        body_format: json, avro or stream; "" if bodies are not parsed.
        body_schema: the fields of bodies, as Spark DDL or JSON like an x-leveret-schema; "" if the query's
            ``.schema()`` defines them.
    """

    columns: tuple[str, ...] = ()
    body_format: str = ""
    body_schema: str = ""

    @staticmethod
    def parse(options: Mapping[str, str]) -> RowOptions:
        """Read ``columns``, ``parse``, ``bodySchema`` and ``avroSchema``; ``ValueError`` names the wrong option."""
        given = options.get("parse", "").lower()
        if given not in ("", JSON, AVRO, OF_STREAM):
            raise ValueError(f"option parse is json, avro or stream, not {options['parse']!r}")
        own = _OPTION.get(given, "")
        for body_format, name in _OPTION.items():
            if name in options and name != own:
                raise ValueError(f"option {name} needs option parse={body_format}")
        found = RowOptions(_names(options), given, options.get(own, ""))
        if given == AVRO and not found.body_schema:
            raise ValueError("option avroSchema is missing: the schema of the bodies, in JSON")
        _ = found.bodies
        return found

    def of_stream(self, schema: str | None) -> RowOptions:
        """Return these options with ``parse=stream`` resolved by the stream's x-leveret-schema (None: it has none)."""
        if self.body_format != OF_STREAM:
            return self
        if schema is None:
            raise ValueError("option parse=stream: the stream has no x-leveret-schema; use parse=json with bodySchema")
        return replace(self, body_format=parse_schema(schema).bodies, body_schema=schema)

    @cached_property
    def bodies(self) -> Schema | None:
        """The schema of bodies; None if they are not parsed, or their schema is not known yet."""
        text = self.body_schema
        if not text:
            return None
        option = _OPTION[self.body_format]
        try:
            if self.body_format == JSON and not text.lstrip().startswith("["):
                return Schema(JSON, typed.of_ddl(text), text)
            schema = parse_schema(text)
        except (SchemaRefused, ValueError) as error:
            raise ValueError(f"option {option}: {error}") from None
        if schema.bodies != self.body_format:
            raise ValueError(
                f"option {option} describes {schema.bodies} bodies, but option parse is {self.body_format}"
            )
        return schema

    def schema(self, source: StructType) -> StructType:
        """Return all columns of the source, or those of option ``columns``; for ``DataSource.schema()``.

        The columns of bodies and ``parse_error`` follow those of messages; a body column replaces a property of the
        same name. ``ValueError`` names the wrong option.
        """
        every = self._every(source)
        if not self.columns:
            return every
        optional = [StructField(name, kind) for name, (kind, _) in OPTIONAL.items() if name not in every.names]
        there = {field.name: field for field in (*every.fields, *optional)}
        for name in self.columns:
            if name not in there:
                raise ValueError(f"option columns: there is no column {name!r}; the columns are {', '.join(there)}")
        return StructType([there[name] for name in self.columns])

    def shape(self, schema: StructType, source: StructType) -> RowShape:
        """Return the shape of a reader's rows; ``schema`` is what Spark passed to the reader.

        Raises ``ValueError`` for a column that the source does not have, or has with another type.
        """
        options = self
        if self.body_format and self.bodies is None:
            own = [field for field in schema.fields if field.name not in (*source.names, *OPTIONAL, PARSE_ERROR)]
            options = replace(self, body_schema=", ".join(_ddl(field) for field in own))
        every = options._every(source)
        for field in schema.fields:
            check_column(field, every)
        return RowShape(options, schema, source)

    def _every(self, source: StructType) -> StructType:
        if not self.body_format:
            return source
        bodies = self.bodies
        if bodies is None:
            raise ValueError(
                "option bodySchema is missing: the fields of the bodies, like 'station STRING, delay_min INT'"
            )
        own = {column.name.lower() for column in bodies.columns}
        kept = [field for field in source.fields if field.name not in own or field.name not in PROPERTIES]
        for name in (*(field.name for field in kept), PARSE_ERROR):
            if name in own:
                raise ValueError(
                    f"option parse: the bodies have a field {name!r}, but every row already has a column "
                    "of that name: rename the field"
                )
        fields = [StructField(column.name, typed.spark_type(column)) for column in bodies.columns]
        return StructType([*kept, *fields, StructField(PARSE_ERROR, StringType())])


@dataclass(frozen=True)
class RowShape:
    """Rows with the columns of ``schema``, in its order. Made by :meth:`RowOptions.shape`; can be pickled."""

    options: RowOptions
    schema: StructType
    source: StructType

    @cached_property
    def typed(self) -> tuple[str, ...]:
        """The columns that are parsed from bodies, including ``parse_error``."""
        bodies = self.options.bodies
        own = {column.name for column in bodies.columns} | {PARSE_ERROR} if bodies is not None else set()
        return tuple(name for name in self.schema.names if name in own)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the rows; Spark compares batches with it."""
        parsed = {}
        if self.options.bodies is not None:
            parsed = {column.name: typed.arrow_type(column) for column in self.options.bodies.columns}
            parsed[PARSE_ERROR] = pa.string()
        return pa.schema(
            [pa.field(each.name, parsed.get(each.name, ARROW.get(each.name)), each.nullable) for each in self.schema]
        )

    @cached_property
    def raw(self) -> pa.Schema:
        """The message columns that :meth:`finish` needs."""
        fields = [field for field in self.arrow if field.name not in self.typed]
        if self.typed and "body" not in self.schema.names:
            fields.append(pa.field("body", pa.binary()))
        return pa.schema(fields)

    def agrees(self, schema: str | None) -> bool:
        """Whether a table with this x-leveret-schema has the same typed columns as :meth:`finish` would make."""
        bodies = self.options.bodies
        if schema is None or bodies is None:
            return False
        other = parse_schema(schema)
        if other.bodies != bodies.bodies or _told(other.columns) != _told(bodies.columns):
            return False
        return other.bodies == JSON or fingerprint(json.loads(other.text)) == fingerprint(json.loads(bodies.text))

    def batches(
        self, deliveries: RawDeliveries, known: Mapping[str, Sequence[Any]] | None = None
    ) -> list[pa.RecordBatch]:
        """Return deliveries as rows.

        ``known`` has columns that deliveries lack (stream, offset, arrived), one value per delivery; those that the
        rows do not have are ignored.
        """
        return [self.finish(batch) for batch in to_batches(deliveries, self.raw, known or {})]

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Make rows of a batch with the columns of :attr:`raw`."""
        if not self.typed:
            return batch
        names = [column.name for column in self._bodies.columns]
        body = batch.column(batch.schema.get_field_index("body"))
        found = dict(zip([*names, PARSE_ERROR], self._parser.parse(body), strict=True))
        found = {**dict(zip(batch.schema.names, batch.columns, strict=True)), **found}
        return pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], schema=self.arrow)

    @property
    def _bodies(self) -> Schema:
        assert self.options.bodies is not None
        return self.options.bodies

    @cached_property
    def _parser(self) -> BodyParser:
        return BodyParser(self._bodies)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out cached properties: they are worked out again after unpickling."""
        return {"options": replace(self.options), "schema": self.schema, "source": self.source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _told(columns: list[Column]) -> list[Any]:
    """Return everything about columns that matters for comparing them."""
    return [[each.name, each.field, each.kind, each.precision, each.scale, _told(each.parts)] for each in columns]


def _ddl(field: StructField) -> str:
    return f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}"


def _names(options: Mapping[str, str]) -> tuple[str, ...]:
    text = options.get("columns")
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError(f"option columns must be a list like body,routing_key with each name once, not {text!r}")
    return names
