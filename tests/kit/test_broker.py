"""A broker inside a test's process: it is isolated, leaves nothing behind, and reports what it received."""

from __future__ import annotations

import copy
import gc
import json
import logging
import os
import pickle
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aio_pika
import pika
import pytest
from kombu import Connection as KombuConnection

import leveret
from leveret.client import BlockingChannel, BlockingConnection, Properties, connect
from leveret.testing import BrokerDown, LiveBroker, broker, eventually, eventually_async

STARTS = 20
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(leveret.__file__).parents[1])}  # the same leveret, in any directory


@pytest.fixture
def channel(leveret_broker: LiveBroker) -> Iterator[BlockingChannel]:
    """A channel in confirm mode, with the durable queue tasks."""
    with BlockingConnection(leveret_broker, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue("tasks")
        channel.confirm_select()
        yield channel


def publish(channel: BlockingChannel, body: bytes = b"paint", key: str = "tasks", exchange: str = "") -> None:
    channel.publish(body, exchange, key, Properties(delivery_mode=2))
    channel.wait_for_confirms()


# -- what it is --------------------------------------------------------------------------------------------------------


def test_it_is_its_url() -> None:
    with broker() as url:
        assert isinstance(url, str)
        assert url == url.url == f"amqp://guest:guest@127.0.0.1:{url.port}/%2F"
        assert type(url.url) is str
        assert url.url_for("al ice", "p@ss", "a/b") == f"amqp://al%20ice:p%40ss@127.0.0.1:{url.port}/a%2Fb"
        for copied in (copy.deepcopy(url), pickle.loads(pickle.dumps(url))):
            assert type(copied) is str
            assert copied == url
    assert not url.is_up
    with pytest.raises(BrokerDown):
        url.queues()


def test_how_long_a_start_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Times depend on the machine, so they are printed and not asserted."""
    starts_ms, ends_ms = [], []
    for _ in range(STARTS):
        began_s = time.perf_counter()
        live = broker().start()
        started_s = time.perf_counter()
        live.close()
        starts_ms.append(1000 * (started_s - began_s))
        ends_ms.append(1000 * (time.perf_counter() - started_s))
    with capsys.disabled():
        print(f" [start {statistics.median(starts_ms):.1f} ms, end {statistics.median(ends_ms):.1f} ms]", end="")


def test_the_package_and_the_plugin_import_next_to_nothing() -> None:
    """Every run of pytest loads the plugin, in every project of an environment that has leveret installed."""
    program = (
        "import sys, pytest; before = set(sys.modules); import leveret.testing.plugin, leveret.testing;"
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["leveret", "leveret._core", "leveret.testing", "leveret.testing.plugin"]


async def test_async_with() -> None:
    async with broker() as rabbit, await connect(rabbit, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        await channel.declare_queue("tasks")
        await channel.publish(b"", routing_key="tasks")
        rabbit.confirmed("tasks", count=1)
        assert await eventually_async(lambda: rabbit.queue_depth("tasks")) == 1
        with pytest.raises(RuntimeError, match="use `await eventually_async"):
            eventually(lambda: True)
    assert not rabbit.is_up


async def test_aio_pika(leveret_broker: LiveBroker) -> None:
    connection = await aio_pika.connect_robust(leveret_broker)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("tasks", durable=True)
        await channel.default_exchange.publish(aio_pika.Message(b"paint"), "tasks")
        message = await queue.get()
        assert message.body == b"paint"
        await message.ack()
    leveret_broker.confirmed("tasks", body=b"paint")


def test_kombu(leveret_broker: LiveBroker) -> None:
    with KombuConnection(leveret_broker) as connection:
        queue = connection.SimpleQueue("tasks")
        queue.put({"n": 1})
        found = eventually(lambda: leveret_broker.published(json={"n": 1}))  # without confirms, it may be on its way
        assert found[0].queues == ("tasks",)
        queue.close()


# -- isolated, and nothing left behind ---------------------------------------------------------------------------------


def state() -> tuple[set[str], set[str], int]:
    names = {thread.name for thread in threading.enumerate()}
    return (
        names,
        {os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if _is_open(n)},
        gc.get_freeze_count(),
    )


def _is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}") and not os.path.isdir(f"/proc/self/fd/{number}")


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, descriptor or directory remains; garbage collector, signals and logging are as before."""
    with broker():
        pass  # imported modules stay
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.collect()  # collect what other tests have left now, and not during the measurement
    before = state()
    gc.enable()  # another test may have had a server in this process, which turns it off
    level, root = logging.getLogger("leveret").level, list(logging.getLogger().handlers)
    for _ in range(5):
        with broker() as rabbit:
            connection = pika.BlockingConnection(pika.URLParameters(rabbit))
            connection.channel().queue_declare("tasks")
            rabbit.faults.disk_stalled()
            assert gc.isenabled()
            rabbit.faults.clear()
            rabbit.restart(crash=True)
            connection = pika.BlockingConnection(pika.URLParameters(rabbit))
            del connection

    def is_as_before() -> bool:
        gc.collect()  # pika's connections, whose sockets the broker's threads may hold for another moment
        threads, files, frozen = state()
        return threads <= before[0] and files <= before[1] and frozen <= before[2]

    eventually(is_as_before)
    assert gc.isenabled()
    assert (logging.getLogger("leveret").level, logging.getLogger().handlers) == (level, root)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == handlers
    assert list(tmp_path.iterdir()) == []


def test_many_at_once_in_threads() -> None:
    """Each broker has its own port and queues, and none sees another's messages."""

    def work(number: int) -> int:
        with broker() as rabbit, BlockingConnection(rabbit, reconnect=False) as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.declare_queue("tasks")
            for _ in range(number):
                publish(channel, b"%d" % number)
            rabbit.confirmed("tasks", body=b"%d" % number, count=number)
            return rabbit.queue_depth("tasks")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(1, 17))) == list(range(1, 17))


