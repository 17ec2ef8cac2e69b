"""The streaming reader of a queue: at-least-once delivery, acknowledged when Spark asks for the next micro-batch.

It runs in the one long-lived Python process that the driver keeps for the source. Spark calls ``read(start)`` only when
the sink is done with everything up to ``start``, so deliveries are acknowledged there. ``commit`` would be later: for
the last micro-batch before a pause it comes with the next message, and under AvailableNow never.

While Spark works on a micro-batch, a thread collects the next one and converts it to Arrow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from leveret.spark.brief import brief
from leveret.spark.queues.errors import SourceError
from leveret.spark.queues.options import QueueOptions
from leveret.spark.queues.retry import with_retries
from leveret.spark.queues.subscription import FIRST_WAIT_S, Subscription
from leveret.spark.rows.shape import RowShape


@dataclass
class Collected:
    """Messages that were collected, and their rows."""

    rows: int = 0  # number of messages
    octets: int = 0
    delivery_tag: int = 0  # of the last message
    waiting: int = 0  # messages in the queue behind them
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def __add__(self, more: Collected) -> Collected:
        """Return these messages followed by ``more``."""
        return Collected(
            self.rows + more.rows,
            self.octets + more.octets,
            more.delivery_tag or self.delivery_tag,
            more.waiting if more.rows else self.waiting,
            self.batches + more.batches,
        )


class QueueReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one queue.

    An offset is ``{"messages": n, "waiting": m}``: the messages that the query has taken so far, and those that waited
    in the queue when these were collected. The latter is for the query's progress: Spark asks simple readers for no
    latest offset. Spark pickles a second instance for the executors, so nothing connects before the first read.
    """

    def __init__(self, options: QueueOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape
        self._subscription: Subscription | None = None
        # in this subscription: the offset after the last message handed out, and (offset, delivery tag) of each
        # micro-batch that is not acknowledged
        self._offset = 0
        self._unacknowledged: deque[tuple[int, int]] = deque()
        self._remaining: int | None = None
        self._collector: ThreadPoolExecutor | None = None
        self._ahead: Future[Collected] | None = None

    def initialOffset(self) -> dict[str, int]:
        """Return the offset of a query that has taken no message."""
        return {"messages": 0}

    @brief(SourceError)
    def prepareForTriggerAvailableNow(self) -> None:
        """Note how many messages are ready: the query takes that many and ends."""
        self.close()
        self._remaining = 0
        with_retries(self._options.queue, self._subscribe, self.close)

    @brief(SourceError)
    def read(self, start: dict[str, int]) -> tuple[Iterator[pa.RecordBatch], dict[str, int]]:
        """Acknowledge everything up to ``start``, then return the next messages and the offset after them.

        Raises ``SourceError`` if the broker refuses (no such queue) or stays away, or the queue is deleted. If the
        connection is lost, unacknowledged messages are requeued and delivered again.
        """
        found = with_retries(self._options.queue, lambda: self._next(start["messages"]), self.close)
        if not found.rows:
            return iter([]), start
        return iter(found.batches), {"messages": start["messages"] + found.rows, "waiting": found.waiting}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any]:
        """Return nothing: Spark calls this after a crash, when the broker has requeued the messages.

        The next micro-batch has them.
        """
        return iter([])

    def close(self) -> None:
        """Close the connection; the broker requeues unacknowledged messages."""
        subscription, self._subscription = self._subscription, None
        # messages and errors of a running collector belong to the closed connection
        self._ahead = None
        self._unacknowledged.clear()
        if subscription is not None:
            subscription.close()

    def _subscribe(self) -> None:
        options = self._options
        self._subscription = Subscription(options.queue, options.url, options.prefetch_count)
        if self._remaining is not None:
            self._remaining = self._subscription.ready

    def _next(self, offset: int) -> Collected:
        subscription = self._subscribed(offset)
        self._acknowledge(subscription, offset)
        ahead, self._ahead = self._ahead, None
        found = ahead.result() if ahead is not None else Collected()
        rows = self._rows_max() - found.rows
        octets = self._options.octets_max - found.octets
        if rows > 0 and octets > 0:
            found += self._collect(subscription, rows, octets, 0.0 if found.rows else FIRST_WAIT_S)
        if self._remaining is not None:
            self._remaining = 0 if subscription.is_drained else self._remaining - found.rows
        if found.rows:
            self._offset = offset + found.rows
            self._unacknowledged.append((self._offset, found.delivery_tag))
            self._collect_ahead(subscription, found.rows)
        elif self._remaining is not None:
            # the query ends here, and this process with it: wait until the broker has processed the acknowledgements
            subscription.count_ready()
        return found

    def _acknowledge(self, subscription: Subscription, offset: int) -> None:
        """Acknowledge everything up to ``offset``: it is in the sink."""
        tag = 0
        while self._unacknowledged and self._unacknowledged[0][0] <= offset:
            tag = self._unacknowledged.popleft()[1]
        if tag:
            subscription.acknowledge(tag)

    def _rows_max(self) -> int:
        rows = self._options.rows_max
        return rows if self._remaining is None else min(rows, self._remaining)

    def _collect(self, subscription: Subscription, rows: int, octets: int, wait_s: float) -> Collected:
        if self._remaining is None:
            found = subscription.collect(rows, octets, wait_s)
        else:
            found = subscription.collect_all(rows, octets)
        if not found:
            return Collected()
        waiting = subscription.count_waiting()
        return Collected(len(found), found.octets, found.last_tag, waiting, self._shape.batches(found))

    def _collect_ahead(self, subscription: Subscription, unacknowledged: int) -> None:
        """Start collecting the next micro-batch, as far as the prefetch allows before the next acknowledgement."""
        rows = min(self._rows_max(), self._options.prefetch_count - unacknowledged)
        if rows > 0:
            if self._collector is None:
                self._collector = ThreadPoolExecutor(1, "leveret-collector")
            octets = self._options.octets_max
            self._ahead = self._collector.submit(self._collect, subscription, rows, octets, FIRST_WAIT_S)

    def _subscribed(self, offset: int) -> Subscription:
        if self._unacknowledged and self._offset != offset:
            # Spark has dropped a micro-batch that it was given: have its messages delivered again
            self.close()
        if self._subscription is None:
            self._subscribe()
        assert self._subscription is not None
        return self._subscription
