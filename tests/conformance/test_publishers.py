"""Publisher references with pika on a live broker, and the program of docs/guides/exactly-once.md as it stands.

These tests run on leveret only, apart from the last one.
"""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from leveret.control.calls.blocking import ControlClient
from leveret.testing.processes import LeveretProcess

from ..shared import vhost
from ..waiting import until

PUBLISHER = "amq.leveret.publisher"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "exactly-once.md"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def url(broker: str) -> str:
    return broker


def opened(url: str) -> BlockingChannel:
    """Return a channel in confirm mode on a connection of its own."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.confirm_delivery()
    return channel


def attached(channel: BlockingChannel, name: str, **arguments: int) -> dict[str, Any]:
    """Attach a channel, and return what the broker tells. arguments: epoch, first_id."""
    given = {f"x-leveret-{each.replace('_', '-')}": value for each, value in arguments.items()}
    told: list[dict[str, Any]] = []
    channel.basic_consume(
        PUBLISHER, lambda *delivery: told.append(json.loads(delivery[3])), auto_ack=True,
        arguments={"x-leveret-publisher": name} | given,
    )  # fmt: skip
    while not told:
        channel.connection.process_data_events(time_limit=None)
    return told[0]


def asked(channel: BlockingChannel, name: str) -> dict[str, Any] | None:
    body = channel.basic_get(f"{PUBLISHER}.{name}", auto_ack=True)[2]
    return None if body is None else json.loads(body)


def forget(channel: BlockingChannel, name: str) -> None:
    body = json.dumps({"op": "forget", "publisher": name})
    channel.basic_publish("", PUBLISHER, body, mandatory=True)


def drained(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        bodies.append(body)
    return bodies


def test_from_attaching_to_forgetting(url: str, unique: str) -> None:
    channel = opened(url)
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = str(channel.queue_declare("", exclusive=True, arguments=full).method.queue)
    assert asked(channel, unique) is None
    assert attached(channel, unique) == {"publisher": unique, "epoch": 1, "last_id": 0, "refused": []}
    channel.basic_publish("", queue, b"1", PERSISTENT)
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"2", PERSISTENT)
    with pytest.raises(UnroutableError):
        channel.basic_publish("", f"{unique} nowhere", b"3", mandatory=True)
    state = {"publisher": unique, "epoch": 1, "last_id": 3, "refused": [2, 3]}
    known = asked(channel, unique)
    assert known is not None
    assert known.pop("connection").endswith(url.rpartition("@")[2].partition("/")[0])
    assert known == state
    other = opened(url)
    assert attached(other, unique, epoch=1, first_id=3) == state | {"epoch": 2, "refused": [3]}
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.basic_publish("", queue, b"4", PERSISTENT)
    text = f"PRECONDITION_FAILED - publisher reference '{unique}' was taken over by channel 1 of connection "
    assert (closed.value.reply_code, closed.value.reply_text.startswith(text)) == (406, True)
    channel = channel.connection.channel()
    assert drained(channel, queue) == [b"1"]
    forget(other, unique)
    assert asked(other, unique) is None
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker, match="was forgotten"):
        attached(channel, unique, epoch=1)


def test_operators_see_and_forget_it(leveret_process: LeveretProcess, url: str, unique: str) -> None:
    channel = opened(url)
    attached(channel, unique)
    channel.basic_publish("", f"{unique} nowhere", b"1")
    with ControlClient(str(leveret_process.data_dir)) as control:
        (row,) = [each for each in control.call("list_publishers") if each["name"] == unique]
        (connection,) = [each["name"] for each in control.call("list_connections") if each["name"] == row["connection"]]
        assert row == {
            "vhost": "/", "name": unique, "owner": "guest", "epoch": 1, "last_id": 1, "refused": 0,
            "connection": connection, "idle_ms": 0,
        }  # fmt: skip
        control.call("forget_publisher", name=unique)
        with pytest.raises(ChannelClosedByBroker, match=f"publisher reference '{unique}' was forgotten"):
            channel.basic_publish("", f"{unique} nowhere", b"2")
        assert [each for each in control.call("list_publishers") if each["name"] == unique] == []


# -- the guide's program -----------------------------------------------------------------------------------------------


def program() -> Any:
    (text,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    names: dict[str, Any] = {}
    exec(compile(text, str(GUIDE), "exec"), names)
    return names["ExactlyOncePublisher"]


def test_the_guides_publisher_survives_lost_connections(leveret_process: LeveretProcess, url: str, unique: str) -> None:
    channel = opened(url)
    channel.queue_declare(unique, durable=True)
    publisher = program()(url, unique)
    publisher.parameters.retry_delay = 0
    with ControlClient(str(leveret_process.data_dir)) as control:
        for number in range(100):
            if number % 10 == 5:
                held = asked(channel, unique)
                assert held is not None
                control.call("close_connection", name=held["connection"])
            publisher.publish("", unique, b"%d" % number)
    assert drained(channel, unique) == [b"%d" % number for number in range(100)]
    assert publisher.epoch == 11
    publisher.connection.close()
    restarted = program()(url, unique)
    assert restarted.next_id == 101
    with pytest.raises(UnroutableError):
        restarted.publish("", f"{unique} nowhere", b"")
    restarted.publish("", unique, b"100")
    known = asked(channel, unique) or {}
    assert (known["epoch"], known["last_id"], known["refused"]) == (12, 102, [101])
    program()(url, unique)
    with pytest.raises(ChannelClosedByBroker, match="was taken over by channel 1 of connection"):
        restarted.publish("", unique, b"never")
    assert drained(channel, unique) == [b"100"]
    channel.queue_delete(unique)


def test_the_guides_publisher_survives_kills_of_the_broker(tmp_path: Path) -> None:
    count, kills = 600, 3
    with LeveretProcess(data_dir=tmp_path) as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_declare("q", durable=True)
        publisher = program()(broker.url, "P")
        publisher.parameters.connection_attempts, publisher.parameters.retry_delay = 10_000, 0.01
        sent = 0
        failures: list[BaseException] = []

        def publish() -> None:
            nonlocal sent
            try:
                for number in range(count):
                    publisher.publish("", "q", b"%d" % number)
                    sent = number + 1
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=publish)
        thread.start()
        for kill in range(kills):
            until(lambda: sent > (kill + 1) * count // (kills + 1) or bool(failures), 60)  # noqa: B023
            broker.kill()
            broker.start()
        thread.join(60)
        assert (failures, sent) == ([], count)
        assert publisher.epoch > kills
        assert drained(opened(broker.url), "q") == [b"%d" % number for number in range(count)]


def test_a_backup_and_an_orderly_stop_carry_references(tmp_path: Path) -> None:
    with LeveretProcess(data_dir=tmp_path / "data") as broker:
        channel = opened(broker.url)
        attached(channel, "P")
        with pytest.raises(UnroutableError):
            channel.basic_publish("", "nowhere", b"1", mandatory=True)
        with ControlClient(str(broker.data_dir)) as control:
            control.call("backup", directory=str(tmp_path / "copy"))
    for data_dir in (tmp_path / "data", tmp_path / "copy"):
        with LeveretProcess(data_dir=data_dir) as broker:
            state = attached(opened(broker.url), "P", epoch=1, first_id=1)
            assert state == {"publisher": "P", "epoch": 2, "last_id": 1, "refused": [1]}


@pytest.mark.needs("rabbitmq")
def test_rabbitmq_has_no_publisher_references(rabbitmq: str) -> None:
    for call in (lambda channel: attached(channel, "P"), lambda channel: asked(channel, "P")):
        with pytest.raises(ChannelClosedByBroker) as closed:
            call(opened(rabbitmq))
        assert closed.value.reply_code == 404
        assert re.search(f"no queue 'amq.leveret.publisher.*' in vhost '{vhost(rabbitmq)}'", closed.value.reply_text)
    with pytest.raises(UnroutableError):
        forget(opened(rabbitmq), "P")
