"""The asyncio face of a channel, and its consumers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Protocol, TypeVar

from leveret.client import requests
from leveret.client.channel_core import Answer, ChannelCore, Sink
from leveret.client.errors import ClientError, PublishError, Unroutable
from leveret.client.model import Delivery, QueueInfo
from leveret.client.protocol import ConnectionCore
from leveret.client.requests import Arguments, Request
from leveret.client.waiter import Waiter
from leveret.wire import grammar
from leveret.wire.method import Method
from leveret.wire.properties import Properties

T = TypeVar("T")
# futures of failed publishes that wait_for_confirms looks at; asyncio logs those beyond if nobody else does
FAILED_MAX: Final = 1024


class Link(Protocol):
    """What a channel needs of its connection."""

    @property
    def core(self) -> ConnectionCore: ...

    def written(self) -> None: ...

    async def drain(self) -> None: ...

    async def wait(self, waiter: Waiter[T], undo: Callable[[], None] | None = None) -> T: ...


class Consumer:
    """The deliveries of one consumer, as an async iterator. Ends after cancel(), or with what the broker ended it.

    A task that is cancelled while it waits for the next delivery takes none: it is there for the next who asks.
    """

    def __init__(self, channel: Channel, tag: str) -> None:
        self.tag = tag
        self._channel = channel
        self._ready: deque[Delivery] = deque()
        self._waiting: list[asyncio.Future[None]] = []
        self._error: ClientError | None = None
        self._ending: Waiter[Answer] | None = None
        self._is_over = False

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Delivery:
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error.with_traceback(None)
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                raise
        return self._ready.popleft()

    async def cancel(self) -> None:
        """Stop consuming. What was delivered before can still be iterated; then the iteration ends.

        Where the caller is cancelled, the consumer ends all the same, with the broker's answer.
        """
        if self._is_over:
            return
        if self._ending is None:
            try:
                self._ending = self._channel.stop_consuming(self.tag, self._error is None)
            except ClientError:
                self._finish()
                raise
        if self._ending is None:
            self._finish()
        else:
            self._ending.when_done(self._finish)
            await self._channel.answered(self._ending)

    def take_all(self) -> deque[Delivery]:
        """What was delivered and not iterated; for this package."""
        taken, self._ready = self._ready, deque()
        return taken

    def deliver(self, delivery: Delivery) -> None:
        """Called with every delivery; for this package."""
        self._ready.append(delivery)
        if self._waiting:
            self._wake()

    def ended(self, error: ClientError) -> None:
        """Called when no more can come; for this package."""
        self._error = error
        self._wake()

    def _finish(self) -> None:
        """Nothing more comes, as was asked for."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Channel:
    """An AMQP channel. Every method raises ChannelClosed or ConnectionClosed when the broker refuses or is gone."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._core: ChannelCore[asyncio.Future[None]] = link.core.open_channel(self._settled, self._closed)
        self._sent: asyncio.Future[None] = self._loop.create_future()
        self._sent.set_result(None)
        self._failure: ClientError | None = None  # the first one since wait_for_confirms has raised one
        self._failed: list[asyncio.Future[None]] = []
        self._tags = 0

    @classmethod
    async def open(cls, link: Link) -> Channel:
        """Open a channel on a connection; use Connection.channel()."""
        channel = cls(link)
        await link.wait(channel._core.request(requests.open_channel()), channel.abandon)
        return channel

    @property
    def is_closed(self) -> bool:
        """Whether the channel is gone."""
        return self._core.error is not None

    async def close(self) -> None:
        """Close the channel. Without effect if it is closed already.

        Where the caller is cancelled, it is closed all the same, with the broker's answer.
        """
        await self._link.wait(self._core.close())

    def abandon(self) -> None:
        """Close without waiting: the caller that opened the channel is gone. For this package."""
        self._core.abandon()
        self._link.written()

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # topology

    async def declare_exchange(
        self,
        name: str,
        kind: str = "topic",
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
        arguments: Arguments = None,
    ) -> None:
        """Create an exchange, or check that it is there just so; passive only checks that it is there."""
        await self._call(requests.declare_exchange(name, kind, durable, auto_delete, internal, passive, arguments))

    async def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        """Delete an exchange; one that is not there is no error."""
        await self._call(requests.delete_exchange(name, if_unused))

    async def bind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None
    ) -> None:
        """Let messages flow from exchange source to exchange destination."""
        await self._call(requests.bind_exchange(destination, source, routing_key, arguments))

    async def unbind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None
    ) -> None:
        """Undo bind_exchange with the same arguments."""
        await self._call(requests.unbind_exchange(destination, source, routing_key, arguments))

    async def declare_queue(
        self,
        name: str = "",
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: Arguments = None,
    ) -> QueueInfo:
        """Create a queue, or check that it is there just so; "" lets the broker make the name."""
        request = requests.declare_queue(name, durable, exclusive, auto_delete, passive, arguments)
        waiter = self._core.request(request)
        is_unknown = not name and not passive  # to everybody, if its name is not heard
        answer = await self._link.wait(waiter, partial(self._core.abandon_queue, waiter) if is_unknown else None)
        return requests.queue_info(_method(answer))

    async def bind_queue(self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Let messages flow from an exchange to a queue."""
        await self._call(requests.bind_queue(queue, exchange, routing_key, arguments))

    async def unbind_queue(self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Undo bind_queue with the same arguments."""
        await self._call(requests.unbind_queue(queue, exchange, routing_key, arguments))

    async def delete_queue(self, name: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue: the number of messages that went with it. One that is not there is no error."""
        return _method(await self._call(requests.delete_queue(name, if_unused, if_empty))).number("message_count")

    async def purge_queue(self, name: str) -> int:
        """Empty a queue: the number of messages dropped."""
        return _method(await self._call(requests.purge_queue(name))).number("message_count")

    # publishing

    async def confirm_select(self) -> None:
        """From here on every publish is confirmed by the broker. Cannot be undone."""
        await self._link.wait(self._core.confirm_select())

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        mandatory: bool = False,
    ) -> asyncio.Future[None]:
        """Send a message without waiting; it leaves within this turn of the loop.

        In confirm mode the future is done when the broker has taken responsibility, and raises Nacked, or Unroutable
        for a mandatory message that no queue took; else it is done at once. A caller who sends much awaits drain() now
        and then. A message whose future is cancelled is sent all the same, and wait_for_confirms still waits for it.
        ValueError for a routing key or a property over 255 octets, TypeError for an argument of another type.
        """
        core = self._core
        future = self._sent if core.confirms is None else self._loop.create_future()
        core.publish(future, body, exchange, routing_key, properties, mandatory)
        self._link.written()
        return future

    async def drain(self) -> None:
        """Wait until the socket takes more, and while the broker has blocked publishers (connection.blocked)."""
        await self._link.drain()

    async def wait_for_confirms(self) -> None:
        """Wait until everything published so far is confirmed.

        Raises the first failure among it and what failed since the last call, also where a future told it already, or
        was cancelled.
        """
        if self._core.confirms is not None:
            await self._link.drain()
            outstanding = self._core.confirms.outstanding
            for number in list(outstanding):
                while (future := outstanding.get(number)) is not None:
                    if future.done():  # its caller gave up waiting; the broker has still to answer
                        future = outstanding[number] = self._loop.create_future()
                    await asyncio.wait((future,))
        failure, self._failure = self._failure, None
        failed, self._failed = self._failed, []
        for each in failed:
            each.exception()  # asyncio need not log it
        if failure is not None:
            raise failure.with_traceback(None)

    @property
    def outstanding(self) -> int:
        """How many publishes are not confirmed yet."""
        return len(self._core.confirms.outstanding) if self._core.confirms is not None else 0

    def on_return(self, handler: Callable[[Unroutable], None]) -> None:
        """Have handler called with mandatory messages that come back while confirms are off (else they are logged)."""
        self._core.on_return = handler

    # transactions

    async def tx_select(self) -> None:
        """From here on publishes and acknowledgements take effect at tx_commit. Cannot be undone; excludes confirms.

        Each commit costs a round trip and, where something durable is in it, a sync of the disk: confirms are many
        times faster. Transactions are for what must happen together, such as an ack and what follows from the message.
        """
        await self._call(requests.tx_select())

    async def tx_commit(self) -> None:
        """Make all since the last commit or rollback happen; returns when the broker has taken responsibility."""
        await self._call(requests.tx_commit())

    async def tx_rollback(self) -> None:
        """Forget all since the last commit: nothing was published, and what was acknowledged no longer is."""
        await self._call(requests.tx_rollback())

    # consuming

    async def qos(self, prefetch_count: int, shared: bool = False) -> None:
        """Limit unacknowledged deliveries, 0 = no limit: of each later consumer, or (shared) of the whole channel."""
        await self._call(requests.qos(prefetch_count, shared))

    async def consume(
        self, queue: str, no_ack: bool = False, exclusive: bool = False, tag: str = "", arguments: Arguments = None
    ) -> Consumer:
        """Start a consumer. What the broker sends is kept here until it is iterated, so limit it by qos().

        tag: its name on the channel; "" makes one. Where the caller is cancelled, the consumer is ended, and what it
        was sent goes back to the queue; with no_ack it cannot, and is kept for the channel's next get or consume of
        that queue with no_ack.
        """
        consumer = Consumer(self, tag or self._new_tag())
        sink = Sink(consumer.tag, consumer.deliver, consumer.ended)
        try:
            await self.consume_into(sink, queue, no_ack, exclusive, arguments)
        except asyncio.CancelledError:
            for delivery in consumer.take_all():
                self._core.put_back(delivery, queue, no_ack)
            raise
        return consumer

    async def consume_into(
        self, sink: Sink, queue: str, no_ack: bool, exclusive: bool = False, arguments: Arguments = None
    ) -> None:
        """Start a consumer whose deliveries go straight to a sink; for this package."""
        answer = self._core.consume(sink, queue, no_ack, exclusive, arguments)
        await self._link.wait(answer, lambda: self._core.abandon_consumer(sink, answer, queue, no_ack))

    def stop_consuming(self, tag: str, is_known: bool) -> Waiter[Answer] | None:
        """Cancel a consumer by its tag; None if there is nothing to wait for. is_known: whether the broker still has
        it. For this package."""
        if is_known and self._core.error is None:
            return self._core.cancel(tag)
        self._core.remove_sink(tag)
        return None

    async def answered(self, answer: Waiter[Answer]) -> None:
        """Wait for an answer; for this package."""
        await self._link.wait(answer)

    async def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """Fetch one message, or None if the queue is empty.

        Where the caller is cancelled, the message goes back to the queue; with no_ack it cannot, and is kept for the
        channel's next get or consume of that queue with no_ack.
        """
        fetched = self._core.get(queue, no_ack)
        return await self._link.wait(fetched, lambda: self._core.abandon_get(fetched, queue, no_ack))

    def ack(self, tag: int, multiple: bool = False) -> None:
        """Acknowledge a delivery, or (multiple) all up to it. tag: Delivery.delivery_tag."""
        self._core.ack(tag, multiple)
        self._link.written()

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse a delivery, or (multiple) all up to it: back to the queue, or dropped (dead-lettered)."""
        self._core.acknowledge(grammar.BASIC_NACK, tag, multiple=multiple, requeue=requeue)
        self._link.written()

    def reject(self, tag: int, requeue: bool = True) -> None:
        """Refuse one delivery: back to the queue, or dropped (dead-lettered)."""
        self._core.acknowledge(grammar.BASIC_REJECT, tag, requeue=requeue)
        self._link.written()

    async def recover(self, requeue: bool = True) -> None:
        """Have all unacknowledged deliveries of the channel requeued."""
        await self._call(requests.recover(requeue))

    async def _call(self, request: Request) -> Answer:
        return await self._link.wait(self._core.request(request))

    def _new_tag(self) -> str:
        self._tags += 1
        return f"leveret-{self._tags}"

    def _settled(self, future: asyncio.Future[None], error: PublishError | None) -> None:
        if error is None:
            if not future.done():  # else its caller gave up waiting
                future.set_result(None)
            return
        if self._failure is None:
            self._failure = error
        if not future.done():
            future.set_exception(error)
            if len(self._failed) < FAILED_MAX:
                self._failed.append(future)

    def _closed(self, error: ClientError) -> None:
        """All unconfirmed publishes fail. They are marked as seen: asyncio would log each of thousands."""
        if self._core.confirms is None:
            return
        unconfirmed = list(self._core.confirms.outstanding.values())
        self._core.confirms.outstanding.clear()
        if unconfirmed and self._failure is None:
            self._failure = error
        for future in unconfirmed:
            if not future.done():
                future.set_exception(error)
                future.exception()


def _method(answer: Answer) -> Method:
    assert isinstance(answer, Method)
    return answer
