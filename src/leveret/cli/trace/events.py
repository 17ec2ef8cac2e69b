"""Parsing of firehose messages of leveret and RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from leveret.client import Delivery
from leveret.control.tables import sayable
from leveret.wire.table import Value

PUBLISH, DELIVER, CONFIRM = "publish", "deliver", "confirm"
_KINDS: Final = (PUBLISH, DELIVER, CONFIRM)


class TraceEvent(NamedTuple):
    """An event of a firehose.

    Attributes:
        kind: publish, deliver or confirm.
        name: the exchange, the queue, or ack or nack.
        at_s: its time in seconds since 1970.
        is_told: whether the broker gave the time; otherwise it is the time of arrival here.
        told: the headers of the firehose message.
        properties, headers: of the traced message.
    """

    kind: str
    name: str
    at_s: float
    is_told: bool
    told: Mapping[str, Value]
    properties: Mapping[str, Value]
    headers: Mapping[str, Value]

    def text(self, name: str) -> str:
        """Return a header of the event as text; "" if it is missing."""
        value = self.told.get(name)
        return value if isinstance(value, str) else "" if value is None else str(value)

    def number(self, name: str) -> int | None:
        """Return a header of the event as an integer, or None."""
        value = self.told.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def names(self, name: str) -> list[str]:
        """Return a header of the event as a list of names."""
        value = self.told.get(name)
        return [sayable(each) for each in value if isinstance(each, str)] if isinstance(value, list) else []

    @property
    def message_id(self) -> str | None:
        """The traced message's id."""
        return _text(self.properties.get("message_id"))

    @property
    def correlation_id(self) -> str | None:
        """The traced message's correlation id."""
        return _text(self.properties.get("correlation_id"))

    @property
    def where(self) -> tuple[str, int | None]:
        """The connection and channel of the event."""
        return self.text("connection"), self.number("channel")


def event_of(delivery: Delivery, now_s: float) -> TraceEvent | None:
    """Parse a message from amq.rabbitmq.trace; None if it is no event. `now_s` is its time of arrival."""
    kind, dot, name = delivery.routing_key.partition(".")
    if kind not in _KINDS or not dot:
        return None
    told = delivery.properties.headers or {}
    properties = _table(told.get("properties"))
    micros = told.get("timestamp_in_us")
    is_told = isinstance(micros, int)
    at_s = micros / 1_000_000 if isinstance(micros, int) else now_s
    if kind == PUBLISH and isinstance(told.get("exchange_name"), str):
        name = str(told["exchange_name"])  # the routing key can be cut off at 255 octets
    return TraceEvent(kind, name, at_s, is_told, told, properties, _table(properties.get("headers")))


def deaths_of(event: TraceEvent) -> list[dict[str, Any]]:
    """Return the deaths in the message's x-death header, the first one first."""
    deaths = event.headers.get("x-death")
    found = [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []
    return [dict(death) for death in reversed(found)]


def hops_of(event: TraceEvent) -> list[dict[str, Any]]:
    """Return the federation links that forwarded the message, the first one first."""
    hops = event.headers.get("x-received-from")
    return [dict(hop) for hop in reversed(hops) if isinstance(hop, dict)] if isinstance(hops, list) else []


def seconds_of(value: object) -> float | None:
    """Return a table's timestamp as seconds since 1970, or None."""
    return value.timestamp() if isinstance(value, datetime) else None


def _table(value: Value) -> Mapping[str, Value]:
    return value if isinstance(value, dict) else {}


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
