"""Deliveries as columns, in two steps: raw (all that a spool keeps), then decoded for the columns of a query.

Columns that a query does not ask for are not decoded, and equal headers are decoded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from leveret.spark.rows.columns import PROPERTIES
from leveret.spark.rows.content_headers import CONTENT_HEADER, without_offsets
from leveret.spark.rows.properties import HEAD_SIZE, property_arrays, text_array

if TYPE_CHECKING:
    from leveret.client import Delivery

ROWS_PER_BATCH: Final = 10_000
"""Rows of an Arrow batch: larger batches gain nothing and delay Spark's first row."""

OCTETS_PER_BATCH: Final = 8 << 20
"""A batch also ends when its bodies have this many octets."""

RAW: Final = pa.schema(
    [
        pa.field("body", pa.binary()),
        pa.field("properties", pa.binary()),
        pa.field("exchange", pa.string()),
        pa.field("routing_key", pa.string()),
        pa.field("redelivered", pa.bool_()),
        pa.field("delivery_tag", pa.int64()),
    ]
)
"""The raw columns of deliveries: ``properties`` is the content header from its flags on."""

_NOTHING: Final[Mapping[str, Sequence[Any]]] = {}


def to_batches(
    deliveries: Sequence[Delivery], schema: pa.Schema, known: Mapping[str, Sequence[Any]] = _NOTHING
) -> list[pa.RecordBatch]:
    """Return the deliveries as Arrow batches of at most :data:`ROWS_PER_BATCH` rows.

    ``known`` has the columns that deliveries lack (stream, offset, arrived), one value per delivery. Raises
    ``ProtocolError`` (502) for a malformed content header.
    """
    wanted = {"properties" if name in PROPERTIES or name == CONTENT_HEADER else name for name in schema.names}
    raw = pa.schema([field for field in RAW if field.name in wanted])
    return [
        decoded(
            raw_batch(deliveries[first:end], raw),
            schema,
            {name: values[first:end] for name, values in known.items()},
        )
        for first, end in batch_ranges(deliveries)
    ]


def batch_ranges(deliveries: Sequence[Delivery]) -> Iterator[tuple[int, int]]:
    """Yield the first and end index of each batch."""
    first = 0
    while first < len(deliveries):
        end, octets = first, 0
        for one in deliveries[first : first + ROWS_PER_BATCH]:
            octets += len(one.body)
            end += 1
            if octets >= OCTETS_PER_BATCH:
                break
        yield first, end
        first = end


def raw_batch(deliveries: Sequence[Delivery], schema: pa.Schema = RAW) -> pa.RecordBatch:
    """Return the raw columns of deliveries: those of :data:`RAW` that ``schema`` has."""
    arrays = []
    for field in schema:
        if field.name == "properties":
            values: list[Any] = [one.header[HEAD_SIZE:] for one in deliveries]
        else:
            values = list(map(attrgetter(field.name), deliveries))
        arrays.append(_texts(values) if field.type == pa.string() else pa.array(values, field.type))
    return _batch(arrays, schema, len(deliveries))


def decoded(raw: pa.RecordBatch, schema: pa.Schema, known: Mapping[str, Sequence[Any]] = _NOTHING) -> pa.RecordBatch:
    """Decode raw deliveries into the columns of ``schema``; ``known`` as in :func:`to_batches`."""
    properties = [field for field in schema if field.name in PROPERTIES and field.name not in known]
    arrays: dict[str, pa.Array] = {}
    if properties:
        found = property_arrays(raw.column("properties"), properties, hides_offset="offset" in known)
        arrays = dict(zip([field.name for field in properties], found, strict=True))
    if CONTENT_HEADER in schema.names:
        encoded = raw.column("properties")
        arrays[CONTENT_HEADER] = without_offsets(encoded) if "offset" in known else encoded
    columns = []
    for field in schema:
        if field.name in known:
            columns.append(pa.array(known[field.name], field.type))
        else:
            columns.append(arrays[field.name] if field.name in arrays else raw.column(field.name))
    return _batch(columns, schema, raw.num_rows)


def _batch(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if columns:  # without columns, only the number of rows counts
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _texts(values: list[str]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        return text_array([value.encode("utf-8", "surrogateescape") for value in values])
