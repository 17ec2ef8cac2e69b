"""The columns of the sink, and the defaults for rows without a value."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegralType, MapType, NumericType, StringType, StructType, TimestampType

from leveret.spark.rows.columns import OF_SOURCES, PROPERTIES
from leveret.spark.rows.content_headers import CONTENT_HEADER
from leveret.spark.sink.options import SinkOptions

COLUMNS: Final = ("body", "exchange", "routing_key", "delay", "at", CONTENT_HEADER, *PROPERTIES)
"""The sink's columns: ``body`` is required, ``delay`` is in seconds, ``at`` is the time of delivery."""

Columns: TypeAlias = "dict[str, pa.Array | str | int]"


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise ``ValueError`` unless every column is one of :data:`COLUMNS` (or a source's own) and has a fitting type."""
    if "body" not in schema.fieldNames():
        raise ValueError("the sink needs a column body (binary or string)")
    column = options.message_id_column
    if column and column not in schema.fieldNames():
        raise ValueError(
            f"option messageIdColumn: there is no column {column!r}; the columns are {', '.join(schema.names)}"
        )
    for field in schema.fields:
        if field.name == column:
            if not isinstance(field.dataType, (StringType, IntegralType)):
                kind = field.dataType.simpleString()
                raise ValueError(f"option messageIdColumn: {column!r} is {kind}, but must be text or a whole number")
            continue
        if field.name in OF_SOURCES:
            continue
        if field.name not in COLUMNS:
            raise ValueError(f"the sink has no column {field.name!r}; it has {', '.join(COLUMNS)}")
        if not _fits(field.name, field.dataType):
            raise ValueError(f"column {field.name!r} of the sink cannot be {field.dataType.simpleString()}")


def _fits(name: str, kind: Any) -> bool:
    if name == "body":
        return isinstance(kind, (BinaryType, StringType))
    if name == CONTENT_HEADER:
        return isinstance(kind, BinaryType)
    if name == "headers":
        return isinstance(kind, MapType) and kind.keyType == StringType() and kind.valueType == StringType()
    if name in ("timestamp", "at"):
        return isinstance(kind, TimestampType)
    if name in ("delivery_mode", "priority"):
        return isinstance(kind, IntegralType)
    if name == "delay":
        return isinstance(kind, NumericType)
    return isinstance(kind, StringType)


def own_properties(batch: pa.RecordBatch, options: SinkOptions) -> dict[str, pa.Array]:
    """Return the properties that at least one row sets in a column of its own."""
    found = {}
    for name in PROPERTIES:
        column = _message_ids(batch, options.message_id_column or name, "", 0) if name == "message_id" else None
        column = _column(batch, name) if column is None else column
        if column is None or column.null_count == len(column):
            continue
        found[name] = _seconds(column) if pa.types.is_timestamp(column.type) else column
    return found


def content_headers(batch: pa.RecordBatch) -> pa.Array | None:
    """Return the rows' encoded properties (null where a row has none), None if no row has any."""
    column = _column(batch, CONTENT_HEADER)
    return None if column is None or column.null_count == len(column) else column


def message_columns(batch: pa.RecordBatch, options: SinkOptions, id_prefix: str, first_row: int) -> Columns:
    """Return exchange, routing key and properties: an array each, or a value that all rows share.

    Rows without a message id get ``id_prefix`` and their row number, counted from ``first_row``; if the prefix is "",
    they have no id.
    """
    found: Columns = {"exchange": options.exchange, "routing_key": options.routing_key, **options.properties}
    for name in ("exchange", "routing_key", *PROPERTIES):
        column = _column(batch, name)
        if column is None or column.null_count == len(column):
            continue
        if pa.types.is_timestamp(column.type):
            column = _seconds(column)
        default = found.get(name)
        found[name] = column if default is None else column.fill_null(default)
    ids = _message_ids(batch, options.message_id_column or "message_id", id_prefix, first_row)
    if ids is not None:
        found["message_id"] = ids
    return found


def _seconds(times: pa.Array) -> pa.Array:
    """Return whole seconds since 1970, -1 for earlier times, without a look-up of the time zone, which may not exist
    here."""
    micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    return pc.if_else(pc.less(micros, 0), -1, pc.divide(micros, 1_000_000))


def _message_ids(batch: pa.RecordBatch, name: str, prefix: str, first_row: int) -> pa.Array | None:
    given = _column(batch, name)
    if given is not None and not pa.types.is_string(given.type):
        given = given.cast(pa.string())
    if not prefix or (given is not None and not given.null_count):
        return given
    numbers = pa.array(range(first_row, first_row + batch.num_rows), pa.int64()).cast(pa.string())
    made = pc.binary_join_element_wise(f"{prefix}-", numbers, "")
    return made if given is None else pc.coalesce(given, made)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return batch.column(index) if index >= 0 else None


def delays(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """Return those of the columns exchange, delay and at that exist, None if no row has a delay or a time."""
    found = {name: column for name in ("exchange", "delay", "at") if (column := _column(batch, name)) is not None}
    if "at" in found:
        # in UTC, so that Python need not know the session's time zone
        found["at"] = found["at"].cast(pa.timestamp("us", "UTC"))
    if all(column.null_count == batch.num_rows for name, column in found.items() if name != "exchange"):
        return None
    return pa.RecordBatch.from_pydict(found)


def bodies(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Return the bodies; text is encoded as UTF-8."""
    return batch.column(batch.schema.get_field_index("body")).cast(pa.binary())
