"""Native files of a stream as the broker writes them, and tables as other programs read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from leveret.broker.streams.chunk import ChunkGroup, encode
from leveret.lake.sealer import SealRequest
from leveret.store.disk import RealDisk
from leveret.store.stream_files import SEGMENT_OCTETS_DEFAULT, Chunk, StreamFiles
from leveret.store.tables import stream_directory
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import encode_short

NOON_US = 1_795_348_800_000_000
"""2026-11-22, 12:00 UTC."""
CREATION = "00000000000000aa"


@dataclass
class Message:
    """A published message. `header`: the payload of its content header, if that does not follow from `properties`."""

    body: bytes = b"x"
    properties: Properties = field(default_factory=Properties)
    time_us: int = NOON_US
    exchange: str = "x"
    routing_key: str = "k"
    frame_max: int = 131_072
    header: bytes = b""

    @property
    def payload(self) -> bytes:
        return self.header or encode_header(self.properties, len(self.body))

    @property
    def content(self) -> bytes:
        return content_frames(1, self.payload, self.body, self.frame_max)

    @property
    def key(self) -> bytes:
        return encode_short(self.exchange) + encode_short(self.routing_key)


def groups(messages: Sequence[Message], offset: int = 0) -> list[ChunkGroup]:
    """Group messages as a stream keeps them: consecutive ones that differ in their bodies only form one group."""
    found: list[ChunkGroup] = []
    alike: object = None
    for message in messages:
        content = message.content
        this = (message.time_us, message.key, message.payload, len(content))
        if this == alike:
            found[-1].data += content
            found[-1].count += 1
        else:
            found.append(ChunkGroup(offset, message.time_us, message.key, content, len(content), 1, 0))
        alike = this
        offset += 1
    return found


class NativeFiles:
    """The files of a stream in a test's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = StreamFiles(RealDisk(), str(path / "streams" / "1"))
        self.messages: list[Message] = []

    def append(
        self, messages: Sequence[Message], per_chunk: int = 1000, segment_octets: int = SEGMENT_OCTETS_DEFAULT
    ) -> None:
        chunks = []
        for start in range(0, len(messages), per_chunk):
            part = groups(messages[start : start + per_chunk], len(self.messages) + start)
            first, last = part[0], part[-1]
            chunks.append(Chunk(first.offset, last.end - first.offset, first.time_us, last.time_us, encode(part)))
        self.messages += messages
        self.files.appended(self.files.append(chunks, segment_octets))

    @property
    def tables(self) -> str:
        return str(self.path / "tables")

    @property
    def folder(self) -> str:
        """Return the table's directory."""
        return stream_directory(self.tables, "/", "events")

    def request(self, first: int = 0, end: int | None = None, schema: str = "") -> SealRequest:
        end = len(self.messages) if end is None else end
        return SealRequest(1, self.files.directory, "/", "events", CREATION, first, end, schema)

    def rows(self) -> list[dict[str, Any]]:
        """Return the table's rows, in order of their offsets."""
        return read_rows(self.folder)


def read_rows(folder: str) -> list[dict[str, Any]]:
    """Return all rows of a table, in order of their offsets."""
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    return list(table.sort_by("offset").to_pylist())
