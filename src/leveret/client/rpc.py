"""Requests and replies over asyncio: many outstanding on one channel, told apart by correlation id.

Direct reply-to wants the reply consumer, in no-ack mode, on the very channel that publishes the requests (RabbitMQ,
"Direct Reply-to"); so a caller owns its channel. A channel or connection that is lost fails all calls; nothing is
retried, since only the caller knows whether a request may be made twice.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from leveret.client.aio_channel import Channel, Link
from leveret.client.channel_core import Sink
from leveret.client.correlation import Correlation, request_properties
from leveret.client.errors import ClientError, RpcTimeout, Unroutable
from leveret.client.model import Delivery
from leveret.client.requests import REPLY_TO
from leveret.wire.properties import Properties


class Rpc:
    """A caller, made by Connection.rpc(). Many calls may run at once. An async context manager that closes it."""

    def __init__(self, channel: Channel, reply_to: str) -> None:
        self.reply_to = reply_to
        self._channel = channel
        self._correlation = Correlation()
        self._pending: dict[str, asyncio.Future[Delivery]] = {}

    @classmethod
    async def open(cls, link: Link, reply_queue: bool) -> Rpc:
        """Open a caller on a connection; use Connection.rpc()."""
        channel = await Channel.open(link)
        try:
            reply_to = REPLY_TO
            if reply_queue:
                info = await channel.declare_queue("", durable=False, exclusive=True, auto_delete=True)
                reply_to = info.name
            rpc = cls(channel, reply_to)
            channel.on_return(rpc._on_return)
            await channel.consume_into(Sink("leveret-rpc", rpc._on_reply, rpc._on_ended), reply_to, no_ack=True)
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

        properties: of the request; reply_to and correlation_id are set here. RpcTimeout after timeout_s seconds;
        Unroutable if mandatory and no queue took it; ChannelClosed or ConnectionClosed if either is lost meanwhile. A
        reply that comes after the timeout, or after the caller was cancelled, is dropped.
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
                future.exception()  # asyncio need not log what came in the turn in which the caller was cancelled

    @property
    def outstanding(self) -> int:
        """How many calls wait for their reply."""
        return len(self._pending)

    async def close(self) -> None:
        """Close the channel; calls that still wait fail with ChannelClosed."""
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
