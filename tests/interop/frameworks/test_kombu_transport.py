"""leveret's kombu transport beside py-amqp's, on leveret and on RabbitMQ: what one does the other does."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import tomllib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import amqp
import kombu
import pytest
from amqp import exceptions as errors
from kombu.asynchronous import Hub
from kombu.exceptions import OperationalError
from kombu.pools import producers

from leveret.frameworks import kombu_transport
from leveret.frameworks.kombu_connection import KombuConnection, tls_options
from leveret.testing import LiveBroker
from leveret.testing.processes import LeveretProcess

from ...conformance.secured import Authority, SecuredLeveret
from ...waiting import DEADLINE_S, until

ROOT = Path(__file__).parents[3]
TRANSPORTS = ("pyamqp", "leveret")
Connect = Callable[..., kombu.Connection]


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    """Makes connections, from a scheme and options."""
    made: list[kombu.Connection] = []

    def make(scheme: str = "leveret", **options: Any) -> kombu.Connection:
        made.append(over(url, scheme, **options))
        return made[-1]

    yield make
    for connection in made:
        connection.release()


@pytest.fixture(params=TRANSPORTS)
def connection(request: pytest.FixtureRequest, connect: Connect) -> kombu.Connection:
    return connect(request.param)


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"kombu.{uuid.uuid4().hex[:12]}"


def over(url: str, scheme: str = "leveret", **options: Any) -> kombu.Connection:
    """Return a connection to a broker by this transport."""
    return kombu.Connection(url.replace("amqp://", f"{scheme}://", 1), connect_timeout=DEADLINE_S, **options)


def temporary(connection: kombu.Connection, name: str, **options: Any) -> kombu.Queue:
    """Declare a queue that ends with the connection."""
    queue = kombu.Queue(name, durable=False, exclusive=True, **options)(connection.default_channel)
    queue.declare()
    return queue


def publish(connection: kombu.Connection, name: str, *bodies: object, **options: Any) -> None:
    for body in bodies:
        connection.Producer().publish(body, routing_key=name, **options)


# the scheme


def test_an_installation_makes_the_scheme_known(tmp_path: Path) -> None:
    """In a process that imports nothing of leveret, by the entry point, as pip writes it."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    [(entry, target)] = groups["kombu.serializers"].items()
    facts = tmp_path / "leveret_as_installed-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: leveret-as-installed\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(f"[kombu.serializers]\n{entry} = {target}\n")
    program = """
from celery import Celery
connection = Celery(broker="leverets://user:secret@host/vhost").connection_for_write()
print(connection.as_uri(), connection.transport.driver_type, connection.transport.driver_name)
"""
    path = os.pathsep.join([str(tmp_path), str(Path(kombu_transport.__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=False)
    assert done.stdout.split() == ["leverets://user:**@host:5671/vhost", "amqp", "leveret"], done.stderr


def test_the_broker_is_asked_for_a_named_connection(connect: Connect) -> None:
    options = {"client_properties": {"connection_name": "reports"}}
    opened = connect(transport_options=options).connection
    assert isinstance(opened, KombuConnection)
    assert opened.core._client_properties()["connection_name"] == "reports"


# messages


@pytest.mark.parametrize("sender", TRANSPORTS)
@pytest.mark.parametrize(
    "content",
    [
        {"body": {"text": "ü"}, "headers": {"a": [1, None, True, 2.5, {"b": "c"}]}, "correlation_id": "7"},
        {"body": b"\x00\xff", "content_type": "application/data", "content_encoding": "binary", "priority": 3},
        {"body": "ü".encode("latin-1"), "content_type": "text/plain", "content_encoding": "latin-1", "expiration": 60},
        {"body": "", "content_type": "text/plain", "content_encoding": "utf-8", "message_id": "m", "timestamp": 17},
        {"body": ["x" * 300_000], "compression": "zlib", "reply_to": "somebody", "type": "t", "app_id": "a"},
    ],
)
def test_both_transports_receive_the_same(connect: Connect, name: str, sender: str, content: dict[str, Any]) -> None:
    def received(scheme: str) -> dict[str, object]:
        connection = connect(scheme)
        queue = temporary(connection, f"{name}.{scheme}")
        given = dict(content)
        publish(connect(sender), queue.name, given.pop("body"), **given)
        messages: list[kombu.Message] = []
        with connection.Consumer(queue, on_message=messages.append):
            connection.drain_events(timeout=DEADLINE_S)
        [message] = messages
        told = {key: getattr(message, key) for key in ("body", "headers", "properties", "content_type",
                                                       "content_encoding", "delivery_tag")}
        info = dict(message.delivery_info)
        info.pop("consumer_tag")
        assert info.pop("routing_key") == queue.name
        message.ack()
        return {**told, **info}

    first, second = map(received, TRANSPORTS)
    # py-amqp sends empty headers as an empty table, leveret's transport as none; a message has {} in both cases
    for each in (first, second):
        assert isinstance(each["properties"], dict)
        each["properties"].setdefault("application_headers", {})
    assert first == second


def test_one_event_at_a_time(connection: kombu.Connection, name: str) -> None:
    queue = temporary(connection, name)
    publish(connection, name, *range(5))
    seen: list[object] = []
    with connection.Consumer(queue, callbacks=[lambda body, message: seen.append(body)], no_ack=True):
        for count in range(1, 6):
            connection.drain_events(timeout=DEADLINE_S)
            assert len(seen) == count
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.01)
    assert seen == list(range(5))


def test_prefetch(connection: kombu.Connection, name: str) -> None:
    queue = temporary(connection, name)
    publish(connection, name, *range(5))
    messages: list[kombu.Message] = []
    with connection.Consumer(queue, on_message=messages.append, prefetch_count=2):
        for _ in range(2):
            connection.drain_events(timeout=DEADLINE_S)
        assert queue.queue_declare(passive=True).message_count == 3
        messages[1].ack(multiple=True)
        for _ in range(2):
            connection.drain_events(timeout=DEADLINE_S)
        assert [message.payload for message in messages] == [0, 1, 2, 3]


def test_rejected_requeued_and_recovered(connection: kombu.Connection, name: str) -> None:
    queue = temporary(connection, name)
    publish(connection, name, "gone", "again", "recovered")
    queue.get().reject()
    queue.get().requeue()
    assert queue.get().payload == "again"
    queue.channel.basic_recover(requeue=True)
    found = [queue.get(no_ack=True) for _ in range(3)]
    assert [(each.payload, each.delivery_info["redelivered"]) for each in found[:2]] == [
        ("again", True), ("recovered", False)]
    assert found[2] is None


def test_a_transaction(connection: kombu.Connection, name: str) -> None:
    queue = temporary(connection, name)
    channel = connection.default_channel
    channel.tx_select()
    producer = kombu.Producer(channel)
    producer.publish("rolled back", routing_key=name)
    channel.tx_rollback()
    producer.publish("committed", routing_key=name)
    channel.tx_commit()
    assert [queue.get(no_ack=True).payload, queue.get()] == ["committed", None]


def test_topology(connection: kombu.Connection, name: str) -> None:
    channel = connection.default_channel
    source, target = (kombu.Exchange(f"{name}.{word}", "topic", durable=False)(channel) for word in ("one", "two"))
    source.declare()
    target.declare()
    queue = temporary(connection, name)
    target.bind_to(source, "a.#")
    queue.bind_to(target, "a.b")
    kombu.Producer(channel, source).publish(1, routing_key="a.b")
    assert queue.get(no_ack=True).payload == 1
    queue.unbind_from(target, "a.b")
    target.unbind_from(source, "a.#")
    kombu.Producer(channel, source).publish(2, routing_key="a.b")
    assert queue.get() is None
    publish(connection, name, 3, 4)
    assert [queue.purge(), queue.delete()] == [2, 0]
    source.delete()
    target.delete()


# confirms and returns


@pytest.mark.parametrize("confirm", [False, True])
def test_a_message_that_no_queue_takes(connection: kombu.Connection, name: str, confirm: bool) -> None:
    channel = connection.channel()
    send = channel.basic_publish_confirm if confirm else channel.basic_publish
    message = channel.prepare_message("lost", content_encoding="utf-8", headers={"a": 1})

    def returned() -> None:
        send(message, routing_key=name, mandatory=True)
        if not confirm:
            connection.drain_events(timeout=DEADLINE_S)

    with pytest.raises(errors.ChannelError, match="NO_ROUTE") as raised:
        returned()
    assert raised.value.reply_code == 312
    told: list[tuple[object, ...]] = []
    channel.events["basic_return"].add(
        lambda error, exchange, key, back: told.append((error.reply_code, exchange, key, back.body, back.headers)))
    returned()
    [(code, exchange, key, body, headers)] = told
    assert (code, exchange, key, headers) == (312, "", name, {"a": 1})
    assert body in ("lost", b"lost")


def test_a_refused_message(connect: Connect, name: str) -> None:
    connection = connect(transport_options={"confirm_publish": True})
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = temporary(connection, name, queue_arguments=arguments)
    publish(connection, name, "fits")
    with pytest.raises(errors.MessageNacked):
        publish(connection, name, "too many")
    assert queue.get(no_ack=True).payload == "fits"
    publish(connection, name, "fits again")


# errors


def test_a_refused_request_leaves_the_channel_usable(connection: kombu.Connection, name: str) -> None:
    channel = connection.default_channel
    with pytest.raises(errors.NotFound, match=r"Queue\.declare: \(404\) NOT_FOUND - no queue"):
        channel.queue_declare(name, passive=True)
    assert temporary(connection, name).queue_declare(passive=True).message_count == 0


def test_a_late_error_is_raised_by_the_next_event(connection: kombu.Connection, name: str) -> None:
    publish(connection, name, 1, exchange=name)
    with pytest.raises(errors.NotFound, match="no exchange"):
        connection.drain_events(timeout=DEADLINE_S)
    temporary(connection, name)
    publish(connection, name, 2)


def test_a_tag_of_a_closed_channel_acknowledges_nothing(connect: Connect, name: str) -> None:
    """py-amqp would acknowledge the message that has the same number on the new channel."""
    connection = connect()
    queue = temporary(connection, name)
    publish(connection, name, "first", "second")
    stale = [queue.get(), queue.get()]
    with pytest.raises(errors.NotFound):
        queue.channel.queue_declare(f"{name}.none", passive=True)
    again = queue.get()
    assert (again.payload, again.delivery_info["redelivered"]) == ("first", True)
    for message in stale:
        message.ack()
    queue.channel.basic_recover(requeue=True)
    assert [queue.get(no_ack=True).payload for _ in range(2)] == ["first", "second"]


def test_a_consumer_whose_queue_is_deleted(connection: kombu.Connection, name: str) -> None:
    """py-amqp may notice it in queue.delete already."""
    temporary(connection, name)
    told: list[str] = []
    channel = connection.channel()
    tag = channel.basic_consume(name, "tag", callback=print, on_cancel=told.append)
    kombu.Queue(name)(connection.default_channel).delete()
    while not told:
        connection.drain_events(timeout=DEADLINE_S)
    assert told == [tag]
    temporary(connection, name)
    channel.basic_consume(name, "tag", callback=print)

    def unheard() -> None:
        kombu.Queue(name)(connection.default_channel).delete()
        connection.drain_events(timeout=DEADLINE_S)

    with pytest.raises(errors.ConsumerCancelled):
        unheard()


def test_what_is_wrong_with_a_login(url: str) -> None:
    for scheme in TRANSPORTS:
        for field, value, error in (("password", "wrong", errors.AccessRefused),
                                    ("virtual_host", "nowhere", errors.NotAllowed)):
            with over(url, scheme) as refused:
                setattr(refused, field, value)
                with pytest.raises(error):
                    refused.connect()
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        with kombu.Connection(f"leveret://127.0.0.1:{unheard.getsockname()[1]}") as connection:
            with pytest.raises(ConnectionRefusedError):
                connection.connect()
            with pytest.raises(OperationalError):
                connection.ensure_connection(max_retries=1)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda channel: channel.basic_publish(amqp.Message("x"), immediate=True), "immediate"),
        (lambda channel: channel.basic_qos(10, 1, False), "prefetch size"),
        (lambda channel: channel.flow(False), "flow"),
    ],
)
def test_what_no_broker_implements(connect: Connect, call: Callable[[Any], None], what: str) -> None:
    with pytest.raises(errors.AMQPNotImplementedError, match=what):
        call(connect().default_channel)