def test_a_start_that_fails_leaves_nothing(leveret_broker: LiveBroker) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with pytest.raises(OSError, match=f"port {leveret_broker.port} is in use"):
        broker(port=leveret_broker.port).start()
    with pytest.raises(TypeError, match="hearbeat_s"):
        broker(hearbeat_s=5).start()
    with pytest.raises(ValueError, match=r"queues\[0\] 'q'"):
        broker(
            definitions={"queues": [{"name": "q", "vhost": "nowhere", "durable": True, "auto_delete": False}]}
        ).start()
    assert {thread.name for thread in threading.enumerate()} == before


# -- inspecting --------------------------------------------------------------------------------------------------------


def test_what_was_published(leveret_broker: LiveBroker, channel: BlockingChannel) -> None:
    channel.declare_exchange("orders", "topic")
    channel.bind_queue("tasks", "orders", "orders.*")
    properties = Properties(message_id="7", headers={"tenant": "acme"}, delivery_mode=2)
    channel.publish(json.dumps({"id": 7}).encode(), "orders", "orders.us", properties)
    channel.publish(b"x" * 200_000, "orders", "orders.us")
    channel.publish(b"", "orders", "nowhere")
    channel.wait_for_confirms()
    rabbit = leveret_broker
    (message,) = rabbit.confirmed("orders.us", exchange="orders", json={"id": 7}, headers={"tenant": "acme"})
    assert (message.queues, message.user, message.json(), message.vhost) == (("tasks",), "guest", {"id": 7}, "/")
    assert rabbit.published("orders.us", properties={"message_id": "7"}) == [message]
    assert rabbit.published(where=lambda message: len(message.body) == 200_000)[0].headers == {}
    assert len(rabbit.published("orders.us", count=2)[1].body) == 200_000
    assert rabbit.published("orders.eu", count=0) == []
    assert [lost.routing_key for lost in rabbit.unroutable(count=1)] == ["nowhere"]
    rabbit.forget()
    assert rabbit.published(count=0) == []


def test_a_message_for_a_queue_that_comes_later_was_unroutable(
    leveret_broker: LiveBroker, channel: BlockingChannel
) -> None:
    publish(channel, key="early")
    channel.declare_queue("early")
    leveret_broker.unroutable("early", count=1)
    publish(channel, key="early")
    leveret_broker.unroutable("early", count=1)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"routing_key": "orders.eu"}, "no message with routing key 'orders.eu' was published; "
         "the routing keys were: 'orders.us', 'tasks'"),
        ({"routing_key": "tasks", "body": "dig"}, "1 × exchange '', key 'tasks', body b'paint' .another body."),
        ({"routing_key": "tasks", "headers": {"a": 1}}, "another header 'a'"),
        ({"routing_key": "tasks", "json": 1}, "another JSON body"),
        ({"routing_key": "tasks", "count": 2}, "1 messages with routing key 'tasks' were published, not 2; they are: "),
        ({"exchange": "ex"}, "there were: 1 × exchange '', key 'tasks'; 1 × exchange 'amq.topic', key 'orders.us'"),
        ({"vhost": "b"}, "no message with vhost 'b' was published"),
    ],
)  # fmt: skip
def test_what_was_there_instead(
    leveret_broker: LiveBroker, channel: BlockingChannel, wanted: dict[str, object], text: str
) -> None:
    publish(channel)
    publish(channel, key="orders.us", exchange="amq.topic")
    with pytest.raises(AssertionError, match=text):
        leveret_broker.published(**wanted)  # type: ignore[arg-type]


