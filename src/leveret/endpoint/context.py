"""What a handler is given beside the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from leveret.endpoint import headers
from leveret.endpoint.message import Incoming, Outgoing, Send, with_headers, without_failure
from leveret.endpoint.origin import Origin


class Context:
    """One attempt to handle one message.

    What a handler sends through it is collected, and leaves when the handler has returned; if it raises, nothing does.
    So these methods do not wait, and are not awaited. They check what can be checked at once: ``TypeError`` for a
    message that is none, ``ValueError`` for a delay that does not fit.
    """

    def __init__(self, origin: Origin, message: Incoming, immediate_retries: int) -> None:
        self._origin = replace(origin, incoming=message)
        self._message = message
        self.immediate_retries = immediate_retries
        self.outgoing: list[Outgoing] = []

    @property
    def message_id(self) -> str:
        """The id of the message, the same in every attempt: what a handler that must not act twice remembers."""
        return self._message.message_id

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers as text, without those of the delay levels."""
        return self._message.headers

    @property
    def body(self) -> bytes:
        """The message as it came."""
        return self._message.body

    @property
    def reply_to(self) -> str:
        """Where replies go, "" where the message does not tell."""
        return self._message.headers.get(headers.REPLY_TO, "")

    @property
    def delayed_retries(self) -> int:
        """How many rounds of attempts there were before this one."""
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
        """Send to an endpoint, at once, after a delay (seconds or a ``timedelta``), or at a time with a zone.

        message_type: the name of the type, for a dict.
        """
        self.outgoing.append(self._origin.send(destination, message, message_type, delay, at, headers))

    def send_local(
        self, message: object, *, delay: timedelta | float | None = None, at: datetime | None = None
    ) -> None:
        """Send to this very endpoint."""
        self.outgoing.append(self._origin.send(self._origin.endpoint, message, None, delay, at))

    def publish(
        self, message: object, *, message_type: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Tell all endpoints that have subscribed to this type of event."""
        self.outgoing.append(self._origin.publish(message, message_type, headers))

    def reply(
        self, message: object, *, message_type: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer. ``ValueError`` where the message does not tell where to."""
        self.outgoing.append(self._origin.reply(message, message_type, headers))

    def defer(self, delay: timedelta | float | None = None, *, at: datetime | None = None) -> None:
        """Have this message come again, after a delay or at a time, with its id and with no retries counted."""
        properties = with_headers(without_failure(self._message.properties), {headers.IS_DEFERRED: "True"})
        self._origin.layout.message(self._origin.endpoint, delay, properties, at=at)
        self.outgoing.append(Send(self._origin.endpoint, self._message.body, properties, delay, at))

    def forward(self, destination: str) -> None:
        """Send this message on to another endpoint, as it came."""
        self.outgoing.append(Send(destination, self._message.body, without_failure(self._message.properties)))
