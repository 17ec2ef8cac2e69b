"""A consumer on a queue, as readers need it: messages in runs that are limited by rows, octets and time."""

from __future__ import annotations

import logging
import time
from typing import Final

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed, ConnectionClosed, Delivery
from leveret.spark.queues.errors import QueueBusy, SourceError, explained, is_in_use
from leveret.wire.errors import PRECONDITION_FAILED

FIRST_WAIT_S: Final = 0.05
"""How long a reader listens to an idle queue before it tells Spark that there is nothing (Spark asks again at once)."""

GAP_S: Final = 0.01
"""A queue that has more and gives none for so long gives none for now, and the micro-batch is complete."""

FILL_S: Final = 0.5
"""A micro-batch that would not be full within this long, as messages come, is complete with what is there."""

IDLE_S: Final = 0.2
"""After this long without a delivery the queue is asked how many messages are left."""

DRAINED_S: Final = 2.0
"""A queue that says that it has no more, and has given none for so long, has no more: what a quorum queue of RabbitMQ
has sent may come after its answer."""

BLOCKED_S: Final = 10.0
"""Messages that are ready but are not delivered for this long belong to someone else (a single active consumer)."""

PUT_BACK_S: Final = 10.0
"""How long it is waited for messages to be where they were; some of them may have expired meanwhile."""

HEARTBEAT_S: Final = 10
"""A driver that vanishes with its host leaves a consumer behind; so soon the broker notices, and gives the messages
to the next."""

_log = logging.getLogger("leveret.spark")

RUN: Final = 1000
"""Messages that are taken at a time, so that large ones are left where they are when there are enough of them."""


class Subscription:
    """One consumer on one queue, from which nothing is acknowledged but through :meth:`acknowledge`.

    is_alone: nobody else may consume, or have unacknowledged messages of the queue. Another thread may collect
    meanwhile. ``ready``: messages that waited in the queue when it began.
    Methods raise ``ConnectionClosed`` where the connection is lost and ``SourceError`` where the broker objects, or
    the queue is deleted.
    """

    def __init__(self, queue: str, url: str, prefetch_count: int, *, is_alone: bool = False) -> None:
        self._queue = queue
        self._spare: list[Delivery] = []
        self.is_drained = False
        with explained(queue):
            self._connection = BlockingConnection(url, HEARTBEAT_S, f"leveret-spark {queue}")
            try:
                self._channel: BlockingChannel = self._connection.channel()
                state = self._channel.declare_queue(queue, passive=True)
                self.ready = state.message_count
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
        """Messages that wait in the queue. As an answer it also means that the broker has seen all acknowledgements."""
        with explained(self._queue):
            return self._channel.declare_queue(self._queue, passive=True).message_count

    def count_waiting(self) -> int:
        """Messages that wait in the queue, or were delivered and not collected yet."""
        # the answer comes behind all deliveries that were sent before
        return self.count_ready() + len(self._spare) + self._channel.untaken

    def acknowledge(self, delivery_tag: int) -> None:
        """Acknowledge everything up to this delivery."""
        with explained(self._queue):
            self._channel.ack(delivery_tag, multiple=True)

    def collect(self, rows: int, octets: int, wait_s: float) -> list[Delivery]:
        """What is there: at most so many messages, or up to the one that reaches so many octets of bodies.

        Waits up to ``wait_s`` seconds for the first, and for none that is not in the queue yet.
        """
        found, octets = self._take(rows, octets, wait_s)
        begun_s = time.monotonic()
        while found and len(found) < rows and octets > 0:
            passed_s = time.monotonic() - begun_s
            # who publishes now and then shall not wait for those who publish later
            if passed_s > GAP_S and len(found) * FILL_S < rows * passed_s:
                break
            more, octets = self._take(rows - len(found), octets, 0.0)
            if not more:
                # a pause says little, and the answer comes behind what was sent before
                gap_s = GAP_S if self.count_ready() else 0.0
                more, octets = self._take(rows - len(found), octets, gap_s)
            if not more:
                break
            found += more
        return found

    def collect_all(self, rows: int, octets: int) -> list[Delivery]:
        """As :meth:`collect`, but fewer only if the queue has no more: ``is_drained`` is true then.

        Raises ``SourceError`` where it has some and gives none for :data:`BLOCKED_S`.
        """
        found: list[Delivery] = []
        heard_s = time.monotonic()
        while len(found) < rows and octets > 0:
            more, octets = self._take(rows - len(found), octets, IDLE_S)
            found += more
            if more:
                heard_s = time.monotonic()
                continue
            ready = self.count_ready()
            silent_s = time.monotonic() - heard_s
            if self._channel.untaken:
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
        """End. Returns when so many messages that were collected are in the queue again, for whoever looks next."""
        with explained(self._queue):
            self._channel.cancel(self._tag)
            self._channel.recover()
            # a quorum queue takes its time after the answer; where others consume they will hardly be there again
            deadline_s = time.monotonic() + (0.0 if self._others else PUT_BACK_S)
            while self.count_ready() < messages and time.monotonic() < deadline_s:
                time.sleep(GAP_S)
        self.close()

    def close(self) -> None:
        """Close the connection; the broker puts everything unacknowledged back into the queue."""
        self._connection.close()

    def _take(self, rows: int, octets: int, wait_s: float) -> tuple[list[Delivery], int]:
        """Some deliveries, and how many octets may still come after them."""
        run, self._spare = self._spare, []
        if not run:
            with explained(self._queue):
                run = self._channel.deliveries(min(rows, RUN), wait_s)
        end = 0
        for one in run[:rows]:
            end += 1
            octets -= len(one.body)
            if octets <= 0:
                break
        if end < len(run):
            self._spare = run[end:]
            run = run[:end]
        return run, octets

    def _consume(self, prefetch_count: int, is_alone: bool) -> str:
        try:
            return self._channel.consume(self._queue, exclusive=is_alone, prefetch_count=prefetch_count)
        except ChannelClosed as error:
            if not (is_alone and is_in_use(error)):
                raise
            # nobody was there: a single active consumer, which is alone by the queue's own doing
            self._channel = self._connection.channel()
            return self._channel.consume(self._queue, prefetch_count=prefetch_count)


def check_there(queue: str, url: str) -> None:
    """``SourceError`` if there is no such queue, or it can't be read; nothing is taken from it. A broker that is away
    is left to the query, which waits; so is a queue that somebody else has."""
    try:
        with explained(queue), BlockingConnection(url, HEARTBEAT_S, f"leveret-spark {queue}") as connection:
            connection.channel().declare_queue(queue, passive=True)
            _refuse_streams(connection, queue)
    except (ConnectionClosed, OSError):
        return


def _refuse_streams(connection: BlockingConnection, queue: str) -> None:
    """A stream would be read from its end on, without a word. Only streams know where to begin (406 else)."""
    with connection.channel() as probe:
        try:
            probe.consume(queue, arguments={"x-stream-offset": "next"}, prefetch_count=1)
        except ChannelClosed as error:
            if error.code == PRECONDITION_FAILED and "x-stream-offset" in error.text:
                return
            if is_in_use(error):
                return  # a stream is in nobody's exclusive use; who has the queue is told by what follows
            raise
    raise SourceError(f"{queue!r} is a stream: use option stream instead of option queue")
