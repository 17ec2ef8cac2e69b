"""The columns of a message's row: those of every message, and those of the kind of source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TEXT = (StringType(), pa.string())
_NUMBER = (IntegerType(), pa.int32())
_LONG = (LongType(), pa.int64())
_TIME = (TimestampType(), pa.timestamp("us", tz="UTC"))
_HEADERS = (MapType(StringType(), StringType(), True), pa.map_(pa.string(), pa.string()))

PROPERTIES: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "headers": _HEADERS,
    "content_type": _TEXT,
    "content_encoding": _TEXT,
    "delivery_mode": _NUMBER,
    "priority": _NUMBER,
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "expiration": _TEXT,
    "message_id": _TEXT,
    "timestamp": _TIME,
    "type": _TEXT,
    "user_id": _TEXT,
    "app_id": _TEXT,
}
"""The properties of a message by their AMQP names; they are columns of the sources and of the sink."""

MESSAGE: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "body": (BinaryType(), pa.binary()),
    "exchange": _TEXT,
    "routing_key": _TEXT,
    **PROPERTIES,
}
_OF_QUEUES: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "redelivered": (BooleanType(), pa.bool_()),
    "delivery_tag": _LONG,
}
_OF_STREAMS: Final[dict[str, tuple[DataType, pa.DataType]]] = {"stream": _TEXT, "offset": _LONG, "arrived": _TIME}
PARSE_ERROR: Final = "parse_error"
"""The dead-letter column: why a body could not be parsed."""

OF_SOURCES: Final = (*_OF_QUEUES, *_OF_STREAMS, PARSE_ERROR)
"""Columns that describe a delivery, not the message; the sink ignores them."""

OPTIONAL: Final[dict[str, tuple[DataType, pa.DataType]]] = {"content_header": (BinaryType(), pa.binary())}
"""Optional columns of the sources: the properties as AMQP encodes them (rows/content_headers.py)."""

ARROW: Final = {name: arrow for name, (_, arrow) in {**MESSAGE, **_OF_QUEUES, **_OF_STREAMS, **OPTIONAL}.items()}


def _schema(*columns: Mapping[str, tuple[DataType, pa.DataType]]) -> StructType:
    """Make a schema of nullable columns, as Spark requires for streams."""
    return StructType([StructField(name, spark) for each in columns for name, (spark, _) in each.items()])


QUEUE_SCHEMA: Final = _schema(MESSAGE, _OF_QUEUES)
"""The columns of messages from a queue."""

STREAM_SCHEMA: Final = _schema(MESSAGE, _OF_STREAMS)
"""The columns of messages from a stream, with the partition's name, offset, and time of arrival (null over AMQP)."""


def arrow_schema(schema: StructType, source: StructType = QUEUE_SCHEMA) -> pa.Schema:
    """Return the Arrow schema for the columns of ``source`` that ``schema`` names, in its order.

    Raises ``ValueError`` for a column that the source does not have, or has with another type.
    """
    fields = []
    for field in schema.fields:
        check_column(field, source)
        fields.append(pa.field(field.name, ARROW[field.name], nullable=field.nullable))
    return pa.schema(fields)


def check_column(field: StructField, source: StructType) -> None:
    """Raise ``ValueError`` unless the source has this column with this type."""
    if field.name in source.names:
        expected = source[field.name].dataType
    elif field.name in OPTIONAL:
        expected = OPTIONAL[field.name][0]
    else:
        names = ", ".join((*source.names, *OPTIONAL))
        raise ValueError(f"the source has no column {field.name!r}; it has {names}")
    if field.dataType != expected:
        expected_text, given = expected.simpleString(), field.dataType.simpleString()
        raise ValueError(f"column {field.name!r} of the source is {expected_text}, not {given}")


def column_values(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, list[Any]]:
    """Return those of the named columns that the batch has, as Python lists; timestamps are in whole seconds."""
    found = {}
    for name in names:
        index = batch.schema.get_field_index(name)
        if index < 0:
            continue
        column = batch.column(index)
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
            found[name] = [None if value is None else value // 1_000_000 for value in micros]
        else:
            found[name] = column.to_pylist()
    return found
