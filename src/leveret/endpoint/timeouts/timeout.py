"""A deferred message as older endpoints send it to ``<endpoint>.Timeouts`` (source: NServiceBus 6, timeout manager)."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from leveret.client import Delivery
from leveret.delay.instant import as_header, from_header, now
from leveret.delay.message import TIME_SENT, received
from leveret.endpoint.timeouts.errors import NotATimeout
from leveret.wire.errors import ProtocolError
from leveret.wire.properties import Properties, decode_header, encode_header
from leveret.wire.table import Value

EXPIRE: Final = "NServiceBus.Timeout.Expire"
ROUTE_TO: Final = "NServiceBus.Timeout.RouteExpiredTimeoutTo"
REPLY_TO: Final = "NServiceBus.ReplyToAddress"
CLEAR: Final = "NServiceBus.ClearTimeouts"
SAGA_ID: Final = "NServiceBus.SagaId"
RELATED_TO: Final = "NServiceBus.RelatedToTimeoutId"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Timeout:
    """A deferred message.

    Attributes:
        id: Unique id of up to 64 characters.
        destination: Endpoint to which the message is sent.
        due_us: Due time in microseconds since 1970, UTC.
        saga_id: Id of the saga, "" if none.
        header: Payload of the content header with properties and headers, as received.
        body: Content of the message.
        claim: Id of the process that is sending it, "" if none.
        attempts: How many attempts to send it failed.
    """

    id: str
    destination: str
    due_us: int
    saga_id: str
    header: bytes
    body: bytes
    claim: str = ""
    attempts: int = 0

    @property
    def due(self) -> datetime:
        """The due time, in UTC."""
        return instant(self.due_us)

    @property
    def properties(self) -> Properties:
        """The properties with which the message was received."""
        return decode_header(self.header)[0]

    def outgoing(self) -> Properties:
        """Return the properties to send the message with: those received, the time of sending, and the timeout's id."""
        properties = self.properties
        headers = {**(properties.headers or {}), TIME_SENT: as_header(now()), RELATED_TO: self.id}
        return replace(properties, headers=headers, delivery_mode=properties.delivery_mode or 2)


@dataclass(frozen=True)
class Clearing:
    """A request to delete the timeouts of a saga."""

    saga_id: str


def read(delivery: Delivery) -> Timeout | Clearing:
    """Read a message of the timeouts queue.

    The same message delivered twice has the same id, so that a crash between storing and acknowledging leaves one row.
    Raises ``NotATimeout`` if the time is missing or unreadable, the destination is missing or too long, or timeouts are
    to be cleared without a saga.
    """
    try:
        properties = delivery.properties
    except ProtocolError as error:
        raise NotATimeout(f"the message has malformed properties: {error}") from error
    headers = properties.headers or {}
    saga_id = _text(headers, SAGA_ID).lower()
    if CLEAR in headers:
        if not saga_id:
            raise NotATimeout(f"{CLEAR} needs {SAGA_ID}: only the timeouts of a saga can be cleared")
        return Clearing(saga_id)
    expire = _text(headers, EXPIRE)
    if not expire:
        raise NotATimeout(f"the message is not a timeout: it has no header {EXPIRE}")
    try:
        due_us = microseconds(from_header(expire))
    except ValueError:
        raise NotATimeout(f"{EXPIRE} is not a time like 2030-01-31 13:59:26:479745 Z: {expire!r}") from None
    destination = _text(headers, ROUTE_TO) or _text(headers, REPLY_TO)
    if not destination:
        raise NotATimeout(f"the timeout has no destination: it has neither {ROUTE_TO} nor {REPLY_TO}")
    if len(destination.encode()) > 255:
        raise NotATimeout(f"the destination of the timeout is too long: {len(destination.encode())} bytes, at most 255")
    id = _identity(properties.message_id, destination, due_us, delivery.body)
    header = encode_header(received(properties), len(delivery.body))
    return Timeout(id, destination, due_us, saga_id, header, delivery.body)


def sorted_out(deliveries: Iterable[Delivery]) -> tuple[list[Timeout | Clearing], list[tuple[Delivery, NotATimeout]]]:
    """Split deliveries into requests for the store, in order, and messages that are not timeouts, with the reason."""
    requests: list[Timeout | Clearing] = []
    poison: list[tuple[Delivery, NotATimeout]] = []
    for delivery in deliveries:
        try:
            requests.append(read(delivery))
        except NotATimeout as error:
            poison.append((delivery, error))
    return requests, poison


def properties_of(delivery: Delivery) -> Properties:
    """Return the properties of a delivery, empty ones if they are malformed."""
    try:
        return delivery.properties
    except ProtocolError:
        return Properties()


def microseconds(at: datetime) -> int:
    """Convert a time to microseconds since 1970, UTC, without rounding."""
    return (at - _EPOCH) // _MICROSECOND


def instant(us: int) -> datetime:
    """Convert microseconds since 1970 to a time in UTC."""
    return _EPOCH + us * _MICROSECOND


def _text(headers: dict[str, Value], name: str) -> str:
    value = headers.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise NotATimeout(f"the header {name} must be text, not {type(value).__name__}")
    return value


def _identity(message_id: str | None, destination: str, due_us: int, body: bytes) -> str:
    if not message_id:
        return uuid.uuid4().hex  # two equal messages without an id may be two requests
    parts = (message_id.encode(errors="surrogateescape"), destination.encode(), str(due_us).encode(), body)
    return hashlib.sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).hexdigest()[:32]
