"""Conversions of times: to delays, and to and from NServiceBus's header format."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def now() -> datetime:
    """Return the current time in UTC, with time zone."""
    return datetime.now(UTC)


def remaining(at: datetime) -> timedelta:
    """Return the time until ``at``, 0 if that is past. Raises ``TypeError`` for a time without a zone."""
    if at.tzinfo is None:
        raise TypeError(f"a time needs a time zone: {at.isoformat()} could be anywhere")
    return max(at - now(), timedelta(0))


def as_header(at: datetime) -> str:
    """Format a time as ``yyyy-MM-dd HH:mm:ss:ffffff Z``, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S:%f Z")


def from_header(text: str) -> datetime:
    """Parse the format of :func:`as_header`. Raises ``ValueError`` for any other text."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f Z").replace(tzinfo=UTC)
