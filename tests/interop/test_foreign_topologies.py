"""The topologies that MassTransit and EasyNetQ declare, built with pika from their documentation, on both brokers.

There is no .NET here: these tests show that the brokers route, dead-letter and delay what such programs declare and
publish, not that the programs run.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from ..waiting import until


@pytest.fixture
def channel(url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def name() -> str:
    """The beginning of all names of a test."""
    return f"Shop{uuid.uuid4().hex[:12]}"


def fetched(channel: BlockingChannel, queue: str) -> tuple[pika.spec.Basic.GetOk, pika.BasicProperties, bytes]:
    """Return the next message of a queue as soon as there is one."""

    def get() -> tuple[pika.spec.Basic.GetOk, pika.BasicProperties, bytes] | None:
        method, properties, body = channel.basic_get(queue)
        return None if method is None else (method, properties, body)

    return until(get, f"queue {queue} is empty")


def length(channel: BlockingChannel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).method.message_count


class MassTransit:
    """What MassTransit 8 declares on RabbitMQ: fanout exchanges, bound to each other (its "Topology" pages)."""

    def __init__(self, channel: BlockingChannel, name: str) -> None:
        self.channel = channel
        self.name = name

    def message_type(self, type: str, *bases: str) -> str:
        """Declare a message type's exchange, bound to those of the types that it implements; return its name."""
        exchange = f"{self.name}.Contracts:{type}"
        self.channel.exchange_declare(exchange, "fanout", durable=True)
        for base in bases:
            self.channel.exchange_bind(self.message_type(base), exchange)
        return exchange

    def endpoint(self, endpoint: str, *types: str) -> str:
        """Declare a receive endpoint: an exchange and a queue of one name, and bindings from its message types."""
        queue = f"{self.name}.{endpoint}"
        self.channel.exchange_declare(queue, "fanout", durable=True)
        self.channel.queue_declare(queue, durable=True)
        self.channel.queue_bind(queue, queue)
        for type in types:
            self.channel.exchange_bind(queue, self.message_type(type))
        return queue

    def move(self, queue: str, suffix: str, headers: dict[str, str]) -> str:
        """Move the next message to the queue's error or skipped queue, as the program does it: publish, then ack."""
        method, properties, body = fetched(self.channel, queue)
        target = f"{queue}{suffix}"
        self.channel.exchange_declare(target, "fanout", durable=True)
        self.channel.queue_declare(target, durable=True)
        self.channel.queue_bind(target, target)
        properties.headers = {**(properties.headers or {}), **headers}
        self.channel.basic_publish(target, "", body, properties, mandatory=True)
        self.channel.basic_ack(method.delivery_tag)
        return target


def test_masstransit_publishes_to_all_endpoints_of_a_type_and_of_its_bases(channel: BlockingChannel, name: str) -> None:
    bus = MassTransit(channel, name)
    billing = bus.endpoint("billing", "OrderSubmitted")
    audit = bus.endpoint("audit", "Event")
    other = bus.endpoint("other", "OrderCancelled")
    order = bus.message_type("OrderSubmitted", "Event")
    bus.message_type("OrderCancelled", "Event")
    channel.basic_publish(order, "", b"order", pika.BasicProperties(delivery_mode=2), mandatory=True)
    assert [fetched(channel, queue)[2] for queue in (billing, audit)] == [b"order", b"order"]
    assert [length(channel, queue) for queue in (billing, audit, other)] == [0, 0, 0]


def test_masstransit_sends_to_an_endpoint(channel: BlockingChannel, name: str) -> None:
    bus = MassTransit(channel, name)
    queue = bus.endpoint("shipping", "Ship")
    channel.basic_publish(queue, "", b"command", mandatory=True)
    assert fetched(channel, queue)[2] == b"command"


