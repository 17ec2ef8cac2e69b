"""The blocking face of a channel: publishes and acks are buffered and pipelined, deliveries come in runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

from leveret.client import requests, stage
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
# buffered publishes and acks are written when they make so many octets
WRITE_SIZE: Final = 64 * 1024


class BlockingLink(Protocol):
    """What a channel needs of its connection. The lock is held around everything else."""

    core: ConnectionCore
    lock: threading.RLock

    def pump(self, timeout_s: float | None) -> bool: ...

    def wait(self, waiter: Waiter[T], timeout_s: float | None = None) -> bool: ...


class BlockingChannel:
    """An AMQP channel. Every method raises ChannelClosed or ConnectionClosed when the broker refuses or is gone.

    A call that is interrupted while it waits (KeyboardInterrupt) leaves the channel usable;
    docs/guides/cancelled-calls.md says what holds afterwards. confirm_window (int): publish waits while this many
    publishes are unconfirmed.
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
        self._call(requests.open_channel(), self.abandon)

    @property
    def number(self) -> int:
        """Its number on the connection, from 1."""
        return self._core.number

    @property
    def is_closed(self) -> bool:
        """Whether the channel is gone."""
        return self._core.error is not None

    @property
    def frame_max(self) -> int:
        """The largest frame in octets that was agreed on; 0 = no limit."""
        return self._link.core.frame_max

    def close(self) -> None:
        """Close the channel. Without effect if it is closed already."""
        with self._lock:
            self._link.wait(self._core.close())

    def abandon(self) -> None:
        """Close without waiting, with the next call that writes: whoever opened it is gone. For this package."""
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
        """Create an exchange, or check that it is there just so; passive only checks that it is there."""
        self._call(requests.declare_exchange(name, kind, durable, auto_delete, internal, passive, arguments))

    def delete_exchange(self, name: str, if_unused: bool = False) -> None:
        """Delete an exchange; one that is not there is no error."""
        self._call(requests.delete_exchange(name, if_unused))

    def bind_exchange(self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Let messages flow from exchange source to exchange destination."""
        self._call(requests.bind_exchange(destination, source, routing_key, arguments))

    def unbind_exchange(
        self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None
    ) -> None:
        """Undo bind_exchange with the same arguments."""
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
        """Create a queue, or check that it is there just so; "" lets the broker make the name."""
        with self._lock:
            waiter = self._core.request(
                requests.declare_queue(name, durable, exclusive, auto_delete, passive, arguments)
            )
            is_unknown = not name and not passive  # to everybody, if its name is not heard
            answer = self._wait(waiter, partial(self._core.abandon_queue, waiter) if is_unknown else None)
        return requests.queue_info(_method(answer))

    def bind_queue(self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Let messages flow from an exchange to a queue."""
        self._call(requests.bind_queue(queue, exchange, routing_key, arguments))

    def unbind_queue(self, queue: str, exchange: str, routing_key: str = "", arguments: Arguments = None) -> None:
        """Undo bind_queue with the same arguments."""
        self._call(requests.unbind_queue(queue, exchange, routing_key, arguments))

    def delete_queue(self, name: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue: the number of messages that went with it. One that is not there is no error."""
        return _method(self._call(requests.delete_queue(name, if_unused, if_empty))).number("message_count")

    def purge_queue(self, name: str) -> int:
        """Empty a queue: the number of messages dropped."""
        return _method(self._call(requests.purge_queue(name))).number("message_count")

    # publishing

    def confirm_select(self) -> None:
        """From here on every publish is confirmed by the broker. Cannot be undone."""
        with self._lock:
            self._wait(self._core.confirm_select())

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        mandatory: bool = False,
    ) -> int:
        """Buffer a message to be sent: its number on the channel (from 1), or 0 where confirms are off.

        It leaves with the next flush, when the buffer is full, or with any call that waits. Waits itself while
        confirm_window publishes are unconfirmed or the broker has blocked publishers. A message that fails is told by
        wait_for_confirms. ValueError for a routing key or a property over 255 octets.
        """
        with self._lock:
            core = self._core
            number = core.publish(None, body, exchange, routing_key, properties, mandatory)
            if core.confirms is not None and len(core.confirms.outstanding) >= self.confirm_window:
                # down to half, so that the broker has work while the window fills again
                self._await_outstanding(self.confirm_window // 2, None)
            elif self._link.core.outbox_size >= WRITE_SIZE or self._link.core.blocked is not None:
                self._link.pump(0)
                while self._link.core.blocked is not None:
                    self._link.pump(None)
            return number

    def publish_frames(self, frames: bytes, count: int) -> int:
        """Buffer so many messages that are frames of this channel already: the number of the first, 0 without confirms.

        For those who make many frames at once. Waits first until no more than confirm_window publishes are unconfirmed
        with these, and while the broker has blocked publishers. A mandatory message that comes back goes to the
        handler of on_return, since nobody knows its number; a nack is told by wait_for_confirms.
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
        """Write what publish and ack have buffered, and read what is there."""
        with self._lock:
            self._link.pump(0)
            self._core.check_open()

    @property
    def outstanding(self) -> int:
        """How many publishes are not confirmed yet, as far as it was read."""
        return len(self._core.confirms.outstanding) if self._core.confirms is not None else 0

    def wait_for_confirms(self, timeout_s: float | None = None) -> None:
        """Wait until everything published so far is confirmed.

        Raises the first failure since the last call (Nacked, Unroutable, ChannelClosed, ConnectionClosed), and
        TimeoutError after timeout_s seconds.
        """
        with self._lock:
            if not self._await_outstanding(0, timeout_s):
                raise TimeoutError(f"{self.outstanding} publishes are not confirmed within {timeout_s:g} s")
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure.with_traceback(None)

    def on_return(self, handler: Callable[[Unroutable], None]) -> None:
        """Have handler called with mandatory messages that come back while confirms are off (else they are logged)."""
        self._core.on_return = handler

    # transactions

    def tx_select(self) -> None:
        """From here on publishes and acknowledgements take effect at tx_commit. Cannot be undone; excludes confirms.

        Each commit costs a round trip and, where something durable is in it, a sync of the disk: confirms are many
        times faster. Transactions are for what must happen together, such as an ack and what follows from the message.
        """
        self._call(requests.tx_select())

    def tx_commit(self) -> None:
        """Make all since the last commit or rollback happen; returns when the broker has taken responsibility."""
        self._call(requests.tx_commit())

    def tx_rollback(self) -> None:
        """Forget all since the last commit: nothing was published, and what was acknowledged no longer is."""
        self._call(requests.tx_rollback())

    # stages, which a leveret has (docs/guides/stages.md)

    def attach_stage(self, query: str, batch: int, attempt: str, expires_ms: int | None = None) -> None:
        """From here on everything published is staged: in no queue before release_stages names this attempt.

        query: whose batches these are; batch: int from 0, growing; attempt: a name that nobody has used for this batch;
        expires_ms: the stage is dropped when so many milliseconds pass without a publish (None = the broker's default,
        a day). StagesMissing if the broker has none; ChannelClosed (406) for a name that is in use.
        """
        arguments = stage.attach_arguments(query, batch, attempt, expires_ms)
        self._ask_stages(requests.consume(stage.STAGE, stage.TAG, True, False, arguments), self._abandon_stage)

    def detach_stage(self) -> None:
        """What is published from here on is not staged. The stage stays as it is."""
        self._call(requests.cancel(stage.TAG))

    def release_stages(self, query: str, batch: int, attempts: Sequence[str]) -> None:
        """Make visible what these attempts of a batch have staged, in this order, and drop its other attempts.

        Returns when that is on the broker's disk; from then on it happens, whatever else does. Without effect if this
        batch, or a later one, was released before. Turns confirms on, and waits for those of all publishes before.
        ChannelClosed (406) if one of the attempts is not there (any more): then nothing is released. StagesMissing if
        the broker has none.
        """
        self._say_to_stages(stage.release_body(query, batch, attempts))

    def abort_stages(self, query: str, batch: int) -> None:
        """Drop all that is staged for a batch; without effect if there is nothing, or it is released. Else as above."""
        self._say_to_stages(stage.abort_body(query, batch))

    def forget_query(self, query: str) -> None:
        """No batch of this query will come (again): the broker need not know the last one, and what is staged goes.

        From here on a release of one of its batches is an error, and no repetition. Else as abort_stages.
        """
        self._say_to_stages(stage.forget_body(query))

    def staged(self, query: str) -> dict[str, Any] | None:
        """What the broker knows of a query: {"query", "last_batch", "stages": [{"batch", "attempt", "messages",
        "octets", "expires_ms"}]}; None if nothing. last_batch: the last one released, None = none yet.
        StagesMissing if the broker has none."""
        answer = self._ask_stages(requests.get(stage.QUERY_PREFIX + query, True))
        return stage.query_in(answer) if isinstance(answer, Delivery) else None

    def _ask_stages(self, request: Request, undo: Callable[[], None] | None = None) -> Answer:
        try:
            return self._call(request, undo)
        except ClientError as error:
            raise stage.missing(error) or error from None

    def _abandon_stage(self) -> None:
        """Who does not know that the channel is attached must not publish into a stage."""
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
        """Limit unacknowledged deliveries, 0 = no limit: of each later consumer, or (shared) of the whole channel."""
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
        """Start a consumer: its tag. next_delivery() and deliveries() give what comes, of all consumers of the channel.

        prefetch_count: as by qos(); None leaves it as it is. deliver: who takes this consumer's deliveries instead,
        as they are read; receive() reads them.
        """
        with self._lock:
            if prefetch_count is not None:
                self.qos(prefetch_count)
            self._tags += 1
            sink = Sink(tag or f"leveret-{self._tags}", deliver or self._ready.append, self._on_ended)
            self._ended = None
            answer = self._core.consume(sink, queue, no_ack, exclusive, arguments)
            self._wait(answer, lambda: self._abandon_consumer(sink, answer, queue, no_ack))
            return sink.tag

    def cancel(self, tag: str) -> None:
        """Stop a consumer by its tag. What was delivered before can still be taken."""
        with self._lock:
            self._wait(self._core.cancel(tag))

    def next_delivery(self, timeout_s: float | None = None) -> Delivery | None:
        """The next delivery, or None if none comes within timeout_s seconds (None = wait without end).

        Raises ConsumerCancelled when the broker has ended the consumer and all it sent was taken.
        """
        with self._lock:
            ready = self._ready
            if not ready and not self._await_delivery(timeout_s):
                return None
            return ready.popleft()

    def deliveries(self, limit: int, timeout_s: float | None = None) -> list[Delivery]:
        """What is there, at most limit deliveries; waits up to timeout_s seconds for the first, [] if none comes."""
        with self._lock:
            ready = self._ready
            if not ready and not self._await_delivery(timeout_s):
                return []
            while len(ready) < limit and self._link.pump(0):
                pass
            if len(ready) <= limit:
                taken = list(ready)
                ready.clear()
                return taken
            return [ready.popleft() for _ in range(limit)]

    def receive(self, timeout_s: float) -> bool:
        """Read what is there, or comes within timeout_s seconds, for consumers with a deliver of their own: was there
        any? Raises ConsumerCancelled when the broker has ended a consumer."""
        with self._lock:
            self._core.check_open()
            is_read = self._link.pump(timeout_s)
            if self._ended is not None:
                raise self._ended.with_traceback(None)
            self._core.check_open()
            return is_read

    @property
    def untaken(self) -> int:
        """How many deliveries have arrived and were not taken yet."""
        return len(self._ready)

    def interrupt(self, error: ClientError | None) -> None:
        """Have the next wait for deliveries raise error; None takes it back. For this package."""
        self._interruption = error

    def get(self, queue: str, no_ack: bool = False) -> Delivery | None:
        """Fetch one message, or None if the queue is empty.

        Where the call is interrupted (KeyboardInterrupt), the message goes back to the queue; with no_ack it cannot,
        and is kept for the channel's next get or consume of that queue with no_ack.
        """
        with self._lock:
            fetched = self._core.get(queue, no_ack)
            return self._wait(fetched, lambda: self._core.abandon_get(fetched, queue, no_ack))

    def stream_facts(self, name: str) -> dict[str, Any]:
        """Where a stream of leveret stands: "name", "vhost", "creation" (16 hex digits that no other stream has),
        "first_offset", "next_offset" (consumers get what is below it), "sealed_offset" (what is below it stands in
        Parquet files), "schema" (x-leveret-schema or None) and "tables_dir" (their directory on the broker's machine,
        or None).

        ChannelClosed with 404 if there is no such queue, and from RabbitMQ always; with 406 if it is no stream; 403 if
        the user may not read it.
        """
        return requests.stream_facts(self.get(requests.STREAM_FACTS + name, no_ack=True))

    def ack(self, tag: int, multiple: bool = False) -> None:
        """Acknowledge a delivery, or (multiple) all up to it. tag: Delivery.delivery_tag.

        It is written at once when no delivery waits to be taken, else with the next call that reads or flushes.
        """
        with self._lock:
            self._core.ack(tag, multiple)
            self._acknowledged()

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        """Refuse a delivery, or (multiple) all up to it: back to the queue, or dropped (dead-lettered)."""
        with self._lock:
            self._core.acknowledge(grammar.BASIC_NACK, tag, multiple=multiple, requeue=requeue)
            self._acknowledged()

    def reject(self, tag: int, requeue: bool = True) -> None:
        """Refuse one delivery: back to the queue, or dropped (dead-lettered)."""
        with self._lock:
            self._core.acknowledge(grammar.BASIC_REJECT, tag, requeue=requeue)
            self._acknowledged()

    def recover(self, requeue: bool = True) -> None:
        """Have all unacknowledged deliveries of the channel requeued."""
        self._call(requests.recover(requeue))

    def _call(self, request: Request, undo: Callable[[], None] | None = None) -> Answer:
        with self._lock:
            return self._wait(self._core.request(request), undo)

    def _wait(self, waiter: Waiter[T], undo: Callable[[], None] | None = None) -> T:
        """Wait for an answer. undo: called where that is interrupted, and nobody will use what the answer brings."""
        try:
            self._link.wait(waiter)
        except BaseException:
            if undo is not None:
                undo()
            raise
        return waiter.result()

    def _abandon_consumer(self, sink: Sink, answer: Waiter[Answer], queue: str, no_ack: bool) -> None:
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
        is_first = True  # what has arrived is read even with a timeout of 0
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


def _method(answer: Answer) -> Method:
    assert isinstance(answer, Method)
    return answer
