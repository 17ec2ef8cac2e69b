"""A queue's consumer for readers: messages in batches that are limited by rows, octets and time."""

from __future__ import annotations

import logging
import time
from typing import Final

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed, ClientError, ConnectionClosed
from leveret.client.protocol.delivering import DeliveryReader, RawDeliveries
from leveret.spark.queues.errors import QueueBusy, SourceError, explained, is_in_use
from leveret.spark.rows.deliveries import rows_within
from leveret.wire.errors import PRECONDITION_FAILED

FIRST_WAIT_S: Final = 0.05
"""Seconds to wait for the first message of an idle queue before Spark gets an empty answer (it asks again at once)."""

GAP_S: Final = 0.01
"""If a queue with ready messages delivers none for this many seconds, the micro-batch is complete."""

FILL_S: Final = 0.5
"""A micro-batch that would not fill up within this many seconds at the current rate is complete."""

IDLE_S: Final = 0.2
"""After this many seconds without a delivery, the queue is asked how many messages are left."""

DRAINED_S: Final = 2.0
"""A queue without ready messages that has delivered none for this many seconds is drained: deliveries of a RabbitMQ
quorum queue may arrive after its answer."""

BLOCKED_S: Final = 10.0
"""Ready messages that are not delivered for this many seconds go to another consumer (single active consumer)."""

PUT_BACK_S: Final = 10.0
"""Seconds to wait until messages are back in the queue; some may have expired meanwhile."""

HEARTBEAT_S: Final = 10
"""Heartbeat interval in seconds. If a driver vanishes with its host, the broker notices by heartbeats and delivers the
messages to the next consumer."""

_log = logging.getLogger("leveret.spark")

RUN: Final = 1000
"""Messages that are taken at a time, so that few large ones are taken beyond the limit of octets."""


