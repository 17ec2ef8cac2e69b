"""The options of the stream source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from leveret.spark.options import URL_DEFAULT, flag, number, url_of
from leveret.spark.segments.options import SegmentOptions

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
COUNT_MAX: Final = (1 << 63) - 1
PARTITIONS_MAX: Final = 10_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SEGMENTS: Final = SegmentOptions()
_FORMS: Final = "earliest, latest, an offset, a time (ISO 8601), or a JSON object that maps streams to these"

Place = int | datetime | str
"""Where in a stream: an offset, a time of arrival, ``earliest`` or ``latest``."""


@dataclass(frozen=True)
class Places:
    """A place for each partition: ``named`` has those that were said one by one, ``others`` is for the rest."""

    others: Place
    named: Mapping[str, Place]

    def of(self, stream: str) -> Place:
        """The place in this partition's stream."""
        return self.named.get(stream, self.others)


@dataclass(frozen=True)
class StreamOptions:
    """What the source needs to know of a stream, or of a super stream and its partitions.

    ``partitions`` holds what stands behind the name and a dash in the names of a super stream's streams; None has them
    found. ``rows_max`` and ``bytes_max`` bound a micro-batch (None: no bound), ``tasks_min`` is the least number of
    tasks that a read is cut into, ``is_loss_failure`` whether messages that are gone fail the query, ``segments`` how
    what is sealed is read.
    """

    stream: str
    url: str = URL_DEFAULT
    partitions: tuple[str, ...] | None = None
    starting: Places = Places(EARLIEST, {})
    ending: Places = Places(LATEST, {})
    rows_max: int | None = None
    bytes_max: int | None = None
    tasks_min: int = 1
    is_loss_failure: bool = True
    segments: SegmentOptions = _SEGMENTS

    @staticmethod
    def parse(options: Mapping[str, str]) -> StreamOptions:
        """Read and check all options of the stream source; ``ValueError`` names the one that is wrong."""
        stream = options.get("stream")
        if not stream:
            raise ValueError("option stream is missing: the name of the stream or super stream to read")
        ending = _places(options, "endingOffsets", "endingTimestamp", LATEST)
        if EARLIEST in (ending.others, *ending.named.values()):
            raise ValueError("option endingOffsets cannot be earliest: nothing precedes it")
        return StreamOptions(
            stream=stream,
            url=url_of(options),
            partitions=_partitions(options.get("partitions")),
            starting=_places(options, "startingOffsets", "startingTimestamp", EARLIEST),
            ending=ending,
            rows_max=_bound(options, "maxRowsPerTrigger"),
            bytes_max=_bound(options, "maxBytesPerTrigger"),
            tasks_min=number(options, "minPartitions", 1, 1, PARTITIONS_MAX),
            is_loss_failure=flag(options, "failOnDataLoss", True),
            segments=SegmentOptions.parse(options),
        )


def _bound(options: Mapping[str, str], name: str) -> int | None:
    return number(options, name, 1, 1, COUNT_MAX) if name in options else None


def _partitions(text: str | None) -> tuple[str, ...] | None:
    """``3`` means 0, 1, 2; anything else is a list of routing keys with commas between them."""
    if text is None:
        return None
    if text.isdecimal():
        if not 1 <= int(text) <= PARTITIONS_MAX:
            raise ValueError(f"option partitions must be 1 to {PARTITIONS_MAX}, or routing keys, not {text}")
        return tuple(str(each) for each in range(int(text)))
    keys = tuple(key.strip() for key in text.split(","))
    if not all(keys) or len(set(keys)) < len(keys):
        raise ValueError(f"option partitions must be a number or different routing keys, as in a,b,c; not {text!r}")
    return keys


def _places(options: Mapping[str, str], offsets: str, timestamp: str, default: Place) -> Places:
    if timestamp in options:
        if offsets in options:
            raise ValueError(f"options {offsets} and {timestamp} exclude each other")
        return Places(_time(timestamp, options[timestamp]), {})
    text = options.get(offsets)
    if text is None:
        return Places(default, {})
    if not text.lstrip().startswith("{"):
        return Places(_place(offsets, text), {})
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"option {offsets} is malformed JSON: {error}") from None
    return Places(default, {name: _place(offsets, value) for name, value in given.items()})


def _place(option: str, value: object) -> Place:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        if value in (EARLIEST, LATEST):
            return value
        if value.isdecimal() and int(value) <= COUNT_MAX:
            return int(value)
        try:
            return _aware(datetime.fromisoformat(value))
        except ValueError:
            pass
    raise ValueError(f"option {option} must be {_FORMS}, not {value!r}")


def _time(option: str, text: str) -> datetime:
    try:
        if text.isdecimal():
            return _EPOCH + timedelta(milliseconds=int(text))
        return _aware(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise ValueError(
            f"option {option} must be a time in ISO 8601 or milliseconds since 1970, not {text!r}"
        ) from None


def _aware(time: datetime) -> datetime:
    """A time without a zone is UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
