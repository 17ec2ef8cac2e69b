"""Starting and ending places from the options, as offsets of existing streams."""

from __future__ import annotations

from collections.abc import Collection

from leveret.spark.streams.bounds import Bounds, QueryStreams
from leveret.spark.streams.loss import counted, lost
from leveret.spark.streams.options import StreamOptions, StreamPlaces


def begin(streams: QueryStreams, options: StreamOptions, stream: str, bounds: Bounds) -> int:
    """Return the offset of startingOffsets; ``DataLoss`` if it is gone, ``ValueError`` if it lies beyond the end."""
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


def end(streams: QueryStreams, options: StreamOptions, stream: str, bounds: Bounds) -> int:
    """Return the offset of endingOffsets (exclusive); ``DataLoss`` if the stream ends before it."""
    found = streams.locate(stream, options.ending.of(stream), bounds)
    if found > bounds.next:
        what = f"option endingOffsets: stream {stream!r} ends before offset {bounds.next}, not before {found}"
        lost(what, options.is_loss_failure)
        return bounds.next
    return found


def check_names(places: StreamPlaces, option: str, streams: Collection[str]) -> None:
    """Raise ``ValueError`` if a place is given for a stream that is not read."""
    for name in places.named:
        if name not in streams:
            raise ValueError(f"option {option} names stream {name!r}, but the query reads {', '.join(streams)}")
