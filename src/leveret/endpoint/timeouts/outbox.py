"""Sends to destinations that may not exist; each message has its own outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from leveret.client import Channel, ChannelClosed, Connection, ConnectionClosed, Delivery
from leveret.delay.routing import DIRECT
from leveret.endpoint.failure_headers import failure_headers
from leveret.endpoint.headers import PROCESSING_ENDPOINT
from leveret.endpoint.timeouts.errors import NotATimeout
from leveret.endpoint.timeouts.queues import TimeoutQueues
from leveret.endpoint.timeouts.timeout import properties_of
from leveret.wire.errors import NOT_FOUND
from leveret.wire.frames import FRAME_OVERHEAD
from leveret.wire.properties import Properties, encode_header

logger = logging.getLogger("leveret.timeouts")


@dataclass(frozen=True)
class Outgoing:
    """A message and its destination endpoint."""

    destination: str
    properties: Properties
    body: bytes


class Outbox:
    """Publishes mandatory messages with confirms, to a destination's exchange or, in the direct topology, its queue."""

    def __init__(self, connection: Connection, queues: TimeoutQueues) -> None:
        self._connection = connection
        self._queues = queues
        self._channel: Channel | None = None
        self._asking: Channel | None = None
        self._known: set[str] = set()

    async def send(self, messages: Sequence[Outgoing]) -> list[BaseException | None]:
        """Send messages; return for each None if the broker confirmed it, or the error.

        Raises ``ConnectionClosed`` if the connection was lost, so that the outcomes are unknown.
        """
        outcomes = await self._attempt(messages)
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, ChannelClosed):
                # one message closed the channel for all: send each alone to find out which one
                self._known.clear()
                outcomes[index] = (await self._attempt(messages[index : index + 1]))[0]
        for outcome in outcomes:
            if isinstance(outcome, ConnectionClosed):
                raise outcome
        return outcomes

    async def fail(self, properties: Properties, body: bytes, error: BaseException) -> None:
        """Send a message to the error queue and wait for the confirm. Its retry goes to the timeouts queue."""
        room = self._header_max - len(encode_header(properties, 0))
        headers = (properties.headers or {}) | failure_headers(error, self._queues.timeouts, 0, 0, room)
        headers[PROCESSING_ENDPOINT] = self._queues.endpoint
        failed = replace(properties, headers=headers, delivery_mode=2, expiration=None)
        if len(encode_header(failed, 0)) > self._header_max:
            failed = replace(properties, expiration=None)  # no room for the reason, which is in the log
        outcome = (await self.send([Outgoing(self._queues.error_queue, failed, body)]))[0]
        if outcome is not None:
            raise outcome

    async def dead_letter(self, poison: Sequence[tuple[Delivery, NotATimeout]]) -> None:
        """Send messages that are not timeouts to the error queue."""
        for delivery, error in poison:
            logger.warning("%s: %s; the message is moved to %s", self._queues.timeouts, error, self._queues.error_queue)
            await self.fail(properties_of(delivery), delivery.body, error)

    @property
    def _header_max(self) -> int:
        """Maximum size in bytes of properties and headers, which must fit in one frame."""
        return (self._connection.core.frame_max or 1 << 31) - FRAME_OVERHEAD

    async def _attempt(self, messages: Sequence[Outgoing]) -> list[BaseException | None]:
        missing = [await self._why_missing(message.destination) for message in messages]
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._connection.channel()
            await self._channel.confirm_select()
        results = [why or self._publish(self._channel, message) for why, message in zip(missing, messages, strict=True)]
        confirms = [result for result in results if isinstance(result, asyncio.Future)]
        if confirms:
            await asyncio.wait(confirms)
        return [result.exception() if isinstance(result, asyncio.Future) else result for result in results]

    def _publish(self, channel: Channel, message: Outgoing) -> asyncio.Future[None] | Exception:
        if (size := len(encode_header(message.properties, 0))) > self._header_max:
            # a frame that is too large would end the connection, at each retry again
            return ValueError(f"the message's headers take {size} octets; this broker takes {self._header_max}")
        is_direct = self._queues.routing is DIRECT
        exchange, key = ("", message.destination) if is_direct else (message.destination, "")
        try:
            return channel.publish(message.body, exchange, key, message.properties, mandatory=True)
        except (ChannelClosed, ValueError) as error:
            return error

    async def _why_missing(self, destination: str) -> Exception | None:
        """Return an error if the destination does not exist: a publish would close the channel and fail others."""
        if self._queues.routing is DIRECT or destination in self._known:
            return None
        if self._asking is None or self._asking.is_closed:
            self._asking = await self._connection.channel()
        try:
            await self._asking.declare_exchange(destination, kind="fanout", passive=True)
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise
            return LookupError(f"the destination {destination!r} does not exist ({error.text})")
        except ValueError as error:
            return error
        self._known.add(destination)
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the channels."""
        for channel in (self._channel, self._asking):
            if channel is not None and not channel.is_closed:
                await channel.close()
