"""Finds where one JSON value differs from another: keys, types, and values that must be the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Patterns", "differences", "ordered"]


class Patterns:
    """Dotted paths with a reason each; ``*`` stands for anything, ``[]`` for the items of an array."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = reasons
        self._patterns = [re.compile(re.escape(each).replace(r"\*", ".*")) for each in reasons]

    def names(self, path: str) -> bool:
        """Return whether one of the patterns matches the whole path."""
        return any(each.fullmatch(path) for each in self._patterns)


def differences(
    expected: Any, got: Any, omitted: Patterns, varying: Patterns, path: str = ""
) -> Iterator[str]:
    """Yield what is missing or different in `got`, one line each.

    Args:
        expected: RabbitMQ's value.
        got: The other broker's value, which may have additional keys.
        omitted: Keys that may be missing.
        varying: Values that may differ, and arrays whose length may differ; their types are compared.
        path: The path of these values.
    """
    if expected in ([], {}) and got in ([], {}):
        return  # Erlang cannot tell an empty object from an empty array
    if kind(expected) != kind(got):
        yield f"{path}: expected {short(expected)}, got {short(got)}"
    elif isinstance(expected, dict):
        for key, each in expected.items():
            below = f"{path}.{key}" if path else key
            if key in got:
                yield from differences(each, got[key], omitted, varying, below)
            elif not omitted.names(below):
                yield f"{below}: missing; expected {short(each)}"
    elif isinstance(expected, list):
        if len(expected) == len(got):
            for one, other in zip(ordered(expected), ordered(got), strict=True):
                yield from differences(one, other, omitted, varying, f"{path}[]")
        elif not varying.names(f"{path}[]"):
            yield f"{path}: expected {len(expected)} items, {short(expected)}, got {len(got)}, {short(got)}"
        elif expected and got:
            yield from differences(ordered(expected)[0], ordered(got)[0], omitted, varying, f"{path}[]")
    elif expected != got and not varying.names(path):
        yield f"{path}: expected {short(expected)}, got {short(got)}"


def kind(value: Any) -> str:
    """Return the JSON type; 0 and 0.0 are the same number."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
    return type(value).__name__


# keys that identify items of an array, in this order
NAMES: Sequence[str] = (
    "vhost", "name", "queue", "source", "destination", "properties_key", "user", "username", "exchange", "protocol",
    "component", "consumer_tag",
)  # fmt: skip


def ordered(items: list[Any]) -> list[Any]:
    """Return objects sorted by their names, because the order of an array has no meaning unless one was requested.

    RabbitMQ's order may be that of a hash table, and another one after each start.
    """
    if all(isinstance(item, dict) for item in items):
        return sorted(items, key=lambda item: [str(item.get(name, "")) for name in NAMES])
    return items


def short(value: Any) -> str:
    """Return a value's text for a line of a report."""
    text = repr(value)
    return text if len(text) < 160 else text[:157] + "..."
