"""Looks into an error queue, and puts what is in it back to where it failed, on any AMQP broker."""

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
"""How many messages are on their way at the same time."""


@dataclass(frozen=True)
class FailedMessage:
    """A message of an error queue. Texts are "" and the time is None where the message does not tell."""

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
        """Read a delivery, whatever is in it."""
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
        """The same without what takes much room: headers, stack and body."""
        return replace(self, headers={}, stack="", body=b"")

    def matches(self, text: str) -> bool:
        """Whether this text is in the exception's type or message, the message's type, or the endpoint's name."""
        told = (self.exception_type, self.exception_message, self.message_type, self.endpoint)
        return any(text.casefold() in each.casefold() for each in told)


Choice = Callable[[FailedMessage], bool]


@dataclass
class Outcome:
    """What became of those chosen: how many were sent on, and why others stayed, by their id."""

    sent: int = 0
    stayed: dict[str, str] = field(default_factory=dict)


class ErrorQueue:
    """An error queue of a connection. ``ChannelClosed`` (404) from every method where there is none.

    Messages are fetched, not consumed: what is not sent on goes back to its place when the channel closes. Meanwhile
    others don't see it, and a quorum queue counts one more delivery.
    """

    def __init__(self, connection: Connection, name: str = "error") -> None:
        self._connection = connection
        self.name = name

    async def messages(self) -> AsyncIterator[FailedMessage]:
        """All that is in the queue now; it stays there."""
        async with await self._connection.channel() as channel:
            async for delivery in self._fetched(channel):
                yield FailedMessage.of(delivery)

    async def retry(self, choice: Choice) -> Outcome:
        """Send the chosen back to the queues in which they failed, as if they had never been tried."""

        def back(message: FailedMessage, properties: Properties) -> tuple[str, Properties]:
            if not message.endpoint:
                raise LookupError(f"it does not say where it failed (no header {headers.FAILED_QUEUE})")
            return message.endpoint, without_failure(properties)

        return await self._send_on(choice, back)

    async def move(self, choice: Choice, queue: str) -> Outcome:
        """Send the chosen to another queue, with all that they tell of their failure."""
        return await self._send_on(choice, lambda _message, properties: (queue, properties))

    async def _send_on(
        self, choice: Choice, route: Callable[[FailedMessage, Properties], tuple[str, Properties]]
    ) -> Outcome:
        """Publish by the default exchange, with confirms; only then is a message taken out of the error queue."""
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
        """As many as the queue holds now: one that comes back while this goes on is not met twice."""
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
