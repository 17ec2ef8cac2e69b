"""Moves the messages of a queue to a queue of another broker, with confirms; either broker may be leveret or RabbitMQ.

A message is acknowledged at the source after the target has confirmed it. So none is lost, whichever connection or
process fails; only messages that were in flight at that time are duplicated (and those whose acknowledgements a source
that was killed had not persisted). Order is kept. Messages go through a fanout exchange that the drain creates, so that
they keep their routing key, which consumers and dead lettering use.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from leveret.client.aio import Connection
from leveret.client.aio_channel import Channel
from leveret.client.protocol.errors import ChannelClosed, ClientError, ConsumerCancelled, Nacked, Unroutable
from leveret.client.protocol.model import Delivery, DeliverySink
from leveret.wire.errors import NOT_FOUND

PREFETCH: Final = 500
"""How many messages are in flight at a time."""

SILENCE_S: Final = 10.0
"""Seconds after which a queue that has messages and delivers none is given up."""

EXCHANGE: Final = "leveret-drain-"
"""Prefix of the exchange's name. The exchange of a drain that was killed is removed when the target queue is deleted or
the broker starts again (auto-delete, not durable)."""


class DrainStopped(Exception):
    """The drain ended before the queue was empty; the text says why. Messages that were not moved are still there."""


@dataclass
class Progress:
    """How far a drain is.

    Attributes:
        moved: How many messages were moved.
        total: How many messages the queue had at the start, or `count` if that is less.
        unnamed: How many of the moved messages lost their user id, since it is not the login's name on the target,
            which would refuse it.
    """

    moved: int = 0
    total: int = 0
    unnamed: int = 0


class Drain:
    """Moves messages from `queue` on `source` to `to_queue` on `target`. Both queues must exist.

    Args:
        source: Connection to the source broker.
        queue: Name of the queue to drain.
        target: Connection to the target broker.
        to_queue: Name of the target queue.
        user: The login's user name on the target.
        count: Maximum number of messages; None = until the queue is empty.
        follows: Do not end when the queue is empty; only cancellation ends the drain.
        prefetch: How many messages are in flight at a time, from 1.
        progress: Object to update; None = a new one.
        on_progress: Called with the progress after each acknowledgement.
    """

    def __init__(
        self,
        source: Connection,
        queue: str,
        target: Connection,
        to_queue: str,
        user: str,
        *,
        count: int | None = None,
        follows: bool = False,
        prefetch: int = PREFETCH,
        progress: Progress | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.progress: Progress = progress or Progress()
        self._source = source
        self._queue = queue
        self._target = target
        self._to_queue = to_queue
        # a random name: an exchange shared with another drain would be removed when that one ends
        self._exchange = EXCHANGE + os.urandom(4).hex()
        self._user = user
        self._count = count
        self._follows = follows
        self._prefetch = prefetch
        self._on_progress = on_progress or (lambda progress: None)
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self._taken = 0  # deliveries received
        self._acked = 0  # delivery tag up to which all is acknowledged
        self._confirmed: set[int] = set()  # confirmed delivery tags after `_acked`, with unconfirmed ones before them

    async def run(self) -> Progress:
        """Move the messages.

        Raises:
            DrainStopped: The drain cannot go on, for instance because a queue does not exist.
            ConnectionClosed: A connection was lost; run a new drain with new connections.
        """
        async with await self._source.channel() as taking, await self._target.channel() as giving:
            self._taking, self._giving = taking, giving
            waiting = await _messages(taking, self._queue, "to be drained")
            await _messages(giving, self._to_queue, "to drain into")
            self.progress.total = waiting if self._count is None else min(waiting, self._count)
            self._limit = self._count if self._count is not None else 1 << 62
            await giving.confirm_select()
            await self._open_way()
            try:
                await self._move()
            finally:
                if not giving.is_closed:
                    # the exchange is deleted with its last binding
                    await giving.unbind_queue(self._to_queue, self._exchange)
        return self.progress

    async def _open_way(self) -> None:
        await self._giving.declare_exchange(self._exchange, kind="fanout", durable=False, auto_delete=True)
        await self._giving.bind_queue(self._to_queue, self._exchange)

    async def _move(self) -> None:
        await self._taking.qos(min(self._prefetch, self._limit))
        sink = DeliverySink("leveret-drain", self._deliver, self._ended)
        await self._taking.consume_into(sink, self._queue, False)
        try:
            while self._failure is None and self._acked < self._limit:
                self._news.clear()
                if not self._follows and self._taken == self._acked and not await self._is_more():
                    break
                await self._wait()
        finally:
            await self._settle_all()
        if isinstance(self._failure, ClientError) and not isinstance(self._failure, ConsumerCancelled | ChannelClosed):
            raise self._failure
        if self._failure is not None:
            raise DrainStopped(str(self._failure))

    async def _is_more(self) -> bool:
        """Whether the queue has more messages. Called while none is in flight.

        It asks twice: a channel of RabbitMQ may answer the first time before it passes on deliveries that its queue had
        sent by then.
        """
        for _ in range(2):
            waiting = (await self._taking.declare_queue(self._queue, passive=True)).message_count
            if waiting > 0 or self._taken > self._acked or self._failure is not None:
                return True
        return False

    async def _wait(self) -> None:
        """Wait for an acknowledgement or an error; DrainStopped if a queue with messages delivers none."""
        try:
            is_silent = self._taken == self._acked and not self._follows
            await asyncio.wait_for(self._news.wait(), SILENCE_S if is_silent else None)
        except TimeoutError:
            if self._taken > self._acked:
                return
            text = f"queue {self._queue!r} has messages, but delivers them to other consumers: stop those consumers"
            text += " (a stream can't be drained: read it with leveret stream export)"
            raise DrainStopped(text) from None

    async def _settle_all(self) -> None:
        """At an early end wait for the outstanding confirms and acknowledge what is confirmed, so that it is not
        delivered again."""
        with contextlib.suppress(ClientError):
            await self._giving.wait_for_confirms()
        self._acknowledge()
        if not self._taking.is_closed:
            for tag in sorted(self._confirmed):
                self._taking.ack(tag)

    # -- called by the connections -------------------------------------------------------------------------------------

    def _deliver(self, delivery: Delivery) -> None:
        if self._failure is not None or self._taken == self._limit:
            return  # requeued when the channel is closed
        self._taken += 1
        properties = delivery.properties
        is_unnamed = properties.user_id is not None and properties.user_id != self._user
        if is_unnamed:
            properties = replace(properties, user_id=None)
        try:
            future = self._giving.publish(
                delivery.body, self._exchange, delivery.routing_key, properties, mandatory=True
            )
        except ClientError as error:
            self._fail(error)
            return
        future.add_done_callback(lambda done: self._settle(delivery.delivery_tag, is_unnamed, done))

    def _settle(self, tag: int, is_unnamed: bool, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            self._fail(self._explained(error) if isinstance(error, Exception) else DrainStopped("cancelled"))
            return
        self.progress.moved += 1
        self.progress.unnamed += is_unnamed
        self._confirmed.add(tag)
        if tag == self._acked + 1:
            # one acknowledgement for many confirms: a quorum queue of RabbitMQ loses some of very many at the end
            asyncio.get_running_loop().call_soon(self._acknowledge)

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, Unroutable):
            return DrainStopped(f"queue {self._to_queue!r} no longer exists")
        if isinstance(error, Nacked):
            return DrainStopped(f"queue {self._to_queue!r} refuses more messages (basic.nack); it may be full")
        return error

    def _acknowledge(self) -> None:
        before = self._acked
        while self._acked + 1 in self._confirmed:
            self._acked += 1
            self._confirmed.discard(self._acked)
        if self._acked > before and not self._taking.is_closed:
            self._taking.ack(self._acked, multiple=True)
            self._on_progress(self.progress)
        self._news.set()

    def _ended(self, error: ClientError) -> None:
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._news.set()


async def _messages(channel: Channel, queue: str, purpose: str) -> int:
    """Return the number of ready messages of a queue; raise DrainStopped if the queue does not exist."""
    try:
        return (await channel.declare_queue(queue, passive=True)).message_count
    except ChannelClosed as error:
        if error.code != NOT_FOUND:
            raise
        raise DrainStopped(f"there is no queue {queue!r} {purpose}: {error.text}") from None
