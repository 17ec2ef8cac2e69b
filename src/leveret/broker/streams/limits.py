"""How much of its past a stream keeps, and the size of its files (RabbitMQ, Streams: Retention)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.streams.age import age_us
from leveret.wire.table import Value

# RabbitMQ's default and maximum
SEGMENT_OCTETS: Final[i64] = 500_000_000
SEGMENT_OCTETS_MAX: Final = 3_000_000_000
NO_LIMIT: Final[i64] = -1


class StreamLimits:
    """Limits of a stream. Retention deletes the oldest segments, but never the last one, while a limit is exceeded."""

    def __init__(self, max_octets: i64, max_age_us: i64, segment_octets: i64) -> None:
        self.max_octets = max_octets  # -1 = no limit
        self.max_age_us = max_age_us  # of the messages in a segment, -1 = no limit
        self.segment_octets = segment_octets  # a new segment begins at this size


def stream_limits(arguments: dict[str, Value]) -> StreamLimits:
    """Return the limits of a stream with these effective arguments, which were checked before."""
    octets, age = arguments.get("x-max-length-bytes"), arguments.get("x-max-age")
    segment = arguments.get("x-stream-max-segment-size-bytes")
    return StreamLimits(
        octets if isinstance(octets, int) else NO_LIMIT,
        age_us(age) if isinstance(age, str) else NO_LIMIT,
        min(segment, SEGMENT_OCTETS_MAX) if isinstance(segment, int) else SEGMENT_OCTETS,
    )
