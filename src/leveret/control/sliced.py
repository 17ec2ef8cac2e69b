"""Work that takes long: done in steps, between which messages have their turn."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
# what can be pauses between steps, and what there is in the end
Steps = Generator[None, None, Item]

# how many items may be sorted or looked at without a pause
CHUNK: Final = 128


@dataclass(frozen=True)
class Sliced:
    """An answer that is ready after some steps."""

    steps: Steps[object]


def sort(items: Sequence[Item], key: Callable[[Item], Any], reverse: bool = False) -> Steps[list[Item]]:
    """The items in order, as sorted() has them."""
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
    """Those items that are wanted."""
    found: list[Item] = []
    for count, item in enumerate(items):
        if count % CHUNK == CHUNK - 1:
            yield
        if is_wanted(item):
            found.append(item)
    return found


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]
