"""Sends what goes out: with confirms, in batches, after making sure that the destinations exist."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

from leveret.client import Channel, ChannelClosed, Connection, Unroutable
from leveret.delay import DestinationMissing
from leveret.delay.binder import Binder
from leveret.endpoint.message import Outgoing, Publish, Send
from leveret.endpoint.topology import PSEUDO_QUEUES, Topology
from leveret.wire.errors import NOT_FOUND
from leveret.wire.frames import FRAME_OVERHEAD
from leveret.wire.properties import encode_header

ADDED_MAX: Final = 256
"""Room for the headers that a delay adds."""

UNLIMITED: Final = 1 << 30
KNOWN_MAX: Final = 4096
SETTLE_S: Final = 5.0
"""How long the end of a connection that still works is put off for what was sent over it and is not confirmed yet."""


class Dispatcher:
    """Publishes over one connection, and declares over it what it publishes to.

    Two channels: the broker closes the one on which something missing is asked for, and with it everything that was not
    confirmed yet; so questions are asked on the other.
    """

    def __init__(self, connection: Connection, topology: Topology) -> None:
        self._connection = connection
        self._topology = topology
        self._publishing: Channel | None = None
        self._asking: Channel | None = None
        self._is_opening = asyncio.Lock()
        self._is_asking = asyncio.Lock()
        self._known: set[str] = set()
        self._under_way = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._binder = Binder(
            connection, lambda address: topology.routing.destination_binding(topology.layout, address)
        )

    async def dispatch(self, batch: Iterable[Outgoing]) -> None:
        """Publish all, wait for all confirms.

        What is missing is found out before anything of the batch is sent, so far as the broker can be asked:
        ``DestinationMissing`` for an address that nobody has declared. ``Nacked`` and the client's errors as usual;
        what else is in the batch may have been sent then. An event without subscribers is no error.
        """
        messages = list(batch)
        for message in messages:
            self._check_size(message)
        self._under_way += 1
        self._is_idle.clear()
        try:
            await self._dispatch(messages)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_idle.set()

    async def _dispatch(self, messages: list[Outgoing]) -> None:
        unconfirmed = await self._publish_all(messages)
        if unconfirmed:
            # an exchange was deleted behind our back, and the channel closed on all who were using it: once more, with
            # the same ids, for those whose destination is still there
            self._known.clear()
            if await self._publish_all(unconfirmed):
                raise DestinationMissing(_destination(unconfirmed[0]), "an exchange is being deleted at the same time")

    async def _publish_all(self, messages: list[Outgoing]) -> list[Outgoing]:
        """Those of which nothing is known, because the channel was closed over something that is missing."""
        for message in messages:
            await self._prepare(message)
        channel = await self._channel()
        sent: list[asyncio.Future[None]] = []
        try:
            for message in messages:
                sent.append(self._publish(channel, message))
            await channel.drain()
            results = await asyncio.gather(*sent, return_exceptions=True)
        except BaseException:
            for future in sent:
                future.cancel()  # nobody will ask what became of it
            raise
        unconfirmed = []
        for message, result in zip(messages, results, strict=True):
            if isinstance(result, ChannelClosed) and result.code == NOT_FOUND:
                unconfirmed.append(message)
            elif isinstance(result, Unroutable):
                raise DestinationMissing(_destination(message), str(result)) from result
            elif isinstance(result, BaseException):
                raise result
        return unconfirmed

    async def declare_shared(self, name: str) -> None:
        """Create the queue of an address that others may have declared before, in whatever form: an error queue."""
        async with self._is_asking:
            try:
                await (await self._asker()).declare_queue(name, passive=True)
            except ChannelClosed as error:
                if error.code != NOT_FOUND:
                    raise
                await self._topology.declare_queue(await self._asker(), name)
            await self._topology.declare_exchange(await self._asker(), name)

    async def subscribe(self, names: tuple[str, ...], subscriber: str) -> None:
        async with self._is_asking:
            await self._topology.subscribe(await self._asker(), names, subscriber)

    async def unsubscribe(self, names: tuple[str, ...], subscriber: str) -> None:
        async with self._is_asking:
            await self._topology.unsubscribe(await self._asker(), names, subscriber)

    async def settle(self) -> None:
        """Wait until all that is being sent is confirmed, for a few seconds at most: its senders need not learn that
        the connection goes for a reason of its own.
        """
        if not self._connection.is_closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), SETTLE_S)

    async def close(self) -> None:
        """Wait for nothing more; the connection is closed by its owner."""
        await self._binder.close()

    @property
    def header_max(self) -> int:
        """How many octets all properties and headers of a message may take: they travel in one frame."""
        return (self._connection.core.frame_max or UNLIMITED) - FRAME_OVERHEAD

    def _check_size(self, message: Outgoing) -> None:
        """A frame that is too large would end the connection, for everybody on it and again and again."""
        is_delayed = isinstance(message, Send) and (message.delay is not None or message.at is not None)
        size = len(encode_header(message.properties, 0)) + (ADDED_MAX if is_delayed else 0)
        if size > self.header_max:
            raise ValueError(f"the message's headers take {size} octets; this broker takes {self.header_max}")

    def _publish(self, channel: Channel, message: Outgoing) -> asyncio.Future[None]:
        if isinstance(message, Publish):
            exchange, key = self._topology.event(message.types)
            return channel.publish(message.body, exchange, key, message.properties)
        properties = message.properties
        if message.delay is None and message.at is None:
            exchange, key = self._topology.address(message.destination)
        else:
            exchange, key, properties = self._topology.layout.message(
                message.destination, message.delay, properties, at=message.at
            )
        return channel.publish(message.body, exchange, key, properties, mandatory=True)

    async def _prepare(self, message: Outgoing) -> None:
        """Make sure that there is something to publish to."""
        if isinstance(message, Publish):
            exchange, _ = self._topology.event(message.types)
            if exchange not in self._known:
                async with self._is_asking:
                    await self._topology.declare_event(await self._asker(), message.types)
                self._known.add(exchange)
        elif message.delay is not None or message.at is not None:
            # every time, as NServiceBus does: one that was deleted and declared again has no binding
            await self._binder.bind(message.destination)
        elif self._topology.is_conventional and not message.destination.startswith(PSEUDO_QUEUES):
            await self._look_for(message.destination)

    async def _look_for(self, destination: str) -> None:
        """A publish to an exchange that is not there would take the channel down, with what others publish on it."""
        if destination in self._known:
            return
        async with self._is_asking:
            try:
                await (await self._asker()).declare_exchange(destination, passive=True)
            except ChannelClosed as error:
                if error.code != NOT_FOUND:
                    raise
                raise DestinationMissing(destination, error.text) from error
        if len(self._known) >= KNOWN_MAX:  # addresses for replies come and go
            self._known.clear()
        self._known.add(destination)

    async def _asker(self) -> Channel:
        if self._asking is None or self._asking.is_closed:
            self._asking = await self._connection.channel()
        return self._asking

    async def _channel(self) -> Channel:
        async with self._is_opening:
            if self._publishing is None or self._publishing.is_closed:
                self._publishing = await self._connection.channel()
                await self._publishing.confirm_select()
            return self._publishing


def _destination(message: Outgoing) -> str:
    return message.destination if isinstance(message, Send) else message.types[0]
