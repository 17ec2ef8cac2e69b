"""Counts the fields of JSON bodies by type, and grows a schema from the counts.

A field gets the type that most of its values have, so that one odd message is a dead letter and does not set the type
for all that follow.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Self

from leveret.wire.body_schema import Column

DEPTH_MAX: Final = 16
NAME_LENGTH_MAX: Final = 255

_BIGINT: Final = range(-(1 << 63), 1 << 63)
_KINDS: Final = {bool: "boolean", int: "long", float: "double", str: "string", dict: "struct", list: "list"}
_ORDER: Final = ("string", "double", "long", "boolean", "struct", "list")
"""Types in order of preference, for equal counts."""


class ValueCensus:
    """Counts of the values at one path of all bodies."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}  # number of values of each type
        self.fields: dict[str, ValueCensus] = {}  # counts for the fields of objects at this path
        self.items: ValueCensus | None = None  # counts for the items of arrays at this path

    def add(self, values: Sequence[Any], depth: int = 0) -> None:
        """Count values of ``json.loads``. Null, and an integer beyond 64 bits, count as no type."""
        if depth > DEPTH_MAX:
            return
        counts = Counter(map(type, values))
        if int in counts:
            counts[int] -= sum(value not in _BIGINT for value in values if type(value) is int)
        for kind, count in counts.items():
            if kind in _KINDS and count:
                name = _KINDS[kind]
                self.kinds[name] = self.kinds.get(name, 0) + count
        if "struct" in self.kinds:
            objects = [value for value in values if type(value) is dict]
            for name in dict.fromkeys(chain.from_iterable(objects)):
                found = [each for value in objects if (each := value.get(name)) is not None]
                if found:
                    self.fields.setdefault(name, ValueCensus()).add(found, depth + 1)
        if "list" in self.kinds:
            items = [item for value in values if type(value) is list for item in value]
            if items:
                self._of_items().add(items, depth + 1)

    @classmethod
    def merged(cls, parts: Iterable[ValueCensus]) -> Self:
        """Return the sums of all parts."""
        found = cls()
        for part in parts:
            found._merge(part)
        return found

    def text(self) -> str:
        """Serialise the counts for :meth:`parse`."""
        return json.dumps(self._document())

    @classmethod
    def parse(cls, text: str) -> ValueCensus:
        """Parse the result of :meth:`text`."""
        return cls._of(json.loads(text))

    def kind(self) -> str | None:
        """Return the most frequent type, or None; if there are doubles, whole numbers count as
        doubles."""
        counts = dict(self.kinds)
        if "double" in counts:
            counts["double"] += counts.pop("long", 0)
        return max(counts, key=lambda kind: (counts[kind], -_ORDER.index(kind)), default=None)

    def _of_items(self) -> ValueCensus:
        if self.items is None:
            self.items = ValueCensus()
        return self.items

    def _merge(self, other: ValueCensus) -> None:
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        for name, field in other.fields.items():
            self.fields.setdefault(name, ValueCensus())._merge(field)
        if other.items is not None:
            self._of_items()._merge(other.items)

    def _document(self) -> list[Any]:
        fields = {name: field._document() for name, field in self.fields.items()}
        return [self.kinds, fields, self.items and self.items._document()]

    @classmethod
    def _of(cls, document: list[Any]) -> ValueCensus:
        found = cls()
        found.kinds = document[0]
        found.fields = {name: cls._of(field) for name, field in document[1].items()}
        found.items = document[2] and cls._of(document[2])
        return found


def grown(columns: Sequence[Column], census: ValueCensus, fields_max: int) -> tuple[Column, ...]:
    """Return the columns followed by those of new fields; existing columns keep their types.

    A field has no column while its type is unknown: all its values are null, or empty objects and arrays. A field whose
    name differs from another only in case has none either, since tables do not distinguish them.
    """
    room = _Room(fields_max - sum(map(_size, columns)))
    return tuple(_grown(columns, census, room))


class _Room:
    """The number of fields that may still be added."""

    def __init__(self, fields: int) -> None:
        self.fields = fields

    def take(self) -> bool:
        self.fields -= 1
        return self.fields >= 0


def _grown(columns: Sequence[Column], census: ValueCensus, room: _Room) -> list[Column]:
    found = [_wider(column, census.fields[column.name], room) if column.name in census.fields else column
             for column in columns]  # fmt: skip
    taken = {column.name.lower() for column in columns}
    for name, field in census.fields.items():
        if name.lower() in taken or not _is_name(name):
            continue
        column = _new(name, field, room)
        if column is not None:
            found.append(column)
            taken.add(name.lower())
    return found


def _wider(column: Column, census: ValueCensus, room: _Room) -> Column:
    """Return a column with new fields added inside it."""
    if column.kind == "struct":
        return Column(column.name, "struct", _grown(column.parts, census, room))
    if column.kind == "list" and census.items is not None:
        return Column(column.name, "list", [_wider(column.parts[0], census.items, room)])
    return column


def _new(name: str, census: ValueCensus, room: _Room) -> Column | None:
    kind = census.kind()
    if kind is None or not room.take():
        return None
    if kind == "struct":
        parts = _grown([], census, room)
        return Column(name, kind, parts) if parts else None
    if kind == "list":
        item = _new("element", census.items, room) if census.items is not None else None
        return Column(name, kind, [item]) if item is not None else None
    return Column(name, kind)


def strangers(found: Mapping[str, Any], columns: Sequence[Column], path: str = "$") -> Iterator[str]:
    """Yield the paths of values that have no column."""
    known = {column.name: column for column in columns}
    for name, value in found.items():
        column = known.get(name)
        if column is None:
            if not _is_nothing(value):
                yield f"{path}.{name}"
        elif column.kind == "struct" or column.kind == "list":
            yield from _inside(value, column, f"{path}.{name}")


def _inside(value: Any, column: Column, path: str) -> Iterator[str]:
    if column.kind == "struct" and isinstance(value, dict):
        yield from strangers(value, column.parts, path)
    elif column.kind == "list" and isinstance(value, list):
        for item in value:
            yield from _inside(item, column.parts[0], f"{path}[...]")


def _is_nothing(value: Any) -> bool:
    """Whether a value holds nothing that a table could store."""
    if isinstance(value, dict):
        return all(map(_is_nothing, value.values()))
    if isinstance(value, list):
        return all(map(_is_nothing, value))
    return value is None


def _size(column: Column) -> int:
    return 1 + sum(map(_size, column.parts))


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable()
