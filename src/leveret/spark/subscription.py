"""The connection of a stream reader: what was delivered, what Spark has taken, and what may be acknowledged."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from leveret.client import BlockingChannel, BlockingConnection, Delivery
from leveret.spark.options import SourceOptions

FIRST_WAIT_S: Final = 0.05
"""How long a reader listens to an idle queue before it tells Spark that there is nothing (Spark asks again at once)."""

GAP_S: Final = 0.01
"""A pause this long means that the queue is drained for now, and the micro-batch is complete."""

FILL_S: Final = 0.5
"""A micro-batch is complete after this long even if messages trickle in without a pause."""

IDLE_S: Final = 0.2
"""After this long without a delivery the queue is asked how many messages are left."""

BLOCKED_S: Final = 10.0
"""Messages that are ready but are not delivered for this long belong to someone else (a single active consumer)."""


class Subscription:
    """One consumer on one queue. Deliveries are counted on from the offset that :meth:`begin` is told.

    Nothing is acknowledged but through :meth:`acknowledge`. Another thread may collect meanwhile.
    Methods raise ``ConnectionClosed`` where the connection is lost, ``ChannelClosed`` where the broker objects and
    ``ConsumerCancelled`` where the queue is deleted.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._queue = options.queue
        self._offset: int | None = None
        self._unacknowledged: deque[tuple[int, int]] = deque()
        self._connection = BlockingConnection(options.url)
        try:
            self._channel: BlockingChannel = self._connection.channel()
            self.ready = self.count_ready()
            self._channel.consume(self._queue, prefetch_count=options.prefetch_count)
        except BaseException:
            self.close()
            raise

    @property
    def offset(self) -> int | None:
        """The offset behind the last message handed out; None before :meth:`begin`."""
        return self._offset

    def begin(self, offset: int) -> None:
        """The stream goes on at this offset."""
        self._offset = offset

    def count_ready(self) -> int:
        """Messages that wait in the queue. As an answer it also means that the broker has seen all acknowledgements."""
        return self._channel.declare_queue(self._queue, passive=True).message_count

    def acknowledge(self, offset: int) -> None:
        """Acknowledge what was handed out up to ``offset``: Spark has it in the sink."""
        tag = 0
        while self._unacknowledged and self._unacknowledged[0][0] <= offset:
            tag = self._unacknowledged.popleft()[1]
        if tag:
            self._channel.ack(tag, multiple=True)

    def collect(self, limit: int, wait_s: float) -> list[Delivery]:
        """What is there, at most ``limit`` messages; waits up to ``wait_s`` seconds for the first."""
        found = self._channel.deliveries(limit, wait_s)
        deadline_s = time.monotonic() + FILL_S
        while found and len(found) < limit and time.monotonic() < deadline_s:
            more = self._channel.deliveries(limit - len(found), GAP_S)
            if not more:
                break
            found += more
        return found

    def collect_all(self, limit: int) -> list[Delivery]:
        """Wait for ``limit`` messages; fewer only if the queue has no more, or gives none for :data:`BLOCKED_S`."""
        found: list[Delivery] = []
        patience_s = time.monotonic() + BLOCKED_S
        while len(found) < limit:
            more = self._channel.deliveries(limit - len(found), IDLE_S)
            found += more
            if more:
                patience_s = time.monotonic() + BLOCKED_S
            elif self.count_ready() == 0 or time.monotonic() > patience_s:
                break
        return found

    def hand_out(self, rows: int, delivery_tag: int) -> int:
        """So many collected messages, up to this tag, go to Spark now: the offset behind them."""
        assert self._offset is not None, "begin() comes before the first message"
        self._offset += rows
        self._unacknowledged.append((self._offset, delivery_tag))
        return self._offset

    def close(self) -> None:
        """Close the connection; the broker puts everything unacknowledged back into the queue."""
        self._connection.close()
