"""RPC over asyncio: many outstanding requests on one channel, told apart by correlation id.

Direct reply-to requires the reply consumer, in no-ack mode, on the channel that publishes the requests (RabbitMQ,
"Direct Reply-to"); so an RPC client owns its channel. If the channel or connection is lost, all calls fail. Nothing is
retried, since only the caller knows whether a request may be made twice.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from leveret.client.aio_channel import Channel, ChannelConnection
from leveret.client.channel_core import DeliverySink
from leveret.client.correlation import Correlation, request_properties
from leveret.client.errors import ClientError, RpcTimeout, Unroutable
from leveret.client.model import Delivery
from leveret.client.requests import REPLY_TO
from leveret.wire.properties import Properties


class Rpc:
    """An RPC client, made by Connection.rpc(). Calls may run concurrently. An async context manager that closes it.

    Attributes:
        reply_to (str): The queue to which replies are sent: a pseudo-queue (direct reply-to), or an exclusive queue.
    """

    def __init__(self, channel: Channel, reply_to: str) -> None:
        self.reply_to = reply_to
        self._channel = channel
        self._correlation = Correlation()
        self._pending: dict[str, asyncio.Future[Delivery]] = {}

    @classmethod
    async def open(cls, link: ChannelConnection, reply_queue: bool) -> Rpc:
        """Open an RPC client on a connection. Applications call Connection.rpc()."""
        channel = await Channel.open(link)
        try:
            reply_to = REPLY_TO
            if reply_queue:
                info = await channel.declare_queue("", durable=False, exclusive=True, auto_delete=True)
                reply_to = info.name
            rpc = cls(channel, reply_to)
            channel.on_return(rpc._on_return)
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

        Raises:
            RpcTimeout: No reply arrived within timeout_s seconds.
            Unroutable: mandatory is set, and no queue took the request.
            ChannelClosed, ConnectionClosed: The channel or the connection was lost meanwhile.
        """
        correlation_id = self._correlation.next_id()
        request = request_properties(properties, correlation_id, self.reply_to)
        future: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = future
        try:
            async with asyncio.timeout(timeout_s):
                self._channel.publish(body, exchange, routing_key, request, mandatory)
                await self._channel.drain()
                return await future
        except TimeoutError:
            raise RpcTimeout(correlation_id, timeout_s) from None
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
        future = self._pending.get(delivery.properties.correlation_id or "")
        if future is not None and not future.done():
            future.set_result(delivery)

    def _on_return(self, error: Unroutable) -> None:
        future = self._pending.get(error.properties.correlation_id or "")
        if future is not None and not future.done():
            future.set_exception(error)

    def _on_ended(self, error: ClientError) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)
