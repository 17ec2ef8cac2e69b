"""Stages as clients see them: leveret's client and pika on a live leveret, errors of brokers without stages, a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel as PikaChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed, Properties, StagesMissing, Unroutable
from leveret.control.calls.blocking import ControlClient
from leveret.testing.processes import LeveretProcess

from ..shared import vhost
from ..waiting import until

PERSISTENT = Properties(delivery_mode=2)
QUERY = "airports"


# -- leveret's client --------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(broker: str) -> Iterator[BlockingConnection]:
    with BlockingConnection(broker, reconnect=False) as connection:
        yield connection


@pytest.fixture
def queue(connection: BlockingConnection) -> Iterator[str]:
    channel = connection.channel()
    name = channel.declare_queue("staged", durable=True).name
    yield name
    channel = connection.channel()
    channel.delete_queue(name)
    channel.forget_query(QUERY)


def stage(connection: BlockingConnection, batch: int, attempt: str, bodies: list[bytes], queue: str) -> None:
    """Publish one task's part of a batch, confirmed."""
    with connection.channel() as channel:
        channel.confirm_select()
        channel.attach_stage(QUERY, batch, attempt)
        for body in bodies:
            channel.publish(body, "", queue, PERSISTENT, mandatory=True)
        channel.wait_for_confirms()


