"""Histograms of times and sizes, updated once per batch or turn, never per message.

The core has no clock: times are passed in. Measurements of the outer layers are kept here, too.
"""

from __future__ import annotations

from leveret.broker.histogram import NUMBERS, OCTETS, TIMES_US, Histogram


class Measures:
    """All histograms since the start, times in microseconds."""

    def __init__(self) -> None:
        # from publish to basic.ack of messages that wait for the disk. All messages of one channel and batch count with
        # the time of the oldest, so it is an upper bound.
        self.confirm_us = Histogram(TIMES_US)
        self.batch_octets = Histogram(OCTETS)  # per batch of the journal
        self.batch_events = Histogram(NUMBERS)  # durable events per batch of the journal
        self.sync_us = Histogram(TIMES_US)  # from the end of such a batch until it is on the medium
        self.turn_us = Histogram(TIMES_US)  # handling of one read from a socket, with all that follows
        self.lag_us = Histogram(TIMES_US)  # how late the event loop's own timer fires
        self.late_us = Histogram(TIMES_US)  # how late messages leave delayed exchanges
        self.late_levels_us = Histogram(TIMES_US)  # how late messages leave level queues
