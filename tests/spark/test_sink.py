"""The sinks, called as Spark calls them: the messages that rows become, and the errors of invalid rows."""

from __future__ import annotations

import logging
import pickle
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from leveret.client import BlockingChannel, ConnectionClosed, Delivery
from leveret.spark import connection_cache, retry
from leveret.spark.rows.columns import PROPERTIES
from leveret.spark.sink import connecting
from leveret.spark.sink import staged as staged_module
from leveret.spark.sink.connecting import SinkError
from leveret.spark.sink.options import SinkOptions
from leveret.spark.sink.staged import Batch, Published
from leveret.spark.sink.task import Task
from leveret.spark.sink.writer import BatchSink, StreamSink, write_partition

from ..shared import vhost
from ..waiting import until

BODY = StructType([StructField("body", BinaryType())])
NOWHERE = "amqp://127.0.0.1:1/"
KINDS = {
    "body": pa.binary(),
    "delay": pa.float64(),
    "at": pa.timestamp("us", tz="America/New_York"),
    **{name: arrow for name, (_, arrow) in PROPERTIES.items()},
}


def rows(**columns: list[Any]) -> pa.RecordBatch:
    arrays = [pa.array(values, KINDS.get(name, pa.string())) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def numbered(first: int, count: int) -> pa.RecordBatch:
    return rows(body=[b"%d" % number for number in range(first, first + count)])


def new_query() -> str:
    return f"test-{uuid.uuid4().hex}"


def task(partition: int, query: str, batch: int) -> Task:
    return Task(partition, f"{partition}-{uuid.uuid4().hex}", query, batch)


def write(
    options: SinkOptions, batches: list[pa.RecordBatch], query: str = "", batch: int = 0, partition: int = 0
) -> Published:
    """Run one attempt of a task of this micro-batch."""
    return write_partition(options, iter(batches), Batch(query, batch), task(partition, query, batch))


def commit(options: SinkOptions, messages: list[Published | None], batch: int) -> None:
    """Commit with a new writer, as Spark does."""
    StreamSink(options, BODY).commit(list(messages), batch)


def abort(options: SinkOptions, messages: list[Published | None], batch: int) -> None:
    StreamSink(options, BODY).abort(list(messages), batch)


def taken(channel: BlockingChannel, queue: str) -> list[Delivery]:
    found = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        found.append(delivery)
    return found


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    return [delivery.body for delivery in taken(channel, queue)]


def to(url: str, queue: str, **more: Any) -> SinkOptions:
    return SinkOptions(url=url, routing_key=queue, **more)


@pytest.fixture
def mine(broker: str, channel_on: BlockingChannel) -> Iterator[str]:
    name = f"sink.{uuid.uuid4().hex[:12]}"
    channel_on.declare_queue(name)
    yield name
    channel_on.delete_queue(name)


@pytest.fixture
def channel_on(broker: str) -> Iterator[BlockingChannel]:
    from leveret.client import BlockingConnection

    with BlockingConnection(broker, reconnect=False) as connection:
        yield connection.channel()


# rows as messages


def test_columns_and_options_become_messages(url: str, channel: BlockingChannel, queue: str) -> None:
    options = to(url, queue, delivery="at-least-once", properties={"delivery_mode": 2, "app_id": "default"})
    batch = rows(
        body=[b"first", b"second", b""],
        exchange=[None, "amq.default.is.not.used", None][:1] * 3,
        routing_key=[queue, None, None],
        headers=[[("x", "y"), ("none", None)], None, []],
        priority=[5, None, 0],
        message_id=["mine", None, None],
        app_id=[None, "own", None],
        timestamp=[datetime(2023, 11, 14, 22, 13, 20, 999_999, UTC), None, None],
        redelivered=["ignored", "ignored", "ignored"],
    )
    assert write(options, [batch], "q", 7, 3) == Published(3, 3)
    first, second, third = taken(channel, queue)
    assert (first.body, second.body, third.body) == (b"first", b"second", b"")
    assert first.properties.headers == {"x": "y", "none": None}
    assert (first.properties.timestamp, first.properties.priority) == (1_700_000_000, 5)
    assert (first.properties.message_id, second.properties.message_id) == ("mine", "q-7-3-1")
    assert third.properties.message_id == "q-7-3-2"
    assert [each.properties.app_id for each in (first, second, third)] == ["default", "own", "default"]
    assert [each.properties.delivery_mode for each in (first, second, third)] == [2, 2, 2]
    assert (second.properties.headers, second.properties.priority, second.properties.timestamp) == (None, None, None)
    assert third.properties.headers == {}


def test_bodies_of_any_size_arrive(url: str, channel: BlockingChannel, queue: str) -> None:
    sizes = [0, 1, 131_064, 131_065, 400_000]
    options = to(url, queue, delivery="at-least-once")
    write(options, [rows(body=[bytes([index]) * size for index, size in enumerate(sizes)])], "q", 0)
    found = taken(channel, queue)
    assert [each.body for each in found] == [bytes([index]) * size for index, size in enumerate(sizes)]
    assert [each.properties.message_id for each in found] == [f"q-0-0-{index}" for index in range(5)]


def test_many_rows_go_by_with_a_small_window(
    url: str, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unconfirmed: list[int] = []
    publish_frames = BlockingChannel.publish_frames

    def watched(self: BlockingChannel, frames: bytes, count: int) -> int:
        number = publish_frames(self, frames, count)
        unconfirmed.append(self.outstanding)
        return number

    monkeypatch.setattr(BlockingChannel, "publish_frames", watched)
    options = to(url, queue, delivery="at-least-once", confirm_window=10)
    published = write(options, [numbered(0, 100), numbered(100, 57)])
    assert published.rows == 157
    assert max(unconfirmed) <= 10
    assert bodies(channel, queue) == [b"%d" % number for number in range(157)]


def test_the_id_may_be_another_column(url: str, channel: BlockingChannel, queue: str) -> None:
    flight = pa.array([1545, None], pa.int64())
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), flight], names=["body", "flight"])
    write(to(url, queue, delivery="at-least-once", message_id_column="flight"), [batch], "q", 2)
    assert [each.properties.message_id for each in taken(channel, queue)] == ["1545", "q-2-0-1"]


