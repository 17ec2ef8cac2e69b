"""Moves messages from a queue into its spool: collect, write, sync, and only then acknowledge."""

from __future__ import annotations

from typing import Final

from leveret.client.protocol.delivering import RawDeliveries
from leveret.spark.queues.options import QueueOptions, SpoolOptions
from leveret.spark.queues.spool.known import RedeliveryFilter
from leveret.spark.queues.spool.spool import Spool
from leveret.spark.queues.subscription import FIRST_WAIT_S, Subscription

SEGMENT_ROWS: Final = 25_000
"""Messages of a file at most; none of them is acknowledged before the file is written."""

SEGMENT_OCTETS: Final = 64 << 20
"""Octets of bodies at which a file is complete."""


class Filling:
    """A connection that moves messages of ``options.queue`` into the spool.

    Methods raise ``ConnectionClosed`` if the connection is lost, and ``SourceError`` if the broker refuses or the disk
    is full.
    """

    def __init__(self, spool: Spool, options: QueueOptions, spool_options: SpoolOptions) -> None:
        self._spool = spool
        self._octets_max = options.octets_max
        self._rows_max = min(SEGMENT_ROWS, options.prefetch_count)
        self._subscription = Subscription(options.queue, options.url, options.prefetch_count, is_alone=True)
        # messages in the queue and not in the spool, when the queue was asked last
        self.waiting = self._subscription.ready
        # the files at the start are enough: this connection delivers each message once
        self._known = RedeliveryFilter(spool.last_batches(), spool_options.knows_content)

    def fill(self, end: int) -> None:
        """Spool the messages now in the queue, until the spool ends at ``end`` or a batch's octets are reached."""
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
        """Spool until the spool ends at ``end`` or a batch's octets are reached; returns False if the queue is
        empty."""
        octets = self._octets_max
        while self._spool.end < end and octets > 0:
            rows = min(self._rows_max, end - self._spool.end)
            octets -= self._keep(self._subscription.collect_all(rows, min(octets, SEGMENT_OCTETS)))
            if self._subscription.is_drained:
                return False
        return True

    def count_waiting(self) -> int:
        """Ask the queue for ``waiting``. The answer also means that the broker has processed all acknowledgements."""
        self.waiting = self._subscription.count_waiting()
        return self.waiting

    def close(self) -> None:
        """Close the connection; the broker requeues what is not acknowledged."""
        self._subscription.close()

    def _keep(self, found: RawDeliveries) -> int:
        """Spool the new messages, acknowledge all, and return the octets of their bodies."""
        if not found:
            return 0
        new = self._known.without(found)
        if new:
            self._spool.append(new)
        self._subscription.acknowledge(found.last_tag)
        # the answer means that the broker has the acknowledgement, so those of two files are never in flight at once
        self.count_waiting()
        return found.octets
