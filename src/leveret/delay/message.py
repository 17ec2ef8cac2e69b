"""The headers that delays leave on a message: what must not be sent again, and what an application need not see."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from leveret.delay.instant import as_header, now
from leveret.wire.properties import Properties
from leveret.wire.table import Value

_DEATH_HEADERS: Final = ("x-death", "x-first-death-", "x-last-death-")
TIME_SENT: Final = "NServiceBus.TimeSent"
"""When a message was sent. Whoever sends it again, as delayed retries do, leaves it as it was."""

DELIVER_AT: Final = "NServiceBus.DeliverAt"
"""When a message is due, written anew for every delay: it tells how long one still has to wait in whatever level."""


def sendable(
    properties: Properties | None, delay_header: str = "", units: int = 0, delay: timedelta = timedelta(0)
) -> Properties:
    """The properties to publish a delayed message with: persistent unless they say otherwise, and without history.

    A message that is delayed a second time must not carry the first time's ``x-death``: RabbitMQ before 4.0.1 takes
    it for a cycle and drops the message. delay_header: told the units, and beside it when the message was sent and when
    it is due (``delay`` from now), unless "".
    Raises ``ValueError`` where an ``expiration`` is set.
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
    """The properties as the sender wrote them: without the traces of the levels. The caller's are not touched."""
    headers = properties.headers
    if not headers or not any(name == delay_header or name.startswith(_DEATH_HEADERS) for name in headers):
        return properties
    kept = {name: value for name, value in headers.items() if not name.startswith(_DEATH_HEADERS)}
    kept.pop(delay_header, None)
    return replace(properties, headers=kept)
