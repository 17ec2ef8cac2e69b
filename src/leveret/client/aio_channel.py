"""The asyncio face of a channel, and its consumers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
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
# failed publishes that wait_for_confirms remembers; asyncio logs those beyond if nobody looks at their futures
FAILED_MAX: Final = 1024


class Link(Protocol):
    """What a channel needs of its connection."""

    @property
    def core(self) -> ConnectionCore: ...

    def written(self) -> None: ...

    async def drain(self) -> None: ...

    async def wait(self, waiter: Waiter[T]) -> T: ...


class Consumer:
    """The deliveries of one consumer, as an async iterator. Ends after cancel(), or with what the broker ended it."""

    def __init__(self, channel: Channel, tag: str) -> None:
        self.tag = tag
        self._channel = channel
        self._ready: deque[Delivery] = deque()
        self._waiting: list[asyncio.Future[None]] = []
        self._error: ClientError | None = None
        self._is_cancelled = False

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Delivery:
        while not self._ready:
            if self._is_cancelled:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error.with_traceback(None)
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        return self._ready.popleft()

    async def cancel(self) -> None:
        """Stop consuming. What was delivered before can still be iterated; then the iteration ends."""
        if not self._is_cancelled:
            self._is_cancelled = True
            try:
                await self._channel.stop_consuming(self.tag, self._error is None)
            finally:
                self._wake()

    def deliver(self, delivery: Delivery) -> None:
        """Called with every delivery; for this package."""
        self._ready.append(delivery)
        if self._waiting:
            self._wake()

    def ended(self, error: ClientError) -> None:
        """Called when no more can come; for this package."""
        self._error = error
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
        self._failed: list[asyncio.Future[None]] = []
        self._tags = 0

    @classmethod
    async def open(cls, link: Link) -> Channel:
        """Open a channel on a connection; use Connection.channel()."""
        channel = cls(link)
        await channel._call(requests.open_channel())
        return channel

    @property
    def is_closed(self) -> bool:
        """Whether the channel is gone."""
        return self._core.error is not None

    async def close(self) -> None:
        """Close the channel. Without effect if it is closed already."""
        await self._link.wait(self._core.close())

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
        answer = await self._call(requests.declare_queue(name, durable, exclusive, auto_delete, passive, arguments))
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
        answer = self._core.request(requests.confirm_select())
        self._core.start_confirms()  # the broker counts what follows confirm.select, not what follows its answer
        await self._link.wait(answer)

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
        and then. ValueError for a routing key or a property over 255 octets.
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

        Raises the first failure among it and what failed since the last call, also where a future told it already.
        """
        if self._core.confirms is not None:
            await self._link.drain()
            for future in list(self._core.confirms.outstanding.values()):
                if not future.done():
                    await asyncio.wait((future,))
        failed, self._failed = self._failed, []
        errors = [future.exception() for future in failed]
        if errors and errors[0] is not None:
            raise errors[0].with_traceback(None)

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

        tag: its name on the channel; "" makes one.
        """
        consumer = Consumer(self, tag or self._new_tag())
        sink = Sink(consumer.tag, consumer.deliver, consumer.ended)
        await self.consume_into(sink, queue, no_ack, exclusive, arguments)
        return consumer

    async def consume_into(
        self, sink: Sink, queue: str, no_ack: bool, exclusive: bool = False, arguments: Arguments = None
    ) -> None:
        """Start a consumer whose deliveries go straight to a sink; for this package."""
        self._core.add_sink(sink)
        try:
            await self._call(requests.consume(queue, sink.tag, no_ack, exclusive, arguments))
        except BaseException:
            self._core.remove_sink(sink.tag)
            raise

    async def stop_consuming(self, tag: str, is_known: bool) -> None:
        """Cancel a consumer by its tag; is_known: whether the broker still has it. For this package."""
        if is_known and self._core.error is None:
            await self._call(requests.cancel(tag))
        self._core.remove_sink(tag)

    async def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """Fetch one message, or None if the queue is empty."""
        answer = await self._call(requests.get(queue, no_ack))
        return answer if isinstance(answer, Delivery) else None

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
        if future.done():  # its caller gave up waiting
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            if len(self._failed) < FAILED_MAX:
                self._failed.append(future)

    def _closed(self, error: ClientError) -> None:
        """All unconfirmed publishes fail. They are marked as seen: asyncio would log each of thousands."""
        if self._core.confirms is None:
            return
        unconfirmed = [future for future in self._core.confirms.outstanding.values() if not future.done()]
        self._core.confirms.outstanding.clear()
        for future in unconfirmed:
            future.set_exception(error)
            future.exception()
        self._failed.extend(unconfirmed[:1])


def _method(answer: Answer) -> Method:
    assert isinstance(answer, Method)
    return answer
