"""Deliveries as columns, in two steps: raw (all that a spool keeps), then decoded for the columns of a query.

Columns that a query does not ask for are not decoded, and equal headers are decoded once.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.client.protocol.delivering import RawDeliveries
from leveret.spark.rows.columns import PROPERTIES
from leveret.spark.rows.content_headers import CONTENT_HEADER, without_offsets
from leveret.spark.rows.properties import HEAD_SIZE, property_arrays, text_array

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

ROUTE: Final = ("exchange", "routing_key")

FLAG_AT: Final = 8
_ROUTE_AT: Final = 9
"""Octets before the flag redelivered, and before exchange and routing key, in the methods of deliveries."""

SLICE_END: Final = (1 << 31) - 1
"""Beyond the end of any value; Arrow's own default fails for some arrays (26.0)."""

_NOTHING: Final[Mapping[str, Sequence[Any]]] = {}


def to_batches(
    deliveries: RawDeliveries, schema: pa.Schema, known: Mapping[str, Sequence[Any]] = _NOTHING
) -> list[pa.RecordBatch]:
    """Return the deliveries as Arrow batches of at most :data:`ROWS_PER_BATCH` rows.

    ``known`` has the columns that deliveries lack (stream, offset, arrived), one value per delivery. Raises
    ``ProtocolError`` (502) for a malformed content header.
    """
    wanted = {"properties" if name in PROPERTIES or name == CONTENT_HEADER else name for name in schema.names}
    raw = pa.schema([field for field in RAW if field.name in wanted])
    return [
        decoded(
            raw_batch(deliveries.part(first, end), raw),
            schema,
            {name: values[first:end] for name, values in known.items()},
        )
        for first, end in batch_ranges(deliveries)
    ]


def batch_ranges(deliveries: RawDeliveries) -> Iterator[tuple[int, int]]:
    """Yield the first and end index of each batch."""
    first = 0
    while first < len(deliveries):
        end = first + rows_within(deliveries.bodies[first : first + ROWS_PER_BATCH], OCTETS_PER_BATCH)
        yield first, end
        first = end


def rows_within(bodies: Sequence[bytes], octets: int) -> int:
    """Return how many bodies there are up to the one with which they have this many octets."""
    if sum(map(len, bodies)) < octets:
        return len(bodies)
    return bisect_left(list(accumulate(map(len, bodies))), octets) + 1


def raw_batch(deliveries: RawDeliveries, schema: pa.Schema = RAW) -> pa.RecordBatch:
    """Return the raw columns of deliveries: those of :data:`RAW` that ``schema`` has."""
    columns: dict[str, pa.Array] = {}
    if "body" in schema.names:
        columns["body"] = pa.array(deliveries.bodies, pa.binary())
    if "properties" in schema.names:
        columns["properties"] = pc.binary_slice(pa.array(deliveries.headers, pa.binary()), HEAD_SIZE, SLICE_END)
    if not {*ROUTE, "redelivered", "delivery_tag"}.isdisjoint(schema.names):
        methods = pa.array(deliveries.methods, pa.binary())
        columns |= routes(methods)
        columns["redelivered"] = pc.not_equal(pc.binary_slice(methods, FLAG_AT, _ROUTE_AT), b"\0")
        tags = array("Q", pc.binary_slice(methods, 0, FLAG_AT).buffers()[2].to_pybytes()[: FLAG_AT * len(methods)])
        if sys.byteorder == "little":
            tags.byteswap()
        columns["delivery_tag"] = pa.array(tags, pa.int64())
    return _batch([columns[field.name] for field in schema], schema, len(deliveries))


def routes(methods: pa.BinaryArray) -> dict[str, pa.Array]:
    """Return exchange and routing key of deliveries, whose methods are as in :class:`RawDeliveries`."""
    coded = pc.binary_slice(methods, _ROUTE_AT, SLICE_END).dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    exchanges = text_array([route[1 : 1 + route[0]] for route in distinct])
    keys = text_array([route[2 + route[0] :] for route in distinct])
    return dict(zip(ROUTE, (exchanges.take(coded.indices), keys.take(coded.indices)), strict=True))


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
