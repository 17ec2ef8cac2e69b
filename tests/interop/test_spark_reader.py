"""The stream reader by itself, called as Spark calls it; on leveret and on a RabbitMQ."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from leveret.client import BlockingChannel, BlockingConnection, ConnectionClosed, ConsumerCancelled
from leveret.spark import reader as reader_module
from leveret.spark.columns import SOURCE_SCHEMA, arrow_schema
from leveret.spark.options import SourceOptions
from leveret.spark.reader import QueueReader
from leveret.spark.subscription import Subscription

SCHEMA = arrow_schema(StructType([SOURCE_SCHEMA["body"], SOURCE_SCHEMA["redelivered"]]))


@pytest.fixture
def channel(url: str) -> Iterator[BlockingChannel]:
    with BlockingConnection(url) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


@pytest.fixture
def queue(channel: BlockingChannel) -> Iterator[str]:
    name = f"reader.{uuid.uuid4().hex[:12]}"
    channel.declare_queue(name)
    yield name
    channel.delete_queue(name)


@pytest.fixture
def reader(url: str, queue: str) -> Iterator[QueueReader]:
    reader = QueueReader(SourceOptions(queue, url, rows_max=10), SCHEMA)
    yield reader
    reader.close()


def fill(channel: BlockingChannel, queue: str, first: int, count: int) -> list[bytes]:
    bodies = [str(number).encode() for number in range(first, first + count)]
    for body in bodies:
        channel.publish(body, routing_key=queue)
    channel.wait_for_confirms(30)
    return bodies


def take(reader: QueueReader, offset: int) -> tuple[list[bytes], int]:
    """Read once: the bodies and the offset behind them."""
    batches, end = reader.read({"messages": offset})
    return [row["body"] for batch in batches for row in batch.to_pylist()], end["messages"]


def take_until(reader: QueueReader, offset: int, end: int) -> list[bytes]:
    """Read until the offset is reached; the broker may need some reads to deliver."""
    bodies: list[bytes] = []
    deadline = time.monotonic() + 20
    while offset < end:
        assert time.monotonic() < deadline, f"stays at {offset}"
        found, offset = take(reader, offset)
        bodies += found
    return bodies


def left(channel: BlockingChannel, queue: str) -> int:
    """Messages in the queue when no consumer is left."""
    deadline = time.monotonic() + 20
    pause = threading.Event()
    while (info := channel.declare_queue(queue, passive=True)).consumer_count:
        assert time.monotonic() < deadline, "the consumer is still there"
        pause.wait(0.02)
    return info.message_count


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
    monkeypatch.setattr(reader_module, "RETRY_S", 0.01)
    # at least once: the acknowledgement is lost with the connection, so the messages come again
    assert take_until(reader, 5, 10) == bodies


def test_a_broker_that_stays_away_fails_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "RECONNECT_S", 0.05)
    monkeypatch.setattr(reader_module, "RETRY_S", 0.01)
    nobody = QueueReader(SourceOptions("q", "amqp://127.0.0.1:1/"), SCHEMA)
    with pytest.raises(ConnectionClosed, match="cannot connect"):
        nobody.read({"messages": 0})


def test_a_deleted_queue_fails_the_query(reader: QueueReader, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 0, 1)
    take_until(reader, 0, 1)
    channel.delete_queue(queue)
    with pytest.raises(ConsumerCancelled):
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
    reader: QueueReader, channel: BlockingChannel, queue: str
) -> None:
    fill(channel, queue, 0, 5)
    reader.prepareForTriggerAvailableNow()
    reader._remaining = 8
    assert len(take(reader, 0)[0]) == 5
    assert take(reader, 5) == ([], 5)


def test_available_now_on_an_empty_queue_ends_at_once(reader: QueueReader) -> None:
    reader.prepareForTriggerAvailableNow()
    assert take(reader, 7) == ([], 7)


def test_a_reader_can_be_pickled_before_it_connects() -> None:
    options = SourceOptions("q", "amqp://nowhere/")
    copy: QueueReader = pickle.loads(pickle.dumps(QueueReader(options, SCHEMA)))
    assert copy.initialOffset() == {"messages": 0}
