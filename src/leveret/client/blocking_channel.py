"""The channel of the blocking API: publishes and acks are buffered and pipelined, deliveries are read in batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from leveret.client import stage
from leveret.client.protocol import publisher, requests
from leveret.client.protocol.channel_core import Answer, ChannelCore
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.errors import ClientError, PublishError, Unroutable
from leveret.client.protocol.model import Delivery, DeliverySink, QueueInfo, consumer_tag
from leveret.client.protocol.requests import Arguments, Request
from leveret.client.protocol.waiter import Waiter
from leveret.wire import grammar
from leveret.wire.method import Method
from leveret.wire.properties import Properties

T = TypeVar("T")
# bytes of buffered publishes and acks from which they are written to the socket
WRITE_SIZE: Final = 64 * 1024


class BlockingLink(Protocol):
    """What a channel needs of its connection. The caller of pump and wait holds the lock."""

    core: ConnectionCore
    lock: threading.RLock

    def pump(self, timeout_s: float | None) -> bool: ...

    def wait(self, waiter: Waiter[T], timeout_s: float | None = None) -> bool: ...


class BlockingChannel:
    """An AMQP channel of the blocking API, opened by BlockingConnection.channel(). A context manager that closes it.

    Every method raises ChannelClosed when the broker refuses the request or the channel is closed, and
    ConnectionClosed when the connection is lost. A call that is interrupted while it waits (KeyboardInterrupt) leaves
    the channel usable; docs/guides/cancelled-calls.md describes the state afterwards for each method.

    Attributes:
        confirm_window (int): publish() waits while this many publishes are unconfirmed; 1000 at first.
    """

    def __init__(self, link: BlockingLink) -> None:
        self.confirm_window = 1000
        self._link = link
        self._lock = link.lock
        self._core: ChannelCore[None] = link.core.open_channel(self._settled, self._closed)
        self._failure: ClientError | None = None
        self._ready: deque[Delivery] = deque()
        self._ended: ClientError | None = None
        self._interruption: ClientError | None = None
        self._tags = 0
        self._taken: dict[str, Delivery] = {}  # the last delivery that was returned, by consumer tag
        self._call(requests.open_channel(), self.abandon)

    @property
    def number(self) -> int:
        """The number of the channel on its connection, from 1."""
        return self._core.number

    @property
    def is_closed(self) -> bool:
        """Whether the channel is closed, by either side or because the connection was lost."""
        return self._core.error is not None

    @property
    def frame_max(self) -> int:
        """The negotiated maximum size of a frame in bytes; 0 = no limit."""
        return self._link.core.frame_max

    def close(self) -> None:
        """Close the channel and wait for the broker's answer. No effect if it is closed already."""
        with self._lock:
            self._link.wait(self._core.close())

    def abandon(self) -> None:
        """Close without waiting; channel.close is sent with the next call that writes. For this package only.

        Called when the call that opened the channel was interrupted, so that nobody uses the channel.
        """
        self._core.abandon()

    def __enter__(self) -> BlockingChannel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # topology

    def declare_exchange(
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
        self._call(requests.declare_exchange(name, kind, durable, auto_delete, internal, passive, arguments))

    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        """Delete an exchange, with if_unused only if it has no bindings (else ChannelClosed 406).

        An exchange that does not exist is no error.
        """
        self._call(requests.delete_exchange(name, if_unused))

    def bind_exchange(self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Bind the exchange `destination` to the exchange `source` (exchange.bind, an extension of RabbitMQ)."""
        self._call(requests.bind_exchange(destination, source, routing_key, arguments))

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None
    ) -> None:
        """Remove the binding that bind_exchange created with the same arguments."""
        self._call(requests.unbind_exchange(destination, source, routing_key, arguments))

    def declare_queue(
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
        with self._lock:
            waiter = self._core.request(
                requests.declare_queue(name, durable, exclusive, auto_delete, passive, arguments)
            )
            is_unknown = not name and not passive  # nobody knows the generated name if the answer is not read
            answer = self._wait(waiter, partial(self._core.abandon_queue, waiter) if is_unknown else None)
        return requests.queue_info(_method(answer))

    def bind_queue(self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Bind a queue to an exchange (queue.bind)."""
        self._call(requests.bind_queue(queue, exchange, routing_key, arguments))

    def unbind_queue(self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Remove the binding that bind_queue created with the same arguments."""
        self._call(requests.unbind_queue(queue, exchange, routing_key, arguments))

    def delete_queue(self, name: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue and return the number of messages that were deleted with it.

        A queue that does not exist is no error. ChannelClosed (406) if if_unused is set and the queue has consumers, or
        if_empty is set and it has messages.
        """
        return _method(self._call(requests.delete_queue(name, if_unused, if_empty))).number("message_count")

    def purge_queue(self, name: str) -> int:
        """Delete the ready messages of a queue and return their number (queue.purge)."""
        return _method(self._call(requests.purge_queue(name))).number("message_count")

    # publishing

    def confirm_select(self) -> None:
        """Turn publisher confirms on: the broker confirms every later publish. This cannot be undone."""
        with self._lock:
            self._wait(self._core.confirm_select())

    def attach_publisher(self, name: str) -> None:
        """Publish under a publisher reference; for this package only, see BlockingConnection.channel()."""
        with self._lock:
            try:
                self._wait(self._core.attach_publisher(name), self.abandon)
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
    ) -> int:
        """Buffer a message to be sent.

        It is sent with the next flush(), when the buffer holds 64 KiB, or by any call that waits. The method waits
        while confirm_window publishes are unconfirmed, while the outbox is full (Reconnect), or while the broker has
        blocked publishers. While the connection is being restored the message is kept; with confirms it is sent again
        if the connection is lost before the confirm. wait_for_confirms() raises the error of a message that failed.

        Args:
            body: Content of the message.
            exchange: Name of the exchange; "" is the default exchange, which routes to the queue named routing_key.
            routing_key: At most 255 bytes in UTF-8.
            properties: Properties and headers; None = none.
            mandatory: The broker returns the message if no queue takes it: see Unroutable and on_return().

        Returns:
            The message's sequence number on the channel, from 1, or 0 while confirms are off.

        Raises:
            ValueError: The routing key or a text property is longer than 255 bytes.
            TypeError: An argument or a property has a wrong type.
        """
        with self._lock:
            core = self._core
            while core.is_outbox_full:
                self._link.pump(None)
            number = core.publish(None, body, exchange, routing_key, properties, mandatory)
            if core.confirms is not None and len(core.confirms.outstanding) >= self.confirm_window:
                # wait for half of the window, so that the broker has work while the window fills again
                self._await_outstanding(self.confirm_window // 2, None)
            elif self._link.core.outbox_size >= WRITE_SIZE or self._link.core.blocked is not None:
                self._link.pump(0)
                while self._link.core.blocked is not None:
                    self._link.pump(None)
            return number

    def publish_frames(self, frames: bytes, count: int) -> int:
        """Buffer messages that are encoded as frames of this channel already, for callers that encode many at once.

        Waits first until these and the unconfirmed publishes are no more than confirm_window, and afterwards while the
        broker has blocked publishers. A mandatory message that is returned goes to the handler of on_return(), since
        its number is unknown here; wait_for_confirms() raises Nacked for a refused one.

        Args:
            frames: The frames of the messages, one after the other.
            count: How many messages these are.

        Returns:
            The sequence number of the first message, or 0 while confirms are off.
        """
        with self._lock:
            if self._core.confirms is not None:
                self._await_outstanding(max(0, self.confirm_window - count), None)
            number = self._core.publish_frames([None] * count, frames)
            if self._link.core.outbox_size >= WRITE_SIZE or self._link.core.blocked is not None:
                self._link.pump(0)
                while self._link.core.blocked is not None:
                    self._link.pump(None)
            return number

    def flush(self) -> None:
        """Write the buffered publishes and acks, and read what has arrived, without waiting for the broker."""
        with self._lock:
            self._link.pump(0)
            self._core.check_open()

    @property
    def outstanding(self) -> int:
        """How many publishes are unconfirmed, as of the confirms read so far; 0 while confirms are off."""
        return len(self._core.confirms.outstanding) if self._core.confirms is not None else 0

    def wait_for_confirms(self, timeout_s: float | None = None) -> None:
        """Wait until everything published so far is confirmed, at most timeout_s seconds (None = no limit).

        Raises:
            Nacked, Unroutable, ChannelClosed, ConnectionClosed: The first failure since the last call.
            TimeoutError: Publishes were unconfirmed after timeout_s seconds.
        """
        with self._lock:
            if not self._await_outstanding(0, timeout_s):
                raise TimeoutError(f"{self.outstanding} publishes were not confirmed within {timeout_s:g} s")
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure.with_traceback(None)

    def on_return(self, handler: Callable[[Unroutable], None]) -> None:
        """Set the handler for mandatory messages that are returned while confirms are off (default: log a warning)."""
        self._core.on_return = handler

    # transactions

    def tx_select(self) -> None:
        """Make the channel transactional: later publishes and acknowledgements take effect at tx_commit().

        This cannot be undone, and excludes confirms. Each commit costs a round trip and, where it has something
        durable, a sync of the disk: confirms are many times faster. Transactions are for operations that must happen
        together, such as the ack of a message and the publishes that result from it.
        """
        self._call(requests.tx_select())

    def tx_commit(self) -> None:
        """Commit all since the last commit or rollback; returns when the broker has taken responsibility for it."""
        self._call(requests.tx_commit())

    def tx_rollback(self) -> None:
        """Discard all publishes and acknowledgements since the last commit or rollback."""
        self._call(requests.tx_rollback())

    # stages, an extension of leveret (docs/guides/stages.md)

    def attach_stage(self, query: str, batch: int, attempt: str, expires_ms: int | None = None) -> None:
        """Stage all later publishes of the channel: no queue gets them before release_stages() names this attempt.

        Args:
            query: Name of the producer whose batch this is.
            batch: Number of the batch, from 0, growing.
            attempt: A name that is not yet in use for this batch.
            expires_ms: Milliseconds without a publish after which the stage is dropped; None = the broker's default, a
                day.

        Raises:
            StagesMissing: The broker does not support stages.
            ChannelClosed: 406 if the attempt's name is in use.
        """
        arguments = stage.attach_arguments(query, batch, attempt, expires_ms)
        self._ask_stages(requests.consume(stage.STAGE, stage.TAG, True, False, arguments), self._abandon_stage)

    def detach_stage(self) -> None:
        """End the staging of the channel's publishes. The stage keeps the messages it has."""
        self._call(requests.cancel(stage.TAG))

    def release_stages(self, query: str, batch: int, attempts: Sequence[str]) -> None:
        """Commit a batch: the messages of these attempts enter their queues, in this order; other attempts are dropped.

        Returns when the commit is on the broker's disk. No effect if this batch, or a later one, was released before.
        Turns confirms on, and waits for the confirms of all earlier publishes.

        Args:
            query: Name of the producer.
            batch: Number of the batch.
            attempts: Names of the attempts to release.

        Raises:
            ChannelClosed: 406 if one of the attempts does not exist (any more); then nothing is released.
            StagesMissing: The broker does not support stages.
        """
        self._say_to_stages(stage.release_body(query, batch, attempts))

    def abort_stages(self, query: str, batch: int) -> None:
        """Drop all stages of a batch; no effect if it has none or is released. Waits and raises as release_stages()."""
        self._say_to_stages(stage.abort_body(query, batch))

    def forget_query(self, query: str) -> None:
        """Make the broker forget a query that ends: its stages and the number of its last released batch.

        A later release of one of its batches is an error, not a repetition. Waits and raises as release_stages().
        """
        self._say_to_stages(stage.forget_body(query))

    def staged(self, query: str) -> dict[str, Any] | None:
        """Return what the broker knows of a query, or None if it does not know it.

        Returns:
            {"query", "last_batch", "stages": [{"batch", "attempt", "messages", "octets", "expires_ms"}]}, where
            last_batch is the number of the last released batch (None = none yet).

        Raises:
            StagesMissing: The broker does not support stages.
        """
        answer = self._ask_stages(requests.get(stage.QUERY_PREFIX + query, True))
        return stage.query_in(answer) if isinstance(answer, Delivery) else None

    def _ask_stages(self, request: Request, undo: Callable[[], None] | None = None) -> Answer:
        try:
            return self._call(request, undo)
        except ClientError as error:
            raise stage.missing(error) or error from None

    def _abandon_stage(self) -> None:
        """Detach the channel after an interrupted attach_stage: its caller must not publish into a stage unawares."""
        if self._core.is_open:
            self._core.cancel(stage.TAG)

    def _say_to_stages(self, body: bytes) -> None:
        self.confirm_select()
        self.publish(body, "", stage.STAGE, mandatory=True)
        try:
            self.wait_for_confirms()
        except ClientError as error:
            raise stage.missing(error) or error from None

    # consuming

    def qos(self, prefetch_count: int, shared: bool = False) -> None:
        """Limit the unacknowledged deliveries of each later consumer, or with shared of the whole channel (basic.qos).

        Args:
            prefetch_count: The limit, 0 to 65535; 0 = no limit.
            shared: The limit is for all consumers of the channel together.
        """
        self._call(requests.qos(prefetch_count, shared))

    def consume(
        self,
        queue: str,
        no_ack: bool = False,
        exclusive: bool = False,
        tag: str = "",
        arguments: Arguments = None,
        prefetch_count: int | None = None,
        deliver: Callable[[Delivery], None] | None = None,
    ) -> str:
        """Start a consumer. next_delivery() and deliveries() return the deliveries of all consumers of the channel.

        Args:
            queue: Name of the queue.
            no_ack: The broker does not wait for acknowledgements.
            exclusive: The queue may have no other consumer.
            tag: Consumer tag, unique on the channel; "" generates one.
            arguments: Optional arguments, such as "x-priority" or "x-stream-offset".
            prefetch_count: Calls qos() with this number first; None leaves the limit as it is.
            deliver: Called with each delivery as it is read, in place of next_delivery() and deliveries(); call
                receive() to read.

        Returns:
            The consumer tag.

        Raises:
            ChannelClosed: 404 if the queue does not exist, 403 if the user may not read it or it has an exclusive
                consumer.
        """
        with self._lock:
            if prefetch_count is not None:
                self.qos(prefetch_count)
            self._tags += 1
            tag = tag or f"leveret-{self._tags}"
            interrupted = partial(self._interrupted, tag, no_ack)
            known = consumer_tag(tag, self, no_ack)
            sink = DeliverySink(known, deliver or self._ready.append, self._on_ended, interrupted)
            self._ended = None
            answer = self._core.consume(sink, queue, no_ack, exclusive, arguments)
            self._wait(answer, lambda: self._abandon_consumer(sink, answer, queue, no_ack))
            return tag

    def cancel(self, tag: str) -> None:
        """Stop a consumer by its tag. Deliveries that arrived before can still be taken."""
        with self._lock:
            self._wait(self._core.cancel(tag))

    def next_delivery(self, timeout_s: float | None = None) -> Delivery | None:
        """Return the next delivery, or None if none arrives within timeout_s seconds (None = no limit).

        Raises:
            ConsumerCancelled: The broker ended the consumer, and all deliveries that arrived before were taken.
        """
        with self._lock:
            ready = self._ready
            if not ready and not self._await_delivery(timeout_s):
                return None
            delivery = ready.popleft()
            if self._core.is_kept:
                self._taken[delivery.consumer_tag] = delivery
            return delivery

    def deliveries(self, limit: int, timeout_s: float | None = None) -> list[Delivery]:
        """Return the deliveries that have arrived, at most `limit`; [] if none arrives within timeout_s seconds.

        Waits for the first one only (timeout_s None = no limit). Raises ConsumerCancelled as next_delivery() does.
        """
        with self._lock:
            ready = self._ready
            if not ready and not self._await_delivery(timeout_s):
                return []
            while len(ready) < limit and self._link.pump(0):
                pass
            if len(ready) <= limit:
                taken = list(ready)
                ready.clear()
            else:
                taken = [ready.popleft() for _ in range(limit)]
            if self._core.is_kept:
                self._taken.update((delivery.consumer_tag, delivery) for delivery in taken)
            return taken

    def receive(self, timeout_s: float) -> bool:
        """Read for consumers that have a `deliver` function, waiting at most timeout_s seconds for data.

        Returns:
            Whether anything was read.

        Raises:
            ConsumerCancelled: The broker ended a consumer.
        """
        with self._lock:
            self._core.check_open()
            is_read = self._link.pump(timeout_s)
            if self._ended is not None:
                raise self._ended.with_traceback(None)
            self._core.check_open()
            return is_read

    @property
    def untaken(self) -> int:
        """How many deliveries have arrived that next_delivery() and deliveries() have not returned yet."""
        return len(self._ready)

    def interrupt(self, error: ClientError | None) -> None:
        """Make the next wait for deliveries raise this error; None withdraws it. For this package only."""
        self._interruption = error

    @property
    def is_interrupted(self) -> bool:
        """Whether the connection is lost and will be restored; for this package only."""
        return self._core.is_interrupted

    def when_interrupted(self, interrupted: Callable[[], None], restored: Callable[[], None]) -> None:
        """Set the functions to call when the connection is lost, and when it is restored; for this package only.

        They run inside calls, or on the thread that reconnects, with the connection's lock held.
        """
        self._core.on_interrupted, self._core.on_restored = interrupted, restored

    def present_name(self, queue: str) -> str:
        """Return the present name of a queue that the broker named `queue`; for this package only."""
        return self._link.core.topology.names.get(queue, queue)

    def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """Fetch one message (basic.get); None if the queue is empty.

        If the call is interrupted (KeyboardInterrupt), the message is requeued. With no_ack the broker has forgotten
        it, so it is kept for the channel's next get or consume of that queue with no_ack.

        Args:
            queue: Name of the queue.
            no_ack: The broker does not wait for an acknowledgement.
        """
        with self._lock:
            fetched = self._core.get(queue, no_ack)
            delivery = self._wait(fetched, lambda: self._core.abandon_get(fetched, queue, no_ack))
            if delivery is not None:
                delivery.consumer_tag = consumer_tag("", self, no_ack)
            return delivery

    def stream_facts(self, name: str) -> dict[str, Any]:
        """Return the state of a stream of leveret.

        Args:
            name: Name of the stream.

        Returns:
            A dict of "name", "vhost", "creation" (16 hex digits, different for every stream ever created),
            "first_offset", "next_offset" (consumers get the messages below it), "sealed_offset" (the messages below it
            are in Parquet files), "schema" (its x-leveret-schema, or None) and "tables_dir" (the directory of the
            Parquet files on the broker's machine, or None).

        Raises:
            ChannelClosed: 404 if there is no such queue, and always from RabbitMQ; 406 if the queue is not a stream;
                403 if the user may not read it.
        """
        return requests.stream_facts(self.get(requests.STREAM_FACTS + name, no_ack=True))

    def ack(self, tag: int, multiple: bool = False) -> bool:
        """Acknowledge a delivery.

        It is written at once if no delivery waits to be taken, else with the next call that reads or flushes.

        Args:
            tag: Delivery.delivery_tag.
            multiple: Acknowledge all unacknowledged deliveries of the channel up to this one.

        Returns:
            False if the connection was lost after the delivery, so that it counts no more: the broker delivers the
            message again.
        """
        with self._lock:
            is_sent = self._core.ack(tag, multiple)
            self._acknowledged()
            return is_sent

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> bool:
        """Refuse a delivery, or with multiple all up to it; without requeue it is dead-lettered or dropped.

        Returns False as ack() does.
        """
        with self._lock:
            is_sent = self._core.acknowledge(grammar.BASIC_NACK, tag, multiple=multiple, requeue=requeue)
            self._acknowledged()
            return is_sent

    def reject(self, tag: int, requeue: bool = True) -> bool:
        """Refuse one delivery; without requeue it is dead-lettered or dropped. Returns False as ack() does."""
        with self._lock:
            is_sent = self._core.acknowledge(grammar.BASIC_REJECT, tag, requeue=requeue)
            self._acknowledged()
            return is_sent

    def recover(self, requeue: bool = True) -> None:
        """Make the broker requeue all unacknowledged deliveries of the channel (basic.recover)."""
        self._call(requests.recover(requeue))

    def _call(self, request: Request, undo: Callable[[], None] | None = None) -> Answer:
        with self._lock:
            return self._wait(self._core.request(request), undo)

    def _wait(self, waiter: Waiter[T], undo: Callable[[], None] | None = None) -> T:
        """Wait for an answer; call undo if the wait is interrupted, since nobody will use what the answer brings."""
        try:
            self._link.wait(waiter)
        except BaseException:
            if undo is not None:
                undo()
            raise
        return waiter.result()

    def _abandon_consumer(self, sink: DeliverySink, answer: Waiter[Answer], queue: str, no_ack: bool) -> None:
        self._core.abandon_consumer(sink, answer, queue, no_ack)
        ready = list(self._ready)
        self._ready.clear()
        for delivery in ready:
            if delivery.consumer_tag == sink.tag:
                self._core.put_back(delivery, queue, no_ack)
            else:
                self._ready.append(delivery)

    def _acknowledged(self) -> None:
        if not self._ready or self._link.core.outbox_size >= WRITE_SIZE:
            self._link.pump(0)

    def _await_delivery(self, timeout_s: float | None) -> bool:
        deadline = None if timeout_s is None else monotonic() + timeout_s
        is_first = True  # data that has arrived is read even with a timeout of 0
        while not self._ready:
            if self._interruption is not None:
                interruption, self._interruption = self._interruption, None
                raise interruption
            if self._ended is not None:
                raise self._ended.with_traceback(None)
            self._core.check_open()
            left = None if deadline is None else max(0.0, deadline - monotonic())
            if left == 0 and not is_first:
                return False
            is_first = False
            self._link.pump(left)
        return True

    def _await_outstanding(self, goal: int, timeout_s: float | None) -> bool:
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while self.outstanding > goal:
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return False
            self._link.pump(left)
        return True

    def _settled(self, _token: None, error: PublishError | None) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _closed(self, error: ClientError) -> None:
        confirms = self._core.confirms
        if confirms is not None and confirms.outstanding:
            confirms.outstanding.clear()
            self._failure = self._failure or error

    def _on_ended(self, error: ClientError) -> None:
        self._ended = error

    def _interrupted(self, tag: str, no_ack: bool) -> Delivery | None:
        """Drop a consumer's deliveries that come again after a reconnect; return the last one that was taken."""
        if not no_ack:
            kept = [delivery for delivery in self._ready if delivery.consumer_tag != tag]
            self._ready.clear()
            self._ready.extend(kept)
        return self._taken.get(tag)


def _method(answer: Answer) -> Method:
    assert isinstance(answer, Method)
    return answer
