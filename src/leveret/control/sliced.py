"""Long work that is done in steps, so that messages are served in between."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
# yields None for a pause between steps; returns the result
Steps = Generator[None, None, Item]

# items that may be sorted or looked at without a pause
CHUNK: Final = 128


@dataclass(frozen=True)
class Sliced:
    """A result that is computed in steps."""

    steps: Steps[object]


def sort(items: Sequence[Item], key: Callable[[Item], Any], reverse: bool = False) -> Steps[list[Item]]:
    """Sort the items in steps, like sorted()."""
    chunks: list[list[tuple[Any, Item]]] = []
    for start in range(0, len(items), CHUNK):
        chunks.append(sorted([(key(item), item) for item in items[start : start + CHUNK]], key=_first, reverse=reverse))
        yield
    merged: list[Item] = []
    for _, item in heapq.merge(*chunks, key=_first, reverse=reverse):
        merged.append(item)
        if len(merged) % CHUNK == 0:
            yield
    return merged


def choose(items: Iterable[Item], is_wanted: Callable[[Item], bool]) -> Steps[list[Item]]:
    """Return the wanted items, in steps."""
    found: list[Item] = []
    for count, item in enumerate(items):
        if count % CHUNK == CHUNK - 1:
            yield
        if is_wanted(item):
            found.append(item)
    return found


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]
