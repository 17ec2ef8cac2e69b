"""Computes from a message's headers how long it still has to wait in a level queue."""

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
    """Return how long a message in the queue of ``level`` has to wait from ``at`` on; None if no header tells.

    ``units`` is the delay in its routing key. If headers disagree, the latest time is used, since a message that is
    sent again keeps the time of its first sending. The result is at least the wait of the levels below, and at most the
    wait of a message that enters the level at ``at``. So with clocks that differ no message is early by more than the
    wait of this one level.
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
    """Return how long a message waits that enters the queue of ``level`` now: in this level and in those below."""
    return timedelta(milliseconds=layout.ttl_ms(level) + layout.unit_ms * (units & ((1 << level) - 1)))


def _told(headers: Mapping[str, Value]) -> Iterator[datetime]:
    """Yield the due times in the sender's headers: those of NServiceBus, and the eta of a Celery task."""
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
        if due.tzinfo is not None:  # without a zone it is in the worker's, which is unknown here
            yield due.astimezone(UTC)


def _time(value: Value) -> datetime | None:
    try:
        return from_header(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _left_last(layout: Layout, level: int, headers: Mapping[str, Value]) -> datetime | None:
    """Return the latest time at which the message left the level before: x-death has whole seconds, so one is added."""
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else None
    if not isinstance(newest, dict):
        return None
    above = {layout.level_name(higher) for higher in range(level + 1, layout.levels)}
    time = newest.get("time")
    if newest.get("queue") not in above or not isinstance(time, datetime):
        return None
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)) + SECOND
