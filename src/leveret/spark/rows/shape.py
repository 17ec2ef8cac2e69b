"""What a row looks like that a query asks for, and how it comes about: one shape for queues and streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from leveret.spark.rows import typed
from leveret.spark.rows.avro_bodies import fingerprint
from leveret.spark.rows.bodies import BodyParser
from leveret.spark.rows.columns import ARROW, OPTIONAL, PARSE_ERROR, PROPERTIES, check_column
from leveret.spark.rows.deliveries import to_batches
from leveret.wire.body_schema import AVRO, JSON, Column, Schema, SchemaRefused, parse_schema

if TYPE_CHECKING:
    from leveret.client import Delivery

OF_STREAM: Final = "stream"
"""``parse=stream``: as the stream's own x-leveret-schema says."""

_OPTION: Final = {JSON: "bodySchema", AVRO: "avroSchema"}


@dataclass(frozen=True)
class RowOptions:
    """Which columns a source has.

    ``columns``: those of option ``columns``, () where it says nothing. ``body_format``: json, avro or stream, "" where
    bodies are not parsed. ``body_schema``: what they hold: Spark's DDL, or JSON in the words of x-leveret-schema; ""
    where the query's own ``.schema()`` says it.
    """

    columns: tuple[str, ...] = ()
    body_format: str = ""
    body_schema: str = ""

    @staticmethod
    def parse(options: Mapping[str, str]) -> RowOptions:
        """Read ``columns``, ``parse``, ``bodySchema`` and ``avroSchema``; ``ValueError`` names what is wrong."""
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
        """These options with ``parse=stream`` resolved; ``schema``: the stream's x-leveret-schema, None without one."""
        if self.body_format != OF_STREAM:
            return self
        if schema is None:
            raise ValueError("option parse=stream: the stream has no x-leveret-schema; use parse=json with bodySchema")
        return replace(self, body_format=parse_schema(schema).bodies, body_schema=schema)

    @cached_property
    def bodies(self) -> Schema | None:
        """What bodies hold; None where they are not parsed, or nothing says it yet."""
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
        """What ``DataSource.schema()`` returns: all columns of the source, or those of option ``columns``.

        The columns of bodies stand behind those of messages, with ``parse_error``; one that is called as a property of
        messages takes its place. ``ValueError`` names the option that is wrong.
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
        """The rows that a reader is to make. ``schema``: what Spark gave the reader, from here or from ``.schema()``.

        Raises ``ValueError`` for a column that the source has not, or has with another type.
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
    """Rows with the columns of ``schema``, in its order. Made by :meth:`RowOptions.shape`; may be pickled."""

    options: RowOptions
    schema: StructType
    source: StructType

    @cached_property
    def typed(self) -> tuple[str, ...]:
        """The columns that are parsed from bodies, ``parse_error`` among them."""
        bodies = self.options.bodies
        own = {column.name for column in bodies.columns} | {PARSE_ERROR} if bodies is not None else set()
        return tuple(name for name in self.schema.names if name in own)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the rows, which is the one that Spark checks for."""
        parsed = {}
        if self.options.bodies is not None:
            parsed = {column.name: typed.arrow_type(column) for column in self.options.bodies.columns}
            parsed[PARSE_ERROR] = pa.string()
        return pa.schema(
            [pa.field(each.name, parsed.get(each.name, ARROW.get(each.name)), each.nullable) for each in self.schema]
        )

    @cached_property
    def raw(self) -> pa.Schema:
        """The columns of messages that :meth:`finish` needs, whoever has them."""
        fields = [field for field in self.arrow if field.name not in self.typed]
        if self.typed and "body" not in self.schema.names:
            fields.append(pa.field("body", pa.binary()))
        return pa.schema(fields)

    def agrees(self, schema: str | None) -> bool:
        """Whether a table with this x-leveret-schema has the typed columns just as :meth:`finish` would make them."""
        bodies = self.options.bodies
        if schema is None or bodies is None:
            return False
        other = parse_schema(schema)
        if other.bodies != bodies.bodies or _told(other.columns) != _told(bodies.columns):
            return False
        return other.bodies == JSON or fingerprint(json.loads(other.text)) == fingerprint(json.loads(bodies.text))

    def batches(
        self, deliveries: Sequence[Delivery], known: Mapping[str, Sequence[Any]] | None = None
    ) -> list[pa.RecordBatch]:
        """Deliveries as rows. ``known``: columns that deliveries have not (stream, offset, arrived), a value for each.

        Columns that the rows do not have are passed over, there and here, so they may all be given.
        """
        return [self.finish(batch) for batch in to_batches(deliveries, self.raw, known or {})]

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows out of the columns of :attr:`raw`."""
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
        """Nothing that is worked out, or compiled, is pickled."""
        return {"options": replace(self.options), "schema": self.schema, "source": self.source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _told(columns: list[Column]) -> list[Any]:
    """All that counts of a schema's columns."""
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
