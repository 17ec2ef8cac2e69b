"""Moves what is left in a queue to a queue of another broker, with confirms; either may be leveret or RabbitMQ.

A message is acknowledged where it was after the other side has confirmed it: whatever is cut or killed, none is lost,
and only those that were on the way then are there twice (and those whose acknowledgement a source that was
killed had not written down). Order is kept. Messages go through a fanout exchange of the
command's own, so that they keep their routing key: consumers look at it, and dead letters take their way by it.
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
from leveret.client.channel_core import Sink
from leveret.client.errors import ChannelClosed, ClientError, ConsumerCancelled, Nacked, Unroutable
from leveret.client.model import Delivery
from leveret.wire.errors import NOT_FOUND

PREFETCH: Final = 500
"""Messages that are on the way at the same time."""

SILENCE_S: Final = 10.0
"""A queue that has messages and gives none for so long won't give any."""

EXCHANGE: Final = "leveret-drain-"
"""What the name of the exchange begins with that the messages go through. One that is left by a drain that was killed
goes with its queue, or with the next start of the broker."""


class DrainStopped(Exception):
    """It ended before the queue was empty. The text says why; what was not moved is in the queue still."""


@dataclass
class Progress:
    """moved: messages; total: how many there were, or are asked for; unnamed: of those moved, how many had a user id
    that is not the login's, which the other broker would not take: it is gone."""

    moved: int = 0
    total: int = 0
    unnamed: int = 0


class Drain:
    """Moves from `queue` on `source` to `to_queue` on `target`, which must be there.

    user: the login's name on the target; count: not more messages than that, None = until the queue is empty;
    follows: an empty queue is not the end, but cancellation is; prefetch: on the way at the same time, from 1;
    progress: where it is told how far it is; on_progress: called after every step.
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
        self.progress = progress or Progress()
        self._source = source
        self._queue = queue
        self._target = target
        self._to_queue = to_queue
        # of its own: what another drain is done with goes
        self._exchange = EXCHANGE + os.urandom(4).hex()
        self._user = user
        self._count = count
        self._follows = follows
        self._prefetch = prefetch
        self._on_progress = on_progress or (lambda progress: None)
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self._taken = 0
        self._acked = 0
        self._confirmed: set[int] = set()  # beyond `_acked`: what is before them is still on its way

    async def run(self) -> Progress:
        """Do it. DrainStopped where it can't go on; ConnectionClosed where one side has gone: call it again then, with
        new connections."""
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
                    # the exchange goes with its last binding
                    await giving.unbind_queue(self._to_queue, self._exchange)
        return self.progress

    async def _open_way(self) -> None:
        await self._giving.declare_exchange(self._exchange, kind="fanout", durable=False, auto_delete=True)
        await self._giving.bind_queue(self._to_queue, self._exchange)

    async def _move(self) -> None:
        await self._taking.qos(min(self._prefetch, self._limit))
        sink = Sink("leveret-drain", self._deliver, self._ended)
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
        """Nothing is on its way: whether the queue has more.

        A channel of RabbitMQ answers before it hands on what its queue had sent by then, but not a second time.
        """
        for _ in range(2):
            waiting = (await self._taking.declare_queue(self._queue, passive=True)).message_count
            if waiting > 0 or self._taken > self._acked or self._failure is not None:
                return True
        return False

    async def _wait(self) -> None:
        """Until there is something to be looked at."""
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
        """What is on its way when it ends early arrives, or does not: what has arrived must not come twice."""
        with contextlib.suppress(ClientError):
            await self._giving.wait_for_confirms()
        self._acknowledge()
        if not self._taking.is_closed:
            for tag in sorted(self._confirmed):
                self._taking.ack(tag)

    # -- called by the connections -------------------------------------------------------------------------------------

    def _deliver(self, delivery: Delivery) -> None:
        if self._failure is not None or self._taken == self._limit:
            return  # the end of the channel puts it back
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
            # few acknowledgements for many confirms: a quorum queue of RabbitMQ loses those beyond some at the end
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
    """How many wait in a queue. DrainStopped if there is none of this name."""
    try:
        return (await channel.declare_queue(queue, passive=True)).message_count
    except ChannelClosed as error:
        if error.code != NOT_FOUND:
            raise
        raise DrainStopped(f"there is no queue {queue!r} {purpose}: {error.text}") from None
