"""A Parquet file of messages, with the columns of a stream's tables. Import it only if pyarrow is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from leveret.cli.stream.reading import StreamMessage
from leveret.lake.properties import read_properties
from leveret.lake.rows import COLUMNS

# AMQP does not tell when messages arrived, so this column is null
_SCHEMA: Final = pa.schema([field.with_nullable(True) if field.name == "timestamp" else field for field in COLUMNS])
_GROUP_ROWS: Final = 10_000
_GROUP_OCTETS: Final = 32 << 20
# the class id, weight and body size precede the property flags in a content header
_FLAGS_AT: Final = 12


class ParquetFile:
    """A Parquet file that is being written. Its column `timestamp` is null."""

    def __init__(self, path: Path) -> None:
        self.rows = self.octets = 0  # messages in the file, and the size of their bodies
        self._writer = pq.ParquetWriter(path, _SCHEMA, compression="zstd", use_dictionary=["exchange", "routing_key"])
        self._waiting: list[StreamMessage] = []
        self._waiting_octets = 0
        self._first = self._last = 0

    def add(self, message: StreamMessage) -> None:
        """Add one message."""
        if self.rows == 0:
            self._first = message.offset
        self._last = message.offset
        self._waiting.append(message)
        self.rows += 1
        self.octets += len(message.delivery.body)
        self._waiting_octets += len(message.delivery.body)
        if len(self._waiting) >= _GROUP_ROWS or self._waiting_octets >= _GROUP_OCTETS:
            self._write()

    def finish(self) -> tuple[int, int]:
        """Complete the file; return the first and last offset in it."""
        self._write()
        self._writer.close()
        return self._first, self._last

    def _write(self) -> None:
        messages, self._waiting, self._waiting_octets = self._waiting, [], 0
        if not messages:
            return
        deliveries = [message.delivery for message in messages]
        raw = pa.array([delivery.header[_FLAGS_AT:] for delivery in deliveries], pa.binary())
        properties = read_properties(raw)
        columns = [
            pa.array([message.offset for message in messages], pa.int64()),
            pa.nulls(len(messages), _SCHEMA.field("timestamp").type),
            pa.array([delivery.exchange for delivery in deliveries], pa.string()),
            pa.array([delivery.routing_key for delivery in deliveries], pa.string()),
            properties.message_id,
            properties.properties,
            properties.headers,
            raw,
            pa.array([delivery.body for delivery in deliveries], pa.binary()),
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
