"""Readers of a stream whose messages are gone: they fail with a reason, or continue if an option says so."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed
from leveret.spark import retry
from leveret.spark.streams.bounds import Bounds
from leveret.spark.streams.continuity import going_on, readable
from leveret.spark.streams.errors import StreamError, explained
from leveret.spark.streams.loss import DataLoss
from leveret.spark.streams.offsets import Span, StreamPosition, parse_offset
from leveret.spark.streams.planning import StreamTask
from leveret.spark.streams.tail import read_tail

from ..waiting import until
from .streams import SHAPE, append, batch_reader, bodies, declare, latest, reader, rows, task_rows

OPTION = "; to continue with the remaining messages, set option failOnDataLoss to false"
BODY = b"." * 1000


@pytest.fixture
def retained(url: str, channel: BlockingChannel) -> Iterator[str]:
    """A stream that has lost some of its oldest messages by retention."""
    name = f"retained.{id(channel)}"
    declare(channel, name, x_max_length_bytes=20_000, x_stream_max_segment_size_bytes=5_000)
    yield name
    channel.delete_queue(name)


def first_offset(url: str, stream: str) -> int:
    return parse_offset(latest(reader(url, stream), {}))[stream].first or 0


def fill_until_some_are_gone(url: str, channel: BlockingChannel, stream: str, count: int = 0) -> list[bytes]:
    """Append to a stream of ``count`` messages until retention has taken some; return the bodies of the new ones."""
    appended: list[bytes] = []

    def is_shorter() -> bool:
        appended.extend(append(channel, stream, count + len(appended), 10, BODY))
        return first_offset(url, stream) > 15

    until(is_shorter, lambda: f"all messages stay, with {len(appended)} new ones")
    return appended


def assert_rest(found: list[dict[str, Any]], first: int, appended: list[bytes]) -> None:
    """Check that these are all messages from ``first`` to the end. (RabbitMQ has offsets without messages.)"""
    assert found
    assert found[0]["offset"] == first
    assert bodies(found) == appended[-len(found) :]


def test_what_retention_took_fails_the_query(
    url: str, channel: BlockingChannel, retained: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(channel, retained, 0, 10, BODY)
    strict = reader(url, retained)
    start = latest(strict, {})
    appended = fill_until_some_are_gone(url, channel, retained, 10)
    first = first_offset(url, retained)
    read = start[retained]["next"]
    gone = f"stream '{retained}' no longer has offsets {read} to {first - 1}: retention removed {first - read} message"
    with pytest.raises(DataLoss, match=f"{re.escape(gone)}.*{OPTION}"):
        latest(strict, start)
    strict.stop()
    lenient = reader(url, retained, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "leveret.spark"):
        end = latest(lenient, start)
    assert gone in caplog.text
    assert end[retained]["first"] == first
    assert_rest(rows(lenient, start, end), first, appended)
    lenient.stop()


def test_what_retention_takes_of_a_planned_micro_batch_fails_it(
    url: str, channel: BlockingChannel, retained: str
) -> None:
    append(channel, retained, 0, 10, BODY)
    planned = latest(reader(url, retained), {})
    fill_until_some_are_gone(url, channel, retained, 10)
    count = planned[retained]["next"]
    assert first_offset(url, retained) > count
    gone = f"stream '{retained}' no longer has offsets 0 to {count - 1}: retention removed {count} messages"
    with pytest.raises(DataLoss, match=re.escape(gone + OPTION)):
        reader(url, retained).partitions({}, planned)
    lenient = reader(url, retained, failOnDataLoss="false")
    assert rows(lenient, {}, planned) == []
    lenient.stop()


def test_a_task_never_passes_over_what_is_gone(url: str, channel: BlockingChannel, retained: str) -> None:
    """Retention may take messages between planning and reading."""
    appended = fill_until_some_are_gone(url, channel, retained)
    bounds = parse_offset(latest(reader(url, retained), {}))[retained]
    span = Span(retained, bounds.id, 0, bounds.next)
    with BlockingConnection(url, reconnect=False) as connection:
        with pytest.raises(DataLoss, match=r"no longer has offsets 0 to \d+: \d+ messages are gone"):
            list(read_tail(connection, span, SHAPE.raw, True))
        found = [row for batch in read_tail(connection, span, SHAPE.raw, False) for row in batch.to_pylist()]
    assert_rest(found, first_offset(url, retained), appended)


def test_a_first_offset_that_is_gone_fails_the_query(url: str, channel: BlockingChannel, retained: str) -> None:
    appended = fill_until_some_are_gone(url, channel, retained)
    first = first_offset(url, retained)
    with pytest.raises(
        DataLoss, match=f"option startingOffsets: stream '{retained}' begins with offset {first}, not 3"
    ):
        latest(reader(url, retained, startingOffsets="3"), {})
    lenient = batch_reader(url, retained, startingOffsets="3", failOnDataLoss="false")
    assert_rest(task_rows(lenient, lenient.partitions()), first, appended)


def test_an_end_that_is_not_there_yet_fails_the_query(url: str, channel: BlockingChannel, stream: str) -> None:
    appended = append(channel, stream, 0, 5)
    what = f"option endingOffsets: stream '{stream}' ends before offset 5, not before 7"
    with pytest.raises(DataLoss, match=what + OPTION):
        batch_reader(url, stream, endingOffsets="7").partitions()
    lenient = batch_reader(url, stream, endingOffsets="7", failOnDataLoss="false")
    assert bodies(task_rows(lenient, lenient.partitions())) == appended


def test_a_stream_that_was_declared_anew_fails_the_query(url: str, channel: BlockingChannel, stream: str) -> None:
    append(channel, stream, 0, 10)
    strict = reader(url, stream)
    start = latest(strict, {})
    strict.stop()
    channel.delete_queue(stream)
    declare(channel, stream)
    appended = append(channel, stream, 0, 4)
    with pytest.raises(DataLoss, match=f"stream '{stream}' .*declared again.*{OPTION}"):
        latest(reader(url, stream), start)
    lenient = reader(url, stream, failOnDataLoss="false")
    end = latest(lenient, start)
    assert (end[stream]["first"], end[stream]["next"]) == (0, 4)
    assert bodies(rows(lenient, start, end)) == appended
    lenient.stop()


def test_an_id_tells_streams_apart_that_are_alike(broker: str) -> None:
    """The new stream has as many messages as the old one: only its creation time differs."""
    with BlockingConnection(broker, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        declare(channel, "alike")
        append(channel, "alike", 0, 10)
        source = reader(broker, "alike")
        start = latest(source, {})
        append(channel, "alike", 10, 5)
        planned = latest(source, start)
        tasks = source.partitions(start, planned)
        channel.delete_queue("alike")
        declare(channel, "alike")
        append(channel, "alike", 0, 20)
        for attempt in (
            lambda: latest(reader(broker, "alike"), start),
            lambda: reader(broker, "alike").partitions(start, planned),
            lambda: task_rows(source, tasks),
        ):
            with pytest.raises(DataLoss, match="stream 'alike' was deleted and declared again"):
                attempt()
        channel.delete_queue("alike")
        source.stop()


def test_a_stream_that_is_gone_fails_the_query(
    url: str, channel: BlockingChannel, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(channel, stream, 0, 10)
    strict = reader(url, stream)
    planned = latest(strict, {})
    tasks = strict.partitions({}, planned)
    channel.delete_queue(stream)
    with pytest.raises(DataLoss, match=f"there is no stream '{stream}' .*{OPTION}"):
        latest(strict, planned)
    with pytest.raises(DataLoss, match=f"stream '{stream}' is gone, and 10 messages with it.*{OPTION}"):
        task_rows(strict, tasks)
    restarted = reader(url, stream)
    with pytest.raises(DataLoss, match=f"stream '{stream}' is gone, and 10 messages with it.*{OPTION}"):
        restarted.partitions({}, planned)
    lenient = reader(url, stream, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "leveret.spark"):
        assert latest(lenient, planned) == planned
    assert f"there is no stream '{stream}'" in caplog.text
    assert rows(lenient, {}, planned) == []
    declare(channel, stream)
    appended = append(channel, stream, 0, 3)
    end = latest(lenient, planned)
    assert bodies(rows(lenient, planned, end)) == appended, "it goes on when the stream is there again"
    for each in (strict, restarted, lenient):
        each.stop()


@pytest.mark.parametrize(
    ("position", "bounds", "goes_on", "text"),
    [
        (StreamPosition(5, "a"), Bounds(0, 9, "a"), 5, None),
        (StreamPosition(9, "a"), Bounds(9, 9, "a"), 9, None),
        (StreamPosition(5, "a"), Bounds(0, 9, "b"), 0, "deleted and declared again"),
        (StreamPosition(5), Bounds(0, 9, "b"), 0, "was of a broker without ids"),
        (StreamPosition(5, "a"), Bounds(6, 9, "a"), 6, "offsets 5 to 5: retention removed 1 message;"),
        (StreamPosition(5, "a"), Bounds(0, 4, "a"), 4, "ends before offset 4, but was to be read up to 4"),
        (StreamPosition(5), Bounds(0, 4), 0, "declared again"),
    ],
)
def test_where_a_query_goes_on(position: StreamPosition, bounds: Bounds, goes_on: int, text: str | None) -> None:
    assert going_on("s", position, bounds, is_loss_failure=False) == goes_on
    if text is not None:
        with pytest.raises(DataLoss, match=text):
            going_on("s", position, bounds, is_loss_failure=True)
    else:
        assert going_on("s", position, bounds, is_loss_failure=True) == goes_on


def test_what_is_there_of_a_span() -> None:
    whole = Span("s", "a", 5, 9)
    assert readable(whole, Bounds(5, 9, "a"), is_loss_failure=True) == whole
    lost: list[Any] = [Bounds(6, 9, "a"), Bounds(0, 8, "a"), Bounds(0, 20, "b"), Bounds(9, 20, "a"), None]
    found = [Span("s", "a", 6, 9), Span("s", "a", 5, 8), None, None, None]
    for bounds, expected in zip(lost, found, strict=True):
        assert readable(whole, bounds, is_loss_failure=False) == expected
        with pytest.raises(DataLoss):
            readable(whole, bounds, is_loss_failure=True)


def test_who_is_not_let_in_is_told_which_option_to_change(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RECONNECT_S", 0.05)
    monkeypatch.setattr(retry, "RETRY_S", 0.01)
    wrong, nobody = broker.replace("guest:guest", "guest:wrong"), "amqp://guest:guest@127.0.0.1:1/"
    for url, message in (
        (wrong, r"the broker refused the connection: .* correct user and password in option url"),
        (nobody, r"cannot connect to 127.0.0.1:1: .* is option url correct, and is the broker running\?"),
    ):
        for attempt in (
            lambda url=url: latest(reader(url, "s"), {}),
            lambda url=url: batch_reader(url, "s").partitions(),
            lambda url=url: list(reader(url, "s").read(StreamTask(Span("s", None, 0, 1)))),
        ):
            with pytest.raises(StreamError, match=message):
                attempt()


def test_who_may_not_read_is_told_which_option_to_change() -> None:
    with pytest.raises(StreamError, match="give the user of option url the permission to read it"), explained():
        raise ChannelClosed(403, "ACCESS_REFUSED - read access to queue 's' in vhost '/' refused for user 'u'")
