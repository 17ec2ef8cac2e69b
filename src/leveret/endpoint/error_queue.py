"""Lists an error queue's messages, and sends them back to the queues in which they failed, on any AMQP broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from leveret.client import Channel, Connection, Delivery, Properties, Unroutable
from leveret.delay import DestinationMissing
from leveret.delay.instant import from_header
from leveret.endpoint import headers
from leveret.endpoint.message import Incoming, PoisonMessage, transferable, without_failure
from leveret.endpoint.types import enclosed

BATCH: Final = 100
"""How many messages are in flight at a time."""


@dataclass(frozen=True)
class FailedMessage:
    """A message of an error queue, as its headers describe it. For a missing header a text is "", the time None.

    Attributes:
        message_id: Id of the message.
        message_type: Full name of its most derived type.
        endpoint: Queue in which it failed.
        failed_at: Time of the failure.
        exception_type: Type of the exception.
        exception_message: Text of the exception.
        stack: Stack trace.
        immediate_retries: Number of immediate retries in the last round, as text.
        delayed_retries: Number of delayed retries, as text.
        headers: All headers as text.
        body: Content of the message.
    """

    message_id: str
    message_type: str
    endpoint: str
    failed_at: datetime | None
    exception_type: str
    exception_message: str
    stack: str
    immediate_retries: str
    delayed_retries: str
    headers: dict[str, str]
    body: bytes

    @classmethod
    def of(cls, delivery: Delivery) -> FailedMessage:
        """Read a delivery; malformed headers count as missing."""
        try:
            told = dict(Incoming.of(delivery, "").headers)
        except PoisonMessage:
            told = {}
        return cls(
            told.get(headers.MESSAGE_ID, ""),
            next(iter(enclosed(told.get(headers.MESSAGE_TYPES, ""))), ""),
            told.get(headers.FAILED_QUEUE, ""),
            _time(told.get(headers.TIME_OF_FAILURE, "")),
            told.get(headers.EXCEPTION_TYPE, ""),
            told.get(headers.EXCEPTION_MESSAGE, ""),
            told.get(headers.EXCEPTION_STACK, ""),
            told.get(headers.FAILED_AFTER_IMMEDIATE, ""),
            told.get(headers.FAILED_AFTER_DELAYED, ""),
            told,
            delivery.body,
        )

    def in_short(self) -> FailedMessage:
        """Return a copy without headers, stack and body, which take much memory."""
        return replace(self, headers={}, stack="", body=b"")

    def matches(self, text: str) -> bool:
        """Whether the exception's type or message, the message's type or the endpoint contains a text, in any case."""
        told = (self.exception_type, self.exception_message, self.message_type, self.endpoint)
        return any(text.casefold() in each.casefold() for each in told)


Choice = Callable[[FailedMessage], bool]


@dataclass
class Outcome:
    """The result of a retry or move.

    Attributes:
        sent: How many of the chosen messages were sent.
        stayed: The reasons why others stayed in the error queue, by message id.
    """

    sent: int = 0
    stayed: dict[str, str] = field(default_factory=dict)


class ErrorQueue:
    """An error queue. Every method raises ``ChannelClosed`` (404) if the queue does not exist.

    Messages are fetched with basic.get, and those that are not sent on return to their place when the channel is
    closed. Until then other clients do not see them, and a quorum queue counts one more delivery.
    """

    def __init__(self, connection: Connection, name: str = "error") -> None:
        self._connection = connection
        self.name = name

    async def messages(self) -> AsyncIterator[FailedMessage]:
        """Iterate over the messages that are in the queue now. They stay there."""
        async with await self._connection.channel() as channel:
            async for delivery in self._fetched(channel):
                yield FailedMessage.of(delivery)

    async def retry(self, choice: Choice) -> Outcome:
        """Send the chosen messages back to the queues in which they failed, with their retry counts removed."""

        def back(message: FailedMessage, properties: Properties) -> tuple[str, Properties]:
            if not message.endpoint:
                raise LookupError(f"it does not say where it failed (no header {headers.FAILED_QUEUE})")
            return message.endpoint, without_failure(properties)

        return await self._send_on(choice, back)

    async def move(self, choice: Choice, queue: str) -> Outcome:
        """Send the chosen messages to another queue, with the headers that describe their failure."""
        return await self._send_on(choice, lambda _message, properties: (queue, properties))

    async def _send_on(
        self, choice: Choice, route: Callable[[FailedMessage, Properties], tuple[str, Properties]]
    ) -> Outcome:
        """Publish to the default exchange, and acknowledge each message in the error queue after its confirm."""
        outcome = Outcome()
        async with await self._connection.channel() as channel:
            await channel.confirm_select()
            batch: list[Awaitable[None]] = []
            async for delivery in self._fetched(channel):
                message = FailedMessage.of(delivery)
                if choice(message):
                    batch.append(asyncio.ensure_future(self._send_one(channel, delivery, message, route, outcome)))
                    if len(batch) >= BATCH:
                        await asyncio.gather(*batch)
                        batch.clear()
            await asyncio.gather(*batch)
        return outcome

    async def _send_one(
        self,
        channel: Channel,
        delivery: Delivery,
        message: FailedMessage,
        route: Callable[[FailedMessage, Properties], tuple[str, Properties]],
        outcome: Outcome,
    ) -> None:
        try:
            queue, properties = route(message, replace(transferable(delivery.properties), delivery_mode=2))
            try:
                await channel.publish(delivery.body, "", queue, properties, mandatory=True)
            except Unroutable as error:
                raise DestinationMissing(queue, str(error)) from error
        except Exception as error:
            if channel.is_closed:
                raise
            outcome.stayed[message.message_id] = str(error)
            return
        channel.ack(delivery.delivery_tag)
        outcome.sent += 1

    async def _fetched(self, channel: Channel) -> AsyncIterator[Delivery]:
        """Fetch as many messages as the queue holds now, so that a message that fails again is not seen twice."""
        count = (await channel.declare_queue(self.name, passive=True)).message_count
        for _ in range(count):
            delivery = await channel.get(self.name)
            if delivery is None:
                return
            yield delivery


def _time(text: str) -> datetime | None:
    try:
        return from_header(text)
    except ValueError:
        return None