def test_nothing_at_all_was_there(leveret_broker: LiveBroker, channel: BlockingChannel) -> None:
    with pytest.raises(AssertionError, match="no message was published; there were no messages at all"):
        leveret_broker.published()
    with pytest.raises(AssertionError, match=r"no queue 'task' in virtual host '/'; these exist: 'tasks'"):
        leveret_broker.queue_depth("task")
    with pytest.raises(AssertionError, match=r"no virtual host 'x'; these exist: '/'"):
        leveret_broker.messages("tasks", vhost="x")


def test_a_message_without_confirm_is_not_confirmed(leveret_broker: LiveBroker) -> None:
    with BlockingConnection(leveret_broker, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue("tasks")
        channel.publish(b"", routing_key="tasks")
        connection.flush()
        eventually(lambda: leveret_broker.published("tasks"))
        with pytest.raises(AssertionError, match=r"1 of 1 .* not confirmed.* its channel is not in confirm mode"):
            leveret_broker.confirmed("tasks")


def test_confirms_belong_to_their_channel(leveret_broker: LiveBroker) -> None:
    """A later channel with the same number on the same connection counts from 1 again."""
    with BlockingConnection(leveret_broker, reconnect=False) as connection:
        for body in (b"1", b"2"):
            channel = connection.channel()
            channel.confirm_select()
            channel.declare_queue("tasks")
            publish(channel, body)
            channel.close()
    leveret_broker.confirmed("tasks", count=2)


def test_a_queue_is_looked_into_without_taking_anything(leveret_broker: LiveBroker, channel: BlockingChannel) -> None:
    for number in range(5):
        channel.publish(b"%d" % number, routing_key="tasks")
    for _ in range(3):
        channel.publish(b"alike", routing_key="tasks")  # the broker keeps equal messages as one batch
    channel.wait_for_confirms()
    assert leveret_broker.consumers("tasks") == 0
    channel.qos(1)
    channel.consume("tasks")
    first = channel.next_delivery(60)
    assert first is not None
    assert (leveret_broker.unacknowledged("tasks"), leveret_broker.consumers("tasks")) == (1, 1)
    bodies = [b"1", b"2", b"3", b"4", b"alike", b"alike", b"alike"]
    for _ in range(2):
        assert [message.body for message in leveret_broker.messages("tasks")] == bodies
    channel.cancel(first.consumer_tag)
    channel.nack(first.delivery_tag)
    eventually(lambda: leveret_broker.unacknowledged("tasks") == 0)
    messages = leveret_broker.messages("tasks")
    assert [message.body for message in messages] == [b"0", *bodies]
    assert [message.redelivered for message in messages] == [True, *([False] * 7)]
    assert [message.body for message in leveret_broker.delivered("tasks")] == [b"0"]


def test_higher_priorities_stand_first(leveret_broker: LiveBroker, channel: BlockingChannel) -> None:
    channel.declare_queue("ranked", arguments={"x-max-priority": 5})
    for priority in (1, 5, 3):
        channel.publish(b"%d" % priority, routing_key="ranked", properties=Properties(priority=priority))
    channel.wait_for_confirms()
    assert [message.body for message in leveret_broker.messages("ranked")] == [b"5", b"3", b"1"]


def test_a_stream_is_not_a_queue(leveret_broker: LiveBroker, channel: BlockingChannel) -> None:
    channel.declare_queue("events", arguments={"x-queue-type": "stream"})
    publish(channel, key="events")
    leveret_broker.confirmed("events", count=1)
    with pytest.raises(AssertionError, match="'events' is a stream"):
        leveret_broker.messages("events")


def test_the_firehose_is_the_tests_own(leveret_broker: LiveBroker, channel: BlockingChannel) -> None:
    """What the kit records is visible to no other client; a firehose that is turned on works as in RabbitMQ."""
    channel.declare_queue("copies")
    channel.bind_queue("copies", "amq.rabbitmq.trace", "publish.#")
    publish(channel)
    assert leveret_broker.queue_depth("copies") == 0
    leveret_broker.ctl("add_vhost", name="other", creator="guest", tracing=True)
    assert [vhost["tracing"] for vhost in leveret_broker.ctl("list_vhosts")] == [False, True]
    with BlockingConnection(leveret_broker.url_for(vhost="other"), reconnect=False) as connection:
        other = connection.channel()
        other.confirm_select()
        other.declare_queue("copies")
        other.bind_queue("copies", "amq.rabbitmq.trace", "#")
        publish(other, key="copies")
    leveret_broker.published("copies", vhost="other", count=1)
    (_, told) = leveret_broker.messages("copies", vhost="other")
    assert told.routing_key == "publish."
    assert "publish_seq_no" not in told.headers


# -- operating ---------------------------------------------------------------------------------------------------------


def test_definitions_and_commands(tmp_path: Path) -> None:
    definitions = {
        "vhosts": [{"name": "shop"}],
        "users": [{"name": "alice", "password": "secret", "tags": ""}],
        "permissions": [{"user": "alice", "vhost": "shop", "configure": "", "write": ".*", "read": ".*"}],
        "queues": [{"name": "orders", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {}}],
    }
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(definitions))
    for given in (definitions, path, str(path)):
        with broker(definitions=given) as rabbit:
            assert rabbit.queues("shop") == ["orders"]
            with BlockingConnection(rabbit.url_for("alice", "secret", "shop"), reconnect=False) as connection:
                channel = connection.channel()
                channel.confirm_select()
                publish(channel, key="orders")
            BlockingConnection(rabbit.url_for(vhost="shop"), reconnect=False).close()  # guest has permissions there
            rabbit.restart(crash=True)
            assert rabbit.queue_depth("orders", "shop") == 1  # imported once, and stored on disk
            rabbit.ctl("set_policy", name="p", pattern=".*", definition={"max-length": 0}, vhost="shop")
            assert rabbit.queue_depth("orders", "shop") == 0
            with pytest.raises(ValueError, match=r"(?s)set_policy: .*max-lenth"):
                rabbit.ctl("set_policy", name="p", pattern=".*", definition={"max-lenth": 0})
            with pytest.raises(ValueError, match="did you mean 'set_policy'"):
                rabbit.ctl("set_polcy")


