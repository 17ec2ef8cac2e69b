"""The way from a queue into its spool: collected, written and synced, and only then acknowledged."""

from __future__ import annotations

from typing import Final

from leveret.client import Delivery
from leveret.spark.queues.options import QueueOptions, SpoolOptions
from leveret.spark.queues.spool.known import Known
from leveret.spark.queues.spool.spool import Spool
from leveret.spark.queues.subscription import FIRST_WAIT_S, Subscription

SEGMENT_ROWS: Final = 25_000
"""Messages of one file at most: it is written when so many are there, and all of them are unacknowledged before."""

SEGMENT_OCTETS: Final = 64 << 20
"""Octets of bodies at which a file is complete."""


class Filling:
    """A connection that brings messages of ``options.queue`` into the spool.

    ``waiting``: messages that the queue had, when it was asked last, besides those that are in the spool. Methods raise
    ``ConnectionClosed`` where the connection is lost and ``SourceError`` where the broker objects or the disk is full.
    """

    def __init__(self, spool: Spool, options: QueueOptions, spool_options: SpoolOptions) -> None:
        self._spool = spool
        self._octets_max = options.octets_max
        self._rows_max = min(SEGMENT_ROWS, options.prefetch_count)
        self._subscription = Subscription(options.queue, options.url, options.prefetch_count, is_alone=True)
        self.waiting = self._subscription.ready
        # the files as they are now: what this connection brings it brings once
        self._known = Known(spool.last_batches(), spool_options.knows_content)

    def fill(self, end: int) -> None:
        """What is in the queue now, until the spool ends at ``end`` or so many octets have come as a batch may have."""
        octets = self._octets_max
        wait_s = FIRST_WAIT_S
        while self._spool.end < end and octets > 0:
            rows = min(self._rows_max, end - self._spool.end)
            found = self._subscription.collect(rows, min(octets, SEGMENT_OCTETS), wait_s)
            size = self._keep(found)
            octets -= size
            if not found or (len(found) < rows and size < SEGMENT_OCTETS):
                break
            wait_s = 0.0

    def fill_wholly(self, end: int) -> bool:
        """Until the spool ends at ``end``, or a batch's octets have come. False if the queue has no more."""
        octets = self._octets_max
        while self._spool.end < end and octets > 0:
            rows = min(self._rows_max, end - self._spool.end)
            octets -= self._keep(self._subscription.collect_all(rows, min(octets, SEGMENT_OCTETS)))
            if self._subscription.is_drained:
                return False
        return True

    def count_waiting(self) -> int:
        """Ask the queue for ``waiting``. As an answer it also means that the broker has seen all acknowledgements."""
        self.waiting = self._subscription.count_waiting()
        return self.waiting

    def close(self) -> None:
        """Close the connection; what is not acknowledged goes back into the queue."""
        self._subscription.close()

    def _keep(self, found: list[Delivery]) -> int:
        """Spool what is new of it, acknowledge all of it: how many octets of bodies it had."""
        if not found:
            return 0
        new = self._known.without(found)
        if new:
            self._spool.append(new)
        self._subscription.acknowledge(found[-1].delivery_tag)
        # when the answer is here, so is the acknowledgement there: never are those of two files on their way
        self.count_waiting()
        return sum([len(one.body) for one in found])
