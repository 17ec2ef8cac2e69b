"""connection.blocked: what a memory alarm does and does not do to publishers, on leveret and on RabbitMQ alike.

No AMQP method raises an alarm, so these tests start their own brokers and set the memory watermark to 0: RabbitMQ's by
rabbitmqctl, leveret's in its configuration. Measured on RabbitMQ 3.10.8: a connection is blocked when it publishes
while the alarm is on, not before.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import aio_pika
import pika
import pytest

from leveret.client import BlockingConnection, connect
from leveret.testing.processes import LeveretProcess, RabbitMQProcess

from .raw import DEADLINE_S, HEADER, METHOD, Frame, RawClient, encode_header, encode_method, frame

CAPABLE = {"capabilities": {"connection.blocked": True, "consumer_cancel_notify": True}}
REASON = "low on memory"


class Alarmed(Protocol):
    """A broker whose memory alarm can be switched."""

    @property
    def url(self) -> str: ...

    def alarm(self) -> None: ...

    def clear(self) -> None: ...


class AlarmedRabbitMQ(RabbitMQProcess):
    is_on = False

    def alarm(self) -> None:
        self.is_on = True
        self._control("set_vm_memory_high_watermark", "0")
        _until_blocked(self.url)

    def clear(self) -> None:
        if self.is_on:
            self._control("set_vm_memory_high_watermark", "0.4")
            self.is_on = False

    def _control(self, *arguments: str) -> None:
        environment = {**os.environ, **self.environment()}
        program = str(self.DEBIAN.parent / "rabbitmqctl") if self.DEBIAN.exists() else shutil.which("rabbitmqctl")
        assert program is not None
        command = [program, "-n", environment["RABBITMQ_NODENAME"], *arguments]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)


class AlarmedLeveret(LeveretProcess):
    """leveret, which reloads its watermark from a file."""

    def __init__(self) -> None:
        self.config = Path(tempfile.mkstemp(prefix="leveret-", suffix=".toml")[1])
        super().__init__(arguments=["--config", str(self.config)])

    def alarm(self) -> None:
        self._set("memory_high_watermark = 0")
        _until_blocked(self.url)

    def clear(self) -> None:
        self._set("")
        with RawClient.open(self.url) as publisher:
            publisher.call("confirm.select")
            publisher.publish(routing_key="nowhere")
            publisher.read("basic.ack")

    def clean_up(self) -> None:
        self.config.unlink(missing_ok=True)

    def _set(self, text: str) -> None:
        self.config.write_text(text)
        os.kill(self.pid, signal.SIGHUP)


def _until_blocked(url: str) -> None:
    """Wait until the alarm is on, which a publisher sees first."""
    with RawClient.open(url, properties=CAPABLE) as publisher:
        while not _is_blocked(publisher):
            publisher.publish(routing_key="nowhere")


def _is_blocked(client: RawClient) -> bool:
    try:
        return client.read(timeout_s=0.02).name == "connection.blocked"
    except TimeoutError:
        return False
    finally:
        client.socket.settimeout(DEADLINE_S)  # the short timeout is for this read only


BROKERS = [
    pytest.param(AlarmedLeveret, id="leveret"),
    pytest.param(AlarmedRabbitMQ, id="rabbitmq", marks=pytest.mark.needs("rabbitmq")),
]


@pytest.fixture(scope="module", params=BROKERS)
def running(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param() as process:
        yield process


@pytest.fixture
def alarmed(running: Alarmed) -> Iterator[Alarmed]:
    """The broker, without an alarm at the start and the end of the test."""
    yield running
    running.clear()


@pytest.fixture
def client(running: Alarmed) -> Iterator[Callable[..., RawClient]]:
    """Opens raw connections that understand connection.blocked."""
    opened: list[RawClient] = []

    def open_client(properties: dict[str, Any] = CAPABLE, **options: Any) -> RawClient:
        opened.append(RawClient.open(running.url, properties=properties, **options))
        return opened[-1]

    yield open_client
    for each in opened:
        each.socket.close()


def blocked(client: RawClient) -> str:
    return str(client.read("connection.blocked")["reason"])


def deaf(client: RawClient, question: Callable[[], None], elsewhere: RawClient) -> None:
    """Check that the broker does not read from this client, although it answers others that asked later."""
    question()
    elsewhere.quiet()
    with pytest.raises(TimeoutError):
        client.read(timeout_s=0.3)


def test_a_publisher_is_blocked_at_its_first_publish_under_the_alarm(
    alarmed: Alarmed, client: Callable[..., RawClient], unique: str
) -> None:
    publisher, watcher = client(), client()
    publisher.call("queue.declare", queue=unique, auto_delete=True)
    publisher.call("confirm.select")
    publisher.publish(b"before", routing_key=unique)
    publisher.read("basic.ack")
    watcher.call("basic.consume", queue=unique, no_ack=True)
    assert watcher.read("basic.deliver").body == b"before"
    alarmed.alarm()
    publisher.quiet()  # an idle publisher gets no notice, and is served
    publisher.publish(b"under the alarm", routing_key=unique)
    assert blocked(publisher) == REASON
    deaf(publisher, lambda: publisher.send("basic.qos"), watcher)
    alarmed.clear()
    publisher.read("connection.unblocked")
    assert {publisher.read().name, publisher.read().name} == {"basic.ack", "basic.qos-ok"}
    assert watcher.read("basic.deliver").body == b"under the alarm"
    publisher.publish(b"after", routing_key=unique)
    assert publisher.read("basic.ack")["delivery_tag"] == 3
    watcher.read("basic.deliver")


def test_new_connections_are_served_until_they_publish(
    alarmed: Alarmed, client: Callable[..., RawClient], unique: str
) -> None:
    alarmed.alarm()
    late, other = client(), client()
    late.call("queue.declare", queue=unique, exclusive=True)
    late.publish(b"late", routing_key=unique)
    assert blocked(late) == REASON
    deaf(late, lambda: late.send("basic.qos"), other)
    alarmed.clear()
    late.read("connection.unblocked")
    late.read("basic.qos-ok")
    assert late.call("basic.get", queue=unique, no_ack=True).body == b"late"


def test_what_stands_before_the_publish_in_one_segment_is_answered(
    alarmed: Alarmed, client: Callable[..., RawClient], unique: str
) -> None:
    alarmed.alarm()
    both = client()
    declare = frame(METHOD, 1, encode_method("queue.declare", queue=unique, exclusive=True))
    publish = both.content(1, encode_method("basic.publish", routing_key=unique), b"x", {})
    both.socket.sendall(declare + publish)
    seen = {both.read().name, both.read().name}  # RabbitMQ may send blocked first: channels are processes
    assert seen == {"connection.blocked", "queue.declare-ok"}


def test_the_content_header_is_what_blocks(alarmed: Alarmed, client: Callable[..., RawClient], unique: str) -> None:
    alarmed.alarm()
    slow, large, other = client(), client(), client()
    slow.call("queue.declare", queue=unique, exclusive=True)
    slow.send("basic.publish", routing_key=unique)
    deaf(slow, lambda: None, other)
    slow.send_frame(HEADER, 1, encode_header(5, {}))
    assert blocked(slow) == REASON
    content = large.content(1, encode_method("basic.publish", routing_key="nowhere"), bytes(400_000), {})
    large.socket.sendall(content[:200_000])
    assert blocked(large) == REASON
    alarmed.clear()
    slow.read("connection.unblocked")
    slow.send_frame(3, 1, b"12345")
    assert slow.call("basic.get", queue=unique, no_ack=True).body == b"12345"
    large.read("connection.unblocked")
    large.socket.sendall(content[200_000:])
    large.quiet()


def test_a_client_without_the_capability_is_blocked_silently(
    alarmed: Alarmed, client: Callable[..., RawClient], unique: str
) -> None:
    alarmed.alarm()
    old, other = client({"capabilities": {"consumer_cancel_notify": True}}), client()
    old.call("queue.declare", queue=unique, exclusive=True)
    old.publish(b"x", routing_key=unique)
    deaf(old, lambda: old.send("basic.qos"), other)
    alarmed.clear()
    old.read("basic.qos-ok")
    assert old.call("basic.get", queue=unique, no_ack=True).body == b"x"


def test_consumers_go_on_and_a_blocked_consumers_acks_wait(
    alarmed: Alarmed, client: Callable[..., RawClient], unique: str
) -> None:
    """Deliveries reach a blocked connection, but the prefetch limit holds until its acks are read."""
    filler, mixed, other = client(), client(channels=2), client()
    filler.call("queue.declare", queue=unique, auto_delete=True)
    filler.call("confirm.select")
    for n in range(4):
        filler.publish(b"%d" % n, routing_key=unique)
        filler.read("basic.ack")
    alarmed.alarm()
    mixed.publish(b"", routing_key="nowhere", channel=2)
    # the method alone does not block: what was sent together is read together up to the content
    assert blocked(mixed) == REASON
    other.call("basic.qos", prefetch_count=1)
    other.call("basic.consume", queue=unique)
    for n in range(4):  # a consumer that does not publish can acknowledge as usual
        got = other.read("basic.deliver")
        assert got.body == b"%d" % n
        other.send("basic.ack", delivery_tag=got["delivery_tag"])
    other.quiet()


def test_a_connection_that_consumes_and_publishes_still_gets_deliveries(
    alarmed: Alarmed, client: Callable[..., RawClient], unique: str
) -> None:
    mixed, other = client(), client()
    mixed.call("queue.declare", queue=unique, exclusive=True)
    mixed.call("confirm.select")
    mixed.publish(b"first", routing_key=unique)
    mixed.publish(b"second", routing_key=unique)
    while mixed.read("basic.ack")["delivery_tag"] != 2:
        pass
    while mixed.call("queue.declare", queue=unique, passive=True)["message_count"] != 2:
        pass
    mixed.call("basic.qos", prefetch_count=1)
    alarmed.alarm()
    consume = frame(METHOD, 1, encode_method("basic.consume", queue=unique, consumer_tag="c"))
    mixed.socket.sendall(consume + mixed.content(1, encode_method("basic.publish", routing_key=unique), b"third", {}))
    seen: dict[str, Frame] = {}
    while set(seen) != {"connection.blocked", "basic.consume-ok", "basic.deliver"}:
        got = mixed.read()
        seen[got.name] = got
    tag = seen["basic.deliver"]["delivery_tag"]
    deaf(mixed, lambda: mixed.send("basic.ack", delivery_tag=tag), other)
    alarmed.clear()
    names = [mixed.read("connection.unblocked", "basic.ack", "basic.deliver") for _ in range(3)]
    assert names[0].name == "connection.unblocked"
    assert [each.body for each in names if each.name == "basic.deliver"] == [b"second"]


def test_a_blocked_connection_hears_heartbeats_and_is_not_cut(
    alarmed: Alarmed, client: Callable[..., RawClient], unique: str
) -> None:
    alarmed.alarm()
    beating = client(heartbeat=2)
    beating.publish(b"x", routing_key="nowhere")
    assert blocked(beating) == REASON
    # The broker does not read, so it must not count our silence as missed heartbeats; else it would drop the connection
    # after two intervals. It sends a heartbeat a second at most.
    deadline = time.monotonic() + DEADLINE_S
    while beating.heartbeats < 7:
        with pytest.raises(TimeoutError):
            beating.read(timeout_s=0.5)
        assert time.monotonic() < deadline
    alarmed.clear()
    beating.read("connection.unblocked")
    beating.quiet()


def test_an_error_comes_when_its_publish_is_read(
    alarmed: Alarmed, client: Callable[..., RawClient], unique: str
) -> None:
    alarmed.alarm()
    wrong = client()
    wrong.publish(b"x", exchange=unique, routing_key="k")
    assert blocked(wrong) == REASON
    alarmed.clear()
    wrong.read("connection.unblocked")
    text = f"NOT_FOUND - no exchange '{unique}' in vhost '/'"
    assert wrong.closed() == (404, text, 60, 40)


def test_a_second_alarm_blocks_again(alarmed: Alarmed, client: Callable[..., RawClient], unique: str) -> None:
    publisher = client()
    publisher.call("confirm.select")
    for _ in range(2):
        alarmed.alarm()
        publisher.publish(b"x", routing_key="nowhere")
        assert blocked(publisher) == REASON
        alarmed.clear()
        publisher.read("connection.unblocked")
        publisher.read("basic.ack")


# -- as applications see it --------------------------------------------------------------------------------------------


def test_pika_tells_its_callbacks(alarmed: Alarmed) -> None:
    with pika.BlockingConnection(pika.URLParameters(alarmed.url)) as connection:
        seen: list[str] = []
        connection.add_on_connection_blocked_callback(lambda _, method: seen.append(method.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: seen.append("unblocked"))
        channel = connection.channel()
        alarmed.alarm()
        channel.basic_publish("", "nowhere", b"x")
        while not seen:
            connection.process_data_events(0.1)
        assert seen == [REASON]
        alarmed.clear()
        while len(seen) == 1:
            connection.process_data_events(0.1)
        assert seen == [REASON, "unblocked"]


def test_pika_gives_up_after_its_blocked_connection_timeout(alarmed: Alarmed) -> None:
    parameters = pika.URLParameters(alarmed.url)
    parameters.blocked_connection_timeout = 0.5
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    alarmed.alarm()
    channel.basic_publish("", "nowhere", b"x")
    with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):
        connection.process_data_events(10)


async def test_aio_pika_waits_for_its_confirm(alarmed: Alarmed) -> None:
    connection = await aio_pika.connect(alarmed.url)
    async with connection:
        channel = await connection.channel()
        alarmed.alarm()
        publish = channel.default_exchange.publish(aio_pika.Message(b"x"), "nowhere", mandatory=False, timeout=30)
        waiting = asyncio.create_task(publish)
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
        await asyncio.to_thread(alarmed.clear)
        await waiting


async def test_our_client_tells_its_handler_and_drain_waits(alarmed: Alarmed) -> None:
    async with await connect(alarmed.url, reconnect=False) as connection:
        seen: list[str | None] = []
        connection.on_blocked(seen.append)
        channel = await connection.channel()
        await channel.confirm_select()
        alarmed.alarm()
        confirmed = channel.publish(b"x", "", "nowhere")
        while not seen:
            await asyncio.wait([confirmed], timeout=0.05)
        draining = asyncio.create_task(channel.drain())
        done, _ = await asyncio.wait([confirmed, draining], timeout=0.3)
        assert not done
        await asyncio.to_thread(alarmed.clear)
        await confirmed
        await draining
        assert seen == [REASON, None]


def test_our_blocking_client_tells_its_handler_and_publish_waits(alarmed: Alarmed) -> None:
    with BlockingConnection(alarmed.url, reconnect=False) as connection:
        seen: list[str | None] = []
        connection.on_blocked(seen.append)
        channel = connection.channel()
        alarmed.alarm()
        switch = threading.Timer(0.3, alarmed.clear)
        while not seen:
            channel.publish(b"x", "", "nowhere")
            channel.flush()
            if seen:
                switch.start()
        channel.publish(b"y", "", "nowhere")
        assert seen == [REASON, None]
        switch.join()
