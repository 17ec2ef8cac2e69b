"""The options of a stream are checked before anything connects, with messages that name the error."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from leveret.spark.rows.columns import QUEUE_SCHEMA, STREAM_SCHEMA
from leveret.spark.source import LeveretDataSource
from leveret.spark.streams.offsets import Span, StreamPosition, format_offset, parse_offset, spans
from leveret.spark.streams.options import EARLIEST, LATEST, StreamOptions, StreamPlaces
from leveret.spark.streams.planning import cut
from leveret.spark.streams.shares import rows_of_octets, shares

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def parse(**options: str) -> StreamOptions:
    return StreamOptions.parse({"stream": "s", **options})


def test_what_holds_where_nothing_is_said() -> None:
    assert parse() == StreamOptions("s", "amqp://guest:guest@localhost:5672/")
    assert (parse().starting, parse().ending) == (StreamPlaces(EARLIEST, {}), StreamPlaces(LATEST, {}))


def test_partitions_are_a_number_or_routing_keys() -> None:
    assert parse(partitions="3").partitions == ("0", "1", "2")
    assert parse(partitions="emea, apac").partitions == ("emea", "apac")


@pytest.mark.parametrize(
    ("option", "text", "place"),
    [
        ("startingOffsets", "earliest", EARLIEST),
        ("startingOffsets", "17", 17),
        ("startingOffsets", "2026-01-02T03:04:05", TIME),
        ("startingOffsets", "2026-01-02T04:04:05+01:00", TIME),
        ("startingTimestamp", "2026-01-02T03:04:05Z", TIME),
        ("startingTimestamp", str(int(TIME.timestamp() * 1000)), TIME),
    ],
)
def test_places(option: str, text: str, place: object) -> None:
    assert parse(**{option: text}).starting == StreamPlaces(place, {})  # type: ignore[arg-type]


def test_places_one_by_one() -> None:
    text = '{"s-0": 5, "s-1": "latest", "s-2": "2026-01-02T03:04:05"}'
    starting = parse(startingOffsets=text).starting
    assert [starting.of(f"s-{number}") for number in range(4)] == [5, LATEST, TIME, EARLIEST]


FORMS = "earliest, latest, an offset, a time"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stream": ""}, "option stream is missing"),
        ({"partitions": "0"}, "option partitions must be 1 to 10000, or routing keys, not 0"),
        ({"partitions": "a,,b"}, "option partitions must be a number or different routing keys"),
        ({"partitions": "a,a"}, "option partitions must be a number or different routing keys"),
        ({"startingOffsets": "newest"}, f"option startingOffsets must be {FORMS}"),
        ({"startingOffsets": "-1"}, f"option startingOffsets must be {FORMS}"),
        ({"startingOffsets": '{"s": true}'}, f"option startingOffsets must be {FORMS}"),
        ({"startingOffsets": '{"s": '}, "option startingOffsets is malformed JSON"),
        ({"startingTimestamp": "soon"}, "option startingTimestamp must be a time in ISO 8601 or milliseconds"),
        ({"startingTimestamp": "9" * 30}, "option startingTimestamp must be a time in ISO 8601 or milliseconds"),
        (
            {"startingOffsets": "1", "startingTimestamp": "1"},
            "startingOffsets and startingTimestamp exclude each other",
        ),
        ({"endingOffsets": "earliest"}, "option endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"s": "earliest"}'}, "option endingOffsets cannot be earliest"),
        ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger must be 1 to"),
        ({"maxBytesPerTrigger": "1 MB"}, "option maxBytesPerTrigger must be a whole number"),
        ({"minPartitions": "0"}, "option minPartitions must be 1 to"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss must be true or false"),
        ({"segments": "ftp"}, "option segments must be one of"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(**options)


def test_stream_or_queue_and_nothing_else() -> None:
    assert LeveretDataSource({"stream": "s"}).schema() == STREAM_SCHEMA
    assert LeveretDataSource({"queue": "q"}).schema() == QUEUE_SCHEMA
    for options, message in (
        ({}, "options stream and queue: set exactly one of them, .* neither is set"),
        ({"stream": "s", "queue": "q"}, "options stream and queue: set exactly one of them, .* both are set"),
        ({"stream": "s", "mode": "peek"}, "option mode is only for queues, not for streams"),
    ):
        source = LeveretDataSource(options)
        with pytest.raises(ValueError, match=message):
            source.reader(STREAM_SCHEMA)
        # Spark would not show an error of streamReader itself
        refused = source.streamReader(STREAM_SCHEMA)
        for ask in (
            refused.initialOffset,
            partial(refused.latestOffset, {}, ReadAllAvailable()),
            partial(refused.partitions, {}, {}),
        ):
            with pytest.raises(ValueError, match=message):
                ask()
    with pytest.raises(ValueError, match="option parse=stream needs option stream"):
        LeveretDataSource({"queue": "q", "parse": "stream"}).schema()


def test_an_offset_goes_through_a_checkpoint() -> None:
    offset = {"a": StreamPosition(7, "id", 3), "b": StreamPosition(5)}
    assert format_offset(offset) == {"a": {"id": "id", "next": 7, "first": 3}, "b": {"id": None, "next": 5}}
    assert parse_offset(format_offset(offset)) == offset
    with pytest.raises(ValueError, match=r"no offset of a stream, only \{'messages': 5\}: option checkpointLocation"):
        parse_offset({"messages": 5})


def test_what_lies_between_two_offsets() -> None:
    begun = {"a": StreamPosition(7, "x", 3), "b": StreamPosition(5, "y", 5)}
    assert spans({}, begun) == [Span("a", "x", 3, 7)]
    assert spans(begun, {**begun, "b": StreamPosition(9, "y")}) == [Span("b", "y", 5, 9)], "a has nothing new"
    assert spans(begun, {**begun, "a": StreamPosition(9, "z", 8)}) == [Span("a", "z", 8, 9)], (
        "another stream than that read"
    )
    with pytest.raises(ValueError, match="does not say at which offset stream 'a' was started"):
        spans({}, {"a": StreamPosition(7, "x")})


def test_streams_catch_up_together() -> None:
    assert shares({"a": 40, "b": 20, "c": 0}, 30) == {"a": 20, "b": 10, "c": 0}
    assert shares({"a": 1000, "b": 1}, 10) == {"a": 9, "b": 1}
    assert shares({"a": 3, "b": 4}, 100) == {"a": 3, "b": 4}
    assert sum(shares({"a": 5, "b": 5, "c": 5}, 2).values()) == 2


def test_octets_as_rows() -> None:
    assert rows_of_octets({"a": 100, "b": 100}, {"a": 10, "b": 30}, 400) == 20
    assert rows_of_octets({"a": 100}, {"a": 10}, 1000) == 100
    assert rows_of_octets({"a": 100}, {"a": 10}, 1) == 1


def test_spans_are_cut_into_even_pieces() -> None:
    whole = Span("s", None, 10, 35)
    for tasks_min in (1, 2, 3, 25, 100):
        pieces = cut([whole], tasks_min)
        assert min(tasks_min, 25) <= len(pieces) <= 25
        assert [piece.first for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
        assert (pieces[0].first, pieces[-1].end) == (10, 35)
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
    assert len(cut([Span("s", None, 0, 1_000_000)], 1)) == 4, "no task has more than it can repeat in seconds"
    assert cut([], 5) == []
