"""Delayed sends without asyncio, with the rules of :class:`leveret.delay.Sender`."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed
from leveret.delay import topology
from leveret.delay.binder import DestinationMissing
from leveret.delay.layout import Layout
from leveret.delay.named import NSERVICEBUS
from leveret.delay.routing import DIRECT, RoutingTopology
from leveret.wire.errors import NOT_FOUND
from leveret.wire.properties import Properties


class BlockingSender:
    """Sends delayed messages over a blocking connection, with confirms, and binds each destination first::

        with BlockingConnection(url) as connection, BlockingSender(connection) as sender:
            sender.send(b"...", "orders", delay=timedelta(minutes=5))

    ``send`` waits for each message. To send many, call ``publish`` for each and ``wait_for_confirms`` at the end.
    Threads may share a sender.

    Args:
        connection: The connection to use; the sender opens its own channels.
        layout: Layout of the delay levels.
        routing: Routing topology of the destinations.
    """

    def __init__(
        self, connection: BlockingConnection, layout: Layout = NSERVICEBUS, routing: RoutingTopology = DIRECT
    ) -> None:
        self._connection = connection
        self._layout = layout
        self._routing = routing
        self._publishing: BlockingChannel | None = None
        self._binding: BlockingChannel | None = None
        self._bound: set[str] = set()
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        """Open a channel and declare the levels. Raises ``ChannelClosed`` (406) if they exist with other arguments."""
        self._publishing = self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            for channel in (self._binding, self._publishing):
                if channel is not None:
                    channel.close()

    def send(
        self,
        body: bytes,
        destination: str,
        delay: timedelta | float | None = None,
        properties: Properties | None = None,
        *,
        at: datetime | None = None,
    ) -> None:
        """Bind the destination, publish the message and wait for its confirm.

        Args:
            body: Content of the message.
            destination: Name of the destination's queue or endpoint.
            delay: Seconds or a ``timedelta``.
            properties: Properties of the message, without ``expiration``.
            at: Time with a time zone, in place of delay.

        Raises:
            DestinationMissing: The destination does not exist.
            ValueError, TypeError: As :meth:`Layout.message` raises them, before anything is sent.
            Nacked, Unroutable: The broker refused or returned this message, or an earlier one of ``publish`` whose
                confirm was not waited for.
            ChannelClosed, ConnectionClosed: The channel or the connection was lost.
        """
        with self._lock:
            self.publish(body, destination, delay, properties, at=at)
            self.wait_for_confirms()

    def publish(
        self,
        body: bytes,
        destination: str,
        delay: timedelta | float | None = None,
        properties: Properties | None = None,
        *,
        at: datetime | None = None,
    ) -> None:
        """Like :meth:`send`, without waiting for the confirm.

        A destination is bound only for its first message since the last ``wait_for_confirms``.
        """
        with self._lock:
            if self._publishing is None:
                raise RuntimeError("use the sender as a context manager: it has to declare the levels first")
            self._layout.message(destination, delay, properties, at=at)  # raises errors before anything is sent
            if destination not in self._bound:
                self.bind(destination)
            if self._publishing.is_closed:
                self._publishing = self._open()
            self._layout.publish_blocking(self._publishing, body, destination, delay, properties, at=at)

    def wait_for_confirms(self, timeout_s: float | None = None) -> None:
        """Wait until all published messages are confirmed.

        Raises:
            Nacked, Unroutable, ChannelClosed, ConnectionClosed: The first failure.
            TimeoutError: Messages were unconfirmed after ``timeout_s`` seconds (None = no limit).
        """
        with self._lock:
            self._bound.clear()
            if self._publishing is not None:
                self._publishing.wait_for_confirms(timeout_s)

    def bind(self, destination: str) -> None:
        """Bind the destination to the delivery exchange. Raises ``DestinationMissing`` if it does not exist."""
        with self._lock:
            if self._binding is None or self._binding.is_closed:  # the broker closes it when a destination is missing
                self._binding = self._connection.channel()
            try:
                topology.declare_blocking(
                    self._binding, [self._routing.destination_binding(self._layout, destination)]
                )
            except ChannelClosed as error:
                if error.code != NOT_FOUND:
                    raise
                raise DestinationMissing(destination, error.text) from error
            self._bound.add(destination)

    def _open(self) -> BlockingChannel:
        channel = self._connection.channel()
        try:
            channel.confirm_select()
            self._layout.declare_blocking(channel)
        except BaseException:
            channel.abandon()
            raise
        return channel
