"""Converts the columns of sealed files into those of the source, a whole column at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

_HEADERS: Final = ("headers.key_value.key", "headers.key_value.value.text")
_OF_PROPERTIES: Final = (
    "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to", "expiration",
    "timestamp", "type", "user_id", "app_id",
)  # fmt: skip
LEAVES: Final[dict[str, tuple[str, ...]]] = {
    "offset": ("offset",),
    "arrived": ("timestamp",),
    "exchange": ("exchange",),
    "routing_key": ("routing_key",),
    "message_id": ("message_id",),
    "headers": _HEADERS,
    "body": ("body",),
    **{name: (f"properties.{name}",) for name in _OF_PROPERTIES},
}
"""For each column of the source, the leaves of a sealed file that it is made of; `stream` needs none."""

_TEXT_MAP: Final = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True)
class Projection:
    """What to read for the columns of a query.

    Attributes:
        schema: the columns, in order.
        stream: value of the column stream.
        typed: columns of the stream's schema; files have them by the same names.
    """

    schema: pa.Schema
    stream: str
    typed: frozenset[str] = frozenset()

    def leaves(self, group: Any) -> list[str]:
        """Return the leaves to read of a row group: always the offset, and none that is null throughout."""
        wanted = ["offset"]
        for name in self.schema.names:
            leaves = self._leaves(name)
            if leaves and not _is_null(group.get(leaves[0])):
                wanted += leaves
        return list(dict.fromkeys(wanted))

    def _leaves(self, name: str) -> tuple[str, ...]:
        return (name,) if name in self.typed else LEAVES.get(name, ())

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Make rows of what was read of a row group. Columns that were not read are null."""
        arrays = [self._array(field, batch) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        is_typed = field.name in self.typed
        if field.name == "stream" and not is_typed:
            return pa.repeat(pa.scalar(self.stream, field.type), len(batch))
        column, _, part = self._leaves(field.name)[0].partition(".")
        index = batch.schema.get_field_index(column)
        found = None if index < 0 else batch.column(index)
        if found is not None and not is_typed:
            found = texts_of(found) if field.name == "headers" else _part(found, part)
        if found is None:
            return pa.nulls(len(batch), field.type)
        return found if found.type == field.type else found.cast(field.type)


def texts_of(headers: pa.MapArray) -> pa.MapArray:
    """Convert maps of names to structs with a `text` into maps of names to that text."""
    items = headers.items
    entries = pa.StructArray.from_arrays(
        [headers.keys, items.field(items.type.get_field_index("text"))],
        fields=[_TEXT_MAP.key_field, _TEXT_MAP.item_field],
    )
    return pa.Array.from_buffers(
        _TEXT_MAP, len(headers), headers.buffers()[:2], headers.null_count, headers.offset, [entries]
    )


def columns_of(group: Any) -> dict[str, Any]:
    """Return the metadata of a row group's leaves by path."""
    return {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}


def _part(found: pa.Array, name: str) -> pa.Array | None:
    """Return a part of a struct that is never null itself, None if it was not read; "" returns the array itself."""
    if not name:
        return found
    index = found.type.get_field_index(name)
    return None if index < 0 else found.field(index)


def _is_null(column: Any) -> bool:
    """Whether statistics show that a leaf has no value in this row group."""
    statistics = None if column is None else column.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == column.num_values
