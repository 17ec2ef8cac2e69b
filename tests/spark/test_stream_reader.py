"""The reader of a stream, called as Spark calls it; on leveret and on RabbitMQ."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest import mock

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows

from leveret.client import BlockingChannel
from leveret.spark.brief import HIDDEN, brief
from leveret.spark.source import LeveretDataSource
from leveret.spark.streams import reader as reader_module
from leveret.spark.streams.bounds import QueryStreams
from leveret.spark.streams.errors import NoStream
from leveret.spark.streams.loss import DataLoss

from ..waiting import until
from .streams import ALL, append, batch_reader, bodies, declare, latest, reader, rows, task_rows


def test_a_query_reads_what_there_is_and_goes_on(url: str, channel: BlockingChannel, stream: str) -> None:
    source = reader(url, stream)
    appended = append(channel, stream, 0, 25)
    end = latest(source, source.initialOffset())
    assert (end[stream]["first"], end[stream]["next"]) == (0, 25)
    found = rows(source, {}, end)
    assert bodies(found) == appended
    assert [(row["offset"], row["stream"]) for row in found] == [(number, stream) for number in range(25)]
    assert (found[11]["message_id"], found[11]["headers"]) == ("id-11", [("n", "2")])
    assert (found[0]["exchange"], found[0]["routing_key"], found[0]["arrived"]) == ("", stream, None)
    assert source.latestOffset(end, ALL) is end
    more = append(channel, stream, 25, 3)
    after = latest(source, end)
    assert after == {stream: {"id": end[stream]["id"], "next": 28}}
    assert bodies(rows(source, end, after)) == more
    source.stop()


def test_a_repeated_micro_batch_has_the_same_messages(url: str, channel: BlockingChannel, stream: str) -> None:
    """Spark asks for initialOffset again after a crash in the first micro-batch: "latest" must not move then."""
    append(channel, stream, 0, 10)
    crashed = reader(url, stream, startingOffsets="latest")
    begun = latest(crashed, crashed.initialOffset())
    assert (begun[stream]["first"], begun[stream]["next"]) == (10, 10), "its place is in the checkpoint at once"
    assert list(crashed.partitions({}, begun)) == []
    appended = append(channel, stream, 10, 5)
    end = latest(crashed, {})
    assert (end[stream]["first"], end[stream]["next"]) == (10, 15)
    assert bodies(rows(crashed, {}, end)) == appended
    crashed.stop()
    append(channel, stream, 15, 5)
    restarted = reader(url, stream, startingOffsets="latest")
    assert restarted.initialOffset() == {}
    assert bodies(rows(restarted, {}, end)) == appended
    assert latest(restarted, end)[stream]["next"] == 20
    restarted.stop()


@pytest.mark.parametrize(
    ("option", "first"),
    [("earliest", 0), ("latest", 10), ("7", 7), ("10", 10), ('{"STREAM": 3}', 3), ('{"STREAM": "latest"}', 10)],
)
def test_where_a_query_begins(url: str, channel: BlockingChannel, stream: str, option: str, first: int) -> None:
    append(channel, stream, 0, 10)
    source = reader(url, stream, startingOffsets=option.replace("STREAM", stream))
    assert latest(source, {})[stream]["first"] == first
    source.stop()


def test_a_query_begins_at_a_time(url: str, channel: BlockingChannel, stream: str) -> None:
    append(channel, stream, 0, 10)
    past, future = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(days=1)
    for option, text, first in (
        ("startingOffsets", past.isoformat(), 0),
        ("startingTimestamp", str(int(past.timestamp() * 1000)), 0),
        ("startingTimestamp", future.isoformat(), 10),
    ):
        source = reader(url, stream, **{option: text})
        assert latest(source, {})[stream]["first"] == first
        source.stop()


def test_a_place_that_is_not_there_yet_is_refused(url: str, channel: BlockingChannel, stream: str) -> None:
    append(channel, stream, 0, 10)
    with pytest.raises(
        ValueError, match=r"option startingOffsets: .* ends before offset 10; reading cannot begin at 11"
    ):
        latest(reader(url, stream, startingOffsets="11"), {})
    with pytest.raises(ValueError, match="option startingOffsets names stream 'other', but the query reads "):
        latest(reader(url, stream, startingOffsets='{"other": 1}'), {})


def test_a_micro_batch_has_no_more_rows_than_asked_for(url: str, channel: BlockingChannel, stream: str) -> None:
    appended = append(channel, stream, 0, 25)
    source = reader(url, stream, maxRowsPerTrigger="10")
    limit = source.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    offset, found, sizes = source.initialOffset(), [], []
    while (end := latest(source, offset, limit)) != offset:
        batch = rows(source, offset, end)
        sizes.append(len(batch))
        found += batch
        offset = end
    assert (bodies(found), sizes) == (appended, [10, 10, 5])
    assert latest(source, {}, ALL)[stream]["next"] == 25, "a trigger that asks for all gets all"
    source.stop()


def test_a_micro_batch_has_about_so_many_octets(url: str, channel: BlockingChannel, stream: str) -> None:
    append(channel, stream, 0, 40, bytes(10_000))
    source = reader(url, stream, maxBytesPerTrigger="105000")
    limit = source.getDefaultReadLimit()
    assert limit == ReadMaxBytes(105_000)
    assert latest(source, {}, limit)[stream]["next"] == 10
    assert latest(source, {}, ReadMaxBytes(1))[stream]["next"] == 1, "or nothing would ever come"
    source.stop()
    source = reader(url, stream, maxBytesPerTrigger="105000", maxRowsPerTrigger="30")
    assert latest(source, {}, source.getDefaultReadLimit())[stream]["next"] == 10
    source.stop()


def test_available_now_ends_where_the_stream_ended_when_it_began(
    url: str, channel: BlockingChannel, stream: str
) -> None:
    appended = append(channel, stream, 0, 25)
    source = reader(url, stream, maxRowsPerTrigger="20")
    source.prepareForTriggerAvailableNow()
    append(channel, stream, 25, 5)
    limit = source.getDefaultReadLimit()
    first = latest(source, source.initialOffset(), limit)
    second = latest(source, first, limit)
    assert source.latestOffset(second, limit) is second
    assert bodies(rows(source, {}, first) + rows(source, first, second)) == appended
    source.stop()


def test_available_now_on_the_latest_message_leaves_a_place(url: str, channel: BlockingChannel, stream: str) -> None:
    append(channel, stream, 0, 5)
    first = reader(url, stream, startingOffsets="latest")
    first.prepareForTriggerAvailableNow()
    place = latest(first, {})
    first.stop()
    appended = append(channel, stream, 5, 3)
    second = reader(url, stream, startingOffsets="latest")
    second.prepareForTriggerAvailableNow()
    assert bodies(rows(second, place, latest(second, place))) == appended
    second.stop()


def test_progress_tells_how_far_behind_it_is(url: str, channel: BlockingChannel, stream: str) -> None:
    append(channel, stream, 0, 25)
    source = reader(url, stream)
    assert source.reportLatestOffset() is None
    end = latest(source, {}, ReadMaxRows(10))
    assert source.reportLatestOffset() == {stream: {"id": end[stream]["id"], "next": 25, "lag": 15}}
    source.stop()


def test_a_span_is_cut_into_tasks(url: str, channel: BlockingChannel, stream: str) -> None:
    appended = append(channel, stream, 0, 25)
    source = reader(url, stream, minPartitions="4")
    end = latest(source, {})
    tasks = list(source.partitions({}, end))
    assert len(tasks) >= 4
    assert bodies(task_rows(source, tasks)) == appended
    source.stop()


def test_a_batch_query_reads_from_place_to_place(url: str, channel: BlockingChannel, stream: str) -> None:
    appended = append(channel, stream, 0, 25)
    for options, expected in (
        ({}, appended),
        ({"startingOffsets": "5", "endingOffsets": "20", "minPartitions": "3"}, appended[5:20]),
        ({"startingOffsets": "latest"}, []),
        ({"startingOffsets": "20", "endingOffsets": "5"}, []),
        ({"endingTimestamp": "2020-01-01"}, []),
    ):
        source = batch_reader(url, stream, **options)
        assert bodies(task_rows(source, source.partitions())) == expected


@pytest.fixture
def super_stream(channel: BlockingChannel, stream: str) -> Iterator[str]:
    """Partitions -0 to -2 and -emea beside a stream; the super stream's name alone is no stream."""
    name = f"super.{stream}"
    names = [f"{name}-{partition}" for partition in ("0", "1", "2", "emea")]
    for each in names:
        declare(channel, each)
    yield name
    for each in names:
        channel.delete_queue(each)


