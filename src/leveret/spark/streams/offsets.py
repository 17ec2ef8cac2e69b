"""The offsets in Spark's checkpoint: how far a query has read each partition's stream.

``{"flights": {"id": "00c4…", "next": 123}}``: ``id`` tells streams of the same name apart (null if the broker does not
tell), ``next`` is the offset of the first unread message.

``initialOffset`` returns ``{}``, since Spark calls it again after a crash in the first micro-batch, when "latest" would
mean another offset. The *end* of the first micro-batch, which Spark writes to disk before anything is read, also has
``first``: the offset at which the query began to read the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StreamPosition:
    """How far a query has read one stream; ``first`` is set only in the offset with which the query begins the
    stream."""

    next: int
    id: str | None = None
    first: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the position as it stands in the checkpoint."""
        found: dict[str, Any] = {"id": self.id, "next": self.next}
        return found if self.first is None else {**found, "first": self.first}


Offset = Mapping[str, StreamPosition]
"""A position for each partition's stream, in order of partitions."""


def parse_offset(offset: Mapping[str, Any]) -> dict[str, StreamPosition]:
    """Parse the offset of a checkpoint; ``ValueError`` if it is not one of this source."""
    try:
        return {
            stream: StreamPosition(position["next"], position["id"], position.get("first"))
            for stream, position in offset.items()
        }
    except (TypeError, KeyError, AttributeError):
        raise ValueError(
            f"the checkpoint has no offset of a stream, only {dict(offset)!r}: option checkpointLocation must name the "
            "checkpoint of a query with the same source"
        ) from None


def format_offset(offset: Offset) -> dict[str, Any]:
    """Return the offset as Spark stores it."""
    return {stream: position.to_json() for stream, position in offset.items()}


@dataclass(frozen=True)
class Span:
    """Messages of one stream from offset ``first`` to before ``end``."""

    stream: str
    id: str | None
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first


def spans(start: Offset, end: Offset) -> list[Span]:
    """Return the messages between two offsets by stream, without empty spans."""
    found = []
    for stream, position in end.items():
        begun = start.get(stream)
        if position == begun:
            continue
        first = position.first
        if first is None and begun is not None:
            first = begun.next
        if first is None:
            raise ValueError(f"the checkpoint does not say at which offset stream {stream!r} was started")
        if first < position.next:
            found.append(Span(stream, position.id, first, position.next))
    return found
