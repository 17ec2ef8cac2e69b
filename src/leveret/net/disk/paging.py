"""Connects the broker's pager with the segments on disk: when messages are moved, and what follows.

Like commit.py, this module uses no loop, clock or thread of its own: the simulation (tests/sim) drives it just as the
server does. `write` and `remove` write and delete segments, perhaps on another thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from leveret.broker.broker import Broker
from leveret.broker.storage.page import CUT_OCTETS, Page, cut
from leveret.broker.storage.pager import Pager
from leveret.broker.storage.recovery import Recovery
from leveret.store.segment import SegmentDamaged, SegmentStore
from leveret.wire.errors import quoted

logger = logging.getLogger("leveret")

# when messages in memory take more than this, they go to disk until they take half of it
READY_OCTETS_MAX = 16 << 20
# bytes of input between two checks of the memory that messages take
LOOK_OCTETS = 4 << 20
# paging is behind when messages take this many times the memory that they should
BEHIND = 6


class Paging:
    """Decides when messages move from memory to segments, and when segments are removed."""

    def __init__(
        self,
        broker: Broker,
        pager: Pager,
        segments: SegmentStore,
        write: Callable[[int, list[list[bytes]]], None],
        remove: Callable[[int], None],
        octets_max: int = READY_OCTETS_MAX,
    ) -> None:
        self.pager = pager
        self._broker = broker
        self._segments = segments
        self._write = write  # write(number, pages): makes this segment, then calls `written`
        self._remove = remove  # deletes this segment
        self._octets_max = octets_max
        self.saves_room = False  # set while the disk is nearly full: segments are removed, but none is written
        self.is_due = True  # `step` may have something to do, besides what `Log.has_waste` tells
        self._received = 0
        self._is_relieving = False  # messages took too much memory, and are moved until they take half of it
        self._is_full = False  # messages take far more memory than they should
        self._immovable = 0  # the memory taken when nothing more could be moved; publishers do not wait for this part
        self._cleared_below = 0
        broker.log.read_page = self._read

    def recover(self, recovery: Recovery) -> int:
        """Finish a recovery: find pages in segments, and remove unused segments. Returns the number of messages."""
        numbers = self._segments.numbers()
        count = recovery.finish(numbers)
        for name, lost in recovery.lost.items():
            reason = "the segments that held them are missing"
            logger.error("queue %s: %d messages are lost: %s", quoted(name), lost, reason)
        for number in numbers:
            if number not in recovery.segments:
                self._segments.remove(number)
        self.pager.recovered(recovery.segments, max(numbers, default=0))
        return count

    def received(self, octets: int) -> bool:
        """Count input, and check the memory from time to time; returns whether it was checked now."""
        self._received += octets
        if self._received < LOOK_OCTETS:
            return False
        self.look()
        return True

    def look(self) -> None:
        """Check how much memory messages take. They may also have moved from disk to queues, without any input."""
        self._received = 0
        octets = self.pager.octets()
        if self.pager.is_idle and octets > self._octets_max:
            self._relieve()
            self.is_due = True
        self._immovable = min(self._immovable, octets)
        self._is_full = octets - self._immovable > BEHIND * self._octets_max

    def _relieve(self) -> None:
        """Move messages until they take half of the limit. If more arrive meanwhile they are moved, too."""
        goal = self._octets_max // 2
        if self.pager.octets() > goal:
            self.pager.relieve(goal)
        self._is_relieving = not self.pager.is_idle

    @property
    def is_behind(self) -> bool:
        """Whether messages arrive faster than they can be moved, so that memory grows."""
        return self._is_full and not (self.pager.is_idle or self.saves_room)

    def step(self) -> bool:
        """Do a part of the work; returns whether to call it again soon."""
        self.is_due = False
        log = self._broker.log
        if log.is_stopped:
            # after an orderly stop nothing may be recorded; the next start removes segments that the journal does not
            # know
            return False
        dead = len(log.dead_pages)
        for number in self.pager.removable():
            self._remove(number)
        is_busy = self.pager.let_go() or 0 < len(log.dead_pages) < dead
        if self.pager.settle():
            return True
        if self.pager.is_writing or self.saves_room:
            return is_busy
        if self.pager.is_idle:
            limit = log.crowded_below()
            if limit > self._cleared_below:
                self._cleared_below = limit
                self.pager.clear_files()
        if self.pager.is_idle and self._is_relieving:
            self._relieve()
        if self.pager.is_idle:
            return is_busy
        if self.pager.step():
            return True
        found = self.pager.segment()
        if found is not None:
            self._write(*found)
        else:
            if self._is_relieving:
                self._immovable, self._is_full = self.pager.octets(), False
            self._is_relieving = False  # what is left cannot be moved: it is on disk, and was at the queues' heads
        return is_busy

    def written(self, places: list[tuple[int, int]] | None, error: BaseException | None) -> None:
        """Note that the segment is on disk, or could not be written."""
        self._is_full = False  # until the next look
        self.is_due = True
        if places is not None:
            self.pager.stored(places)
            return
        logger.warning("messages stay in memory: a segment could not be written: %s", error)
        self.saves_room = True  # until the owner has checked the disk: else it would be tried again at once
        self.pager.failed()
        self._cleared_below = 0

    def fetch(self, page: Page) -> list[bytes]:
        """Read a large page, as `Log.fetched` needs it; [] if it is lost. May run on any thread."""
        try:
            return self._segments.read_pieces(int(page.segment), int(page.offset), int(page.size), CUT_OCTETS, cut)
        except (SegmentDamaged, OSError):
            return []

    def _read(self, segment: int, offset: int, size: int) -> bytes | None:
        try:
            return self._segments.read(segment, offset, size)
        except (SegmentDamaged, OSError) as error:
            logger.error("messages are lost: %s%s", error, self._kept(segment))
            return None

    def _kept(self, segment: int) -> str:
        try:
            return f"; the file as found is kept as {self._segments.set_aside(segment)}"
        except OSError as error:
            return f"; no copy of it could be made: {error}"