class Subscription:
    """One consumer on one queue; only :meth:`acknowledge` acknowledges deliveries.

    ``is_alone`` requires that no other consumer uses the queue. Another thread may collect meanwhile. Methods raise
    ``ConnectionClosed`` if the connection is lost, and ``SourceError`` if the broker refuses or the queue is deleted.
    """

    def __init__(self, queue: str, url: str, prefetch_count: int, *, is_alone: bool = False) -> None:
        self._queue = queue
        self.is_drained = False  # whether collect_all() found the queue empty
        with explained(queue):
            self._connection = BlockingConnection(url, HEARTBEAT_S, f"leveret-spark {queue}", reconnect=False)
            try:
                self._channel: BlockingChannel = self._connection.channel()
                state = self._channel.declare_queue(queue, passive=True)
                self.ready = state.message_count  # ready messages of the queue at the start
                self._others = state.consumer_count
                _refuse_streams(self._connection, queue)
                if is_alone and state.consumer_count:
                    raise QueueBusy(
                        f"queue {queue!r} has {state.consumer_count} other consumers: a spool must be the only "
                        "consumer, to recognize redelivered messages; stop the others, or bind a separate queue "
                        "(option queue)"
                    )
                self._tag = self._consume(prefetch_count, is_alone)
            except BaseException:
                self.close()
                raise

    def count_ready(self) -> int:
        """Return the number of ready messages. The answer also means that the broker has processed all
        acknowledgements."""
        with explained(self._queue):
            return self._channel.declare_queue(self._queue, passive=True).message_count

    def count_waiting(self) -> int:
        """Return the number of messages that are ready, or delivered but not collected yet."""
        # the answer arrives after all deliveries that were sent before it
        return self.count_ready() + len(self._raw)

    def acknowledge(self, delivery_tag: int) -> None:
        """Acknowledge everything up to this delivery."""
        with explained(self._queue):
            self._channel.ack(delivery_tag, multiple=True)

    def collect(self, rows: int, octets: int, wait_s: float) -> RawDeliveries:
        """Return available messages: at most ``rows``, or up to the one that reaches ``octets`` of bodies.

        Waits up to ``wait_s`` seconds for the first message, and for no message that is not in the queue yet.
        """
        found, octets = self._take(rows, octets, wait_s)
        begun_s = time.monotonic()
        while found and len(found) < rows and octets > 0:
            passed_s = time.monotonic() - begun_s
            # messages that trickle in must not wait for a full micro-batch
            if passed_s > GAP_S and len(found) * FILL_S < rows * passed_s:
                break
            more, octets = self._take(rows - len(found), octets, 0.0)
            if not more:
                # a pause says little, but the answer arrives after all deliveries sent before it
                gap_s = GAP_S if self.count_ready() else 0.0
                more, octets = self._take(rows - len(found), octets, gap_s)
            if not more:
                break
            found.extend(more)
        return found

    def collect_all(self, rows: int, octets: int) -> RawDeliveries:
        """Collect like :meth:`collect`, but return fewer messages only if the queue is empty; then ``is_drained`` is
        true.

        Raises ``SourceError`` if the queue has messages but delivers none for :data:`BLOCKED_S`.
        """
        found = RawDeliveries(self._channel.number)
        heard_s = time.monotonic()
        while len(found) < rows and octets > 0:
            more, octets = self._take(rows - len(found), octets, IDLE_S)
            found.extend(more)
            if more:
                heard_s = time.monotonic()
                continue
            ready = self.count_ready()
            silent_s = time.monotonic() - heard_s
            if len(self._raw):
                continue
            if not ready and silent_s > DRAINED_S:
                self.is_drained = True
                _log.warning(
                    "queue %s: %d messages are gone: purged, expired or taken by another consumer",
                    self._queue,
                    rows - len(found),
                )
                break
            if ready and silent_s > BLOCKED_S:
                raise SourceError(
                    f"queue {self._queue!r} has {ready} messages but delivers them to another consumer (a single "
                    "active one, or one of higher priority): stop that consumer, or read another queue (option queue)"
                )
        return found

    def put_back(self, messages: int) -> None:
        """Requeue everything and close; returns when ``messages`` messages are ready again, or after a time limit."""
        with explained(self._queue):
            self._channel.cancel(self._tag)
            self._channel.recover()
            # a quorum queue requeues after its answer; if there are other consumers, the messages will hardly stay
            # ready
            deadline_s = time.monotonic() + (0.0 if self._others else PUT_BACK_S)
            while self.count_ready() < messages and time.monotonic() < deadline_s:
                time.sleep(GAP_S)
        self.close()

    def close(self) -> None:
        """Close the connection; the broker requeues everything unacknowledged."""
        self._connection.close()

    def _take(self, rows: int, octets: int, wait_s: float) -> tuple[RawDeliveries, int]:
        """Return some deliveries, and how many octets may still follow."""
        with self._connection.lock:  # the thread that sends heartbeats reads, too
            with explained(self._queue):
                self._receive(min(rows, RUN), wait_s)
            found = self._raw.take(rows_within(self._raw.bodies[:rows], octets))
        return found, octets - found.octets

    def _receive(self, rows: int, wait_s: float) -> None:
        """Read until there are ``rows`` deliveries, or all that have arrived; wait only for the first."""
        deadline_s = time.monotonic() + wait_s
        left_s = wait_s
        while len(self._raw) < rows:
            try:
                is_read = self._channel.receive(0.0 if self._raw else left_s)
            except ClientError:
                if not self._raw:
                    raise
                return  # raised again after these deliveries
            left_s = deadline_s - time.monotonic()
            if not is_read and (self._raw or left_s <= 0):
                return
            left_s = max(0.0, left_s)

    def _consume(self, prefetch_count: int, is_alone: bool) -> str:
        self._raw = RawDeliveries(self._channel.number)
        self._connection.core.deliveries = DeliveryReader(self._raw)
        try:
            return self._channel.consume(
                self._queue, exclusive=is_alone, prefetch_count=prefetch_count, deliver=self._raw.add
            )
        except ChannelClosed as error:
            if not (is_alone and is_in_use(error)):
                raise
            # the queue had no consumer, so it has a single active consumer, which makes this one exclusive
            self._channel = self._connection.channel()
            return self._consume(prefetch_count, is_alone=False)


def check_there(queue: str, url: str) -> None:
    """Raise ``SourceError`` if the queue does not exist or cannot be read; no message is taken. An unreachable broker
    and a queue in use are left to the query, which retries."""
    try:
        with (
            explained(queue),
            BlockingConnection(url, HEARTBEAT_S, f"leveret-spark {queue}", reconnect=False) as connection,
        ):
            connection.channel().declare_queue(queue, passive=True)
            _refuse_streams(connection, queue)
    except (ConnectionClosed, OSError):
        return


def _refuse_streams(connection: BlockingConnection, queue: str) -> None:
    """Raise ``SourceError`` for a stream, which would silently be read from its end. Only streams accept
    x-stream-offset; queues answer 406."""
    with connection.channel() as probe:
        try:
            probe.consume(queue, arguments={"x-stream-offset": "next"}, prefetch_count=1)
        except ChannelClosed as error:
            if error.code == PRECONDITION_FAILED and "x-stream-offset" in error.text:
                return
            if is_in_use(error):
                return  # a stream never has an exclusive consumer; the caller's own consume reports who has the queue
            raise
    raise SourceError(f"{queue!r} is a stream: use option stream instead of option queue")
