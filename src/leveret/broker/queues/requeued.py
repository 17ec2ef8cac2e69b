"""The messages of a message list that came back, in their old order.

They are kept in blocks, so that where very many come back, from many consumers and in steps, each of them costs no more
when most are here already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.broker.messages.entry import Entry

# about so many in a block, and twice as many at most
BLOCK: Final[i64] = 2048
# fewer are no block of their own
PORTION_MIN: Final[i64] = 64


class Requeued:
    """The oldest one is at the end: within a block, of which none is empty, and among the blocks."""

    def __init__(self) -> None:
        self.blocks: list[list[Entry]] = []

    def oldest(self) -> Entry:
        """The next one, left where it is; there must be one."""
        return self.blocks[-1][-1]

    def drop(self) -> None:
        """Take out the oldest one."""
        block = self.blocks[-1]
        block.pop()
        if not block:
            self.blocks.pop()

    def add(self, entry: Entry) -> None:
        """Put one into its place; usually it is older than all others."""
        blocks = self.blocks
        index: i64 = len(blocks) - 1
        if index < 0 or (blocks[index][-1].position > entry.position and len(blocks[index]) >= BLOCK):
            blocks.append([entry])
        elif blocks[index][-1].position > entry.position:
            blocks[index].append(entry)
        else:
            index = self._block(entry.position)
            block = blocks[index]
            block.insert(_behind(block, entry.position), entry)
            if len(block) >= 2 * BLOCK:
                blocks[index : index + 1] = [block[:BLOCK], block[BLOCK:]]

    def add_all(self, entries: list[Entry]) -> None:
        """Put some into their places, hardly more than a block; cheapest if the oldest is in front."""
        size: i64 = len(entries)
        index: i64 = 1
        while index < size and entries[index - 1].position < entries[index].position:
            index += 1
        if index < size:
            entries.sort(key=_position)
        entries.reverse()
        blocks = self.blocks
        index = self._block(entries[0].position)
        if size >= PORTION_MIN and (index == len(blocks) or blocks[index][0].position < entries[-1].position):
            blocks[index:index] = [entries[at : at + BLOCK] for at in range(0, size, BLOCK)]
        else:
            for entry in entries:
                self.add(entry)

    def _block(self, position: i64) -> i64:
        """The index of the first block that has older ones."""
        blocks = self.blocks
        low: i64 = 0
        high: i64 = len(blocks)
        while low < high:
            middle = (low + high) // 2
            if blocks[middle][-1].position > position:
                low = middle + 1
            else:
                high = middle
        return low

    def newest_first(self) -> list[Entry]:
        """All of them."""
        return [entry for block in self.blocks for entry in block]

    def front(self, most: i64) -> list[Entry]:
        """The oldest ones, about so many."""
        found: list[Entry] = []
        index: i64 = len(self.blocks)
        while index > 0 and len(found) < most:
            index -= 1
            found.extend(self.blocks[index][: -(most - len(found)) - 1 : -1])
        return found

    def keep(self, stays: Callable[[Entry], bool]) -> None:
        """Take out all others."""
        kept = [[entry for entry in block if stays(entry)] for block in self.blocks]
        self.blocks = [block for block in kept if block]


def _behind(block: list[Entry], position: i64) -> i64:
    """Where the first one stands that is older."""
    low: i64 = 0
    high: i64 = len(block)
    while low < high:
        middle = (low + high) // 2
        if block[middle].position > position:
            low = middle + 1
        else:
            high = middle
    return low


def _position(entry: Entry) -> int:
    return int(entry.position)
