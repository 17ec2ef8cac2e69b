"""Options that say where to begin and where to end, as offsets of the streams that are there."""

from __future__ import annotations

from collections.abc import Collection

from leveret.spark.streams.bounds import Bounds, Streams
from leveret.spark.streams.loss import counted, lost
from leveret.spark.streams.options import Places, StreamOptions


def begin(streams: Streams, options: StreamOptions, stream: str, bounds: Bounds) -> int:
    """The offset that startingOffsets means. ``DataLoss`` for one that is gone, ``ValueError`` for one to come."""
    first = streams.locate(stream, options.starting.of(stream), bounds)
    if first > bounds.next:
        raise ValueError(
            f"option startingOffsets: stream {stream!r} ends before offset {bounds.next}; reading cannot begin at "
            f"{first}"
        )
    if first < bounds.first:
        what = f"option startingOffsets: stream {stream!r} begins with offset {bounds.first}, not {first}"
        lost(f"{what}: retention removed {counted(bounds.first - first)}", options.is_loss_failure)
        return bounds.first
    return first


def end(streams: Streams, options: StreamOptions, stream: str, bounds: Bounds) -> int:
    """The offset that endingOffsets means (exclusive). ``DataLoss`` for one that is not there yet, or no longer."""
    found = streams.locate(stream, options.ending.of(stream), bounds)
    if found > bounds.next:
        what = f"option endingOffsets: stream {stream!r} ends before offset {bounds.next}, not before {found}"
        lost(what, options.is_loss_failure)
        return bounds.next
    return found


def check_names(places: Places, option: str, streams: Collection[str]) -> None:
    """``ValueError`` for a place in a stream that is not read."""
    for name in places.named:
        if name not in streams:
            raise ValueError(f"option {option} names stream {name!r}, but the query reads {', '.join(streams)}")
