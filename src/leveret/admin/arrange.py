"""Sorting and columns of short lists, as in the management plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Item = dict[str, Any]


def dotted(item: Any, path: str) -> Any:
    """Return the value at a dotted path, or 0."""
    for part in path.split("."):
        if not isinstance(item, dict) or part not in item:
            return 0
        item = item[part]
    return item


def rank(value: Any) -> tuple[int, Any]:
    """Return a sort key for Erlang's order of terms: numbers, atoms, objects, arrays, strings."""
    if value is None or isinstance(value, bool):
        return 1, str(value)
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, dict):
        return 2, sorted((name, rank(each)) for name, each in value.items())
    if isinstance(value, list):
        return 3, [rank(each) for each in value]
    return 4, str(value)


def arranged(items: Iterable[Item], default: tuple[str, ...], sort: str | None, is_reversed: bool) -> list[Item]:
    """Sort items by a column, then by the default columns. With an empty `sort`, the order stays as it is."""
    if sort == "":
        return list(items)
    by = (sort, *default) if sort else default
    return sorted(items, key=lambda item: [rank(dotted(item, each)) for each in by], reverse=is_reversed)


def chosen(value: Any, columns: list[str] | None) -> Any:
    """Return only these columns of an object, or of each object in a list; a column may be a dotted path."""
    if columns is None:
        return value
    if isinstance(value, list):
        return [chosen(each, columns) for each in value]
    if not isinstance(value, dict):
        return value
    heads: dict[str, list[str] | None] = {}
    for column in columns:
        head, dot, rest = column.partition(".")
        if not dot:
            heads[head] = None
        elif (known := heads.setdefault(head, [])) is not None:
            known.append(rest)
    return {name: chosen(each, heads[name]) for name, each in value.items() if name in heads}