# the end of a connection


def test_ensure_goes_on_after_the_connection_is_closed(leveret_broker: LiveBroker, name: str) -> None:
    """A publisher and a consumer go on after an operator has closed their connections.

    The publisher waits for confirms: a message that is written before the end of its connection is read would be lost.
    """
    queue = kombu.Queue(name)
    seen: list[object] = []

    def take(body: object, message: kombu.Message) -> None:
        seen.append(body)
        message.ack()

    confirms = {"confirm_publish": True}
    with over(leveret_broker.url, transport_options=confirms) as sending, over(leveret_broker.url) as taking:
        consumer = taking.Consumer(queue, callbacks=[take])
        consumer.consume()
        producer = sending.Producer()
        drain = taking.ensure(consumer, lambda: taking.drain_events(timeout=DEADLINE_S), max_retries=3)
        for number in range(3):
            producer.publish(number, routing_key=name, declare=[queue], retry=True, retry_policy={"max_retries": 3})
            while len(seen) <= number:
                drain()
            assert leveret_broker.faults.close_connections(320, "an operator wanted it") == 2
    assert seen == [0, 1, 2]


def test_the_end_of_a_connection_is_an_error_of_every_kind(leveret_broker: LiveBroker) -> None:
    with over(leveret_broker.url) as connection:
        channel = connection.default_channel
        leveret_broker.faults.close_connections(320, "bye")
        with pytest.raises(errors.ConnectionForced, match="bye") as raised:
            connection.drain_events(timeout=DEADLINE_S)
        assert isinstance(raised.value, connection.recoverable_connection_errors)
        assert not connection.connected
        for use in (channel.tx_select, channel.confirm_select, lambda: channel.basic_ack(1)):
            with pytest.raises(errors.ConnectionForced):
                use()


