"""The readers of mode=peek and mode=drain, called as Spark calls them; on leveret and on RabbitMQ."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from leveret.client import BlockingChannel, Properties
from leveret.spark import retry
from leveret.spark.queues import subscription
from leveret.spark.queues.batch import DrainReader, PeekReader
from leveret.spark.queues.errors import SourceError
from leveret.spark.queues.options import BatchLimits, QueueOptions, SpoolOptions
from leveret.spark.queues.subscription import Subscription
from leveret.spark.rows.columns import QUEUE_SCHEMA
from leveret.spark.rows.shape import RowOptions
from leveret.spark.source import LeveretDataSource

from ..shared import vhost
from ..waiting import until
from .support import sent

SHAPE = RowOptions().shape(StructType([QUEUE_SCHEMA["body"], QUEUE_SCHEMA["redelivered"]]), QUEUE_SCHEMA)


def fill(channel: BlockingChannel, queue: str, first: int, count: int) -> list[bytes]:
    bodies = [str(number).encode() for number in range(first, first + count)]
    for body in bodies:
        channel.publish(body, routing_key=queue, properties=Properties(message_id=f"id-{body.decode()}"))
    channel.wait_for_confirms(30)
    return bodies


def rows(reader: PeekReader | DrainReader) -> list[tuple[bytes, bool]]:
    """Plan here and read elsewhere, as Spark does; return bodies and whether they are marked as redelivered."""
    parts = sent(reader.partitions())
    task = sent(reader)
    found = [row for part in parts for batch in task.read(part) for row in batch.to_pylist()]
    return [(row["body"], row["redelivered"]) for row in found]


def ready(channel: BlockingChannel, queue: str, messages: int) -> bool:
    """Wait until no consumer is left and `messages` messages are ready."""
    until(
        lambda: channel.declare_queue(queue, passive=True)[1:] == (messages, 0),
        lambda: f"{channel.declare_queue(queue, passive=True)}",
    )
    return True


def test_a_peek_takes_nothing_and_may_be_repeated(url: str, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 0, 2500)
    reader = PeekReader(QueueOptions(queue, url), BatchLimits(), SHAPE)
    assert rows(reader) == [(body, False) for body in bodies]
    for _ in range(5):
        assert rows(reader) == [(body, True) for body in bodies], "it looks as soon as the one before has looked"
    assert ready(channel, queue, 2500)


def test_a_peek_into_a_quorum_queue(url: str, channel: BlockingChannel, queue: str) -> None:
    name = f"{queue}.quorum"
    channel.declare_queue(name, arguments={"x-queue-type": "quorum"})
    bodies = fill(channel, name, 0, 300)
    reader = PeekReader(QueueOptions(name, url), BatchLimits(), SHAPE)
    for time in range(4):
        assert rows(reader) == [(body, time > 0) for body in bodies]
    channel.delete_queue(name)


def test_a_peek_at_the_first_messages_marks_no_others(url: str, channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 0, 20)
    assert rows(PeekReader(QueueOptions(queue, url), BatchLimits(5), SHAPE)) == [(body, False) for body in bodies[:5]]
    assert ready(channel, queue, 20)
    found = rows(PeekReader(QueueOptions(queue, url), BatchLimits(), SHAPE))
    assert found == [(body, number < 5) for number, body in enumerate(bodies)]
    assert ready(channel, queue, 20)


def test_a_peek_at_too_much_is_an_error_and_puts_back(url: str, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 0, 20)
    with pytest.raises(SourceError, match=r"more than 10 octets: raise option maxBytes, .* option maxRows"):
        rows(PeekReader(QueueOptions(queue, url), BatchLimits(octets_max=10), SHAPE))
    assert ready(channel, queue, 20)


def test_a_peek_into_an_empty_queue_is_empty(url: str, channel: BlockingChannel, queue: str) -> None:
    assert rows(PeekReader(QueueOptions(queue, url), BatchLimits(), SHAPE)) == []


def test_a_drain_keeps_what_it_takes(url: str, channel: BlockingChannel, queue: str, tmp_path: Path) -> None:
    bodies = fill(channel, queue, 0, 25)
    spool = SpoolOptions(str(tmp_path / "spool"))
    reader = DrainReader(QueueOptions(queue, url), spool, BatchLimits(), SHAPE)
    assert [body for body, _ in rows(reader)] == bodies
    assert ready(channel, queue, 0)
    bodies += fill(channel, queue, 25, 10)
    assert [body for body, _ in rows(reader)] == bodies, "what was taken before is read again"
    fill(channel, queue, 35, 10)
    reader = DrainReader(QueueOptions(queue, url), spool, BatchLimits(4), SHAPE)
    assert len(rows(reader)) == 39
    assert ready(channel, queue, 6)


def test_a_drain_that_is_killed_before_the_acknowledgement_takes_nothing_twice(
    url: str, channel: BlockingChannel, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = fill(channel, queue, 0, 25)
    reader = DrainReader(QueueOptions(queue, url), SpoolOptions(str(tmp_path / "spool")), BatchLimits(), SHAPE)

    def killed(self: Subscription, tag: int) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Subscription, "acknowledge", killed)
        with pytest.raises(SystemExit):
            reader.partitions()
    assert ready(channel, queue, 25)
    assert [body for body, _ in rows(reader)] == bodies
    assert ready(channel, queue, 0)


def test_a_missing_queue_names_the_option(url: str) -> None:
    missing = rf"there is no queue 'nowhere' \(404 NOT_FOUND .* in vhost '{vhost(url)}'\): declare it.* option queue"
    with pytest.raises(SourceError, match=missing):
        rows(PeekReader(QueueOptions("nowhere", url), BatchLimits(), SHAPE))


def test_a_stream_is_not_read_as_a_queue(url: str, channel: BlockingChannel, queue: str) -> None:
    channel.declare_queue(f"{queue}.stream", arguments={"x-queue-type": "stream"})
    with pytest.raises(SourceError, match=r"is a stream: use option stream instead of option queue"):
        rows(PeekReader(QueueOptions(f"{queue}.stream", url), BatchLimits(), SHAPE))
    channel.delete_queue(f"{queue}.stream")


def test_an_exclusive_queue_of_another_connection_is_refused(url: str, channel: BlockingChannel, queue: str) -> None:
    channel.declare_queue(f"{queue}.mine", durable=False, exclusive=True)
    with pytest.raises(SourceError, match=r"405 RESOURCE_LOCKED.*only the connection that declared it.*option queue"):
        rows(PeekReader(QueueOptions(f"{queue}.mine", url), BatchLimits(), SHAPE))


def test_a_queue_in_exclusive_use_is_refused(
    url: str, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "RECONNECT_S", 0.05)
    monkeypatch.setattr(retry, "RETRY_S", 0.01)
    channel.consume(queue, exclusive=True)
    with pytest.raises(SourceError, match=r"in exclusive use; stop the exclusive consumer.*option queue"):
        rows(PeekReader(QueueOptions(queue, url), BatchLimits(), SHAPE))


def test_wrong_credentials_name_the_option(url: str) -> None:
    with pytest.raises(SourceError, match=r"refused the connection.*user and password in option url"):
        rows(PeekReader(QueueOptions("q", url.replace("guest:guest", "guest:wrong")), BatchLimits(), SHAPE))


NO_QUEUE = r"there is no queue 'nowhere' \(404 NOT_FOUND .*\): declare it first, or correct option queue"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "nowhere"}, NO_QUEUE),
        ({"queue": "nowhere", "mode": "peek"}, NO_QUEUE),
        ({"queue": "nowhere", "mode": "spool", "spoolDir": "/nowhere"}, NO_QUEUE),
        ({"queue": "nowhere", "mode": "drain", "spoolDir": "/nowhere"}, NO_QUEUE),
        (
            {"queue": "{queue}", "url": "{wrong}"},
            "the broker refused the connection: .* user and password in option url",
        ),
        (
            {"queue": "{queue}", "url": "{nowhere}"},
            "the broker refused the connection: .* the virtual host in option url",
        ),
        ({"queue": "{stream}"}, "is a stream: use option stream instead of option queue"),
    ],
)
def test_what_cannot_be_read_is_told_when_it_is_loaded(
    url: str, queue: str, stream: str, options: dict[str, str], text: str
) -> None:
    places = {
        "queue": queue,
        "stream": stream,
        "wrong": url.replace("guest:guest", "guest:wrong"),
        "nowhere": f"{url[: url.rindex('/')]}/nowhere",
    }
    source = LeveretDataSource({"url": url, **{name: value.format(**places) for name, value in options.items()}})
    with pytest.raises(SourceError, match=text):
        source.schema()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "options stream and queue: set exactly one of them"),
        ({"queue": "q", "mode": "look"}, "option mode must be ack or spool or peek or drain, not 'look'"),
        ({"queue": "q", "prefetch": "0"}, "option prefetch must be 1 to 65535, not 0"),
        ({"queue": "q", "mode": "spool"}, "option spoolDir is missing"),
        ({"queue": "q", "url": "http://localhost"}, "option url: "),
        ({"stream": "s", "url": "http://localhost"}, "option url: "),
    ],
)
def test_wrong_options_are_told_when_it_is_loaded(options: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LeveretDataSource({"url": "amqp://localhost:1/", **options}).schema()


def test_what_may_pass_is_left_to_the_query(url: str, channel: BlockingChannel, queue: str, tmp_path: Path) -> None:
    def is_loaded(**options: str) -> bool:
        return "body" in LeveretDataSource({"url": url, **options}).schema().names

    fill(channel, queue, 0, 3)
    assert is_loaded(queue=queue)
    spool = SpoolOptions(str(tmp_path / "spool"))
    found = rows(DrainReader(QueueOptions(queue, url), spool, BatchLimits(), SHAPE))
    assert [is_redelivered for _, is_redelivered in found] == [False] * 3, "to load a queue takes nothing"
    channel.consume(queue, exclusive=True)
    assert is_loaded(queue=queue), "the other consumer may be about to end"
    assert is_loaded(queue=queue, url=f"{url.rsplit('@', 1)[0]}@localhost:1/"), "the broker may come back"
    assert is_loaded(queue="nowhere", mode="spool", spoolDir=spool.directory), "the spool has messages of it"


def test_a_single_active_consumer_elsewhere_is_told(
    url: str, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{queue}.single"
    channel.declare_queue(name, arguments={"x-single-active-consumer": True})
    channel.consume(name, prefetch_count=1)
    fill(channel, name, 0, 3)
    monkeypatch.setattr(subscription, "BLOCKED_S", 0.05)
    with pytest.raises(SourceError, match=r"delivers them to another consumer .a single active one.*option queue"):
        rows(PeekReader(QueueOptions(name, url), BatchLimits(), SHAPE))
    channel.delete_queue(name)


def test_a_spool_reads_a_queue_with_a_single_active_consumer(
    url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    name = f"{queue}.single"
    channel.declare_queue(name, arguments={"x-single-active-consumer": True})
    bodies = fill(channel, name, 0, 3)
    reader = DrainReader(QueueOptions(name, url), SpoolOptions(str(tmp_path)), BatchLimits(), SHAPE)
    assert [body for body, _ in rows(reader)] == bodies
    channel.delete_queue(name)
