"""A queue in which addresses take turns, no matter how many items each of them has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First in, first out among the items of one address; the addresses take turns."""

    def __init__(self) -> None:
        self.count = 0
        self._of: dict[str, deque[T]] = {}  # the address whose turn is next is first

    def add(self, address: str, item: T) -> None:
        """Add an item behind the others of its address."""
        self._of.setdefault(address, deque()).append(item)
        self.count += 1

    def pop(self, may: Callable[[str], bool] = lambda address: True) -> tuple[str, T] | None:
        """Remove the next item of an address that `may` allows; returns its address and it, or None."""
        address = next((each for each in self._of if may(each)), None)
        if address is None:
            return None
        items = self._of.pop(address)
        item = items.popleft()
        self.count -= 1
        if items:
            self._of[address] = items
        return address, item

    def keep(self, is_wanted: Callable[[T], bool]) -> None:
        """Drop all items but those wanted."""
        kept = {address: deque(filter(is_wanted, items)) for address, items in self._of.items()}
        self._of = {address: items for address, items in kept.items() if items}
        self.count = sum(map(len, self._of.values()))
