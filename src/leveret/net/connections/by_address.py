"""Sockets by the address that they come from, so that one of the address with most sockets can be closed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class ByAddress(Generic[T]):
    """Items by address. Adding, removing and finding the address with most items take constant time.

    An address without items has no entry, so the size follows from the items.
    """

    def __init__(self) -> None:
        self.count = 0
        self._of: dict[str, dict[T, None]] = {}
        # addresses by their number of items; among equals, first the one that has had that number for longest
        self._with: dict[int, dict[str, None]] = {}
        self._most = 0

    def add(self, address: str, item: T) -> None:
        """Add an item, the youngest of this address."""
        items = self._of.setdefault(address, {})
        items[item] = None
        self.count += 1
        self._moved(address, len(items) - 1, len(items))

    def remove(self, address: str, item: T) -> None:
        """Remove an item, if it is there."""
        items = self._of.get(address)
        if items is None or item not in items:
            return
        del items[item]
        self.count -= 1
        self._moved(address, len(items) + 1, len(items))
        if not items:
            del self._of[address]

    def of(self, address: str) -> int:
        """How many items this address has."""
        return len(self.items(address))

    def items(self, address: str) -> Collection[T]:
        """All items of this address, oldest first."""
        return self._of.get(address, ())

    def of_the_most(self) -> Collection[T]:
        """All items of the address that has most, oldest first; empty if there are no items."""
        addresses = self._with.get(self._most)
        return self._of[next(iter(addresses))] if addresses else ()

    def _moved(self, address: str, before: int, after: int) -> None:
        if before:
            others = self._with[before]
            del others[address]
            if not others:
                del self._with[before]
        if after:
            self._with.setdefault(after, {})[address] = None
        if after > self._most or (before == self._most and before not in self._with):
            self._most = after
