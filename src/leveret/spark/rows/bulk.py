"""Many messages of a stream as one Arrow batch, made of the octets as received."""

from __future__ import annotations

import pyarrow as pa

from leveret.spark.rows.columns import PROPERTIES
from leveret.spark.rows.content_headers import CONTENT_HEADER, without_offsets
from leveret.spark.rows.deliveries import ROUTE, routes
from leveret.spark.rows.properties import property_arrays


class MessageRun:
    """A batch of messages with consecutive offsets."""

    __slots__ = ("bodies", "first", "headers", "methods", "octets")

    def __init__(self, first: int) -> None:
        self.first = first  # offset of the first message
        self.bodies: list[bytes] = []
        # content headers from the flags on, offset set to 0 so that equal headers are equal; empty if no column needs
        # them
        self.headers: list[pa.BinaryArray] = []
        self.methods: list[bytes] = []  # as in RawDeliveries
        self.octets = 0  # total size of the bodies

    def __len__(self) -> int:
        return len(self.bodies)


class BulkRows:
    """Makes Arrow batches with the columns of ``schema`` from messages of one stream."""

    def __init__(self, schema: pa.Schema, stream: str) -> None:
        self._schema = schema
        self._stream = stream
        self._properties = [field for field in schema if field.name in PROPERTIES]
        self._needs_content_header = CONTENT_HEADER in schema.names
        self._needs_routes = not set(schema.names).isdisjoint(ROUTE)

    @property
    def needs_headers(self) -> bool:
        """Whether a column is made of the messages' properties."""
        return bool(self._properties) or self._needs_content_header

    def batch(self, run: MessageRun) -> pa.RecordBatch:
        """Return the messages as rows."""
        columns = routes(pa.array(run.methods, pa.binary())) if self._needs_routes else {}
        headers = pa.chunked_array(run.headers, pa.binary()).combine_chunks()
        if self._needs_content_header:
            columns[CONTENT_HEADER] = without_offsets(headers)
        if self._properties:
            found = property_arrays(headers, self._properties, hides_offset=True)
            columns.update(zip([field.name for field in self._properties], found, strict=True))
        arrays = [columns[field.name] if field.name in columns else self._other(field, run) for field in self._schema]
        if not arrays:  # a query that only counts needs the number of rows
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(run), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _other(self, field: pa.Field, run: MessageRun) -> pa.Array:
        if field.name == "body":
            return pa.array(run.bodies, pa.binary())
        if field.name == "offset":
            return pa.array(range(run.first, run.first + len(run)), pa.int64())
        if field.name == "stream":
            return pa.repeat(pa.scalar(self._stream, pa.string()), len(run))
        return pa.nulls(len(run), field.type)  # AMQP does not tell when a message arrived
