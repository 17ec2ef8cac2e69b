"""Incoming and outgoing messages as values."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from leveret.client import Delivery, Properties
from leveret.delay import received
from leveret.delay.instant import as_header
from leveret.endpoint import headers, types
from leveret.wire.errors import ProtocolError
from leveret.wire.table import Value

MACHINE: Final = socket.gethostname()


class PoisonMessage(ValueError):
    """A message whose headers cannot be read; it goes to the error queue without retries."""


@dataclass(frozen=True)
class Incoming:
    """A received message as handlers see it.

    Attributes:
        message_id: Id of the message, never empty.
        headers: All headers as text, without those of the delay levels.
        body: Content of the message.
        types: Full names of its type and the parent types, the most derived first.
        delayed_retries: How many delayed retries preceded this delivery.
        properties: AMQP properties with which the message can be sent on, see transferable().
    """

    message_id: str
    headers: Mapping[str, str]
    body: bytes
    types: tuple[str, ...]
    delayed_retries: int
    properties: Properties

    @property
    def content_type(self) -> str:
        """Content type of the body, "" if the message has none."""
        return self.headers.get(headers.CONTENT_TYPE) or self.properties.content_type or ""

    @classmethod
    def of(cls, delivery: Delivery, delay_header: str) -> Incoming:
        """Read a delivery. Raises ``PoisonMessage`` if it has no id or its headers are malformed."""
        try:
            raw = delivery.properties
        except (ProtocolError, ValueError) as error:
            raise PoisonMessage(f"the message's properties are malformed: {error}") from error
        properties = transferable(raw, delay_header)
        read = {name: _text(value) for name, value in (properties.headers or {}).items()}
        message_id = properties.message_id or read.get(headers.MESSAGE_ID) or ""
        if not message_id.strip():
            raise PoisonMessage(
                f"a message needs an id: neither the property message_id nor {headers.MESSAGE_ID} is set"
            )
        read[headers.MESSAGE_ID] = message_id
        reply_to = read.get(headers.CALLBACK_QUEUE) or properties.reply_to
        if reply_to:
            read[headers.REPLY_TO] = reply_to
        if properties.correlation_id:
            read[headers.CORRELATION_ID] = properties.correlation_id
        if properties.type:
            read.setdefault(headers.MESSAGE_TYPES, properties.type)
        return cls(
            message_id,
            read,
            delivery.body,
            tuple(types.enclosed(read.get(headers.MESSAGE_TYPES, ""))),
            _count(read, headers.DELAYED_RETRIES),
            properties,
        )


@dataclass(frozen=True)
class Send:
    """A message for one address, to be delivered at once, after a delay (seconds or a ``timedelta``) or at a time."""

    destination: str
    body: bytes
    properties: Properties
    delay: timedelta | float | None = None
    at: datetime | None = None


@dataclass(frozen=True)
class Publish:
    """An event, for the subscribers of any of these types."""

    types: tuple[str, ...]
    body: bytes
    properties: Properties


Outgoing = Send | Publish


def transferable(properties: Properties, delay_header: str = "") -> Properties:
    """Return the properties with which to send a received message on, without headers of its last transport.

    Removed are the expiration, since neither a delayed message nor one in the error queue may expire; the user id,
    since it belongs to another user; and CC, since those queues have their copies.
    """
    cleaned = received(properties, delay_header)
    kept = {name: value for name, value in (cleaned.headers or {}).items() if not headers.is_of_transport(name)}
    return replace(cleaned, headers=kept, expiration=None, user_id=None)


def with_headers(properties: Properties, changes: Mapping[str, Value]) -> Properties:
    """Return a copy of the properties with these headers set."""
    return replace(properties, headers={**(properties.headers or {}), **changes})


def without_failure(properties: Properties) -> Properties:
    """Return a copy of the properties without the headers of retries and failures."""
    kept = {name: value for name, value in (properties.headers or {}).items() if not headers.is_of_failure(name)}
    return replace(properties, headers=kept)


def _count(read: Mapping[str, str], name: str) -> int:
    text = read.get(name, "0")
    if not (text.isascii() and text.isdigit()):
        raise PoisonMessage(f"the header {name} is not a number: {text!r}")
    return int(text)


def _text(value: Value) -> str:
    """Return a header value as text, formatted as .NET endpoints do."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, datetime):
        return as_header(value if value.tzinfo else value.replace(tzinfo=UTC))
    if isinstance(value, dict):
        return ",".join(f"{name}={_text(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ";".join(_text(item) for item in value)
    return "" if value is None else str(value)