def test_a_broker_that_restarts(leveret_broker: LiveBroker, name: str) -> None:
    queue = kombu.Queue(name, durable=True)
    with over(leveret_broker.url, transport_options={"confirm_publish": True}) as connection:
        producer = connection.Producer()
        producer.publish("before", routing_key=name, declare=[queue], retry=True)
        leveret_broker.restart(crash=True)
        producer.publish("after", routing_key=name, declare=[queue], retry=True)
        bound = queue(connection.default_channel)
        assert [bound.get(no_ack=True).payload for _ in range(2)] == ["before", "after"]


def test_a_silent_broker_is_noticed() -> None:
    with LeveretProcess() as broker, over(broker.url, heartbeat=1) as connection:
        assert connection.get_heartbeat_interval() == 1
        connection.connect()
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(errors.RecoverableConnectionError, match="missed heartbeats"):
                connection.drain_events(timeout=DEADLINE_S)
        finally:
            os.kill(broker.pid, signal.SIGCONT)


def test_publishing_while_the_broker_blocks_publishers(leveret_broker: LiveBroker, name: str) -> None:
    told: list[object] = []
    options = {"on_blocked": told.append, "on_unblocked": lambda: told.append("unblocked")}
    with over(leveret_broker.url, transport_options=options) as connection:
        queue = kombu.Queue(name)(connection.default_channel)
        queue.declare()
        with leveret_broker.faults.disk_full():
            publish(connection, name, 1)
            until(lambda: leveret_broker.block_reason)
            publish(connection, name, 2)  # connections that publish while the alarm is on are told
            while not told:
                connection.heartbeat_check()
            with pytest.raises(errors.RecoverableConnectionError, match="blocks publishers"):
                publish(connection, name, 3, timeout=0.01)
        publish(connection, name, 4, timeout=DEADLINE_S)
        assert told == ["low on disk", "unblocked"]
        assert queue.queue_declare(passive=True).message_count == 3


