"""The requeued messages of a message list, in their original order.

They are kept in blocks, so that the cost of each does not grow with their number, even if many consumers requeue very
many in steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.broker.messages.entry import Entry

# approximate length of a block; the maximum is twice as much
BLOCK: Final[i64] = 2048
# fewer messages do not make a block of their own
PORTION_MIN: Final[i64] = 64


class Requeued:
    """Requeued messages, the oldest at the end: both within a block, none of which is empty, and among the blocks."""

    def __init__(self) -> None:
        self.blocks: list[list[Entry]] = []

    def oldest(self) -> Entry:
        """Return the oldest message without removing it; there must be one."""
        return self.blocks[-1][-1]

    def drop(self) -> None:
        """Remove the oldest message."""
        block = self.blocks[-1]
        block.pop()
        if not block:
            self.blocks.pop()

    def add(self, entry: Entry) -> None:
        """Insert a message; fastest if it is older than all others, as usual."""
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
        """Insert messages, hardly more than a block; fastest if the oldest is in front."""
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
        """Return the index of the first block whose oldest message is older than this position."""
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
        """Return all messages."""
        return [entry for block in self.blocks for entry in block]

    def front(self, most: i64) -> list[Entry]:
        """Return about `most` of the oldest messages."""
        found: list[Entry] = []
        index: i64 = len(self.blocks)
        while index > 0 and len(found) < most:
            index -= 1
            found.extend(self.blocks[index][: -(most - len(found)) - 1 : -1])
        return found

    def keep(self, stays: Callable[[Entry], bool]) -> None:
        """Remove all messages for which `stays` is false."""
        kept = [[entry for entry in block if stays(entry)] for block in self.blocks]
        self.blocks = [block for block in kept if block]


def _behind(block: list[Entry], position: i64) -> i64:
    """Return the index of the first message in a block that is older than this position."""
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
