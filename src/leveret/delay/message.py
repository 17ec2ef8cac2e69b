"""The headers that delays add to a message: they must not be sent again, and are hidden from applications."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from leveret.delay.instant import as_header, now
from leveret.wire.properties import Properties
from leveret.wire.table import Value

_DEATH_HEADERS: Final = ("x-death", "x-first-death-", "x-last-death-")
TIME_SENT: Final = "NServiceBus.TimeSent"
"""Time of the first sending; delayed retries and other resends keep it."""

DELIVER_AT: Final = "NServiceBus.DeliverAt"
"""Due time, set anew for every delay; from it the remaining wait of a message in any level can be computed."""


def sendable(
    properties: Properties | None, delay_header: str = "", units: int = 0, delay: timedelta = timedelta(0)
) -> Properties:
    """Return the properties to publish a delayed message with: persistent by default, and without ``x-death``.

    A message that is delayed a second time must not carry the ``x-death`` of the first time: RabbitMQ before 4.0.1
    takes it for a cycle and drops the message.

    Args:
        properties: The message's properties; None = none.
        delay_header: Header to set to the units; the time of sending and the due time are set as well. "" = set none.
        units: The delay in units.
        delay: The delay, from which the due time is computed.

    Raises:
        ValueError: The properties have an ``expiration``.
    """
    if properties is None:
        properties = Properties()
    if properties.expiration is not None:
        raise ValueError("a delayed message must not have an expiration: it would expire before it is due")
    kept = received(properties)
    if delay_header:
        sent = now()
        times: dict[str, Value] = {DELIVER_AT: as_header(sent + delay), delay_header: units}
        headers: dict[str, Value] = {TIME_SENT: as_header(sent), **(kept.headers or {}), **times}
        kept = replace(kept, headers=headers)
    return kept if kept.delivery_mode is not None else replace(kept, delivery_mode=2)


def received(properties: Properties, delay_header: str = "") -> Properties:
    """Return a received message's properties without the headers that delays added. The argument is not changed."""
    headers = properties.headers
    if not headers or not any(name == delay_header or name.startswith(_DEATH_HEADERS) for name in headers):
        return properties
    kept = {name: value for name, value in headers.items() if not name.startswith(_DEATH_HEADERS)}
    kept.pop(delay_header, None)
    return replace(properties, headers=kept)
