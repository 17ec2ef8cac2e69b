"""The second argument of a handler, beside the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from leveret.endpoint import headers
from leveret.endpoint.message import Incoming, Outgoing, Send, with_headers, without_failure
from leveret.endpoint.origin import Origin


class Context:
    """One attempt to handle one message; passed to the handler.

    Messages that a handler sends through it are collected and sent when the handler has returned; if it raises, none
    is sent. So the methods are not awaited. Arguments are checked at once: the sending methods raise ``TypeError`` for
    an object that is not a message, and ``ValueError`` for a delay that is out of range.

    Attributes:
        immediate_retries (int): How many attempts there were before in this round.
        outgoing (list[Outgoing]): The messages collected so far.
    """

    def __init__(self, origin: Origin, message: Incoming, immediate_retries: int) -> None:
        self._origin = replace(origin, incoming=message)
        self._message = message
        self.immediate_retries = immediate_retries
        self.outgoing: list[Outgoing] = []

    @property
    def message_id(self) -> str:
        """Id of the message, the same in every attempt, so that a handler can recognize duplicates by it."""
        return self._message.message_id

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers as text, without those of the delay levels."""
        return self._message.headers

    @property
    def body(self) -> bytes:
        """Content of the message, not decoded."""
        return self._message.body

    @property
    def reply_to(self) -> str:
        """Address for replies, "" if the message has none."""
        return self._message.headers.get(headers.REPLY_TO, "")

    @property
    def delayed_retries(self) -> int:
        """How many delayed retries there were before this attempt."""
        return self._message.delayed_retries

    def send(
        self,
        destination: str,
        message: object,
        *,
        message_type: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a message to an endpoint.

        Args:
            destination: Name of the endpoint.
            message: A dataclass, a msgspec struct, or a dict.
            message_type: Name of the message type; required for a dict.
            delay: Seconds or a ``timedelta`` until the message is delivered.
            at: Time at which it is delivered, with a time zone; not together with delay.
            headers: Additional headers.
        """
        self.outgoing.append(self._origin.send(destination, message, message_type, delay, at, headers))

    def send_local(
        self, message: object, *, delay: timedelta | float | None = None, at: datetime | None = None
    ) -> None:
        """Send a message to this endpoint; parameters are those of :meth:`send`."""
        self.outgoing.append(self._origin.send(self._origin.endpoint, message, None, delay, at))

    def publish(
        self, message: object, *, message_type: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish an event to all endpoints that subscribed to its type; parameters are those of :meth:`send`."""
        self.outgoing.append(self._origin.publish(message, message_type, headers))

    def reply(
        self, message: object, *, message_type: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a reply to the message's reply address. Raises ``ValueError`` if it has none."""
        self.outgoing.append(self._origin.reply(message, message_type, headers))

    def defer(self, delay: timedelta | float | None = None, *, at: datetime | None = None) -> None:
        """Deliver this message again after a delay or at a time, with the same id and its retry counts removed."""
        properties = with_headers(without_failure(self._message.properties), {headers.IS_DEFERRED: "True"})
        self._origin.layout.message(self._origin.endpoint, delay, properties, at=at)
        self.outgoing.append(Send(self._origin.endpoint, self._message.body, properties, delay, at))

    def forward(self, destination: str) -> None:
        """Send this message on to another endpoint, with its body unchanged."""
        self.outgoing.append(Send(destination, self._message.body, without_failure(self._message.properties)))
