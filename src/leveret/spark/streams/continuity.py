"""Whether a stream still is the one that was read, and still has what is to be read of it."""

from __future__ import annotations

from leveret.spark.streams.bounds import Bounds
from leveret.spark.streams.loss import counted, lost
from leveret.spark.streams.offsets import Position, Span


def going_on(stream: str, position: Position, bounds: Bounds, is_loss_failure: bool) -> int:
    """Where to go on in a stream that was read up to ``position``; ``DataLoss`` where something is missing.

    If that is no failure: the next message that is there. Without ids, as on RabbitMQ, a stream that is shorter than
    what was read of it is another one.
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
    """What is there of a span that was planned, maybe long ago; ``DataLoss`` where that is not all of it.

    ``bounds``: None if the stream is gone.
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
