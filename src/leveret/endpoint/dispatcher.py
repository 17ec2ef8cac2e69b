"""Sends an endpoint's messages, in batches and with confirms, after checking that the destinations exist."""

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
"""Bytes reserved for the headers that a delay adds."""

UNLIMITED: Final = 1 << 30
KNOWN_MAX: Final = 4096
SETTLE_S: Final = 5.0
"""How long closing a working connection waits for outstanding confirms."""


class Dispatcher:
    """Publishes over one connection, and declares the exchanges that it publishes to.

    It uses two channels: when a passive declare finds nothing, the broker closes the channel, and all its unconfirmed
    publishes fail. So declares go over a channel of their own.
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
        """Publish all messages and wait for their confirms. An event without subscribers is no error.

        Raises ``DestinationMissing`` for an address that does not exist. As far as the broker can be asked, that is
        checked before anything of the batch is sent. After ``Nacked`` and other errors of the client, other messages
        of the batch may have been sent.
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
            # an exchange was deleted meanwhile, and the broker closed the channel on all its unconfirmed publishes: try
            # once more, with the same ids, those whose destination still exists
            self._known.clear()
            if await self._publish_all(unconfirmed):
                raise DestinationMissing(_destination(unconfirmed[0]), "an exchange is being deleted at the same time")

    async def _publish_all(self, messages: list[Outgoing]) -> list[Outgoing]:
        """Publish and return the messages without an answer, because a missing exchange closed the channel (404)."""
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
                future.cancel()  # so that asyncio does not log its error
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
        """Declare a shared queue, such as the error queue, which may exist already with any properties."""
        async with self._is_asking:
            try:
                await (await self._asker()).declare_queue(name, passive=True)
            except ChannelClosed as error:
                if error.code != NOT_FOUND:
                    raise
                await self._topology.declare_queue(await self._asker(), name)
            await self._topology.declare_exchange(await self._asker(), name)

    async def subscribe(self, names: tuple[str, ...], subscriber: str) -> None:
        """Subscribe an endpoint to a type of event, given with its parent types."""
        async with self._is_asking:
            await self._topology.subscribe(await self._asker(), names, subscriber)

    async def unsubscribe(self, names: tuple[str, ...], subscriber: str) -> None:
        """Undo :meth:`subscribe`."""
        async with self._is_asking:
            await self._topology.unsubscribe(await self._asker(), names, subscriber)

    async def settle(self) -> None:
        """Wait until all publishes are confirmed, for SETTLE_S seconds at most, before the connection is closed.

        Otherwise their senders would get an error, though the connection closes for another reason.
        """
        if not self._connection.is_closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), SETTLE_S)

    async def close(self) -> None:
        """Close the binder; the connection's owner closes the connection."""
        await self._binder.close()

    @property
    def header_max(self) -> int:
        """Maximum size in bytes of a message's properties and headers, which must fit in one frame."""
        return (self._connection.core.frame_max or UNLIMITED) - FRAME_OVERHEAD

    def _check_size(self, message: Outgoing) -> None:
        """Raise ValueError for headers that are too large: the frame would end the connection, at each retry again."""
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
        """Make sure that the message's exchange or binding exists."""
        if isinstance(message, Publish):
            exchange, _ = self._topology.event(message.types)
            if exchange not in self._known:
                async with self._is_asking:
                    await self._topology.declare_event(await self._asker(), message.types)
                self._known.add(exchange)
        elif message.delay is not None or message.at is not None:
            # every time, as NServiceBus does: an endpoint that was deleted and declared again has no binding
            await self._binder.bind(message.destination)
        elif self._topology.is_conventional and not message.destination.startswith(PSEUDO_QUEUES):
            await self._look_for(message.destination)

    async def _look_for(self, destination: str) -> None:
        """Raise DestinationMissing for a missing exchange: a publish to it would close the channel and fail others."""
        if destination in self._known:
            return
        async with self._is_asking:
            try:
                await (await self._asker()).declare_exchange(destination, passive=True)
            except ChannelClosed as error:
                if error.code != NOT_FOUND:
                    raise
                raise DestinationMissing(destination, error.text) from error
        if len(self._known) >= KNOWN_MAX:  # reply addresses are temporary, so the set would grow without limit
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
