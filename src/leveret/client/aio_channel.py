"""The channel of the asyncio API, and its consumers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Protocol, TypeVar

from leveret.client.protocol import publisher, requests
from leveret.client.protocol.channel_core import Answer, ChannelCore
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.errors import ClientError, PublishError, PublishTimeout, Unroutable
from leveret.client.protocol.model import Delivery, DeliverySink, QueueInfo, consumer_tag
from leveret.client.protocol.requests import Arguments, Request
from leveret.client.protocol.waiter import Waiter
from leveret.wire import grammar
from leveret.wire.method import Method
from leveret.wire.properties import Properties

T = TypeVar("T")
# failed publishes whose error wait_for_confirms retrieves; asyncio logs the errors of more, if nobody awaits them
FAILED_MAX: Final = 1024


class ChannelConnection(Protocol):
    """What a channel needs of its connection."""

    @property
    def new_channel(self) -> Callable[[ChannelConnection], Channel]: ...

    @property
    def core(self) -> ConnectionCore: ...

    def written(self) -> None: ...

    async def drain(self) -> None: ...

    async def wait(self, waiter: Waiter[T], undo: Callable[[], None] | None = None) -> T: ...


class Consumer:
    """A consumer, made by Channel.consume(): an async iterator over its deliveries.

    The iteration ends after cancel(). It raises ConsumerCancelled, ChannelClosed or ConnectionClosed if one of these
    ended the consumer. A task that is cancelled while it waits for the next delivery loses none: the next iteration
    gets it.

    Attributes:
        tag (str): The consumer tag.
    """

    def __init__(self, channel: Channel, tag: str, no_ack: bool) -> None:
        self.tag = tag
        self._channel = channel
        self._ready: deque[Delivery] = deque()
        self._waiting: list[asyncio.Future[None]] = []
        self._no_ack = no_ack
        self._last: Delivery | None = None  # the last one that was iterated
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
        self._last = self._ready.popleft()
        return self._last

    async def cancel(self) -> None:
        """Stop consuming. Deliveries that arrived before can still be iterated; then the iteration ends.

        If the calling task is cancelled, the consumer still ends, when the broker's answer arrives.
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
        """Remove and return the deliveries that were not iterated yet; for this package only."""
        taken, self._ready = self._ready, deque()
        return taken

    def deliver(self, delivery: Delivery) -> None:
        """Take a delivery from the connection; for this package only."""
        self._ready.append(delivery)
        if self._waiting:
            self._wake()

    def ended(self, error: ClientError) -> None:
        """Learn that no more deliveries come, and why; for this package only."""
        self._error = error
        self._wake()

    def interrupted(self) -> Delivery | None:
        """Drop the deliveries that come again after a reconnect and return the last one that was iterated."""
        if not self._no_ack:
            self._ready.clear()
        return self._last

    def _finish(self) -> None:
        """End the iteration without an error, as cancel() asked for."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Channel:
    """An AMQP channel of the asyncio API, opened by Connection.channel(). An async context manager that closes it.

    Every method raises ChannelClosed when the broker refuses the request or the channel is closed, and
    ConnectionClosed when the connection is lost. docs/guides/cancelled-calls.md describes what cancelling a call does.
    """

    def __init__(self, link: ChannelConnection) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._core: ChannelCore[asyncio.Future[None]] = link.core.open_channel(self._settled, self._closed)
        self._sent: asyncio.Future[None] = self._loop.create_future()
        self._sent.set_result(None)
        self._failure: ClientError | None = None  # the first failure since the last wait_for_confirms
        self._failed: list[asyncio.Future[None]] = []
        self._tags = 0
        self._room: asyncio.Future[None] | None = None  # set while drain() waits for room in the outbox
        self._core.on_restored = self._restored
        self._on_restored: Callable[[], None] | None = None

    @staticmethod
    async def open(link: ChannelConnection) -> Channel:
        """Open a channel on a connection. Applications call Connection.channel()."""
        channel = link.new_channel(link)
        await link.wait(channel._core.request(requests.open_channel()), channel.abandon)
        return channel

    @property
    def is_closed(self) -> bool:
        """Whether the channel is closed, by either side or because the connection was lost."""
        return self._core.error is not None

    async def close(self) -> None:
        """Close the channel and wait for the broker's answer. No effect if it is closed already.

        If the calling task is cancelled, the channel is still closed, when the broker's answer arrives.
        """
        await self._link.wait(self._core.close())

    def abandon(self) -> None:
        """Close without waiting, when the task that opened the channel was cancelled. For this package only."""
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
        """Create an exchange, or check that an existing one has the same properties (exchange.declare).

        Args:
            name: Name of the exchange.
            kind: Exchange type, such as "topic", "direct", "fanout" or "headers".
            durable: The exchange survives a restart of the broker.
            auto_delete: The broker deletes the exchange when its last binding is removed.
            internal: Clients cannot publish to the exchange; it is reached only by bindings from other exchanges.
            passive: Only check that the exchange exists.
            arguments: Optional arguments, such as "alternate-exchange".

        Raises:
            ChannelClosed: 406 if an exchange with other properties exists, 404 if passive and none exists.
        """
        await self._call(requests.declare_exchange(name, kind, durable, auto_delete, internal, passive, arguments))

    async def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        """Delete an exchange, with if_unused only if it has no bindings (else ChannelClosed 406).

        An exchange that does not exist is no error.
        """
        await self._call(requests.delete_exchange(name, if_unused))

    async def bind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None
    ) -> None:
        """Bind the exchange `destination` to the exchange `source` (exchange.bind, an extension of RabbitMQ)."""
        await self._call(requests.bind_exchange(destination, source, routing_key, arguments))

    async def unbind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None
    ) -> None:
        """Remove the binding that bind_exchange created with the same arguments."""
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
        """Create a queue, or check that an existing one has the same properties (queue.declare).

        Args:
            name: Name of the queue; "" lets the broker generate one.
            durable: The queue survives a restart of the broker.
            exclusive: Only this connection can use the queue, and it is deleted when the connection ends.
            auto_delete: The broker deletes the queue when its last consumer is gone.
            passive: Only check that the queue exists.
            arguments: Optional arguments, such as "x-message-ttl" or "x-queue-type".

        Returns:
            The name of the queue, its number of ready messages and its number of consumers.

        Raises:
            ChannelClosed: 406 if a queue with other properties exists, 404 if passive and none exists, 405 if the queue
                is exclusive to another connection.
        """
        request = requests.declare_queue(name, durable, exclusive, auto_delete, passive, arguments)
        waiter = self._core.request(request)
        is_unknown = not name and not passive  # nobody knows the generated name if the answer is not read
        answer = await self._link.wait(waiter, partial(self._core.abandon_queue, waiter) if is_unknown else None)
        return requests.queue_info(_method(answer))

    async def bind_queue(self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Bind a queue to an exchange (queue.bind)."""
        await self._call(requests.bind_queue(queue, exchange, routing_key, arguments))

    async def unbind_queue(self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Remove the binding that bind_queue created with the same arguments."""
        await self._call(requests.unbind_queue(queue, exchange, routing_key, arguments))

    async def delete_queue(self, name: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue and return the number of messages that were deleted with it.

        A queue that does not exist is no error. ChannelClosed (406) if if_unused is set and the queue has consumers, or
        if_empty is set and it has messages.
        """
        return _method(await self._call(requests.delete_queue(name, if_unused, if_empty))).number("message_count")

    async def purge_queue(self, name: str) -> int:
        """Delete the ready messages of a queue and return their number (queue.purge)."""
        return _method(await self._call(requests.purge_queue(name))).number("message_count")

    # publishing

    async def confirm_select(self) -> None:
        """Turn publisher confirms on: the broker confirms every later publish. This cannot be undone."""
        await self._link.wait(self._core.confirm_select())

    async def attach_publisher(self, name: str) -> None:
        """Publish under a publisher reference; for this package only, see Connection.channel()."""
        try:
            await self._link.wait(self._core.attach_publisher(name), self.abandon)
        except ClientError as error:
            raise publisher.missing(error) or error from None

    @property
    def last_publishing_id(self) -> int:
        """The id of the last message that was published under the channel's publisher reference; 0 without one.

        A channel that was opened for a reference begins with the last id that the broker has stored.
        """
        return self._core.last_publishing_id

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        mandatory: bool = False,
        timeout_s: float | None = None,
    ) -> asyncio.Future[None]:
        """Send a message without waiting; it is written within this turn of the event loop.

        Await the result, or drain() now and then when you send much: publish() itself never waits. While the connection
        is being restored the message is kept; with confirms it is sent again if the connection is lost before the
        confirm.

        Args:
            body: Content of the message.
            exchange: Name of the exchange; "" is the default exchange, which routes to the queue named routing_key.
            routing_key: At most 255 bytes in UTF-8.
            properties: Properties and headers; None = none.
            mandatory: The broker returns the message if no queue takes it: see Unroutable and on_return().
            timeout_s: With confirms, seconds until the result raises PublishTimeout; a message that was not sent by
                then is not sent any more. None = no limit.

        Returns:
            With confirms, a future that is done when the broker has taken responsibility for the message. It raises
            Nacked, Unroutable (for a mandatory message), PublishTimeout, ChannelClosed or ConnectionClosed. Cancelling
            it changes nothing: the message is sent, and wait_for_confirms() waits for it. Without confirms, a future
            that is done.

        Raises:
            ValueError: The routing key or a text property is longer than 255 bytes.
            TypeError: An argument or a property has a wrong type.
            OutboxFull: The limits of the outbox are reached (Reconnect); drain() waits for room.
        """
        core = self._core
        future = self._sent if core.confirms is None else self._loop.create_future()
        number = core.publish(future, body, exchange, routing_key, properties, mandatory)
        self._link.written()
        if timeout_s is not None and number:
            timer = self._loop.call_later(timeout_s, self._expire, number, future, timeout_s)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    async def drain(self) -> None:
        """Wait until the socket accepts more data, the outbox has room, and the broker does not block publishers."""
        await self._link.drain()
        while self._core.is_outbox_full:
            if self._room is None:
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)

    async def wait_for_confirms(self) -> None:
        """Wait until everything published so far is confirmed.

        Raises:
            Nacked, Unroutable, ChannelClosed, ConnectionClosed: The first failure since the last call, even if the
                message's future raised it already or was cancelled.
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
            each.exception()  # marks it as retrieved, so that asyncio does not log it
        if failure is not None:
            raise failure.with_traceback(None)

    @property
    def outstanding(self) -> int:
        """How many publishes are not confirmed yet; 0 while confirms are off."""
        return len(self._core.confirms.outstanding) if self._core.confirms is not None else 0

    def on_return(self, handler: Callable[[Unroutable], None]) -> None:
        """Set the handler for mandatory messages that are returned while confirms are off (default: log a warning)."""
        self._core.on_return = handler

    # transactions

    async def tx_select(self) -> None:
        """Make the channel transactional: later publishes and acknowledgements take effect at tx_commit().

        This cannot be undone, and excludes confirms. Each commit costs a round trip and, where it has something
        durable, a sync of the disk: confirms are many times faster. Transactions are for operations that must happen
        together, such as the ack of a message and the publishes that result from it.
        """
        await self._call(requests.tx_select())

    async def tx_commit(self) -> None:
        """Commit all since the last commit or rollback; returns when the broker has taken responsibility for it."""
        await self._call(requests.tx_commit())

    async def tx_rollback(self) -> None:
        """Discard all publishes and acknowledgements since the last commit or rollback."""
        await self._call(requests.tx_rollback())

    # consuming

    async def qos(self, prefetch_count: int, shared: bool = False) -> None:
        """Limit the unacknowledged deliveries of each later consumer, or with shared of the whole channel (basic.qos).

        Args:
            prefetch_count: The limit, 0 to 65535; 0 = no limit.
            shared: The limit is for all consumers of the channel together.
        """
        await self._call(requests.qos(prefetch_count, shared))

    async def consume(
        self, queue: str, no_ack: bool = False, exclusive: bool = False, tag: str = "", arguments: Arguments = None
    ) -> Consumer:
        """Start a consumer. Deliveries are kept in memory until they are iterated, so limit them by qos().

        If the calling task is cancelled, the consumer is ended and its deliveries are requeued. With no_ack the broker
        has forgotten them, so they are kept for the channel's next get or consume of that queue with no_ack.

        Args:
            queue: Name of the queue.
            no_ack: The broker does not wait for acknowledgements.
            exclusive: The queue may have no other consumer.
            tag: Consumer tag, unique on the channel; "" generates one.
            arguments: Optional arguments, such as "x-priority" or "x-stream-offset".

        Raises:
            ChannelClosed: 404 if the queue does not exist, 403 if the user may not read it or it has an exclusive
                consumer.
        """
        consumer = self._new_consumer(queue, tag or self._new_tag(), no_ack)
        known = consumer_tag(consumer.tag, self, no_ack)
        sink = DeliverySink(known, consumer.deliver, consumer.ended, consumer.interrupted)
        try:
            await self.consume_into(sink, queue, no_ack, exclusive, arguments)
        except asyncio.CancelledError:
            for delivery in consumer.take_all():
                self._core.put_back(delivery, queue, no_ack)
            raise
        return consumer

    async def consume_into(
        self, sink: DeliverySink, queue: str, no_ack: bool, exclusive: bool = False, arguments: Arguments = None
    ) -> None:
        """Start a consumer that calls the sink for each delivery; for this package only."""
        answer = self._core.consume(sink, queue, no_ack, exclusive, arguments)
        await self._link.wait(answer, lambda: self._core.abandon_consumer(sink, answer, queue, no_ack))

    def stop_consuming(self, tag: str, is_known: bool) -> Waiter[Answer] | None:
        """Cancel a consumer by its tag; for this package only.

        Returns the answer to wait for, or None if the broker no longer has the consumer (is_known is False) or the
        channel is closed.
        """
        if is_known and self._core.error is None:
            return self._core.cancel(tag)
        self._core.remove_sink(tag)
        return None

    async def answered(self, answer: Waiter[Answer]) -> None:
        """Wait for an answer; for this package only."""
        await self._link.wait(answer)

    async def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """Fetch one message (basic.get); None if the queue is empty.

        If the calling task is cancelled, the message is requeued. With no_ack the broker has forgotten it, so it is
        kept for the channel's next get or consume of that queue with no_ack.

        Args:
            queue: Name of the queue.
            no_ack: The broker does not wait for an acknowledgement.
        """
        fetched = self._core.get(queue, no_ack)
        delivery = await self._link.wait(fetched, lambda: self._core.abandon_get(fetched, queue, no_ack))
        if delivery is not None:
            delivery.consumer_tag = consumer_tag("", self, no_ack)
        return delivery

    def ack(self, tag: int, multiple: bool = False) -> bool:
        """Acknowledge a delivery by its delivery_tag, or with multiple all of the channel up to it.

        Acks in the order of the deliveries that are written together travel as one frame.

        Returns:
            False if the connection was lost after the delivery, so that it counts no more: the broker delivers the
            message again.
        """
        is_sent = self._core.ack(tag, multiple)
        self._link.written()
        return is_sent

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> bool:
        """Refuse a delivery, or with multiple all up to it; without requeue it is dead-lettered or dropped.

        Returns False as ack() does.
        """
        is_sent = self._core.acknowledge(grammar.BASIC_NACK, tag, multiple=multiple, requeue=requeue)
        self._link.written()
        return is_sent

    def reject(self, tag: int, requeue: bool = True) -> bool:
        """Refuse one delivery; without requeue it is dead-lettered or dropped. Returns False as ack() does."""
        is_sent = self._core.acknowledge(grammar.BASIC_REJECT, tag, requeue=requeue)
        self._link.written()
        return is_sent

    async def recover(self, requeue: bool = True) -> None:
        """Make the broker requeue all unacknowledged deliveries of the channel (basic.recover)."""
        await self._call(requests.recover(requeue))

    async def _call(self, request: Request) -> Answer:
        return await self._link.wait(self._core.request(request))

    def _new_consumer(self, queue: str, tag: str, no_ack: bool) -> Consumer:
        return Consumer(self, tag, no_ack)

    def _new_tag(self) -> str:
        self._tags += 1
        return f"leveret-{self._tags}"

    @property
    def is_interrupted(self) -> bool:
        """Whether the connection is lost and will be restored; for this package only."""
        return self._core.is_interrupted

    def when_interrupted(self, interrupted: Callable[[], None], restored: Callable[[], None]) -> None:
        """Set the functions to call when the connection is lost, and when it is restored; for this package only."""
        self._core.on_interrupted, self._on_restored = interrupted, restored

    def _restored(self) -> None:
        if self._on_restored is not None:
            self._on_restored()
        self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._core.is_outbox_full:
            self._room.set_result(None)
            self._room = None

    def _expire(self, number: int, future: asyncio.Future[None], timeout_s: float) -> None:
        if not future.done():
            was_sent = self._core.withdraw(number)
            future.set_exception(PublishTimeout(timeout_s, was_sent))
            self._wake()

    def _settled(self, future: asyncio.Future[None], error: PublishError | None) -> None:
        if self._room is not None:
            self._wake()
        if error is None:
            if not future.done():  # else its caller cancelled it
                future.set_result(None)
            return
        if self._failure is None:
            self._failure = error
        if not future.done():
            future.set_exception(error)
            if len(self._failed) < FAILED_MAX:
                self._failed.append(future)

    def _closed(self, error: ClientError) -> None:
        """Fail all unconfirmed publishes, marked as retrieved: else asyncio would log each of maybe thousands."""
        self._wake()
        self._on_restored = None
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
