"""The stream reader of a queue: at least once, acknowledged when Spark asks for the next micro-batch.

It runs in the one long-lived Python process that the driver keeps for the source. Spark calls ``read(start)`` only when
the sink is done with everything up to ``start``, so that is where deliveries are acknowledged. ``commit`` would be
later: for the last micro-batch before a pause it comes with the next message, and under AvailableNow never.

While Spark works on a micro-batch, a thread collects the next one and makes Arrow of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from leveret.client import AuthenticationFailed, ConnectionClosed
from leveret.spark.columns import to_batches
from leveret.spark.options import SourceOptions
from leveret.spark.subscription import FIRST_WAIT_S, Subscription

RECONNECT_S: Final = 30.0
"""How long a broker that was lost is called again before the query fails."""

RETRY_S: Final = 0.5

_log = logging.getLogger("leveret.spark")


@dataclass
class Collected:
    """Messages that were collected: how many, the last one's delivery tag, and their rows."""

    rows: int
    delivery_tag: int
    batches: list[pa.RecordBatch]


class QueueReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one queue. An offset is ``{"messages": n}``: how many messages the query has taken so far.

    Spark makes a second instance that it pickles for the executors, so nothing connects before the first read.
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._subscription: Subscription | None = None
        self._remaining: int | None = None
        self._collector: ThreadPoolExecutor | None = None
        self._ahead: Future[Collected] | None = None

    def initialOffset(self) -> dict[str, int]:
        """No message taken."""
        return {"messages": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Note how many messages are there: the query takes that many and ends."""
        self.close()
        self._subscription = Subscription(self._options)
        self._remaining = self._subscription.ready

    def read(self, start: dict[str, int]) -> tuple[Iterator[pa.RecordBatch], dict[str, int]]:
        """Acknowledge everything up to ``start``, then return what comes next and the offset behind it.

        Raises ``ConnectionClosed`` where the broker stays away for :data:`RECONNECT_S`, ``ChannelClosed`` where it
        objects (404: no such queue) and ``ConsumerCancelled`` where the queue was deleted.
        """
        patience_s = time.monotonic() + RECONNECT_S
        while True:
            try:
                return self._next(start["messages"])
            except AuthenticationFailed:
                raise
            except (ConnectionClosed, OSError) as error:
                # the broker has put everything unacknowledged back, and will deliver it again
                self.close()
                if time.monotonic() > patience_s:
                    raise
                _log.warning("queue %s: %s; connecting again", self._options.queue, error)
                time.sleep(RETRY_S)

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Any]:
        """Nothing: Spark asks for this after a crash, when the broker has put the messages back into the queue.

        They come with the next micro-batch.
        """
        return iter([])

    def close(self) -> None:
        """Close the connection; whatever was not acknowledged goes back into the queue."""
        subscription, self._subscription = self._subscription, None
        # what a collector still has, or runs into, went with the connection
        self._ahead = None
        if subscription is not None:
            subscription.close()

    def _next(self, offset: int) -> tuple[Iterator[pa.RecordBatch], dict[str, int]]:
        subscription = self._subscribed(offset)
        subscription.acknowledge(offset)
        limit = self._options.rows_max if self._remaining is None else min(self._options.rows_max, self._remaining)
        ahead, self._ahead = self._ahead, None
        found = ahead.result() if ahead is not None else Collected(0, 0, [])
        if found.rows < limit:
            more = self._collect(subscription, limit - found.rows, 0.0 if found.rows else FIRST_WAIT_S)
            tag = more.delivery_tag or found.delivery_tag
            found = Collected(found.rows + more.rows, tag, found.batches + more.batches)
        if self._remaining is not None:
            self._remaining = self._remaining - limit if found.rows == limit else 0
        if found.rows:
            self._collect_ahead(subscription, found.rows)
            offset = subscription.hand_out(found.rows, found.delivery_tag)
        elif self._remaining is not None:
            # the query ends here and this process with it: wait until the broker has seen the acknowledgements
            subscription.count_ready()
        return iter(found.batches), {"messages": offset}

    def _collect(self, subscription: Subscription, limit: int, wait_s: float) -> Collected:
        if self._remaining is None:
            found = subscription.collect(limit, wait_s)
        else:
            found = subscription.collect_all(limit)
        return Collected(len(found), found[-1].delivery_tag if found else 0, to_batches(found, self._schema))

    def _collect_ahead(self, subscription: Subscription, unacknowledged: int) -> None:
        """Start on the next micro-batch, with as many messages as the prefetch lets through before the next ack."""
        limit = min(self._options.rows_max, self._options.prefetch_count - unacknowledged)
        if self._remaining is not None:
            limit = min(limit, self._remaining)
        if limit > 0:
            if self._collector is None:
                self._collector = ThreadPoolExecutor(1, "leveret-collector")
            self._ahead = self._collector.submit(self._collect, subscription, limit, FIRST_WAIT_S)

    def _subscribed(self, offset: int) -> Subscription:
        if self._subscription is not None and self._subscription.offset not in (None, offset):
            # Spark has dropped a micro-batch that it was given: have its messages delivered again
            self.close()
        if self._subscription is None:
            self._subscription = Subscription(self._options)
            if self._remaining is not None:
                self._remaining = self._subscription.ready
        if self._subscription.offset is None:
            self._subscription.begin(offset)
        return self._subscription
