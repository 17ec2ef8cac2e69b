"""Checks that a stream is still the one that was read, and still has the messages that are to be read."""

from __future__ import annotations

from leveret.spark.streams.bounds import Bounds
from leveret.spark.streams.loss import counted, lost
from leveret.spark.streams.offsets import Span, StreamPosition


def going_on(stream: str, position: StreamPosition, bounds: Bounds, is_loss_failure: bool) -> int:
    """Return the offset at which to resume a stream that was read up to ``position``.

    Raises ``DataLoss`` if messages are missing; if that is no failure, returns the next available offset. On brokers
    without ids, as on RabbitMQ, a stream that is shorter than what was read counts as another stream.
    """
    if position.id != bounds.id:
        lost(_renewed(stream, position.id, bounds.id), is_loss_failure)
        return bounds.first
    if position.next < bounds.first:
        lost(_retained(stream, position.next, bounds.first), is_loss_failure)
        return bounds.first
    if position.next > bounds.next:
        lost(_shortened(stream, position.next, bounds.next), is_loss_failure)
        return bounds.first if bounds.id is None else bounds.next
    return position.next


def readable(span: Span, bounds: Bounds | None, is_loss_failure: bool) -> Span | None:
    """Return the part of a planned span that still exists, None if nothing does.

    Raises ``DataLoss`` if messages are missing and that is a failure. ``bounds`` is None if the stream is gone.
    """
    if bounds is None:
        lost(f"stream {span.stream!r} is gone, and {counted(len(span))} with it", is_loss_failure)
        return None
    if span.id != bounds.id:
        lost(_renewed(span.stream, span.id, bounds.id), is_loss_failure)
        return None
    first, end = span.first, span.end
    if first < bounds.first:
        lost(_retained(span.stream, first, min(end, bounds.first)), is_loss_failure)
        first = bounds.first
    if end > bounds.next:
        lost(_shortened(span.stream, end, bounds.next), is_loss_failure)
        end = bounds.next
    return Span(span.stream, span.id, first, end) if first < end else None


def _renewed(stream: str, read: str | None, there: str | None) -> str:
    return (
        f"stream {stream!r} was deleted and declared again (it was {read or 'of a broker without ids'}, and is "
        f"{there or 'of a broker without ids'}): the unread messages of the old stream are gone"
    )


def _retained(stream: str, first: int, there: int) -> str:
    return f"stream {stream!r} no longer has offsets {first} to {there - 1}: retention removed {counted(there - first)}"


def _shortened(stream: str, end: int, there: int) -> str:
    return (
        f"stream {stream!r} ends before offset {there}, but was to be read up to {end - 1}: it was declared again or "
        "restored from a backup"
    )