def test_a_forked_process_leaves_the_connection_to_its_parent(connect: Connect, name: str) -> None:
    connection = connect()
    temporary(connection, name)
    child = os.fork()
    if child == 0:
        connection.collect()
        os._exit(0 if not connection.connected else 1)
    assert os.waitpid(child, 0)[1] == 0
    publish(connection, name, 1)
    assert connection.connected


# loops and threads


def test_a_loop_handles_what_other_calls_have_read(connect: Connect, name: str) -> None:
    connection, hub = connect(), Hub()
    queue = temporary(connection, name)
    seen: list[object] = []
    consumer = connection.Consumer(queue, callbacks=[lambda body, message: seen.append(body)], no_ack=True)
    consumer.consume()
    try:
        connection.register_with_event_loop(hub)
        for number in range(3):
            publish(connection, name, number)
            while queue.queue_declare(passive=True).message_count:
                pass
            # RabbitMQ's answers may overtake its deliveries, so only leveret's are here
            hub.call_soon(lambda: queue.queue_declare(passive=True))
            while len(seen) <= number:
                hub.run_once()
    finally:
        hub.close()
    assert seen == [0, 1, 2]


def test_a_closed_connection_ends_the_loop(leveret_broker: LiveBroker) -> None:
    hub = Hub()
    with over(leveret_broker.url) as connection:
        hub.propagate_errors = connection.connection_errors
        try:
            connection.register_with_event_loop(hub)
            leveret_broker.faults.close_connections(320, "bye")
            with pytest.raises(errors.ConnectionForced):
                hub.run_forever()
        finally:
            hub.close()