def taken(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """Consume `count` messages of a queue; check that there are no more."""
    tag = channel.consume(queue, no_ack=True)
    found = [delivery.body for _ in range(count) if (delivery := channel.next_delivery(30)) is not None]
    channel.cancel(tag)
    assert channel.get(queue, no_ack=True) is None
    return found


def test_a_batch_appears_when_it_is_released(connection: BlockingConnection, queue: str) -> None:
    driver = connection.channel()
    stage(connection, 0, "task 1", [b"%d" % number for number in range(1000)], queue)
    stage(connection, 0, "task 0", [b"first"], queue)
    stage(connection, 0, "retried", [b"never"], queue)
    assert driver.get(queue, no_ack=True) is None
    known = driver.staged(QUERY)
    assert known is not None
    assert [(each["attempt"], each["messages"], each["octets"]) for each in known["stages"]] == [
        ("task 1", 1000, 2890), ("task 0", 1, 5), ("retried", 1, 5)
    ]  # fmt: skip
    driver.release_stages(QUERY, 0, ["task 0", "task 1"])
    driver.release_stages(QUERY, 0, ["task 0", "task 1"])
    assert driver.staged(QUERY) == {"query": QUERY, "last_batch": 0, "stages": []}
    assert taken(driver, queue, 1001) == [b"first"] + [b"%d" % number for number in range(1000)]


def test_what_goes_wrong_is_told(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    channel.confirm_select()
    channel.attach_stage(QUERY, 0, "a")
    channel.publish(b"m", "", "nowhere", mandatory=True)
    with pytest.raises(Unroutable, match="312 NO_ROUTE"):
        channel.wait_for_confirms()
    channel.detach_stage()
    with pytest.raises(ChannelClosed) as closed:
        channel.release_stages(QUERY, 0, ["a", "b"])
    assert (closed.value.code, closed.value.class_id, closed.value.method_id) == (406, 60, 40)
    assert "attempt 'b' of batch 0 of query 'airports' does not exist" in closed.value.text
    with pytest.raises(ChannelClosed, match=r"406 .* already has a stage"):
        connection.channel().attach_stage(QUERY, 0, "a")
    driver = connection.channel()
    driver.abort_stages(QUERY, 0)
    assert driver.staged(QUERY) is None


# -- pika --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def channel(broker: str) -> Iterator[PikaChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def attach(channel: PikaChannel, batch: object, attempt: str, **more: object) -> str:
    arguments = {"x-leveret-query": QUERY, "x-leveret-batch": batch, "x-leveret-attempt": attempt, **more}
    return str(channel.basic_consume("amq.leveret.stage", lambda *_: None, auto_ack=True, arguments=arguments))


def say(channel: PikaChannel, **fields: object) -> None:
    channel.basic_publish("", "amq.leveret.stage", json.dumps({"query": QUERY, **fields}).encode(), mandatory=True)


def count(channel: PikaChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_pika_needs_nothing_new(channel: PikaChannel, queue: str) -> None:
    tag = attach(channel, 0, "a")
    for body in (b"1", b"2"):
        channel.basic_publish("", queue, body, mandatory=True)
    with pytest.raises(UnroutableError):
        channel.basic_publish("", "nowhere", b"m", mandatory=True)
    channel.basic_cancel(tag)
    assert count(channel, queue) == 0
    say(channel, op="release", batch=0, attempts=["a"])
    until(lambda: count(channel, queue) == 2)
    got, _, body = channel.basic_get(f"amq.leveret.query.{QUERY}", auto_ack=True)
    assert got is not None
    assert json.loads(body) == {"query": QUERY, "last_batch": 0, "stages": []}
    assert channel.basic_get("amq.leveret.query.unknown", auto_ack=True) == (None, None, None)
    assert [channel.basic_get(queue, auto_ack=True)[2] for _ in range(2)] == [b"1", b"2"]


def test_pika_hears_why_something_is_refused(channel: PikaChannel, queue: str) -> None:
    say(channel, op="release", batch=0, attempts=[])
    with pytest.raises(ChannelClosedByBroker) as closed:
        say(channel, op="release", batch=1, attempts=["a"])
    assert closed.value.reply_code == 406
    assert closed.value.reply_text.startswith("PRECONDITION_FAILED - the stage of attempt 'a' of batch 1 of query")
    with pytest.raises(ChannelClosedByBroker) as closed:
        attach(channel.connection.channel(), -1, "a")
    text = "PRECONDITION_FAILED - x-leveret-batch must be an integer from 0 to 2^63-1"
    assert (closed.value.reply_code, closed.value.reply_text) == (406, text)


def test_a_full_queue_nacks_what_is_staged_for_it(channel: PikaChannel, queue: str) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    full = str(channel.queue_declare("", exclusive=True, arguments=arguments).method.queue)
    channel.basic_publish("", full, b"1")
    attach(channel, 0, "a")
    with pytest.raises(NackError):
        channel.basic_publish("", full, b"2", mandatory=True)


# -- a kill ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["staged", "released", "moving"])
def test_a_killed_broker_has_what_it_confirmed(tmp_path: Path, moment: str) -> None:
    """A driver that continues after a kill delivers 20,000 messages once, in order."""
    bodies = [b"%d" % number for number in range(20_000)]
    with LeveretProcess(data_dir=tmp_path) as broker, BlockingConnection(broker.url, reconnect=False) as connection:
        connection.channel().declare_queue("q", durable=True)
        stage(connection, 0, "a", bodies, "q")
        driver = connection.channel()
        if moment != "staged":
            driver.release_stages(QUERY, 0, ["a"])
        if moment == "moving":
            until(lambda: driver.declare_queue("q", passive=True).message_count > 0)
        broker.kill()
    with LeveretProcess(data_dir=tmp_path) as broker, BlockingConnection(broker.url, reconnect=False) as connection:
        driver = connection.channel()
        known = driver.staged(QUERY)
        assert known is not None
        assert known["last_batch"] == (None if moment == "staged" else 0)
        driver.release_stages(QUERY, 0, ["a"])
        assert taken(driver, "q", len(bodies)) == bodies
        assert driver.staged(QUERY) == {"query": QUERY, "last_batch": 0, "stages": []}


def test_a_backup_and_an_orderly_stop_carry_stages(tmp_path: Path) -> None:
    with (
        LeveretProcess(data_dir=tmp_path / "data") as broker,
        BlockingConnection(broker.url, reconnect=False) as connection,
    ):
        connection.channel().declare_queue("q", durable=True)
        stage(connection, 3, "a", [b"kept"], "q")
        with ControlClient(str(broker.data_dir)) as control:
            control.call("backup", directory=str(tmp_path / "copy"))
    for data_dir in (tmp_path / "data", tmp_path / "copy"):
        with LeveretProcess(data_dir=data_dir) as broker, BlockingConnection(broker.url, reconnect=False) as connection:
            driver = connection.channel()
            driver.release_stages(QUERY, 3, ["a"])
            assert taken(driver, "q", 1) == [b"kept"]


# -- brokers without stages --------------------------------------------------------------------------------------------


@pytest.mark.needs("rabbitmq")
def test_rabbitmq_has_no_stages(rabbitmq: str) -> None:
    place = f"vhost '{vhost(rabbitmq)}'"
    with BlockingConnection(rabbitmq, reconnect=False) as connection:
        with pytest.raises(StagesMissing, match=f"404 NOT_FOUND - no queue 'amq.leveret.stage' in {place}"):
            connection.channel().attach_stage("q", 0, "a")
        with pytest.raises(StagesMissing, match=f"404 NOT_FOUND - no queue 'amq.leveret.query.q' in {place}"):
            connection.channel().staged("q")
        with pytest.raises(StagesMissing, match="312 NO_ROUTE"):
            connection.channel().release_stages("q", 0, ["a"])
        with pytest.raises(StagesMissing, match="312 NO_ROUTE"):
            connection.channel().abort_stages("q", 0)


@pytest.mark.needs("rabbitmq")
def test_other_errors_say_what_they_are(rabbitmq: str) -> None:
    with BlockingConnection(rabbitmq, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.publish(b"", "no such exchange")
        with pytest.raises(ChannelClosed, match=r"404 NOT_FOUND - no exchange 'no such exchange'"):
            channel.release_stages("q", 0, ["a"])
