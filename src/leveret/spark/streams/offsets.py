"""The offsets that Spark keeps in its checkpoint: how far a query has come in each partition's stream.

``{"flights": {"id": "00c4…", "next": 123}}``: ``id`` tells a stream from another one of the same name (null where the
broker does not say), ``next`` is the offset of the first message that was not read.

Where a query begins is not known to ``initialOffset``: Spark calls it again after a crash in the first micro-batch,
when "latest" would be somewhere else. It is ``{}`` and says nothing. The *end* of the first micro-batch, which Spark
has on disk before anything is read, has ``first`` beside it: where the stream was begun with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Position:
    """How far a query has come in one stream. ``first`` is there in the offset that begins it."""

    next: int
    id: str | None = None
    first: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As it stands in the checkpoint."""
        found: dict[str, Any] = {"id": self.id, "next": self.next}
        return found if self.first is None else {**found, "first": self.first}


Offset = Mapping[str, Position]
"""A position for each partition's stream, in the order of partitions."""


def parse_offset(offset: Mapping[str, Any]) -> dict[str, Position]:
    """The offset of a checkpoint. ``ValueError`` where it is not one of this source."""
    try:
        return {
            stream: Position(position["next"], position["id"], position.get("first"))
            for stream, position in offset.items()
        }
    except (TypeError, KeyError, AttributeError):
        raise ValueError(
            f"the checkpoint has no offset of a stream, only {dict(offset)!r}: option checkpointLocation must name the "
            "checkpoint of a query with the same source"
        ) from None


def format_offset(offset: Offset) -> dict[str, Any]:
    """The offset as Spark keeps it."""
    return {stream: position.to_json() for stream, position in offset.items()}


@dataclass(frozen=True)
class Span:
    """Messages of one stream from offset ``first`` to the one before ``end``."""

    stream: str
    id: str | None
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first


def spans(start: Offset, end: Offset) -> list[Span]:
    """What lies between two offsets, stream by stream; streams of which nothing does are left out."""
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