def test_partitions_are_found_or_named(url: str, channel: BlockingChannel, super_stream: str) -> None:
    for number, partition in enumerate(("0", "1", "2", "emea")):
        append(channel, f"{super_stream}-{partition}", 0, 2 + number)
    for option, lengths in (
        (None, {"0": 2, "1": 3, "2": 4}),
        ("2", {"0": 2, "1": 3}),
        ("emea,1", {"emea": 5, "1": 3}),
    ):
        source = reader(url, super_stream, **({} if option is None else {"partitions": option}))
        end = latest(source, {})
        expected = {f"{super_stream}-{partition}": length for partition, length in lengths.items()}
        assert {name: position["next"] for name, position in end.items()} == expected
        assert sorted(row["stream"] for row in rows(source, {}, end)) == sorted(
            name for name, length in expected.items() for _ in range(length)
        )
        source.stop()


def test_partitions_catch_up_together(url: str, channel: BlockingChannel, super_stream: str) -> None:
    names = [f"{super_stream}-{partition}" for partition in range(3)]
    for name, count in zip(names, (40, 20, 0), strict=True):
        append(channel, name, 0, count)
    source = reader(url, super_stream)
    end = latest(source, {}, ReadMaxRows(30))
    assert [end[name]["next"] for name in names] == [20, 10, 0]
    append(channel, names[2], 0, 1)
    after = latest(source, end, ReadMaxRows(10))
    assert after[names[2]]["next"] == 1
    assert len(rows(source, end, after)) == 10
    source.stop()