def test_a_directory_outlives_its_broker(tmp_path: Path) -> None:
    for count in (1, 2):
        with (
            broker(data_dir=tmp_path, cluster_name="shop") as rabbit,
            BlockingConnection(rabbit, reconnect=False) as connection,
        ):
            channel = connection.channel()
            channel.confirm_select()
            channel.declare_queue("tasks")
            publish(channel)
            assert rabbit.queue_depth("tasks") == count
            assert connection.server_properties["cluster_name"] == "shop"
            with pytest.raises(Exception, match="is in use by"):
                broker(data_dir=tmp_path).start()
            rabbit.restart(crash=True)
            assert rabbit.queue_depth("tasks") == count


# -- the plugin --------------------------------------------------------------------------------------------------------


def test_plugin(tmp_path: Path) -> None:
    """Fixtures, marker, isolation, and the report of a failed test."""
    (tmp_path / "test_app.py").write_text(
        """
import pika, pytest
from leveret.testing import VirtualClock

def declare(url):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().queue_declare("tasks")

@pytest.mark.parametrize("time", [1, 2])
def test_each_has_its_own(leveret_broker, amqp_url, time):
    assert leveret_broker == amqp_url and type(amqp_url) is str
    assert leveret_broker.queues() == []
    declare(amqp_url)

@pytest.mark.parametrize("time", [1, 2])
def test_shared(leveret_session_broker, time):
    assert leveret_session_broker.queues() == (["tasks"] if time == 2 else [])
    declare(leveret_session_broker)

@pytest.mark.leveret(clock=VirtualClock(), cluster_name="mine")
def test_options(leveret_broker):
    assert leveret_broker.clock.advance(days=1)
    assert leveret_broker.ctl("get_cluster_name")["name"] == "mine"

def test_that_fails(leveret_broker):
    declare(leveret_broker)
    leveret_broker.faults.blocked()
    assert False
"""
    )
    plugins = ["-p", "no:leveret", "-p", "leveret.testing.plugin", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "--strict-markers", "-q", *plugins, str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert "5 passed" in run.stdout, run.stdout
    assert "1 failed" in run.stdout
    assert "queue 'tasks': 0 ready, 0 unacknowledged, 0 consumers" in run.stdout
    assert "fault: blocked, low on memory" in run.stdout
