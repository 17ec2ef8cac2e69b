"""Sizes of a simulated broker's files and pages."""

from __future__ import annotations

from dataclasses import dataclass

from leveret.broker.broker import Broker
from leveret.broker.storage.pager import Pager
from leveret.net.disk.paging import READY_OCTETS_MAX


@dataclass(frozen=True)
class Sizes:
    """Sizes in bytes. With small ones, a short run has many files and pages.

    Attributes:
        file_octets: of a journal file.
        ahead_octets: of zeros that the journal writes ahead of its batches.
        ready_octets: of messages in memory, before some are paged out.
        page_octets: of a page; 0 for the server's default.
        batch_octets: waiting for the disk, before publishers and links are paused.
        socket_octets: sent to a client and not read by it, before it counts as slow.
    """

    file_octets: int = 64 << 20
    ahead_octets: int = 300
    ready_octets: int = READY_OCTETS_MAX
    page_octets: int = 0
    batch_octets: int = 4000
    socket_octets: int = 1 << 18

    def pager(self, broker: Broker) -> Pager:
        """Return a pager with these sizes."""
        size = self.page_octets
        if not size:
            return Pager(broker)
        return Pager(broker, page_octets=size, step_octets=2 * size, segment_octets=4 * size, front_octets=size // 2)
