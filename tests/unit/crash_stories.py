"""Sequences of disk operations that crash at each operation in turn, with each possible state of the disk
afterwards."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from leveret.store.disk import MemoryDisk

from .rig import SEGMENTS


class Crash(BaseException):
    """Stands for the end of the process."""


class CrashStory:
    """A sequence of operations on a disk, run until operation ``crash_at``, or completely if that is -1."""

    def __init__(self, crash_at: int) -> None:
        self.is_over = False  # whether it ran completely
        self.operations: Counter[str] = Counter()  # how many concerned pages, and the journal
        self._crash_at = crash_at
        self.disk = MemoryDisk(self._before)
        with contextlib.suppress(Crash):
            self.tell()
            self.is_over = True
        self.disk.before = None

    def tell(self) -> None:
        """Do the operations."""
        raise NotImplementedError

    def _before(self, operation: str, path: str) -> None:
        self.operations["page" if path.startswith(SEGMENTS) else "journal"] += 1
        if self.disk.operations == self._crash_at:
            raise Crash


S = TypeVar("S", bound=CrashStory)


def crash_everywhere(tell: Callable[[int], S], check: Callable[[S, MemoryDisk], None], part: int, parts: int) -> S:
    """Run a story with a crash at every parts-th operation from `part` (from 0) on, and check each state of the disk.

    Returns the story that ran completely.
    """
    crash_at = part + 1
    while not (story := tell(crash_at)).is_over:
        for disk in endings(story.disk):
            check(story, disk)
        crash_at += parts
    check(story, story.disk)
    return story


def endings(disk: MemoryDisk) -> Iterator[MemoryDisk]:
    """Yield the disk after a power cut that lost all unsynced data, and after one that lost none."""
    for keep in ((), range(len(disk.pending))):
        other = copy.deepcopy(disk)
        other.crash(keep)
        yield other
