"""What JSON bodies hold: which fields, of which types, how often; and the schema that grows from that.

A field is of the type that most of its values have. So one message that is odd is a dead letter, and not the rule for
all that come after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from leveret.wire.body_schema import Column

DEPTH_MAX: Final = 16
NAME_LENGTH_MAX: Final = 255

_BIGINT: Final = range(-(1 << 63), 1 << 63)
_KINDS: Final = {bool: "boolean", int: "long", float: "double", str: "string", dict: "struct", list: "list"}
_ORDER: Final = ("string", "double", "long", "boolean", "struct", "list")
"""Which type wins where two are as frequent."""


class Census:
    """Counts of what stands in one place of all bodies. kinds: how often which type; fields: of the objects there;
    items: of the arrays there."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.fields: dict[str, Census] = {}
        self.items: Census | None = None

    def add(self, value: Any, depth: int = 0) -> None:
        """Count a value of ``json.loads``. Null has no type, nor has an integer beyond 64 bits."""
        kind = _KINDS.get(type(value))
        if kind is None or depth > DEPTH_MAX or (kind == "long" and value not in _BIGINT):
            return
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if kind == "struct":
            for name, each in value.items():
                if each is not None:
                    self.fields.setdefault(name, Census()).add(each, depth + 1)
        elif kind == "list":
            for each in value:
                self._of_items().add(each, depth + 1)

    @classmethod
    def merged(cls, parts: Iterable[Census]) -> Self:
        """The counts of all parts together."""
        found = cls()
        for part in parts:
            found._merge(part)
        return found

    def text(self) -> str:
        """As :meth:`parse` reads it."""
        return json.dumps(self._document())

    @classmethod
    def parse(cls, text: str) -> Census:
        """The census that ``text`` wrote."""
        return cls._of(json.loads(text))

    def kind(self) -> str | None:
        """The type that most values have, where whole numbers count as doubles among doubles; None = there is none."""
        counts = dict(self.kinds)
        if "double" in counts:
            counts["double"] += counts.pop("long", 0)
        return max(counts, key=lambda kind: (counts[kind], -_ORDER.index(kind)), default=None)

    def _of_items(self) -> Census:
        if self.items is None:
            self.items = Census()
        return self.items

    def _merge(self, other: Census) -> None:
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        for name, field in other.fields.items():
            self.fields.setdefault(name, Census())._merge(field)
        if other.items is not None:
            self._of_items()._merge(other.items)

    def _document(self) -> list[Any]:
        fields = {name: field._document() for name, field in self.fields.items()}
        return [self.kinds, fields, self.items and self.items._document()]

    @classmethod
    def _of(cls, document: list[Any]) -> Census:
        found = cls()
        found.kinds = document[0]
        found.fields = {name: cls._of(field) for name, field in document[1].items()}
        found.items = document[2] and cls._of(document[2])
        return found


def grown(columns: Sequence[Column], census: Census, fields_max: int) -> tuple[Column, ...]:
    """The columns, and behind them those of new fields; the old ones keep their types, whatever came.

    A field has no column as long as it has no type: all its values are null, or objects and arrays that hold nothing.
    Nor has one whose name differs from another one's by case alone, since tables do not tell them apart.
    """
    room = _Room(fields_max - sum(map(_size, columns)))
    return tuple(_grown(columns, census, room))


class _Room:
    """How many fields may still come."""

    def __init__(self, fields: int) -> None:
        self.fields = fields

    def take(self) -> bool:
        self.fields -= 1
        return self.fields >= 0


def _grown(columns: Sequence[Column], census: Census, room: _Room) -> list[Column]:
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


def _wider(column: Column, census: Census, room: _Room) -> Column:
    """A column with what is new inside it."""
    if column.kind == "struct":
        return Column(column.name, "struct", _grown(column.parts, census, room))
    if column.kind == "list" and census.items is not None:
        return Column(column.name, "list", [_wider(column.parts[0], census.items, room)])
    return column


def _new(name: str, census: Census, room: _Room) -> Column | None:
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
    """The paths of values that have no column."""
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
    """Whether there is nothing in it that a table could hold."""
    if isinstance(value, dict):
        return all(map(_is_nothing, value.values()))
    if isinstance(value, list):
        return all(map(_is_nothing, value))
    return value is None


def _size(column: Column) -> int:
    return 1 + sum(map(_size, column.parts))


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable()
