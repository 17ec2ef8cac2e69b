"""The reader of mode=spool, called as Spark calls it; on leveret and on RabbitMQ."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from leveret.client import BlockingChannel, ChannelClosed, ConnectionClosed, Properties
from leveret.spark import retry
from leveret.spark.queues.errors import SourceError
from leveret.spark.queues.options import QueueOptions, SpoolOptions
from leveret.spark.queues.spool import filling
from leveret.spark.queues.spool.files import SpoolFiles
from leveret.spark.queues.spool.spool import Spool
from leveret.spark.queues.spooling import SpoolReader
from leveret.spark.queues.subscription import Subscription
from leveret.spark.rows.columns import QUEUE_SCHEMA
from leveret.spark.rows.shape import RowOptions

from ..waiting import until
from .support import left, sent

SHAPE = RowOptions().shape(StructType([QUEUE_SCHEMA["body"], QUEUE_SCHEMA["message_id"]]), QUEUE_SCHEMA)
ROWS = ReadMaxRows(10)


class Queries:
    """Readers of one queue and directory, one after another, like restarts of a query."""

    def __init__(self, url: str, queue: str, directory: Path) -> None:
        self.options = QueueOptions(queue, url, rows_max=10)
        self.spool_options = SpoolOptions(str(directory))
        self._reader: SpoolReader | None = None

    def start(self, files: SpoolFiles | None = None, **options: Any) -> SpoolReader:
        self.stop()
        spool_options = SpoolOptions(**{"directory": self.spool_options.directory, **options})
        self._reader = SpoolReader(self.options, spool_options, SHAPE, files)
        return self._reader

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()
            self._reader = None


@pytest.fixture
def queries(url: str, queue: str, tmp_path: Path) -> Iterator[Queries]:
    queries = Queries(url, queue, tmp_path / "spool")
    yield queries
    queries.stop()


def fill(channel: BlockingChannel, queue: str, first: int, count: int, *, has_ids: bool = True) -> list[bytes]:
    bodies = [str(number).encode() for number in range(first, first + count)]
    for body in bodies:
        properties = Properties(message_id=f"id-{body.decode()}" if has_ids else None, headers={"a": "b"})
        channel.publish(body, routing_key=queue, properties=properties)
    channel.wait_for_confirms(30)
    return bodies


def rows(reader: SpoolReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """Return the bodies of a micro-batch, read as executors do."""
    parts = sent(reader.partitions(start, end))
    task = sent(SpoolReader(reader._options, reader._spool_options, SHAPE))
    return [row["body"] for part in parts for batch in task.read(part) for row in batch.to_pylist()]


def advance(reader: SpoolReader, start: dict[str, Any], messages: int) -> dict[str, Any]:
    """Ask until `messages` messages are planned; a broker may need some time to deliver."""
    end = start

    def is_reached() -> bool:
        nonlocal end
        end = reader.latestOffset(end, ROWS)
        return bool(end["messages"] >= messages)

    until(is_reached, lambda: f"stays at {end}")
    return end


def test_messages_are_planned_in_order_and_acknowledged_at_once(
    queries: Queries, channel: BlockingChannel, queue: str
) -> None:
    bodies = fill(channel, queue, 0, 25)
    reader = queries.start()
    start = reader.initialOffset()
    assert start["messages"] == 0
    first = advance(reader, start, 10)
    assert first == {"spool": start["spool"], "messages": 10}
    assert rows(reader, start, first) == bodies[:10]
    last = advance(reader, first, 25)
    assert rows(reader, first, last) == bodies[10:]
    assert rows(reader, start, first) == bodies[:10], "a micro-batch is the same whenever it is planned"
    assert reader.latestOffset(last, ROWS) == last
    queries.stop()
    assert left(channel, queue) == 0


def test_a_restart_plans_what_is_on_the_disk(queries: Queries, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 0, 10)
    start = queries.start().initialOffset()
    end = advance(queries.start(), start, 10)
    later = fill(channel, queue, 10, 10)
    reader = queries.start()
    assert reader.initialOffset() == start, "nothing was committed"
    assert rows(reader, start, end) == bodies, "the batch that was planned before"
    assert reader.latestOffset(start, ROWS) == end
    assert rows(reader, end, advance(reader, end, 20)) == later


def test_commit_makes_room_and_keeps_what_may_come_again(
    queries: Queries, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    reader = queries.start()
    offset = reader.initialOffset()
    for number in range(4):
        fill(channel, queue, 10 * number, 10)
        offset = advance(reader, offset, 10 * number + 10)
    names = sorted(path.suffix for path in (tmp_path / "spool").glob("0*"))
    assert names == [".arrow"] * 4, "nothing goes before it is committed"
    reader.commit({**offset, "messages": 30})
    names = sorted(path.suffix for path in (tmp_path / "spool").glob("0*"))
    assert names == [".arrow", ".done"]
    assert queries.start().initialOffset()["messages"] == 30
    assert len(rows(queries.start(), {**offset, "messages": 30}, offset)) == 10


def test_a_crash_before_the_acknowledgement_brings_no_message_twice(
    queries: Queries, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = fill(channel, queue, 0, 10)
    reader = queries.start()
    start = reader.initialOffset()

    def killed(self: Subscription, tag: int) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Subscription, "acknowledge", killed)
        with pytest.raises(SystemExit):
            advance(reader, start, 10)
    queries.stop()
    assert left(channel, queue) == 10, "they are in the spool and in the queue"
    bodies += fill(channel, queue, 10, 5)
    reader = queries.start()
    end = advance(reader, start, 15)
    assert end["messages"] == 15
    assert rows(reader, start, end) == bodies
    assert reader.latestOffset(end, ROWS) == end
    queries.stop()
    assert left(channel, queue) == 0


def test_a_quorum_queue_counts_deliveries_and_its_messages_are_known_all_the_same(
    url: str, channel: BlockingChannel, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{queue}.quorum"
    channel.declare_queue(name, arguments={"x-queue-type": "quorum"})
    queries = Queries(url, name, tmp_path / "spool")
    bodies = fill(channel, name, 0, 10)
    reader = queries.start()
    start = reader.initialOffset()
    with monkeypatch.context() as patch:
        patch.setattr(Subscription, "acknowledge", lambda self, tag: None)
        advance(reader, start, 10)
    queries.stop()
    until(lambda: channel.declare_queue(name, passive=True)[1:] == (10, 0), "they do not come back")
    bodies += fill(channel, name, 10, 1)
    reader = queries.start()
    end = advance(reader, start, 11)
    assert rows(reader, start, end) == bodies
    queries.stop()
    channel.delete_queue(name)


@pytest.mark.parametrize(("knows_content", "expected"), [(False, 20), (True, 10)])
def test_messages_without_an_id_come_twice_unless_their_content_counts(
    queries: Queries,
    channel: BlockingChannel,
    queue: str,
    monkeypatch: pytest.MonkeyPatch,
    knows_content: bool,
    expected: int,
) -> None:
    fill(channel, queue, 0, 10, has_ids=False)
    reader = queries.start(knows_content=knows_content)
    start = reader.initialOffset()
    with monkeypatch.context() as patch:
        patch.setattr(Subscription, "acknowledge", lambda self, tag: None)
        advance(reader, start, 10)
    queries.stop()
    assert left(channel, queue) == 10
    reader = queries.start(knows_content=knows_content)
    assert reader.latestOffset(start, ROWS)["messages"] == 10
    reader.prepareForTriggerAvailableNow()
    end = start
    while (after := reader.latestOffset(end, ROWS)) != end:
        end = after
    assert end["messages"] == expected


class FullFiles(SpoolFiles):
    """A disk without room for messages."""

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        if "spool.json" not in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, data)


def test_what_was_not_written_is_not_acknowledged(queries: Queries, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 0, 10)
    reader = queries.start(FullFiles())
    start = reader.initialOffset()
    with pytest.raises(SourceError, match=r"No space left on device; nothing of it was acknowledged"):
        advance(reader, start, 10)
    queries.stop()
    assert left(channel, queue) == 10
    reader = queries.start()
    assert rows(reader, start, advance(reader, start, 10)) == bodies


def test_a_message_that_was_published_twice_is_two(queries: Queries, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 0, 5)
    reader = queries.start()
    start = reader.initialOffset()
    advance(reader, start, 5)
    reader = queries.start()
    assert fill(channel, queue, 0, 5) == bodies
    assert rows(reader, start, advance(reader, start, 10)) == bodies + bodies


def test_another_message_with_the_same_id_is_new(queries: Queries, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 0, 10)
    reader = queries.start()
    start = reader.initialOffset()
    end = advance(reader, start, 10)
    queries.stop()
    # the same id, marked as redelivered, with another body
    channel.publish(b"another", routing_key=queue, properties=Properties(message_id="id-3", headers={"a": "b"}))
    channel.wait_for_confirms(30)
    assert channel.get(queue) is not None
    channel.recover()
    reader = queries.start()
    assert rows(reader, end, advance(reader, end, 11)) == [b"another"]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionClosed(0, "the cable is cut"),
        ChannelClosed(406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out."),
    ],
    ids=["lost", "late"],
)
def test_what_could_not_be_acknowledged_is_taken_again_and_comes_once(
    queries: Queries, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    bodies = fill(channel, queue, 0, 10)
    reader = queries.start()
    start = reader.initialOffset()
    acknowledge = BlockingChannel.ack

    def fails_once(self: BlockingChannel, tag: int, multiple: bool = False) -> None:
        monkeypatch.setattr(BlockingChannel, "ack", acknowledge)
        raise error

    monkeypatch.setattr(BlockingChannel, "ack", fails_once)
    monkeypatch.setattr(retry, "RETRY_S", 0.01)
    end = advance(reader, start, 10)
    bodies += fill(channel, queue, 10, 1)
    end = advance(reader, end, 11)
    assert rows(reader, start, end) == bodies
    queries.stop()
    assert left(channel, queue) == 0


def test_available_now_takes_what_was_there(queries: Queries, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 0, 25)
    reader = queries.start()
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(channel, queue, 25, 10)
    offsets = [start]
    while (end := reader.latestOffset(offsets[-1], reader.getDefaultReadLimit())) != offsets[-1]:
        offsets.append(end)
    assert [offset["messages"] for offset in offsets] == [0, 10, 20, 25]
    assert rows(reader, start, offsets[-1]) == bodies
    queries.stop()
    assert left(channel, queue) == 10, "what came later is in the queue"


def test_all_that_is_available_is_one_batch(queries: Queries, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 0, 35)
    reader = queries.start()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert rows(reader, start, end) == bodies


def test_octets_end_a_batch(queries: Queries, channel: BlockingChannel, queue: str) -> None:
    queries.options = QueueOptions(queue, queries.options.url, rows_max=10, octets_max=3)
    fill(channel, queue, 0, 10)
    reader = queries.start()
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(start, ROWS)["messages"] == 3


def test_the_progress_says_how_far_it_could_be(queries: Queries, channel: BlockingChannel, queue: str) -> None:
    reader = queries.start()
    start = reader.initialOffset()
    assert reader.reportLatestOffset() == start
    fill(channel, queue, 0, 25)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ROWS)
    reader._await_ahead()
    assert reader.reportLatestOffset() == {**start, "messages": 25}
    assert end["messages"] == 10


def test_a_micro_batch_is_cut_for_more_tasks(
    queries: Queries, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "SEGMENT_ROWS", 4)
    bodies = fill(channel, queue, 0, 10)
    reader = queries.start(min_partitions=5)
    start = reader.initialOffset()
    end = advance(reader, start, 10)
    parts = reader.partitions(start, end)
    assert [(part.first, part.end) for part in parts] == [(0, 2), (2, 4), (0, 2), (2, 4), (0, 2)]  # type: ignore[attr-defined]
    assert rows(reader, start, end) == bodies
    assert rows(reader, {**start, "messages": 3}, {**start, "messages": 9}) == bodies[3:9]


def test_a_checkpoint_of_another_spool_is_refused(queries: Queries, queue: str) -> None:
    reader = queries.start()
    start = reader.initialOffset()
    for offset in ({**start, "spool": "0" * 16}, {**start, "messages": 1}):
        with pytest.raises(SourceError, match="checkpointLocation and the option spoolDir that belong together"):
            reader.latestOffset(offset, ROWS)


def test_a_spool_has_one_owner_and_one_queue(
    queries: Queries, channel: BlockingChannel, queue: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries.start().initialOffset()
    monkeypatch.setattr(retry, "RECONNECT_S", 0.05)
    monkeypatch.setattr(retry, "RETRY_S", 0.01)
    second = SpoolReader(queries.options, queries.spool_options, SHAPE)
    with pytest.raises(SourceError, match=r"is used by another query.*option spoolDir"):
        second.initialOffset()
    queries.stop()
    other = SpoolReader(QueueOptions("other", url), queries.spool_options, SHAPE)
    with pytest.raises(SourceError, match=f"has queue '{queue}' but must have 'other'.*option spoolDir"):
        other.initialOffset()
    with pytest.raises(SourceError, match="has kind 'stream' but must have 'batch'"):
        Spool(queries.options, queries.spool_options, "batch")


def test_a_queue_with_another_consumer_is_refused(
    queries: Queries, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "RECONNECT_S", 0.05)
    monkeypatch.setattr(retry, "RETRY_S", 0.01)
    channel.consume(queue)
    reader = queries.start()
    with pytest.raises(SourceError, match="must be the only consumer"):
        reader.latestOffset(reader.initialOffset(), ROWS)
