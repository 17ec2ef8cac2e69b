"""The columns of the sink: which there are, and what a row has where it does not say."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegralType, MapType, NumericType, StringType, StructType, TimestampType

from leveret.spark.rows.columns import OF_SOURCES, PROPERTIES
from leveret.spark.rows.content_headers import CONTENT_HEADER
from leveret.spark.sink.options import SinkOptions

COLUMNS: Final = ("body", "exchange", "routing_key", "delay", "at", CONTENT_HEADER, *PROPERTIES)
"""The columns of the sink; ``body`` must be there, ``delay`` is in seconds, ``at`` is when the message is due."""

Columns: TypeAlias = "dict[str, pa.Array | str | int]"


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """``ValueError`` unless every column is one of :data:`COLUMNS` (or of a source's own) and of a fitting type."""
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
    """The properties that some rows have a value for in a column of their own."""
    found = {}
    for name in PROPERTIES:
        column = _message_ids(batch, options.message_id_column or name, "", 0) if name == "message_id" else None
        column = _column(batch, name) if column is None else column
        if column is None or column.null_count == len(column):
            continue
        found[name] = _seconds(column) if pa.types.is_timestamp(column.type) else column
    return found


def content_headers(batch: pa.RecordBatch) -> pa.Array | None:
    """The encoded properties of those rows that have them; None where no row does."""
    column = _column(batch, CONTENT_HEADER)
    return None if column is None or column.null_count == len(column) else column


def message_columns(batch: pa.RecordBatch, options: SinkOptions, id_prefix: str, first_row: int) -> Columns:
    """Exchange, routing key and properties of the rows: an array, or what all rows have.

    ``id_prefix``: with the row's number behind it the id of a row that has none; "" where such rows have no id.
    ``first_row``: the number of the batch's first row.
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
    """Whole seconds since 1970, -1 for what is before: no time zone is looked up, which there may be none to find."""
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
    """The columns exchange, delay and at, as far as they are there; None where no row has a delay or a time."""
    found = {name: column for name in ("exchange", "delay", "at") if (column := _column(batch, name)) is not None}
    if "at" in found:
        # Python need not know the session's time zone then
        found["at"] = found["at"].cast(pa.timestamp("us", "UTC"))
    if all(column.null_count == batch.num_rows for name, column in found.items() if name != "exchange"):
        return None
    return pa.RecordBatch.from_pydict(found)


def bodies(batch: pa.RecordBatch) -> pa.BinaryArray:
    """The bodies; text in UTF-8."""
    return batch.column(batch.schema.get_field_index("body")).cast(pa.binary())
