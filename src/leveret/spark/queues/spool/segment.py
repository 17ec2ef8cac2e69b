"""A file of the spool: an Arrow IPC file of raw deliveries, named after its first message and the end of its range."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from leveret.client.protocol.delivering import RawDeliveries
from leveret.spark.queues.errors import SourceError
from leveret.spark.rows.deliveries import RAW, batch_ranges, decoded, raw_batch
from leveret.spark.rows.shape import RowShape

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.(arrow|done)")


@dataclass(frozen=True)
class SpoolSegment:
    """Messages first ≤ n < end of a spool. ``is_done``: Spark is done with it, and it only serves to recognise
    messages."""

    first: int
    end: int
    is_done: bool = False

    @staticmethod
    def parse(name: str) -> SpoolSegment | None:
        """Return the segment with this file name, None if it is not a segment's."""
        match = _NAME.fullmatch(name)
        return None if match is None else SpoolSegment(int(match[1]), int(match[2]), match[3] == "done")

    @property
    def name(self) -> str:
        """The file name: 00000000000000000000-00000000000000010000.arrow, or .done."""
        return f"{self.first:020d}-{self.end:020d}.{'done' if self.is_done else 'arrow'}"


def encoded(deliveries: RawDeliveries, compression: str | None) -> pa.Buffer:
    """Encode deliveries as an Arrow IPC file; ``compression`` is lz4, zstd or None."""
    stream = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(stream, RAW, options=options) as writer:
        for first, end in batch_ranges(deliveries):
            writer.write_batch(raw_batch(deliveries.part(first, end)))
    return stream.getvalue()


def batches(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the deliveries of a segment's file, which is memory-mapped; ``SourceError`` if the file is unusable."""
    try:
        with pa.memory_map(path) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
    except FileNotFoundError:
        raise SourceError(
            f"spool file {path} does not exist here: option spoolDir must be a directory that driver and executors "
            "share, and nothing else may remove its files"
        ) from None
    except (OSError, pa.ArrowInvalid) as error:
        raise SourceError(f"spool file {path} can't be read: {error} (option spoolDir)") from error


@dataclass
class SegmentPart(InputPartition):
    """Rows first ≤ n < end of a segment's file, read by one task."""

    path: str
    first: int
    end: int

    def read(self, shape: RowShape) -> Iterator[pa.RecordBatch]:
        """Yield the rows; ``SourceError`` if the file is missing, damaged or too short."""
        at = 0
        for batch in batches(self.path):
            start, stop = max(self.first - at, 0), min(self.end - at, batch.num_rows)
            if start < stop:
                yield shape.finish(decoded(batch.slice(start, stop - start), shape.raw))
            at += batch.num_rows
        if at < self.end:
            name = os.path.basename(self.path)
            raise SourceError(f"spool file {name} is damaged: it has {at} messages, not {self.end} (option spoolDir)")