@pytest.mark.parametrize(
    ("suffix", "headers"),
    [
        ("_error", {"MT-Fault-ExceptionType": "System.InvalidOperationException", "MT-Reason": "fault"}),
        ("_skipped", {"MT-Reason": "dead-letter"}),
    ],
)
def test_masstransit_moves_messages_aside(
    channel: BlockingChannel, name: str, suffix: str, headers: dict[str, str]
) -> None:
    bus = MassTransit(channel, name)
    queue = bus.endpoint("shipping", "Ship")
    channel.basic_publish(bus.message_type("Ship"), "", b"faulty", pika.BasicProperties(message_id="m-1"))
    aside = bus.move(queue, suffix, headers)
    _, properties, body = fetched(channel, aside)
    assert (properties.message_id, properties.headers, body) == ("m-1", headers, b"faulty")
    assert length(channel, queue) == 0


def test_masstransit_replies_to_a_temporary_endpoint(channel: BlockingChannel, name: str) -> None:
    """The bus endpoint of a client: an auto-delete exchange, and a queue that expires a minute after its last use."""
    bus = MassTransit(channel, name)
    service = bus.endpoint("prices", "PriceRequest")
    client = f"{name}_machine_dotnet_bus_1"
    channel.exchange_declare(client, "fanout", durable=False, auto_delete=True)
    channel.queue_declare(client, durable=False, arguments={"x-expires": 60000})
    channel.queue_bind(client, client)
    request = pika.BasicProperties(headers={"MT-Request-Id": "r-1"}, reply_to=client)
    channel.basic_publish(bus.message_type("PriceRequest"), "", b"request", request, mandatory=True)
    _, received, _ = fetched(channel, service)
    channel.basic_publish(str(received.reply_to), "", b"reply", mandatory=True)
    assert fetched(channel, client)[2] == b"reply"
    channel.queue_delete(client)
    # an auto-delete exchange goes with its last binding
    channel.exchange_declare(client, "topic", auto_delete=True)
    channel.exchange_delete(client)


def test_masstransit_delays_by_an_exchange(broker: str, name: str) -> None:
    """Only on leveret: RabbitMQ needs the plugin rabbitmq_delayed_message_exchange for it."""
    with pika.BlockingConnection(pika.URLParameters(broker)) as connection:
        channel = connection.channel()
        bus = MassTransit(channel, name)
        queue = bus.endpoint("reminders", "Remind")
        delay = f"{queue}_delay"
        channel.exchange_declare(delay, "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
        channel.exchange_bind(queue, delay)
        started_s = time.monotonic()
        channel.basic_publish(delay, "", b"later", pika.BasicProperties(headers={"x-delay": 200}))
        assert fetched(channel, queue)[2] == b"later"
        assert time.monotonic() - started_s >= 0.2


class EasyNetQ:
    """What EasyNetQ 7 declares: a topic exchange for each message type, a queue for each subscription."""

    def __init__(self, channel: BlockingChannel, name: str) -> None:
        self.channel = channel
        self.exchange = f"{name}.Messages.TextMessage, {name}.Messages"
        channel.exchange_declare(self.exchange, "topic", durable=True)

    def subscribe(self, subscription: str, topic: str = "#") -> str:
        queue = f"{self.exchange}_{subscription}"
        self.channel.queue_declare(queue, durable=True)
        self.channel.queue_bind(queue, self.exchange, topic)
        return queue

    def future_publish(self, body: bytes, topic: str, delay_ms: int, label: str) -> None:
        """Publish a message by its own dead-letter scheduler: an exchange and a queue for each delay."""
        future, queue = f"{self.exchange}_{label}", f"{self.exchange}_{label}.queue"
        self.channel.exchange_declare(future, "topic", durable=True)
        arguments = {"x-message-ttl": delay_ms, "x-dead-letter-exchange": self.exchange}
        self.channel.queue_declare(queue, durable=True, arguments=arguments)
        self.channel.queue_bind(queue, future, topic)
        self.channel.basic_publish(future, topic, body, pika.BasicProperties(delivery_mode=2), mandatory=True)


def test_easynetq_publishes_to_subscriptions_by_topic(channel: BlockingChannel, name: str) -> None:
    bus = EasyNetQ(channel, name)
    everything, errors = bus.subscribe("everything"), bus.subscribe("errors", "*.error")
    channel.basic_publish(bus.exchange, "log.error", b"an error", mandatory=True)
    channel.basic_publish(bus.exchange, "log.info", b"an information", mandatory=True)
    assert [fetched(channel, everything)[2] for _ in range(2)] == [b"an error", b"an information"]
    assert fetched(channel, errors)[2] == b"an error"
    assert length(channel, errors) == 0


def test_easynetq_delays_by_dead_letters_and_keeps_the_topic(channel: BlockingChannel, name: str) -> None:
    """Each delay has a queue of its own, so that a short one does not wait behind a long one."""
    bus = EasyNetQ(channel, name)
    matching, other = bus.subscribe("matching", "log.*"), bus.subscribe("other", "audit.*")
    bus.future_publish(b"much later", "log.error", 3_600_000, "00_01_00_00")
    started_s = time.monotonic()
    bus.future_publish(b"later", "log.error", 200, "00_00_00_00")
    method, properties, body = fetched(channel, matching)
    assert time.monotonic() - started_s >= 0.2
    assert (method.exchange, method.routing_key, body) == (bus.exchange, "log.error", b"later")
    assert properties.headers["x-death"][0]["reason"] == "expired"
    assert length(channel, other) == 0


def test_easynetq_delays_by_an_exchange(broker: str, name: str) -> None:
    """Only on leveret: RabbitMQ needs the plugin rabbitmq_delayed_message_exchange for it."""
    with pika.BlockingConnection(pika.URLParameters(broker)) as connection:
        channel = connection.channel()
        bus = EasyNetQ(channel, name)
        queue = bus.subscribe("matching", "log.*")
        delayed = f"{bus.exchange}_delayed"
        channel.exchange_declare(delayed, "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"})
        channel.exchange_bind(bus.exchange, delayed, "log.error")
        started_s = time.monotonic()
        channel.basic_publish(delayed, "log.error", b"later", pika.BasicProperties(headers={"x-delay": 200}))
        method, _, body = fetched(channel, queue)
        assert time.monotonic() - started_s >= 0.2
        assert (method.routing_key, body) == ("log.error", b"later")


