"""How long a message that stands in a level queue still has to wait, told from what it carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from leveret.delay.instant import from_header
from leveret.delay.message import DELIVER_AT, TIME_SENT

if TYPE_CHECKING:
    from leveret.delay.layout import Layout
    from leveret.wire.table import Value

DELAY_IN_SECONDS: Final = "NServiceBus.Transport.RabbitMQ.DelayInSeconds"
RETRIES_TIMESTAMP: Final = "NServiceBus.Retries.Timestamp"
ETA: Final = "eta"
SECOND: Final = timedelta(seconds=1)


def remaining_in_level(
    layout: Layout, level: int, units: int, headers: Mapping[str, Value], at: datetime
) -> timedelta | None:
    """How long a message in the queue of ``level`` has to wait from ``at`` on, at least 0; None where nothing tells.

    units: the delay in its routing key. The latest of what its headers say counts: a message that is sent again keeps
    the time of its first sending. Whatever they say, the digits below its level are still to be waited for, and it
    can't have longer to wait than if it had entered its level just now. So clocks that differ make no message early
    by more than the wait of this one level.
    """
    dues = list(_told(headers))
    below = timedelta(milliseconds=layout.unit_ms * (units & ((1 << level) - 1)))
    entered = _left_last(layout, level, headers)
    if entered is not None:
        dues.append(entered + wait_in_level(layout, level, units))
    if not dues:
        return None
    return min(max(max(dues) - at, below), wait_in_level(layout, level, units))


def wait_in_level(layout: Layout, level: int, units: int) -> timedelta:
    """How long a message has to wait that enters the queue of ``level`` now: its wait, and the digits below."""
    return timedelta(milliseconds=layout.ttl_ms(level) + layout.unit_ms * (units & ((1 << level) - 1)))


def _told(headers: Mapping[str, Value]) -> Iterator[datetime]:
    """When the message is due, as its sender's headers say: NServiceBus's, and the eta of a Celery task."""
    stated = _time(headers.get(DELIVER_AT))
    if stated is not None:
        yield stated
    delay = headers.get(DELAY_IN_SECONDS)
    # .NET and Java clients may write the number as text
    seconds = int(delay) if isinstance(delay, int) or (isinstance(delay, str) and delay.isdigit()) else None
    if seconds is not None and 0 <= seconds < 1 << 31:
        for name in (TIME_SENT, RETRIES_TIMESTAMP):
            sent = _time(headers.get(name))
            if sent is not None:
                yield sent + timedelta(seconds=seconds)
    eta = headers.get(ETA)
    if isinstance(eta, str):
        try:
            due = datetime.fromisoformat(eta)
        except ValueError:
            return
        if due.tzinfo is not None:  # without a zone it is that of the worker, whoever that is
            yield due.astimezone(UTC)


def _time(value: Value) -> datetime | None:
    try:
        return from_header(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _left_last(layout: Layout, level: int, headers: Mapping[str, Value]) -> datetime | None:
    """When the message left the level before this one, at the latest: the broker's x-death counts in whole seconds."""
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else None
    if not isinstance(newest, dict):
        return None
    above = {layout.level_name(higher) for higher in range(level + 1, layout.levels)}
    time = newest.get("time")
    if newest.get("queue") not in above or not isinstance(time, datetime):
        return None
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) + SECOND
