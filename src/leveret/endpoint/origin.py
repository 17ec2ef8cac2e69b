"""Builds outgoing messages; their headers depend on the endpoint and on the message being handled."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from leveret.client import Properties
from leveret.delay import Layout
from leveret.delay.instant import as_header, now
from leveret.endpoint import body, headers, types
from leveret.endpoint.message import MACHINE, Incoming, Publish, Send
from leveret.wire.table import Value

PERSISTENT: Final = 2


@dataclass(frozen=True)
class Origin:
    """The sender of messages.

    Attributes:
        endpoint: Name of the endpoint, which is also the reply address.
        layout: Layout of the delay levels, which limits delays.
        incoming: The message being handled; None outside of handlers.
    """

    endpoint: str
    layout: Layout
    incoming: Incoming | None = None

    def send(
        self,
        destination: str,
        message: object,
        message_type: str | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        given: Mapping[str, str] | None = None,
        reply_to: str | None = None,
    ) -> Send:
        """Build a message for another endpoint. Raises ``ValueError`` or ``TypeError`` if it cannot be sent."""
        names = _names(message, message_type)
        properties = self._properties(names, headers.SEND, None, reply_to, given)
        if delay is not None or at is not None:
            self.layout.message(destination, delay, properties, at=at)
        elif not destination:
            raise ValueError("a message needs a destination: the name of an endpoint")
        return Send(destination, body.encode(message), properties, delay, at)

    def publish(
        self, message: object, message_type: str | None = None, given: Mapping[str, str] | None = None
    ) -> Publish:
        """Build an event. Raises the errors of :meth:`send`."""
        names = _names(message, message_type)
        return Publish(names, body.encode(message), self._properties(names, headers.PUBLISH, None, None, given))

    def reply(self, message: object, message_type: str | None = None, given: Mapping[str, str] | None = None) -> Send:
        """Build a reply to the message being handled. Raises ``ValueError`` if that has no reply address."""
        before = self.incoming.headers if self.incoming is not None else {}
        destination = before.get(headers.REPLY_TO, "")
        if not destination:
            raise ValueError("the message has no reply address")
        names = _names(message, message_type)
        correlation_id = before.get(headers.CORRELATION_ID) or before[headers.MESSAGE_ID]
        properties = self._properties(names, headers.REPLY, correlation_id, None, given)
        return Send(destination, body.encode(message), properties)

    def _properties(
        self,
        names: tuple[str, ...],
        intent: str,
        correlation_id: str | None,
        reply_to: str | None,
        given: Mapping[str, str] | None,
    ) -> Properties:
        """Return properties and headers as NServiceBus endpoints write them. The caller's headers (given) override."""
        message_id = str(uuid.uuid4())
        before = self.incoming.headers if self.incoming is not None else {}
        written: dict[str, Value] = {
            headers.MESSAGE_ID: message_id,
            headers.CORRELATION_ID: correlation_id or before.get(headers.CORRELATION_ID) or message_id,
            headers.CONVERSATION_ID: before.get(headers.CONVERSATION_ID) or str(uuid.uuid4()),
            headers.MESSAGE_INTENT: intent,
            headers.MESSAGE_TYPES: ";".join(names),
            headers.CONTENT_TYPE: body.CONTENT_TYPE,
            headers.ORIGINATING_ENDPOINT: self.endpoint,
            headers.ORIGINATING_MACHINE: MACHINE,
            headers.REPLY_TO: reply_to or self.endpoint,
            headers.TIME_SENT: as_header(now()),
        }
        if self.incoming is not None:
            written[headers.RELATED_TO] = self.incoming.message_id
        written.update(given or {})
        return Properties(
            content_type=body.CONTENT_TYPE,
            headers=written,
            delivery_mode=PERSISTENT,
            correlation_id=str(written[headers.CORRELATION_ID]),
            reply_to=str(written[headers.REPLY_TO]),
            message_id=str(written[headers.MESSAGE_ID]),
            type=names[0],
        )


def _names(message: object, message_type: str | None) -> tuple[str, ...]:
    if message_type is not None:
        return (message_type,)
    return types.names_of(type(message))
