"""Delayed sends to destinations that need not support delays: the sender binds them before it sends."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self

from leveret.client import Channel, Connection
from leveret.delay.binder import Binder
from leveret.delay.layout import Layout
from leveret.delay.named import NSERVICEBUS
from leveret.delay.routing import DIRECT, RoutingTopology
from leveret.wire.properties import Properties


class Sender:
    """Sends delayed messages over an asyncio connection, with confirms, and binds each destination first::

        async with Sender(connection) as sender:
            await sender.send(b"...", "orders", delay=timedelta(minutes=5))

    Entering the context declares the levels. Destinations are bound to the delivery exchange as NServiceBus does it
    (its documentation, "Backwards compatibility"). Any number of tasks may send at the same time; they share round
    trips.

    Args:
        connection: The connection to use; the sender opens its own channels.
        layout: Layout of the delay levels.
        routing: Routing topology of the destinations.
    """

    def __init__(self, connection: Connection, layout: Layout = NSERVICEBUS, routing: RoutingTopology = DIRECT) -> None:
        self._connection = connection
        self._layout = layout
        self._binder = Binder(connection, partial(routing.destination_binding, layout))
        self._channel: Channel | None = None
        self._is_opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Open a channel and declare the levels. Raises ``ChannelClosed`` (406) if they exist with other arguments."""
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._binder.close()
        if self._channel is not None:
            await self._channel.close()

    async def send(
        self,
        body: bytes,
        destination: str,
        delay: timedelta | float | None = None,
        properties: Properties | None = None,
        *,
        at: datetime | None = None,
    ) -> None:
        """Bind the destination, publish the message and wait for its confirm.

        It also waits while the broker has blocked publishers, or the socket does not accept more data.

        Args:
            body: Content of the message.
            destination: Name of the destination's queue or endpoint.
            delay: Seconds or a ``timedelta``.
            properties: Properties of the message, without ``expiration``.
            at: Time with a time zone, in place of delay.

        Raises:
            DestinationMissing: The destination does not exist.
            ValueError, TypeError: As :meth:`Layout.message` raises them, before anything is sent.
            Nacked, Unroutable: The broker refused or returned the message.
            ChannelClosed, ConnectionClosed: The channel or the connection was lost.
        """
        if self._channel is None:
            raise RuntimeError("use the sender as an async context manager: it has to declare the levels first")
        exchange, key, sent = self._layout.message(destination, delay, properties, at=at)
        await self._binder.bind(destination)
        channel = self._channel if not self._channel.is_closed else await self._open()
        await channel.drain()
        if at is not None:  # a part of the way is over
            exchange, key, sent = self._layout.message(destination, None, properties, at=at)
        await channel.publish(body, exchange=exchange, routing_key=key, properties=sent, mandatory=True)

    async def bind(self, destination: str) -> None:
        """Bind the destination to the delivery exchange. Raises ``DestinationMissing`` if it does not exist."""
        await self._binder.bind(destination)

    async def _open(self) -> Channel:
        """Return a channel with confirms, and declare the levels: a deleted level closes the channel at a publish."""
        async with self._is_opening:
            if self._channel is None or self._channel.is_closed:
                channel = await self._connection.channel()
                try:
                    await channel.confirm_select()
                    await self._layout.declare(channel)
                except BaseException:
                    channel.abandon()
                    raise
                self._channel = channel
            return self._channel
