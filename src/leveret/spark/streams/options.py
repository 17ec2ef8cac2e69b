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
"""A place in a stream: an offset, a time of arrival, ``earliest`` or ``latest``."""


@dataclass(frozen=True)
class StreamPlaces:
    """A place for each partition: from ``named`` if its stream is there, else ``others``."""

    others: Place
    named: Mapping[str, Place]

    def of(self, stream: str) -> Place:
        """Return the place for this partition's stream."""
        return self.named.get(stream, self.others)


@dataclass(frozen=True)
class StreamOptions:
    """The options for a stream, or for a super stream and its partitions.

    Attributes:
        partitions: what follows the name and a dash in the partitions' names; None to look them up.
        rows_max: rows of a micro-batch, None without limit.
        bytes_max: octets of a micro-batch, None without limit.
        tasks_min: least number of tasks for a read.
        is_loss_failure: whether missing messages fail the query.
        segments: how sealed segments are read.
    """

    stream: str
    url: str = URL_DEFAULT
    partitions: tuple[str, ...] | None = None
    starting: StreamPlaces = StreamPlaces(EARLIEST, {})
    ending: StreamPlaces = StreamPlaces(LATEST, {})
    rows_max: int | None = None
    bytes_max: int | None = None
    tasks_min: int = 1
    is_loss_failure: bool = True
    segments: SegmentOptions = _SEGMENTS

    @staticmethod
    def parse(options: Mapping[str, str]) -> StreamOptions:
        """Read and check all options of the stream source; ``ValueError`` names the wrong one."""
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
    """Parse option partitions: ``3`` means 0, 1, 2; anything else is a list of routing keys separated by commas."""
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


def _places(options: Mapping[str, str], offsets: str, timestamp: str, default: Place) -> StreamPlaces:
    if timestamp in options:
        if offsets in options:
            raise ValueError(f"options {offsets} and {timestamp} exclude each other")
        return StreamPlaces(_time(timestamp, options[timestamp]), {})
    text = options.get(offsets)
    if text is None:
        return StreamPlaces(default, {})
    if not text.lstrip().startswith("{"):
        return StreamPlaces(_place(offsets, text), {})
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"option {offsets} is malformed JSON: {error}") from None
    return StreamPlaces(default, {name: _place(offsets, value) for name, value in given.items()})


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
    """Return the time in UTC; a time without a zone is UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
