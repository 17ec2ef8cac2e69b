"""RPC over asyncio: many outstanding requests on one channel, told apart by correlation id.

Direct reply-to requires the reply consumer, in no-ack mode, on the channel that publishes the requests (RabbitMQ,
"Direct Reply-to"); so an RPC client owns its channel. When the connection is lost, a request that was sent may have
been carried out, and only its caller knows whether it may be made twice: idempotent calls are sent again after the
reconnect, others fail at once. Calls made meanwhile are sent after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from types import TracebackType
from typing import Final

from leveret.client.aio_channel import Channel, ChannelConnection
from leveret.client.correlation import Correlation, request_properties
from leveret.client.protocol.errors import ClientError, RpcInterrupted, RpcTimeout, Unroutable
from leveret.client.protocol.model import Delivery, DeliverySink
from leveret.client.protocol.requests import REPLY_TO
from leveret.wire.properties import Properties

ENDED_MAX: Final = 64
"""Deadlines of calls that have ended which are kept at least, besides as many as there are pending calls."""


class PendingCall:
    """A call without a reply. publish: sends its request."""

    def __init__(self, future: asyncio.Future[Delivery], is_idempotent: bool, publish: Callable[[], object]) -> None:
        self.future = future
        self.is_idempotent = is_idempotent
        self.is_sent: bool = False
        self._publish = publish

    def send(self) -> None:
        """Send the request, unless the call has ended."""
        if not self.future.done():
            self._publish()
            self.is_sent = True

    def fail(self, error: ClientError) -> None:
        """End the call with an error, unless it has ended."""
        if not self.future.done():
            self.future.set_exception(error)


class Deadlines:
    """Fails calls when their time is over. One timer serves all of them: one for each would cost a fifth of a call.

    pending: the calls that have not ended, by correlation id.
    """

    def __init__(self, pending: Mapping[str, PendingCall], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending = pending
        self._heap: list[tuple[float, str, float]] = []  # time, correlation id, timeout; also of calls that have ended
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, correlation_id: str, timeout_s: float) -> None:
        """Let a pending call fail with RpcTimeout after timeout_s seconds."""
        heap = self._heap
        if len(heap) >= 2 * len(self._pending) + ENDED_MAX:
            heap[:] = [entry for entry in heap if entry[1] in self._pending]
            heapify(heap)
        heappush(heap, (self._loop.time() + timeout_s, correlation_id, timeout_s))
        if heap[0][1] is correlation_id:
            self._set_timer()

    def close(self) -> None:
        """Forget all deadlines."""
        self._heap.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._heap[0][0], self._expire) if self._heap else None

    def _expire(self) -> None:
        now_s, heap = self._loop.time(), self._heap
        while heap and (heap[0][0] <= now_s or heap[0][1] not in self._pending):
            _, correlation_id, timeout_s = heappop(heap)
            call = self._pending.get(correlation_id)
            if call is not None:
                call.fail(RpcTimeout(correlation_id, timeout_s))
        self._set_timer()


class Rpc:
    """An RPC client, made by Connection.rpc(). Calls may run concurrently. An async context manager that closes it."""

    def __init__(self, link: ChannelConnection, channel: Channel, reply_to: str) -> None:
        self._link = link
        self._reply_to = reply_to
        self._channel = channel
        self._correlation = Correlation()
        self._pending: dict[str, PendingCall] = {}
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._pending, self._loop)
        channel.on_return(self._on_return)
        channel.when_interrupted(self._interrupted, self._send_all)

    @property
    def reply_to(self) -> str:
        """The queue to which replies are sent: a pseudo-queue (direct reply-to), or an exclusive queue."""
        return self._link.core.topology.names.get(self._reply_to, self._reply_to)

    @classmethod
    async def open(cls, link: ChannelConnection, reply_queue: bool) -> Rpc:
        """Open an RPC client on a connection. Applications call Connection.rpc()."""
        channel = await Channel.open(link)
        try:
            reply_to = REPLY_TO
            if reply_queue:
                info = await channel.declare_queue("", durable=False, exclusive=True, auto_delete=True)
                reply_to = info.name
            rpc = cls(link, channel, reply_to)
            await channel.consume_into(DeliverySink("leveret-rpc", rpc._on_reply, rpc._on_ended), reply_to, no_ack=True)
        except BaseException:
            channel.abandon()
            raise
        return rpc

    async def call(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        properties: Properties | None = None,
        timeout_s: float = 30.0,
        mandatory: bool = False,
        idempotent: bool = False,
    ) -> Delivery:
        """Send a request and wait for its reply.

        A reply that arrives after the timeout, or after the calling task was cancelled, is dropped.

        Args:
            body: Content of the request.
            exchange: Exchange to publish to.
            routing_key: Routing key of the request.
            properties: Properties of the request; reply_to and correlation_id are set here.
            timeout_s: Seconds to wait for the reply.
            mandatory: Fail if no queue takes the request.
            idempotent: Send the request again, with the same correlation id, if the connection is lost before its
                reply and restored: carrying it out twice has the same result as once.

        Raises:
            RpcTimeout: No reply arrived within timeout_s seconds.
            RpcInterrupted: The connection was lost after the request was sent, and it is not idempotent.
            Unroutable: mandatory is set, and no queue took the request.
            ChannelClosed, ConnectionClosed: The channel or the connection was lost meanwhile.
        """
        correlation_id = self._correlation.next_id()

        def publish() -> None:
            request = request_properties(properties, correlation_id, self.reply_to)
            self._channel.publish(body, exchange, routing_key, request, mandatory)

        future: asyncio.Future[Delivery] = self._loop.create_future()
        call = self._pending[correlation_id] = PendingCall(future, idempotent, publish)
        self._deadlines.add(correlation_id, timeout_s)
        try:
            if not self._channel.is_interrupted:
                call.send()
            return await future
        finally:
            del self._pending[correlation_id]
            future.cancel()
            if not future.cancelled():
                future.exception()  # marked as retrieved, so that asyncio does not log it if the caller was cancelled

    @property
    def outstanding(self) -> int:
        """How many calls are waiting for their reply."""
        return len(self._pending)

    async def close(self) -> None:
        """Close the channel; calls that are still waiting fail with ChannelClosed."""
        await self._channel.close()

    async def __aenter__(self) -> Rpc:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _on_reply(self, delivery: Delivery) -> None:
        call = self._pending.get(delivery.properties.correlation_id or "")
        if call is not None and not call.future.done():
            call.future.set_result(delivery)

    def _on_return(self, error: Unroutable) -> None:
        call = self._pending.get(error.properties.correlation_id or "")
        if call is not None:
            call.fail(error)

    def _on_ended(self, error: ClientError) -> None:
        self._deadlines.close()
        for call in self._pending.values():
            call.fail(error)

    def _interrupted(self) -> None:
        for correlation_id, call in self._pending.items():
            if call.is_sent and not call.is_idempotent:
                call.fail(RpcInterrupted(correlation_id))

    def _send_all(self) -> None:
        """Send the requests that were made while the connection was lost, and idempotent ones once more."""
        for call in self._pending.values():
            call.send()