def test_a_repeated_task_gives_its_rows_the_same_ids(url: str, channel: BlockingChannel, queue: str) -> None:
    options = to(url, queue, delivery="at-least-once")
    for _ in range(2):
        write(options, [numbered(0, 2), numbered(2, 1)], "q", 1, 4)
    ids = [each.properties.message_id for each in taken(channel, queue)]
    assert ids == 2 * ["q-1-4-0", "q-1-4-1", "q-1-4-2"]


def test_a_row_may_have_a_time_or_a_delay(url: str, channel: BlockingChannel, queue: str) -> None:
    options = SinkOptions.parse({"url": url, "queue": queue, "delayUnitMs": "1", "delivery": "at-least-once"})
    past, soon = datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC) + timedelta(milliseconds=300)
    write(options, [rows(body=[b"now", b"past", b"soon", b"later"], at=[None, past, soon, None],
                         delay=[None, None, None, 0.05])])  # fmt: skip
    channel.consume(queue, no_ack=True)
    arrived = {}
    for _ in range(4):
        delivery = channel.next_delivery(60)
        assert delivery is not None
        arrived[delivery.body] = datetime.now(UTC)
    assert set(arrived) == {b"now", b"past", b"soon", b"later"}
    assert arrived[b"soon"] >= soon


