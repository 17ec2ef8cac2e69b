"""An independent client (pika) that acts like NServiceBus.RabbitMQ, beside an endpoint of leveret."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret.delay import CONVENTIONAL, NSERVICEBUS, NSERVICEBUS_V2, Layout, RoutingTopology
from leveret.endpoint import Context

from .support import OrderEvent, OrderPlaced, PlaceOrder, Price, endpoint, within

SENT_BY_DOTNET = {
    "NServiceBus.ConversationId": "conversation",
    "NServiceBus.CorrelationId": "correlation",
    "NServiceBus.MessageIntent": "Send",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.EnclosedMessageTypes": "Sales.PlaceOrder, Sales.Messages, Version=1.0.0.0, Culture=neutral, "
    "PublicKeyToken=null;Sales.IPlaceOrder, Sales.Messages, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",
    "NServiceBus.OriginatingEndpoint": "dotnet",
    "NServiceBus.OriginatingMachine": "windows",
    "NServiceBus.TimeSent": "2026-01-02 03:04:05:678901 Z",
    "NServiceBus.Version": "8.1.6",
    "$.diagnostics.originating.hostid": "0123456789abcdef0123456789abcdef",
}


class DotNet:
    """The other endpoint: declares, binds, publishes and reads as NServiceBus's transport does."""

    def __init__(self, channel: BlockingChannel, name: str, layout: Layout, routing: RoutingTopology) -> None:
        self.channel = channel
        self.name = name
        self.layout = layout
        self.is_conventional = routing is CONVENTIONAL
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True)
        if self.is_conventional:
            channel.exchange_declare(name, "fanout", durable=True)
            channel.queue_bind(name, name, "")
        self._declare_levels()
        self._bind(name)

    def _declare_levels(self) -> None:
        """Level by level from the top; each dead-letters to an exchange that is declared after it."""
        layout = self.layout
        is_quorum = layout is NSERVICEBUS_V2
        prefix = "nsb.v2" if is_quorum else "nsb"
        for level in range(27, -1, -1):
            name = f"{prefix}.delay-level-{level:02d}"
            lower = f"{prefix}.delay-level-{level - 1:02d}" if level else f"{prefix}.delay-delivery"
            kind: dict[str, Any] = (
                {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
                if is_quorum
                else {"x-queue-mode": "lazy"}
            )
            self.channel.exchange_declare(name, "topic", durable=True)
            arguments = {**kind, "x-message-ttl": 2**level * 1000, "x-dead-letter-exchange": lower}
            self.channel.queue_declare(name, durable=True, arguments=arguments)
            self.channel.queue_bind(name, name, "*." * (27 - level) + "1.#")
        for level in range(27, 0, -1):
            self.channel.exchange_bind(
                f"{prefix}.delay-level-{level - 1:02d}",
                f"{prefix}.delay-level-{level:02d}",
                "*." * (27 - level) + "0.#",
            )
        self.delivery = f"{prefix}.delay-delivery"
        self.prefix = prefix
        self.channel.exchange_declare(self.delivery, "topic", durable=True)
        self.channel.exchange_bind(self.delivery, f"{prefix}.delay-level-00", "*." * 27 + "0.#")

    def _bind(self, address: str) -> None:
        if self.is_conventional:
            self.channel.exchange_bind(address, self.delivery, f"#.{address}")
        else:
            self.channel.queue_bind(address, self.delivery, f"#.{address}")

    def send(self, address: str, body: bytes, delay_s: int | None = None, **headers: str) -> str:
        """Send to an endpoint, at once or after whole seconds; return the message's id."""
        message_id = str(uuid.uuid4())
        told: dict[str, Any] = {**SENT_BY_DOTNET, "NServiceBus.MessageId": message_id, **headers}
        told["NServiceBus.ReplyToAddress"] = self.name
        exchange, key = (address, "") if self.is_conventional else ("", address)
        if delay_s is not None:
            self._bind(address)
            told["NServiceBus.Transport.RabbitMQ.DelayInSeconds"] = delay_s
            key = ".".join(f"{delay_s:028b}") + "." + address
            exchange = f"{self.prefix}.delay-level-{delay_s.bit_length() - 1:02d}"
        properties = pika.BasicProperties(
            message_id=message_id,
            correlation_id="correlation",
            type="Sales.PlaceOrder",
            content_type="application/json",
            reply_to=self.name,
            delivery_mode=2,
            headers=told,
        )
        self.channel.basic_publish(exchange, key, body, properties, mandatory=True)
        return message_id

    def receive(self) -> tuple[bytes, pika.BasicProperties]:
        """Return the next message."""
        for method, properties, body in self.channel.consume(self.name, inactivity_timeout=30):
            assert method is not None, "nothing came"
            self.channel.basic_ack(method.delivery_tag)
            self.channel.cancel()
            return body, properties
        raise AssertionError


@pytest.fixture
def connection(url: str) -> Iterator[pika.BlockingConnection]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        yield connection


@pytest.mark.parametrize("layout", [NSERVICEBUS, NSERVICEBUS_V2], ids=["v1", "v2"])
async def test_both_ways_with_and_without_delay(
    url: str, name: str, routing: RoutingTopology, layout: Layout, connection: pika.BlockingConnection
) -> None:
    dotnet = DotNet(connection.channel(), f"{name}.dotnet", layout, routing)
    node = endpoint(name, url, routing, layout=layout)
    seen: asyncio.Queue[tuple[PlaceOrder, Context, float]] = asyncio.Queue()

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        await seen.put((order, context, time.monotonic()))
        context.reply(Price(2.5))

    async with node:
        for delay_s in (None, 1):
            start = time.monotonic()
            message_id = dotnet.send(name, b'\xef\xbb\xbf{"order":7,"$type":"Sales.PlaceOrder, Sales"}', delay_s)
            order_, context, arrived = await within(seen.get())
            assert order_ == PlaceOrder(7)
            assert arrived - start >= (delay_s or 0)
            assert context.message_id == message_id
            assert {**SENT_BY_DOTNET, "NServiceBus.CorrelationId": "correlation"}.items() <= context.headers.items()
            assert not [header for header in context.headers if header.startswith(("x-", "NServiceBus.Transport"))]
            body, properties = await asyncio.to_thread(dotnet.receive)
            assert json.loads(body) == {"amount": 2.5}
            assert (properties.type, properties.correlation_id) == ("Sales.Price", "correlation")
            assert properties.headers["NServiceBus.MessageIntent"] == "Reply"
            assert properties.headers["NServiceBus.RelatedTo"] == message_id
            assert properties.headers["NServiceBus.ConversationId"] == "conversation"
        start = time.monotonic()
        await node.send(dotnet.name, PlaceOrder(8), delay=1)
        body, properties = await asyncio.to_thread(dotnet.receive)
        assert time.monotonic() - start >= 1
    assert json.loads(body) == {"order": 8}
    assert properties.headers["NServiceBus.Transport.RabbitMQ.DelayInSeconds"] == 1
    assert "NServiceBus.DeliverAt" in properties.headers
    assert properties.headers["NServiceBus.EnclosedMessageTypes"] == "Sales.PlaceOrder"
    assert properties.headers["NServiceBus.ReplyToAddress"] == properties.reply_to == name
    assert properties.message_id == properties.headers["NServiceBus.MessageId"]
    assert properties.content_type == properties.headers["NServiceBus.ContentType"] == "application/json"
    assert properties.delivery_mode == 2


async def test_events_both_ways(
    url: str, name: str, routing: RoutingTopology, connection: pika.BlockingConnection
) -> None:
    channel = connection.channel()
    dotnet = DotNet(channel, f"{name}.dotnet", NSERVICEBUS, routing)
    node = endpoint(name, url, routing, layout=NSERVICEBUS)
    seen: asyncio.Queue[OrderEvent] = asyncio.Queue()

    @node.event_handler
    async def event(event: OrderEvent, context: Context) -> None:
        await seen.put(event)

    # NServiceBus's declarations to subscribe to Sales.OrderEvent, and to publish a Sales.OrderPlaced
    if routing is CONVENTIONAL:
        for exchange in ("Sales:OrderEvent", "Sales:OrderPlaced"):
            channel.exchange_declare(exchange, "fanout", durable=True)
        channel.exchange_bind("Sales:OrderEvent", "Sales:OrderPlaced")
        channel.exchange_bind(dotnet.name, "Sales:OrderEvent")
        where = ("Sales:OrderPlaced", "")
    else:
        channel.queue_bind(dotnet.name, "amq.topic", "Sales-OrderEvent.#")
        where = ("amq.topic", "Sales-OrderEvent.Sales-OrderPlaced")
    async with node:
        told = {
            **SENT_BY_DOTNET,
            "NServiceBus.EnclosedMessageTypes": "Sales.OrderPlaced, Sales;Sales.OrderEvent, Sales",
        }
        properties = pika.BasicProperties(message_id="event", type="Sales.OrderPlaced", headers=told)
        channel.basic_publish(*where, b'{"order":1,"total":3}', properties)
        assert await within(seen.get()) == OrderEvent(1)
        body, _ = await asyncio.to_thread(dotnet.receive)  # its own subscription
        assert json.loads(body)["order"] == 1
        await node.publish(OrderPlaced(2, 4.0))
        assert await within(seen.get()) == OrderEvent(2)
        body, properties = await asyncio.to_thread(dotnet.receive)
    assert json.loads(body) == {"order": 2, "total": 4.0}
    assert properties.headers["NServiceBus.EnclosedMessageTypes"] == "Sales.OrderPlaced;Sales.OrderEvent"
    assert properties.headers["NServiceBus.MessageIntent"] == "Publish"


async def test_what_an_older_endpoints_timeout_manager_sends(
    url: str, name: str, routing: RoutingTopology, connection: pika.BlockingConnection
) -> None:
    """A non-native endpoint's delayed message arrives without delay levels, with the headers of its timeout."""
    dotnet = DotNet(connection.channel(), f"{name}.old", NSERVICEBUS, routing)
    node = endpoint(name, url, routing, layout=NSERVICEBUS)
    seen: asyncio.Queue[Context] = asyncio.Queue()

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        await seen.put(context)
        if order.order == 1:
            context.send(name, PlaceOrder(2))

    timeout = {
        "NServiceBus.IsDeferredMessage": "True",
        "NServiceBus.Timeout.Expire": "2026-01-02 03:04:05:678901 Z",
        "NServiceBus.Timeout.RouteExpiredTimeoutTo": name,
        "NServiceBus.RelatedToTimeoutId": "1",
    }
    async with node:
        dotnet.send(name, b'{"order":1}', **timeout)
        assert timeout.items() <= (await within(seen.get())).headers.items()
        following = await within(seen.get())
    assert not timeout.keys() & following.headers.keys()


async def test_old_endpoints_want_replies_in_a_queue_of_their_own(
    url: str, name: str, connection: pika.BlockingConnection
) -> None:
    dotnet = DotNet(connection.channel(), f"{name}.callbacks", NSERVICEBUS, CONVENTIONAL)
    node = endpoint(name, url, layout=NSERVICEBUS)

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        context.reply(Price(1))

    async with node:
        callback = {"NServiceBus.RabbitMQ.CallbackQueue": dotnet.name}
        dotnet.send(name, b'{"order":1}', **callback)
        body, _ = await asyncio.to_thread(dotnet.receive)
    assert json.loads(body) == {"amount": 1}
