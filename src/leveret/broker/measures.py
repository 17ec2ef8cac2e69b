"""How long things take and how large they are, counted once for each batch or turn and never for each message.

The core has no clock: times are those that it is handed. What the world around it measures is counted here, too, so
that there is one place to look at.
"""

from __future__ import annotations

from leveret.broker.histogram import NUMBERS, OCTETS, TIMES_US, Histogram


class Measures:
    """Since the start, times in microseconds.

    confirm_us: from a publish to its basic.ack, of messages that wait for the disk. Of those that one channel has in
    one batch all count with the time of the oldest, so it is an upper bound. batch_octets, batch_events: of a batch of
    the journal; sync_us: until such a batch is on the medium. turn_us: what one read of a socket takes, with all that
    follows; lag_us: how late the event loop is for its own timer. late_us: how long after their time messages leave
    delayed exchanges, late_levels_us: and level queues.
    """

    def __init__(self) -> None:
        self.confirm_us = Histogram(TIMES_US)
        self.batch_octets = Histogram(OCTETS)
        self.batch_events = Histogram(NUMBERS)
        self.sync_us = Histogram(TIMES_US)
        self.turn_us = Histogram(TIMES_US)
        self.lag_us = Histogram(TIMES_US)
        self.late_us = Histogram(TIMES_US)
        self.late_levels_us = Histogram(TIMES_US)