# errors of rows that cannot be written


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": [b"a", None]}, "row 101: it has no body"),
        ({"body": [b"a", b"b"], "routing_key": ["k", "x" * 256]}, "row 101: column 'routing_key' has 256 octets"),
        ({"body": [b"a", b"b"], "delay": [1.0, -1.0]}, "row 101: a delay must not be negative"),
        (
            {"body": [b"a", b"b"], "delay": [None, 1.0], "at": [None, datetime(2026, 1, 1, tzinfo=UTC)]},
            "row 101: it has both a delay and a time",
        ),
        (
            {"body": [b"a", b"b"], "timestamp": [None, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)]},
            "row 101: column 'timestamp' is before 1970",
        ),
        (
            {"body": [b"a"], "delay": [1.0], "exchange": ["x"]},
            "row 100: a delayed row must go to a queue, but it names",
        ),
        ({"body": [b"a"], "delay": [1.0], "expiration": ["1"]}, "row 100: a delayed message must not have an expir"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(url: str, queue: str, columns: dict[str, Any], message: str) -> None:
    options = replace(SinkOptions.parse({"url": url, "queue": queue, "delayUnitMs": "1"}), delivery="at-least-once")
    with pytest.raises(SinkError, match=f"partition 2, {message}"):
        write(options, [numbered(0, 100), rows(**columns)], "", 0, 2)


def test_an_unroutable_row_is_named(url: str, queue: str) -> None:
    keys = [queue] * 57 + ["no.one"] + [queue] * 42
    batch = rows(body=[b"%d" % number for number in range(100)], routing_key=keys)
    options = to(url, queue, delivery="at-least-once")
    with pytest.raises(SinkError) as caught:
        write(options, [numbered(0, 10), batch])
    assert str(caught.value) == (
        "partition 0, row 67: 312 NO_ROUTE: the default exchange has no queue for routing key 'no.one'; "
        "declare the queue first, or let option mandatory=false drop such rows"
    )
    assert write(replace(options, mandatory=False), [batch]).rows == 100


def test_an_unroutable_row_that_needs_several_frames_is_named(url: str, queue: str) -> None:
    batch = rows(body=[bytes(200_000), b"small"], routing_key=[queue, "no.one"])
    with pytest.raises(SinkError, match="row 1: 312 NO_ROUTE"):
        write(to(url, queue, delivery="at-least-once"), [batch])


def test_a_row_that_a_full_queue_refuses_is_named(url: str, channel: BlockingChannel, queue: str) -> None:
    full = f"{queue}.full"
    channel.declare_queue(full, arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    with pytest.raises(SinkError, match=r"row \d+: the broker refused it \(basic\.nack\): its queue is full"):
        write(to(url, full, delivery="at-least-once"), [numbered(0, 100)])
    channel.delete_queue(full)


def test_an_exchange_that_is_not_there_is_told_with_its_options(url: str) -> None:
    options = SinkOptions(url=url, exchange="no.such", delivery="at-least-once")
    missing = rf"404 NOT_FOUND - no exchange 'no\.such' in vhost '{vhost(url)}'; declare it first, .*options exchange"
    with pytest.raises(SinkError, match=missing):
        write(options, [numbered(0, 3)])


def test_a_delay_to_a_queue_that_is_not_there_is_told(url: str) -> None:
    options = SinkOptions.parse({"url": url, "queue": "no.such", "delayUnitMs": "1", "delivery": "at-least-once"})
    with pytest.raises(SinkError, match=r"404 NOT_FOUND - no queue 'no\.such'.*options exchange, routingKey and queue"):
        write(options, [rows(body=[b"a"], delay=[1.0])])


def test_wrong_credentials_are_told_with_the_url(url: str) -> None:
    wrong = url.replace("guest:guest@", "guest:wrong@")
    assert wrong != url
    with pytest.raises(SinkError, match=r"the broker refused the connection.*correct user and password in option url"):
        write(to(wrong, "q"), [numbered(0, 1)], "q")


def test_a_broker_that_stays_away_is_told_with_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RECONNECT_S", -1.0)
    with pytest.raises(SinkError, match=r"cannot connect to 127.*; is option url correct, and is the broker running\?"):
        write(to(NOWHERE, "q"), [numbered(0, 1)], "q")


def test_what_the_broker_refuses_for_good_is_told_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RETRY_S", 1e9)
    with pytest.raises(SinkError, match=r"no\.such\.vhost.*correct the virtual host in option url"):
        write(to(url[: url.rindex("/")] + "/no.such.vhost", "q"), [numbered(0, 1)], "q")


def test_confirms_are_awaited(url: str, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are not confirmed within the timeout have failed, even if the broker has some of them."""
    monkeypatch.setattr(BlockingChannel, "_await_outstanding", lambda self, goal, timeout_s: timeout_s is None)
    with pytest.raises(SinkError, match="3 publishes were not confirmed within 7 s: option confirmTimeout"):
        write(to(url, queue, delivery="at-least-once", confirm_timeout_s=7), [numbered(0, 3)])


# tasks


class Context:
    """The parts of a TaskContext that a task uses."""

    def __init__(self, query: str | None, batch: str | None) -> None:
        self._local = {"sql.streaming.queryId": query, "streaming.sql.batchId": batch}

    def getLocalProperty(self, name: str) -> str | None:
        return self._local[name]

    def partitionId(self) -> int:
        return 5

    def attemptNumber(self) -> int:
        return 1


def test_a_task_knows_its_query_and_batch_and_no_attempt_is_called_like_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: Context("id", "0"))
    first, second = Task.current(), Task.current()
    assert (first.partition, first.query, first.batch) == (5, "id", 0)
    assert first.attempt.startswith("5-1-")
    assert first.attempt != second.attempt
    monkeypatch.setattr(TaskContext, "get", lambda: Context(None, None))
    assert (Task.current().query, Task.current().batch) == ("", -1)


def test_a_partition_without_rows_needs_no_broker() -> None:
    assert write(to(NOWHERE, "q"), [], "q", 0, 3) == Published(3, 0)
    assert write(to(NOWHERE, "q"), [numbered(0, 0)], "q", 0, 3) == Published(3, 0)


def test_a_batch_without_rows_is_committed_and_aborted_without_a_broker() -> None:
    for messages in ([], [Published(0, 0), None]):
        commit(to(NOWHERE, "q"), messages, 0)
        abort(to(NOWHERE, "q"), messages, 0)


# exactly once


def test_exactly_once_is_not_claimed_where_spark_does_not_say_which_query_writes() -> None:
    with pytest.raises(SinkError, match="exactly-once: Spark does not say which query"):
        write(to(NOWHERE, "q", delivery="exactly-once"), [numbered(0, 1)])


def test_rows_are_in_no_queue_before_the_batch_is_committed(
    broker: str, channel_on: BlockingChannel, mine: str
) -> None:
    options, query = to(broker, mine), new_query()
    second = write(options, [numbered(10, 10)], query, 0, 1)
    first = write(options, [numbered(0, 10)], query, 0, 0)
    assert bodies(channel_on, mine) == []
    commit(options, [second, first, Published(2, 0)], 0)
    assert bodies(channel_on, mine) == [b"%d" % number for number in range(20)], "partitions are not in their order"


def test_a_second_commit_does_nothing(broker: str, channel_on: BlockingChannel, mine: str) -> None:
    options, query = to(broker, mine), new_query()
    messages = [write(options, [numbered(0, 5)], query, 4)]
    commit(options, messages, 4)
    commit(options, messages, 4)
    assert len(bodies(channel_on, mine)) == 5


def test_a_batch_that_is_released_is_not_published_again(
    broker: str, channel_on: BlockingChannel, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, query = to(broker, mine), new_query()
    commit(options, [write(options, [numbered(0, 5)], query, 4)], 4)
    monkeypatch.setattr(BlockingChannel, "publish_frames", lambda *_: pytest.fail("published"))
    batches = iter([numbered(0, 5), numbered(5, 5)])
    again = write_partition(options, batches, Batch(query, 4), task(0, query, 4))
    assert again == Published(0, 10)
    assert list(batches) == [], "Spark's worker wants its input read"
    commit(options, [again], 4)
    assert len(bodies(channel_on, mine)) == 5


def test_attempts_that_are_not_named_are_dropped(broker: str, channel_on: BlockingChannel, mine: str) -> None:
    """These are a task that failed and was repeated, and one that ran twice at the same time."""
    options, query = to(broker, mine), new_query()
    write(options, [numbered(0, 3)], query, 0)
    named = write(options, [numbered(0, 5)], query, 0)
    late = write(options, [numbered(0, 5)], query, 0)
    commit(options, [named], 0)
    assert bodies(channel_on, mine) == [b"0", b"1", b"2", b"3", b"4"]
    assert channel_on.staged(query) == {"query": query, "last_batch": 0, "stages": []}
    commit(options, [late], 0)
    assert bodies(channel_on, mine) == []


def test_a_task_that_fails_leaves_nothing_that_is_seen(broker: str, channel_on: BlockingChannel, mine: str) -> None:
    options, query = to(broker, mine), new_query()
    with pytest.raises(SinkError, match="row 5: it has no body"):
        write(options, [numbered(0, 5), rows(body=[None])], query, 0)
    commit(options, [write(options, [numbered(0, 2)], query, 0)], 0)
    assert bodies(channel_on, mine) == [b"0", b"1"]


def test_an_abort_drops_what_was_staged(broker: str, channel_on: BlockingChannel, mine: str) -> None:
    options, query = to(broker, mine), new_query()
    message = write(options, [numbered(0, 5)], query, 0)
    abort(options, [None, message], 0)
    assert channel_on.staged(query) is None
    with pytest.raises(SinkError, match="is not committed: 406"):
        commit(options, [message], 0)
    assert bodies(channel_on, mine) == []


def test_an_abort_that_finds_no_broker_lets_the_query_fail_for_its_own_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    abort(to(NOWHERE, "q"), [Published(0, 1, "query", 0, "attempt")], 0)
    assert "the broker keeps it until it expires" in caplog.text


def test_an_expired_stage_makes_the_commit_fail_with_its_option(
    broker: str, channel_on: BlockingChannel, mine: str
) -> None:
    options, query = to(broker, mine, stage_expires_s=1), new_query()
    message = write(options, [numbered(0, 5)], query, 0)
    until(lambda: channel_on.staged(query) is None, "the stage does not expire")
    with pytest.raises(SinkError, match=rf"batch 0 of query {query} is not committed: 406 .*option stageExpires"):
        commit(options, [message], 0)
    assert bodies(channel_on, mine) == []


def test_a_stage_that_is_gone_while_rows_come_fails_the_task_with_its_option(
    broker: str, channel_on: BlockingChannel, mine: str
) -> None:
    options, query = to(broker, mine), new_query()

    def slow() -> Iterator[pa.RecordBatch]:
        yield numbered(0, 1)
        channel_on.abort_stages(query, 0)
        yield numbered(1, 2)

    with pytest.raises(SinkError, match=r"406 .* has expired, was aborted.*option stageExpires"):
        write_partition(options, slow(), Batch(query, 0), task(0, query, 0))
    assert bodies(channel_on, mine) == []


def test_unroutable_rows_fail_the_task_and_not_the_commit(broker: str) -> None:
    with pytest.raises(SinkError, match="row 0: 312 NO_ROUTE"):
        write(to(broker, "no.one"), [numbered(0, 1)], new_query(), 0)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make only every third connection attempt succeed; the names of all attempts."""
    connect, called = connecting.BlockingConnection, []

    def at_first_nowhere(url: str, name: str, reconnect: bool) -> Any:
        called.append(name)
        return connect(url if len(called) % 3 == 0 else NOWHERE, name=name, reconnect=reconnect)

    for module in (connecting, staged_module):
        monkeypatch.setattr(module, "BlockingConnection", at_first_nowhere)
    monkeypatch.setattr(connection_cache, "_idle", {})
    monkeypatch.setattr(retry, "RETRY_S", 0.0)
    return called


def test_tasks_and_commits_reach_a_broker_that_comes_back(
    broker: str, channel_on: BlockingChannel, mine: str, tries: list[str]
) -> None:
    options, query = to(broker, mine), new_query()
    message = write(options, [numbered(0, 5)], query, 0)
    assert tries == 3 * ["leveret spark sink"]
    commit(options, [message], 0)
    assert tries[3:] == 3 * ["leveret spark commit"]
    assert len(bodies(channel_on, mine)) == 5


def test_a_commit_whose_answer_is_lost_is_repeated(
    broker: str, channel_on: BlockingChannel, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, query = to(broker, mine), new_query()
    message = write(options, [numbered(0, 5)], query, 0)
    release_stages, lost = BlockingChannel.release_stages, [True, False]

    def without_answer(self: BlockingChannel, *named: Any) -> None:
        release_stages(self, *named)
        if lost.pop(0):
            raise ConnectionClosed(0, "connection lost")

    monkeypatch.setattr(BlockingChannel, "release_stages", without_answer)
    monkeypatch.setattr(retry, "RETRY_S", 0.0)
    commit(options, [message], 0)
    assert lost == []
    assert len(bodies(channel_on, mine)) == 5


def test_at_least_once_is_seen_at_once(broker: str, channel_on: BlockingChannel, mine: str) -> None:
    options, query = to(broker, mine, delivery="at-least-once"), new_query()
    message = write(options, [numbered(0, 5)], query, 0)
    assert (message.attempt, message.rows) == ("", 5)
    assert len(bodies(channel_on, mine)) == 5
    commit(options, [message], 0)
    assert channel_on.staged(query) is None


@pytest.mark.needs("rabbitmq")
class TestRabbitMQ:
    @pytest.fixture
    def url(self, rabbitmq: str) -> str:
        return rabbitmq

    def test_exactly_once_is_refused_before_anything_is_published(
        self, url: str, channel: BlockingChannel, queue: str
    ) -> None:
        with pytest.raises(
            SinkError, match=r"delivery=exactly-once needs leveret as the broker: .* delivery=at-least-once writes"
        ):
            write(to(url, queue, delivery="exactly-once"), [numbered(0, 5)], new_query(), 0)
        assert bodies(channel, queue) == []

    def test_auto_publishes_at_least_once_and_says_so_once(
        self, url: str, channel: BlockingChannel, queue: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "leveret.spark")
        staged_module._warned.clear()
        options, query = to(url, queue), new_query()
        messages = [write(options, [numbered(5 * partition, 5)], query, 0, partition) for partition in range(2)]
        assert len(bodies(channel, queue)) == 10
        commit(options, messages, 0)
        assert bodies(channel, queue) == []
        assert caplog.text.count("so rows are written at least once") == 1


# df.write


def batch_write(sink: BatchSink, *partitions: list[pa.RecordBatch]) -> list[Published]:
    """Run the tasks of one job, each with its own copy of the writer."""
    return [pickle.loads(pickle.dumps(sink)).write(iter(batches)) for batches in partitions]


def test_all_rows_of_a_write_are_seen_at_once_and_the_broker_forgets_its_name(
    broker: str, channel_on: BlockingChannel, mine: str
) -> None:
    sink = BatchSink(to(broker, mine), BODY)
    messages = batch_write(sink, [numbered(0, 3)], [], [numbered(3, 3)])
    assert bodies(channel_on, mine) == []
    query = messages[0].query
    assert {each.query for each in messages if each.attempt} == {query}
    assert channel_on.staged(query) is not None
    copy: BatchSink = pickle.loads(pickle.dumps(sink))
    copy.commit(list(messages))
    assert len(bodies(channel_on, mine)) == 6
    assert channel_on.staged(query) is None
    assert BatchSink(to(broker, mine), BODY)._batch.query != query


def test_a_write_that_fails_leaves_nothing(broker: str, channel_on: BlockingChannel, mine: str) -> None:
    sink = BatchSink(to(broker, mine), BODY)
    messages = batch_write(sink, [numbered(0, 3)])
    sink.abort([None, *messages])
    assert channel_on.staged(messages[0].query) is None
    assert bodies(channel_on, mine) == []


def test_a_write_with_a_name_is_done_once(broker: str, channel_on: BlockingChannel, mine: str) -> None:
    """As in foreachBatch: the same micro-batch twice, and then the next one."""
    query = new_query()
    for batch in (0, 0, 1):
        sink = BatchSink(to(broker, mine, query=query, batch=batch), BODY)
        sink.commit(list(batch_write(sink, [numbered(10 * batch, 3)])))
    assert bodies(channel_on, mine) == [b"0", b"1", b"2", b"10", b"11", b"12"]
    assert channel_on.staged(query) == {"query": query, "last_batch": 1, "stages": []}
    channel_on.forget_query(query)


def test_text_bodies_are_utf8(url: str, channel: BlockingChannel, queue: str) -> None:
    sink = BatchSink(to(url, queue, delivery="at-least-once"), StructType([StructField("body", StringType())]))
    sink.write(iter([pa.record_batch([pa.array(["ü"])], names=["body"])]))
    assert bodies(channel, queue) == ["ü".encode()]