def test_threads_take_producers_from_a_pool(connect: Connect, name: str) -> None:
    connection = connect()
    queue = temporary(connection, name)
    pool = producers[connection.clone()]

    def send(first: int) -> None:
        for number in range(first, first + 50):
            with pool.acquire(block=True) as producer:
                producer.publish(number, routing_key=name)

    # an exclusive queue takes messages of every connection
    threads = [threading.Thread(target=send, args=(50 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    with connection.Consumer(queue, callbacks=[lambda body, message: seen.append(body)], no_ack=True):
        while len(seen) < 200:
            connection.drain_events(timeout=DEADLINE_S)
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(200))
    pool.force_close_all()


# TLS


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    trusting = {"ca_certs": str(authority.ca), "server_hostname": "localhost"}
    with SecuredLeveret(authority) as broker:
        for scheme in ("leveret", "leverets"):
            url = broker.tls_url.replace("amqps://", f"{scheme}://")
            with kombu.Connection(url, ssl=trusting) as connection:
                temporary(connection, "secret")
                publish(connection, "secret", "x" * 100_000)
                assert kombu.Queue("secret")(connection.default_channel).get().payload == "x" * 100_000
        stranger = {**trusting, "ca_certs": str(Authority(tmp_path / "theirs").ca)}
        for distrusting in (stranger, {**trusting, "server_hostname": "elsewhere"}, True):
            with kombu.Connection(url, ssl=distrusting) as connection, pytest.raises(ssl.SSLCertVerificationError):
                connection.connect()
        for careless in ({"cert_reqs": ssl.CERT_NONE}, {"ca_certs": str(authority.ca), "check_hostname": False}):
            with kombu.Connection(url, ssl=careless) as connection:
                connection.connect()


def test_a_tls_setting_that_the_client_does_not_have() -> None:
    with pytest.raises(ValueError, match=re.escape("no TLS setting 'ciphers'; it has ca_certs")):
        tls_options({"ca_certs": None, "ciphers": "x"})
