"""Converts messages to rows of a stream's table."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.lake.bodies import TableBodyParser
from leveret.lake.contents import read_contents
from leveret.lake.headers import HEADERS_TYPE
from leveret.lake.octets import text
from leveret.lake.properties import PROPERTIES_TYPE, TIMESTAMP, read_properties

COLUMNS: Final = (
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", TIMESTAMP, nullable=False),
    pa.field("exchange", pa.string(), nullable=False),
    pa.field("routing_key", pa.string(), nullable=False),
    pa.field("message_id", pa.string()),
    pa.field("properties", PROPERTIES_TYPE, nullable=False),
    pa.field("headers", HEADERS_TYPE),
    pa.field("raw_properties", pa.binary(), nullable=False),
    pa.field("body", pa.binary(), nullable=False),
)
"""The columns of every table. raw_properties and body are the exact bytes; properties and headers are decoded."""


class RowMaker:
    """Converts messages of one stream to rows. parser: for the bodies, None if the stream has no schema.

    Attributes:
        schema: The columns of its files.
        dated: What readers get: those columns, of which the time of arrival may be null, and the date of arrival.
    """

    def __init__(self, parser: TableBodyParser | None) -> None:
        self._parser = parser
        self.schema = pa.schema([*COLUMNS, *(parser.fields if parser is not None else ())])
        arrived = self.schema.get_field_index("timestamp")
        nullable = self.schema.set(arrived, self.schema.field(arrived).with_nullable(True))
        self.dated = nullable.append(pa.field("date", pa.string()))

    def rows(self, payload: bytes, first_offset: int) -> pa.RecordBatch:
        """Convert one or several consecutive chunks, not empty and less than 2 GiB, to rows."""
        contents = read_contents(payload, first_offset)
        exchange, routing_key = _names(contents.keys)
        properties = read_properties(contents.properties)
        raw = contents.properties
        if len(raw) < len(contents.offset):
            group = pa.array(contents.group)
            exchange, routing_key, raw = exchange.take(group), routing_key.take(group), raw.take(group)
            properties = properties.take(group)
        columns = [
            pa.array(contents.offset),
            pa.array(contents.time_us).cast(TIMESTAMP),
            exchange,
            routing_key,
            properties.message_id,
            properties.properties,
            properties.headers,
            raw,
            contents.bodies,
            *self._parsed(contents.bodies),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def delivered(
        self,
        offset: pa.Int64Array,
        time_us: pa.Int64Array,
        exchange: pa.BinaryArray,
        routing_key: pa.BinaryArray,
        raw: pa.BinaryArray,
        bodies: pa.BinaryArray,
    ) -> pa.RecordBatch:
        """Convert delivered messages to rows with the columns of `dated`.

        time_us: arrival, µs since 1970, null if unknown; raw: flags and values of the content headers.
        """
        properties = read_properties(raw)
        time = time_us.cast(TIMESTAMP)
        columns = [
            offset,
            time,
            text(exchange),
            text(routing_key),
            properties.message_id,
            properties.properties,
            properties.headers,
            raw,
            bodies,
            *self._parsed(bodies),
            pc.strftime(time, "%Y-%m-%d"),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.dated)

    def _parsed(self, bodies: pa.BinaryArray) -> list[pa.Array]:
        return self._parser.parse(bodies) if self._parser is not None else []


def _names(keys: pa.BinaryArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Decode exchanges and routing keys, each distinct pair once."""
    coded = keys.dictionary_encode()
    exchanges, routing_keys = [], []
    for key in coded.dictionary.to_pylist():
        at = 1 + key[0]
        exchanges.append(key[1:at].decode("utf-8", "replace"))
        routing_keys.append(key[at + 1 : at + 1 + key[at]].decode("utf-8", "replace"))
    names = [pa.array(each, pa.string()).take(coded.indices) for each in (exchanges, routing_keys)]
    return names[0], names[1]
