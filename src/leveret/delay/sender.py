"""Delayed sends to destinations that may know nothing of delays: the sender binds them before it sends."""

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
    """Sends delayed messages over a connection of the asyncio client, with confirms, each to a destination that it has
    bound to the delivery exchange first (seed, "Backwards compatibility"). Use it as an async context manager, which
    declares the levels::

        async with Sender(connection) as sender:
            await sender.send(b"...", "orders", delay=timedelta(minutes=5))

    Any number of tasks may send at the same time: they share round trips.
    """

    def __init__(self, connection: Connection, layout: Layout = NSERVICEBUS, routing: RoutingTopology = DIRECT) -> None:
        self._connection = connection
        self._layout = layout
        self._binder = Binder(connection, partial(routing.destination_binding, layout))
        self._channel: Channel | None = None
        self._is_opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Open a channel and declare the levels: ``ChannelClosed`` (406) where others stand under their names."""
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
        """Bind the destination, publish, wait for the confirm.

        Raises ``DestinationMissing``, what :meth:`Layout.message` raises (before anything is sent), ``Nacked``,
        ``Unroutable``, and the client's errors when the connection goes. While the broker has blocked publishers, or
        the socket takes no more, it waits.
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
        """Let the destination receive delayed messages. ``DestinationMissing`` if there is none."""
        await self._binder.bind(destination)

    async def _open(self) -> Channel:
        """A channel with confirms, and the levels declared: somebody who deleted one has closed the channel before."""
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
