"""Stories told on a disk, with a crash at one operation after another and each ending that a crash can have."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from leveret.store.disk import MemoryDisk

from .house import SEGMENTS


class Crash(BaseException):
    """The process ends here."""


class CrashStory:
    """Told on a disk until its operation ``crash_at``, -1 = to its end.

    is_over: it came to its end; operations: how many of pages and of the journal there were.
    """

    def __init__(self, crash_at: int) -> None:
        self.is_over = False
        self.operations: Counter[str] = Counter()
        self._crash_at = crash_at
        self.disk = MemoryDisk(self._before)
        with contextlib.suppress(Crash):
            self.tell()
            self.is_over = True
        self.disk.before = None

    def tell(self) -> None:
        """What happens."""
        raise NotImplementedError

    def _before(self, operation: str, path: str) -> None:
        self.operations["page" if path.startswith(SEGMENTS) else "journal"] += 1
        if self.disk.operations == self._crash_at:
            raise Crash


S = TypeVar("S", bound=CrashStory)


def crash_everywhere(tell: Callable[[int], S], check: Callable[[S, MemoryDisk], None], part: int, parts: int) -> S:
    """Tell it with a crash at every parts-th operation from part (0 = the first) on, and check each ending.

    Returns the one that came to its end.
    """
    crash_at = part + 1
    while not (story := tell(crash_at)).is_over:
        for disk in endings(story.disk):
            check(story, disk)
        crash_at += parts
    check(story, story.disk)
    return story


def endings(disk: MemoryDisk) -> Iterator[MemoryDisk]:
    """The disk after a power cut that took all that was not synced, and after one that took nothing."""
    for keep in ((), range(len(disk.pending))):
        other = copy.deepcopy(disk)
        other.crash(keep)
        yield other