def test_what_is_no_stream_is_refused(url: str, channel: BlockingChannel, queue: str) -> None:
    channel.publish(b"stays", "", queue)
    channel.wait_for_confirms(30)
    with pytest.raises(NoStream, match=f"'{queue}' is a queue, not a stream: use option queue"):
        latest(reader(url, queue), {})
    with pytest.raises(NoStream, match=r"there is no stream 'nowhere', and no super stream .* see option stream"):
        latest(reader(url, "nowhere"), {})
    with pytest.raises(NoStream, match=r"there is no stream 'nowhere-a' .* see options stream and partitions"):
        latest(reader(url, "nowhere", partitions="a"), {})
    until(lambda: channel.declare_queue(queue, passive=True).message_count == 1, "it is not there any more")


def shown(error: BaseException) -> list[str]:
    """Return the lines that Spark shows of a Python error, without those of its own worker."""
    return "".join(traceback.format_exception(error)).splitlines()


def test_the_reason_is_not_buried(url: str, channel: BlockingChannel) -> None:
    source = reader(url, "nowhere")
    for ask in (lambda: latest(source, {}), lambda: list(batch_reader(url, "nowhere").partitions())):
        with pytest.raises(NoStream) as caught:
            ask()
        lines = shown(caught.value)
        assert lines[-1].startswith("leveret.spark.streams.errors.NoStream: there is no stream 'nowhere'")
        assert not any("bounds.py" in line or "idle_timeout.py" in line for line in lines)
    source.stop()


def test_a_worker_of_spark_shows_nothing_but_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a worker, a traceback would hide the reason. Other processes show it."""

    @brief(NoStream)
    def called() -> None:
        raise NoStream("s")

    @brief(NoStream)
    def yielding() -> Iterator[int]:
        yield 1
        raise NoStream("s")

    for fails in (called, lambda: list(yielding())):
        for module, hidden in (("pytest.__main__", ""), ("pyspark.daemon", "1"), ("leveret.spark_daemon", "1")):
            monkeypatch.setenv(HIDDEN, "")
            main = ModuleType("__main__")
            main.__spec__ = ModuleSpec(module, None)
            monkeypatch.setitem(sys.modules, "__main__", main)
            with pytest.raises(NoStream):
                fails()
            assert os.environ[HIDDEN] == hidden


def test_what_there_is_not_is_told_when_it_is_loaded(url: str, channel: BlockingChannel, stream: str) -> None:
    source = LeveretDataSource({"url": url, "stream": "nowhere"})
    with pytest.raises(NoStream, match=r"there is no stream 'nowhere'.* failOnDataLoss=false") as caught:
        source.schema()
    assert len(shown(caught.value)) < 12
    there = ({"stream": stream}, {"stream": "nowhere", "failOnDataLoss": "false"})
    for options in there:
        assert "body" in LeveretDataSource({"url": url, **options}).schema().names
    away = url.rsplit("@", 1)[0] + "@localhost:1/"
    assert "body" in LeveretDataSource({"url": away, "stream": "nowhere"}).schema().names


def test_offsets_without_messages_are_no_loss(url: str, channel: BlockingChannel) -> None:
    """RabbitMQ adds entries of its own to a stream, at least at the beginning of each file; they have offsets, too."""
    name = f"files.{id(channel)}"
    declare(channel, name, x_stream_max_segment_size_bytes=5_000)
    try:
        appended = append(channel, name, 0, 60, b"." * 1000)
        source = reader(url, name, maxRowsPerTrigger="7", minPartitions="2")
        offset, found = source.initialOffset(), []
        while (end := latest(source, offset, source.getDefaultReadLimit())) != offset:
            found += rows(source, offset, end)
            offset = end
        assert bodies(found) == appended
        source.stop()
    finally:
        channel.delete_queue(name)


def test_while_nothing_comes_the_broker_is_asked_nothing(
    url: str, channel: BlockingChannel, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "ASK_S", 3600.0)
    append(channel, stream, 0, 5)
    source = reader(url, stream)
    end = latest(source, {})
    assert latest(source, end) == end
    with mock.patch.object(QueryStreams, "bounds", side_effect=AssertionError("asked")):
        for _ in range(5):
            assert latest(source, end) == end
    for first in (5, 10):
        appended = append(channel, stream, first, 5)
        start = end
        until(lambda start=start: latest(source, start) != start, "nobody has heard it")
        end = latest(source, start)
        assert bodies(rows(source, start, end)) == appended
        assert latest(source, end) == end
    source.stop()


def test_a_stream_that_goes_while_nothing_comes_is_noticed(
    url: str, channel: BlockingChannel, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "ASK_S", 3600.0)
    source = reader(url, stream)
    end = latest(source, {})
    assert latest(source, end) == end
    channel.delete_queue(stream)

    def is_noticed() -> bool:
        try:
            return latest(source, end) != end
        except DataLoss:
            return True

    until(is_noticed, "it still waits for a stream that is gone")
    source.stop()
