"""A time in the future as a delay, and times as NServiceBus writes them in headers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)


def remaining(at: datetime) -> timedelta:
    """How long it is until ``at``, 0 where that is past. ``TypeError`` for a time without a zone."""
    if at.tzinfo is None:
        raise TypeError(f"a time needs a time zone: {at.isoformat()} could be anywhere")
    return max(at - now(), timedelta(0))


def as_header(at: datetime) -> str:
    """``yyyy-MM-dd HH:mm:ss:ffffff Z``, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S:%f Z")


def from_header(text: str) -> datetime:
    """Back from :func:`as_header`. ``ValueError`` for anything else."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f Z").replace(tzinfo=UTC)
