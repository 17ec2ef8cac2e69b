"""Messages as rows: the columns of source and sink, and the way from deliveries to Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from leveret.client import Delivery

_TEXT = (StringType(), pa.string())
_NUMBER = (IntegerType(), pa.int32())
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
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "type": _TEXT,
    "user_id": _TEXT,
    "app_id": _TEXT,
}
"""The properties of a message under their AMQP names, which are columns of the source and of the sink."""

_COLUMNS: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "body": (BinaryType(), pa.binary()),
    "exchange": _TEXT,
    "routing_key": _TEXT,
    **PROPERTIES,
    "redelivered": (BooleanType(), pa.bool_()),
    "delivery_tag": (LongType(), pa.int64()),
}

SOURCE_SCHEMA: Final = StructType([StructField(name, spark) for name, (spark, _) in _COLUMNS.items()])
"""The columns of the source; all nullable, as Spark wants it of streams."""

TIMESTAMP_S_MAX: Final = 253_402_300_799
"""The last second of the year 9999, where the timestamps of Spark and Python end."""

ROWS_PER_BATCH: Final = 10_000
"""Rows of one Arrow batch: larger ones gain nothing and make Spark's first row wait."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema for those columns of the source that ``schema`` asks for, in its order.

    Raises ``ValueError`` for a column that the source has not, or has with another type.
    """
    fields = []
    for field in schema.fields:
        if field.name not in _COLUMNS:
            raise ValueError(f"the source has no column {field.name!r}; it has {', '.join(_COLUMNS)}")
        spark, arrow = _COLUMNS[field.name]
        if field.dataType != spark:
            expected, given = spark.simpleString(), field.dataType.simpleString()
            raise ValueError(f"column {field.name!r} of the source is {expected}, not {given}")
        fields.append(pa.field(field.name, arrow, nullable=field.nullable))
    return pa.schema(fields)


def to_batches(deliveries: Sequence[Delivery], schema: pa.Schema) -> list[pa.RecordBatch]:
    """The deliveries as Arrow batches of at most :data:`ROWS_PER_BATCH` rows."""
    return [
        _to_batch(deliveries[first : first + ROWS_PER_BATCH], schema)
        for first in range(0, len(deliveries), ROWS_PER_BATCH)
    ]


def _to_batch(deliveries: Sequence[Delivery], schema: pa.Schema) -> pa.RecordBatch:
    names = schema.names
    properties = [one.properties for one in deliveries] if any(name in PROPERTIES for name in names) else []
    arrays = []
    for field in schema:
        owners: Sequence[object] = properties if field.name in PROPERTIES else deliveries
        values = [getattr(owner, field.name) for owner in owners]
        convert = _CONVERT.get(field.name)
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        arrays.append(_array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([None if value is None else _clean(value) for value in values], kind)


def _clean(value: Any) -> Any:
    """Text that was not UTF-8 on the wire, with its odd bytes replaced: Arrow and Spark take nothing else."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return [(_clean(name), None if text is None else _clean(text)) for name, text in value]


def _headers(headers: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(name, header_text(value)) for name, value in headers.items()]


def _microseconds(timestamp_s: int) -> int | None:
    return timestamp_s * 1_000_000 if 0 <= timestamp_s <= TIMESTAMP_S_MAX else None


_CONVERT: Final[dict[str, Callable[[Any], Any]]] = {"headers": _headers, "timestamp": _microseconds}


def header_text(value: object) -> str | None:
    """A header's value as text: strings as they are, true/false, numbers in decimal, tables and lists as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=header_text, separators=(",", ":"))
    return str(value)


def column_values(batch: pa.RecordBatch, names: Iterable[str]) -> dict[str, list[Any]]:
    """The named columns of a batch that are there, as Python lists; a timestamp in whole seconds."""
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
