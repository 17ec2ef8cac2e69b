"""What endpoints send each other: commands, events, replies, immediate and delayed, in both routing topologies."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leveret.client import Channel
from leveret.delay import CONVENTIONAL, DestinationMissing, RoutingTopology
from leveret.endpoint import Context, UndecodableMessage

from .support import OrderEvent, OrderPlaced, PlaceOrder, Price, endpoint, within


async def test_a_command_an_event_and_what_their_headers_tell(url: str, name: str, routing: RoutingTopology) -> None:
    sales, billing = endpoint(f"{name}.sales", url, routing), endpoint(f"{name}.billing", url, routing)
    seen: asyncio.Queue[tuple[Any, Context]] = asyncio.Queue()

    @sales.handler
    async def place(order: PlaceOrder, context: Context) -> None:
        await seen.put((order, context))
        context.publish(OrderPlaced(order.order, 9.5))

    @billing.event_handler
    async def placed(event: OrderPlaced, context: Context) -> None:
        await seen.put((event, context))

    async with sales, billing:
        await billing.send(sales.name, PlaceOrder(7), headers={"mine": "yes"})
        order, command = await within(seen.get())
        event, told = await within(seen.get())
    assert (order, event) == (PlaceOrder(7), OrderPlaced(7, 9.5))
    assert command.headers["NServiceBus.MessageIntent"] == "Send"
    assert command.headers["NServiceBus.OriginatingEndpoint"] == billing.name
    assert command.headers["mine"] == "yes"
    assert command.reply_to == billing.name
    assert told.headers["NServiceBus.MessageIntent"] == "Publish"
    assert told.headers["NServiceBus.EnclosedMessageTypes"] == "Sales.OrderPlaced;Sales.OrderEvent"
    assert told.headers["NServiceBus.RelatedTo"] == command.message_id
    for same in ("NServiceBus.ConversationId", "NServiceBus.CorrelationId"):
        assert told.headers[same] == command.headers[same]
    assert told.message_id != command.message_id


async def test_who_subscribes_to_a_general_type_gets_the_special_events(
    url: str, name: str, routing: RoutingTopology
) -> None:
    sales, audit = endpoint(f"{name}.sales", url, routing), endpoint(f"{name}.audit", url, routing)
    seen: asyncio.Queue[int] = asyncio.Queue()

    @audit.handler
    async def event(event: OrderEvent, context: Context) -> None:
        await seen.put(event.order)

    async with sales, audit:
        await sales.publish(OrderPlaced(1))  # without a subscriber: no error, and the event is dropped
        await audit.subscribe(OrderEvent)
        await sales.publish(OrderPlaced(2))
        assert await within(seen.get()) == 2
        await audit.unsubscribe(OrderEvent)
        await sales.publish(OrderPlaced(3))
        await sales.send(audit.name, OrderPlaced(4))
        assert await within(seen.get()) == 4


async def test_a_request_gets_its_reply(url: str, name: str, routing: RoutingTopology) -> None:
    prices, shop = endpoint(f"{name}.prices", url, routing), endpoint(f"{name}.shop", url, routing)

    @prices.handler("Shop.GetPrice")
    async def get(message: dict[str, Any], context: Context) -> None:
        if message["of"] == "nothing":
            return
        context.reply(Price(message["of"] * 2))

    async with prices, shop:
        answers = await within(
            asyncio.gather(
                *(shop.request(prices.name, {"of": n}, Price, message_type="Shop.GetPrice") for n in range(20))
            )
        )
        assert answers == [Price(n * 2) for n in range(20)]
        assert await shop.request(prices.name, {"of": 1}, message_type="Shop.GetPrice") == {"amount": 2}
        with pytest.raises(UndecodableMessage):
            await shop.request(prices.name, {"of": 1}, PlaceOrder, message_type="Shop.GetPrice")
        with pytest.raises(TimeoutError):
            await shop.request(prices.name, {"of": "nothing"}, message_type="Shop.GetPrice", timeout_s=0.05)


async def test_delays_are_kept_and_leave_no_traces(url: str, name: str, routing: RoutingTopology) -> None:
    node = endpoint(name, url, routing)
    seen: asyncio.Queue[tuple[float, Context]] = asyncio.Queue()

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        await seen.put((time.monotonic(), context))

    async with node:
        for delay in (timedelta(milliseconds=130), 0.13):
            start = time.monotonic()
            await node.send_local(PlaceOrder(1), delay=delay)
            arrived, context = await within(seen.get())
            assert arrived - start >= 0.13
            assert not [header for header in context.headers if header.startswith(("x-", "NServiceBus.Transport"))]
        due = datetime.now(UTC) + timedelta(milliseconds=150)
        await node.send_local(PlaceOrder(2), at=due)
        await within(seen.get())
        assert datetime.now(UTC) >= due
        await node.send_local(PlaceOrder(3), at=due)  # a past time means now
        await within(seen.get())


async def test_a_handler_defers_forwards_and_sends_to_itself(url: str, name: str, routing: RoutingTopology) -> None:
    first, second = endpoint(f"{name}.first", url, routing), endpoint(f"{name}.second", url, routing)
    seen: asyncio.Queue[Context] = asyncio.Queue()

    @first.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        await seen.put(context)
        if order.order == 2:
            context.forward(second.name)
        elif "NServiceBus.IsDeferredMessage" not in context.headers:
            context.defer(timedelta(milliseconds=50))
        else:
            context.send_local(PlaceOrder(2))

    @second.handler
    async def forwarded(order: PlaceOrder, context: Context) -> None:
        await seen.put(context)

    async with first, second:
        await first.send_local(PlaceOrder(1))
        original, deferred, local, there = [await within(seen.get()) for _ in range(4)]
    assert original.message_id == deferred.message_id
    assert original.body == deferred.body
    assert local.headers["NServiceBus.RelatedTo"] == original.message_id
    assert there.message_id == local.message_id


async def test_what_a_failed_handler_wanted_sent_is_not_sent(url: str, name: str, routing: RoutingTopology) -> None:
    node = endpoint(name, url, routing)
    seen: asyncio.Queue[int] = asyncio.Queue()

    @node.handler
    async def order(order: PlaceOrder, context: Context) -> None:
        context.send(node.name, OrderPlaced(context.immediate_retries))
        if context.immediate_retries == 0:
            raise RuntimeError("the first time it fails")

    @node.handler
    async def placed(event: OrderPlaced, context: Context) -> None:
        await seen.put(event.order)

    async with node:
        await node.send_local(PlaceOrder(1))
        assert await within(seen.get()) == 1
        await node.send_local(OrderPlaced(99))
        assert await within(seen.get()) == 99


@pytest.mark.parametrize("delay", [None, 0, 5])
async def test_a_destination_that_is_not_there_is_named(
    url: str, name: str, routing: RoutingTopology, delay: float | None
) -> None:
    async with endpoint(name, url, routing) as node:
        for _ in range(2):  # and the endpoint goes on sending
            with pytest.raises(DestinationMissing, match=f"{name}.nobody"):
                await node.send(f"{name}.nobody", PlaceOrder(1), delay=delay)
        await node.publish(OrderPlaced(1))


async def test_a_destination_that_is_deleted_troubles_no_other(
    url: str, name: str, channel: Channel, routing: RoutingTopology
) -> None:
    """The broker then closes the channel on which other sends wait for their confirms."""
    async with endpoint(f"{name}.gone", url, routing):
        pass
    async with endpoint(name, url, routing) as node:
        await node.send(f"{name}.gone", PlaceOrder(1))
        await channel.delete_queue(f"{name}.gone")
        await channel.delete_exchange(f"{name}.gone")
        sent = (node.send(f"{name}.gone", PlaceOrder(2)), *(node.send_local(PlaceOrder(n)) for n in range(20)))
        refused, *others = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(refused, DestinationMissing)
        assert others == [None] * 20


async def test_an_endpoint_that_knows_no_delays_is_bound_by_the_sender(
    url: str, name: str, channel: Channel, routing: RoutingTopology
) -> None:
    await channel.declare_queue(f"{name}.old")
    if routing is CONVENTIONAL:
        await channel.declare_exchange(f"{name}.old", kind="fanout")
        await channel.bind_queue(f"{name}.old", f"{name}.old")
    consumer = await channel.consume(f"{name}.old", no_ack=True)
    async with endpoint(name, url, routing) as node:
        await node.send(f"{name}.old", PlaceOrder(1), delay=0.02)
        assert (await within(anext(consumer))).body == b'{"order":1}'


async def test_what_cannot_be_sent_is_refused_before_anything_is(url: str, name: str) -> None:
    node = endpoint(name, url)
    with pytest.raises(RuntimeError, match="is not running"):
        await node.send(name, PlaceOrder(1))
    async with node:
        with pytest.raises(TypeError, match="int is not a message type"):
            await node.send(name, 5)
        with pytest.raises(ValueError, match="negative"):
            await node.send(name, PlaceOrder(1), delay=-1)
        with pytest.raises(ValueError, match="too long"):
            await node.send(name, PlaceOrder(1), delay=timedelta(days=400))
        with pytest.raises(TypeError, match="time zone"):
            await node.send(name, PlaceOrder(1), at=datetime(2030, 1, 1))  # noqa: DTZ001
        with pytest.raises(ValueError, match="either"):
            await node.send(name, PlaceOrder(1), delay=1, at=datetime.now(UTC))
        with pytest.raises(ValueError, match="octets"):
            await node.send(name, PlaceOrder(1), headers={"long": "x" * 200_000})
        with pytest.raises(ValueError, match="destination"):
            await node.send("", PlaceOrder(1))
        await node.send(name, PlaceOrder(1))