def test_easynetq_publishes_errors_to_the_default_error_queue(channel: BlockingChannel, name: str) -> None:
    """The program publishes a description of the failure, and acknowledges the message."""
    bus = EasyNetQ(channel, name)
    queue = bus.subscribe("failing")
    channel.basic_publish(bus.exchange, "log.error", b"faulty", mandatory=True)
    method, _, body = fetched(channel, queue)
    exchange, errors = f"ErrorExchange_{name}", f"EasyNetQ_Default_Error_Queue_{name}"
    channel.exchange_declare(exchange, "direct", durable=True)
    channel.queue_declare(errors, durable=True)
    channel.queue_bind(errors, exchange, method.routing_key)
    description = json.dumps({"Exchange": method.exchange, "RoutingKey": method.routing_key, "Message": body.decode()})
    channel.basic_publish(exchange, method.routing_key, description.encode(), mandatory=True)
    channel.basic_ack(method.delivery_tag)
    assert json.loads(fetched(channel, errors)[2])["Message"] == "faulty"
    assert length(channel, queue) == 0


def test_easynetq_requests_and_responses(channel: BlockingChannel, name: str) -> None:
    bus = EasyNetQ(channel, name)
    requests, responses = f"{bus.exchange}.request", f"easynetq.response.{uuid.uuid4()}"
    rpc = f"easy_net_q_rpc_{name}"
    channel.exchange_declare(rpc, "direct", durable=True)
    channel.queue_declare(requests, durable=True)
    channel.queue_bind(requests, rpc, requests)
    channel.queue_declare(responses, exclusive=True, auto_delete=True)
    sent = pika.BasicProperties(reply_to=responses, correlation_id="c-1")
    channel.basic_publish(rpc, requests, b"request", sent, mandatory=True)
    _, received, _ = fetched(channel, requests)
    reply = pika.BasicProperties(correlation_id=received.correlation_id)
    channel.basic_publish("", str(received.reply_to), b"response", reply, mandatory=True)
    _, properties, body = fetched(channel, responses)
    assert (properties.correlation_id, body) == ("c-1", b"response")
