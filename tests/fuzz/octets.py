"""Fuzzed octets as a source of choices: every input is valid, and a mutation of it leads to similar choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Octets:
    """Takes choices from the front of the octets; after the last octet, each choice is the first option."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """The number of octets that are not used yet."""
        return len(self._data) - self._at

    def octet(self) -> int:
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1]

    def number(self, octets: int) -> int:
        """Return an unsigned number of this many octets."""
        return int.from_bytes(self.take(octets).ljust(octets, b"\0"), "big")

    def take(self, count: int) -> bytes:
        """Return this many octets, or as many as are left."""
        found = self._data[self._at : self._at + count]
        self._at += len(found)
        return found

    def rest(self) -> bytes:
        return self.take(self.left)

    def chunk(self) -> bytes:
        """Return octets after an octet with their length; from 240 on, the length is a multiple of 16."""
        size = self.octet()
        return self.take(size if size < 240 else (size - 225) * 16)

    def chunk_table(self) -> bytes:
        """Return an encoded field table with any content."""
        body = self.chunk()
        return len(body).to_bytes(4, "big") + body

    def choice(self, options: Sequence[T]) -> T:
        return options[self.octet() % len(options)]

    def flag(self) -> bool:
        return bool(self.octet() & 1)
