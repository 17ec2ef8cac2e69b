"""The streaming reader of queues, called as Spark calls it; on leveret and on RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from leveret.client import BlockingChannel, ChannelClosed, ConnectionClosed
from leveret.spark import retry
from leveret.spark.queues.errors import SourceError, explained
from leveret.spark.queues.options import QueueOptions
from leveret.spark.queues.reader import QueueReader
from leveret.spark.queues.subscription import Subscription
from leveret.spark.rows.columns import QUEUE_SCHEMA
from leveret.spark.rows.shape import RowOptions

from ..waiting import until
from .support import left, sent

SHAPE = RowOptions().shape(StructType([QUEUE_SCHEMA["body"], QUEUE_SCHEMA["redelivered"]]), QUEUE_SCHEMA)


@pytest.fixture
def reader(url: str, queue: str) -> Iterator[QueueReader]:
    reader = QueueReader(QueueOptions(queue, url, rows_max=10), SHAPE)
    yield reader
    reader.close()


def fill(channel: BlockingChannel, queue: str, first: int, count: int) -> list[bytes]:
    bodies = [str(number).encode() for number in range(first, first + count)]
    for body in bodies:
        channel.publish(body, routing_key=queue)
    channel.wait_for_confirms(30)
    return bodies


def take(reader: QueueReader, offset: int) -> tuple[list[bytes], int]:
    """Read once; return the bodies and the next offset."""
    batches, end = reader.read({"messages": offset})
    return [row["body"] for batch in batches for row in batch.to_pylist()], end["messages"]


def take_until(reader: QueueReader, offset: int, end: int) -> list[bytes]:
    """Read until the offset is reached; the broker may need several reads to deliver."""
    bodies: list[bytes] = []

    def is_reached() -> bool:
        nonlocal offset
        found, offset = take(reader, offset)
        bodies.extend(found)
        return offset >= end

    until(is_reached, lambda: f"stays at {offset}")
    return bodies


def test_a_batch_is_acknowledged_when_the_next_one_is_asked_for(
    reader: QueueReader, channel: BlockingChannel, queue: str
) -> None:
    bodies = fill(channel, queue, 0, 25)
    assert reader.initialOffset() == {"messages": 0}
    first = take_until(reader, 0, 10)
    reader.close()
    assert left(channel, queue) == 25, "nothing is acknowledged before the next read"
    assert first == bodies[:10]
    assert take_until(reader, 0, 10) == bodies[:10]
    assert take_until(reader, 10, 20) == bodies[10:20]
    reader.close()
    assert left(channel, queue) == 15


def test_a_batch_has_no_more_rows_than_asked_for(reader: QueueReader, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 0, 35)
    offset, found = 0, []
    while len(found) < 35:
        rows, offset = take(reader, offset)
        assert len(rows) <= 10
        found += rows
    assert found == bodies
    assert take(reader, offset) == ([], 35)


def test_octets_end_a_batch(url: str, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 10, 10)
    reader = QueueReader(QueueOptions(queue, url, octets_max=5), SHAPE)
    reader.prepareForTriggerAvailableNow()
    offset = 0
    for first in (0, 3, 6):
        found, offset = take(reader, offset)
        assert found == bodies[first : first + 3]
    assert take(reader, offset) == (bodies[9:], 10)
    assert take(reader, 10) == ([], 10)
    reader.close()
    assert left(channel, queue) == 0


def test_the_offset_says_how_many_wait(reader: QueueReader, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 0, 25)
    reader.prepareForTriggerAvailableNow()
    ends = []
    start = reader.initialOffset()
    while True:
        _, end = reader.read(start)
        if end == start:
            break
        ends.append(end)
        start = end
    assert ends == [
        {"messages": 10, "waiting": 15},
        {"messages": 20, "waiting": 5},
        {"messages": 25, "waiting": 0},
    ]


def test_an_acknowledgement_that_comes_too_late_is_explained(
    reader: QueueReader, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(channel, queue, 0, 1)
    take_until(reader, 0, 1)
    refused = ChannelClosed(406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout ...")

    def late(self: BlockingChannel, tag: int, multiple: bool = False) -> None:
        raise refused

    monkeypatch.setattr(BlockingChannel, "ack", late)
    with pytest.raises(SourceError, match=r"trigger more often, .*maxRowsPerTrigger.*consumer_timeout.*mode to spool"):
        reader.read({"messages": 1})


def test_a_batch_that_spark_drops_is_delivered_again(reader: QueueReader, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 0, 5)
    take_until(reader, 0, 5)
    assert take_until(reader, 0, 5) == bodies


def test_the_replay_of_a_planned_batch_is_empty(reader: QueueReader) -> None:
    assert list(reader.readBetweenOffsets({"messages": 0}, {"messages": 10})) == []


def test_a_restart_goes_on_counting(reader: QueueReader, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 0, 3)
    assert len(take_until(reader, 1000, 1003)) == 3


def test_a_lost_connection_is_made_again(
    reader: QueueReader, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = fill(channel, queue, 0, 5)
    take_until(reader, 0, 5)
    acknowledge = Subscription.acknowledge

    def lost(self: Subscription, offset: int) -> None:
        monkeypatch.setattr(Subscription, "acknowledge", acknowledge)
        raise ConnectionClosed(0, "the cable is cut")

    monkeypatch.setattr(Subscription, "acknowledge", lost)
    monkeypatch.setattr(retry, "RETRY_S", 0.01)
    # at least once: the acknowledgement is lost with the connection, so the messages are redelivered
    assert take_until(reader, 5, 10) == bodies


def test_a_broker_that_stays_away_fails_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RECONNECT_S", 0.05)
    monkeypatch.setattr(retry, "RETRY_S", 0.01)
    nobody = QueueReader(QueueOptions("q", "amqp://127.0.0.1:1/"), SHAPE)
    with pytest.raises(SourceError, match=r"cannot connect .* option url"):
        nobody.read({"messages": 0})


def test_a_deleted_queue_fails_the_query(reader: QueueReader, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 0, 1)
    take_until(reader, 0, 1)
    channel.delete_queue(queue)
    with pytest.raises(SourceError, match="was deleted while it was read"):
        take_until(reader, 1, 2)


def test_available_now_takes_what_was_there_and_nothing_that_came_later(
    reader: QueueReader, channel: BlockingChannel, queue: str
) -> None:
    bodies = fill(channel, queue, 0, 25)
    reader.prepareForTriggerAvailableNow()
    fill(channel, queue, 25, 10)
    found, offset = [], 0
    for rows in (10, 10, 5, 0):
        taken, offset = take(reader, offset)
        assert len(taken) == rows
        found += taken
    assert found == bodies
    reader.close()
    assert left(channel, queue) == 10, "what was taken is acknowledged, what came later is back"


def test_available_now_ends_where_someone_else_took_the_rest(
    reader: QueueReader, channel: BlockingChannel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(channel, queue, 0, 5)
    reader.prepareForTriggerAvailableNow()
    reader._remaining = 8
    assert len(take(reader, 0)[0]) == 5
    assert take(reader, 5) == ([], 5)
    assert "3 messages are gone: purged, expired or taken by another consumer" in caplog.text


def test_available_now_on_an_empty_queue_ends_at_once(reader: QueueReader) -> None:
    reader.prepareForTriggerAvailableNow()
    assert take(reader, 7) == ([], 7)


def test_a_reader_can_be_pickled_before_it_connects() -> None:
    options = QueueOptions("q", "amqp://nowhere/")
    copy: QueueReader = sent(QueueReader(options, SHAPE))
    assert copy.initialOffset() == {"messages": 0}


def test_a_queue_that_may_not_be_read_is_told_with_the_option() -> None:
    refused = "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'guest'"
    with pytest.raises(SourceError, match="give the user of option url the permission to read 'q'"), explained("q"):
        raise ChannelClosed(403, refused)
