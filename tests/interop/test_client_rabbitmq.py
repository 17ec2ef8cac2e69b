"""The asyncio client on live brokers: the same tests on leveret and on a RabbitMQ."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from leveret.client import (
    AuthenticationFailed,
    Channel,
    ChannelClosed,
    Connection,
    ConnectionClosed,
    ConsumerCancelled,
    Nacked,
    Properties,
    RpcTimeout,
    Unroutable,
    connect,
)

from ..shared import vhost


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"client.{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    async with await connect(url, reconnect=False) as connection:
        yield connection


@pytest.fixture
async def channel(connection: Connection) -> Channel:
    return await connection.channel()


async def temporary(channel: Channel, name: str) -> str:
    """Declare an exclusive queue."""
    return (await channel.declare_queue(name, durable=False, exclusive=True)).name


async def serve(channel: Channel, queue: str) -> None:
    """Answer every request with its body and an exclamation mark."""
    async for request in await channel.consume(queue, no_ack=True):
        correlation = Properties(correlation_id=request.properties.correlation_id)
        channel.publish(request.body + b"!", "", str(request.properties.reply_to), correlation)


async def test_a_published_message_is_consumed_as_it_was_sent(channel: Channel, name: str) -> None:
    await channel.declare_exchange(name, "topic", durable=False, auto_delete=True)
    queue = await temporary(channel, "")
    await channel.bind_queue(queue, name, "flight.*.AA")
    sent = Properties(
        content_type="application/json",
        headers={"count": 3, "nested": {"yes": True}, "list": [1, "two"]},
        delivery_mode=2,
        priority=4,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
    )
    consumer = await channel.consume(queue, tag="mine")
    channel.publish(b"dropped", name, "flight.JFK.UA")
    channel.publish("grüße".encode(), name, "flight.JFK.AA", sent)
    delivery = await anext(consumer)
    assert (delivery.body.decode(), delivery.properties) == ("grüße", sent)
    assert (delivery.exchange, delivery.routing_key, delivery.consumer_tag) == (name, "flight.JFK.AA", "mine")
    assert (delivery.delivery_tag, delivery.redelivered) == (1, False)


async def test_get_nack_requeue_and_ack(channel: Channel, name: str) -> None:
    queue = await temporary(channel, name)
    assert await channel.get(queue) is None
    channel.publish(b"one", "", queue)
    first = await channel.get(queue)
    assert first is not None
    assert (first.body, first.redelivered, first.consumer_tag) == (b"one", False, "")
    channel.nack(first.delivery_tag)
    second = await channel.get(queue)
    assert second is not None
    assert second.redelivered
    channel.reject(second.delivery_tag, requeue=True)
    third = await channel.get(queue)
    assert third is not None
    channel.ack(third.delivery_tag)
    assert await channel.get(queue) is None
    assert (await channel.declare_queue(queue, passive=True)).message_count == 0


async def test_transactions(channel: Channel, name: str) -> None:
    queue = await temporary(channel, name)
    returned: list[Unroutable] = []
    channel.on_return(returned.append)
    await channel.tx_select()
    channel.publish(b"one", "", queue)
    await channel.tx_rollback()
    for _ in range(2):
        channel.publish(b"two", "", queue)
    channel.publish(b"nowhere", "", f"{name}.missing", mandatory=True)
    assert await channel.get(queue) is None
    assert not returned
    await channel.tx_commit()
    assert [each.routing_key for each in returned] == [f"{name}.missing"]
    delivery = await channel.get(queue)
    assert delivery is not None
    assert delivery.body == b"two"
    channel.ack(delivery.delivery_tag)
    await channel.tx_commit()
    assert (await channel.declare_queue(queue, passive=True)).message_count == 1
    with pytest.raises(ChannelClosed, match="cannot switch from tx to confirm mode"):
        await channel.confirm_select()


async def test_prefetch_and_multiple_ack(channel: Channel, name: str) -> None:
    queue = await temporary(channel, name)
    for number in range(6):
        channel.publish(b"%d" % number, "", queue)
    await channel.qos(2)
    consumer = await channel.consume(queue)
    for expected in (b"0", b"2", b"4"):
        first, second = await anext(consumer), await anext(consumer)
        assert first.body == expected
        channel.ack(second.delivery_tag, multiple=True)
    await consumer.cancel()
    assert [delivery async for delivery in consumer] == []
    assert await channel.delete_queue(queue) == 0


async def test_purge_and_bindings_between_exchanges(channel: Channel, name: str) -> None:
    queue = await temporary(channel, name)
    await channel.declare_exchange(f"{name}.in", "fanout", durable=False)
    await channel.declare_exchange(f"{name}.out", "direct", durable=False)
    await channel.bind_exchange(f"{name}.out", f"{name}.in")
    await channel.bind_queue(queue, f"{name}.out", "k")
    channel.publish(b"through", f"{name}.in", "k")
    assert await channel.purge_queue(queue) == 1
    await channel.unbind_exchange(f"{name}.out", f"{name}.in")
    channel.publish(b"nowhere", f"{name}.in", "k")
    channel.publish(b"stays", f"{name}.out", "k")
    await channel.unbind_queue(queue, f"{name}.out", "k")
    assert await channel.delete_queue(queue) == 1
    await channel.delete_exchange(f"{name}.in")
    await channel.delete_exchange(f"{name}.out")


async def test_ten_thousand_pipelined_confirms(channel: Channel, name: str) -> None:
    queue = await temporary(channel, name)
    channel.publish(b"before confirms, not counted", "", queue)
    await channel.confirm_select()
    confirms = [channel.publish(b"%d" % number, "", queue) for number in range(10_000)]
    assert channel.outstanding == 10_000
    await channel.wait_for_confirms()
    assert channel.outstanding == 0
    assert all(confirm.done() and confirm.exception() is None for confirm in confirms)
    assert await channel.purge_queue(queue) == 10_001


async def test_each_unroutable_message_fails_its_own_confirm(channel: Channel, name: str) -> None:
    queue = await temporary(channel, name)
    await channel.confirm_select()
    routes = [queue, f"{name}.missing", queue, f"{name}.gone", queue]
    confirms = [channel.publish(b"same body", "", route, mandatory=True) for route in routes]
    outcomes = await asyncio.gather(*confirms, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), Unroutable, type(None), Unroutable, type(None)]
    error = outcomes[1]
    assert isinstance(error, Unroutable)
    assert (error.reply_code, error.reply_text, error.routing_key) == (312, "NO_ROUTE", f"{name}.missing")
    with pytest.raises(Unroutable, match="missing"):
        await channel.wait_for_confirms()
    await channel.wait_for_confirms()


async def test_a_return_without_confirms_goes_to_the_handler(channel: Channel, name: str) -> None:
    returned: asyncio.Queue[Unroutable] = asyncio.Queue()
    channel.on_return(returned.put_nowait)
    await channel.publish(b"lost", "", name, Properties(message_id="m"), mandatory=True)
    error = await asyncio.wait_for(returned.get(), 60)
    assert (error.body, error.properties.message_id) == (b"lost", "m")


@pytest.mark.needs("rabbitmq")
async def test_a_full_queue_that_rejects_nacks(rabbitmq: str, name: str) -> None:
    async with await connect(rabbitmq, reconnect=False) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await channel.declare_queue(name, durable=False, exclusive=True, arguments=arguments)
        await channel.publish(b"fits", "", name)
        with pytest.raises(Nacked, match="number 2"):
            await channel.publish(b"too much", "", name)
        with pytest.raises(Nacked):
            await channel.wait_for_confirms()
        channel.publish(b"too much again", "", name)
        with pytest.raises(Nacked, match="number 3"):
            await channel.wait_for_confirms()


async def test_a_channel_error_has_code_and_text_and_spares_the_connection(
    connection: Connection, url: str, name: str
) -> None:
    channel = await connection.channel()
    with pytest.raises(ChannelClosed) as caught:
        await channel.declare_queue(name, passive=True)
    assert caught.value.code == 404
    assert caught.value.text == f"NOT_FOUND - no queue '{name}' in vhost '{vhost(url)}'"
    assert (caught.value.class_id, caught.value.method_id) == (50, 10)
    assert channel.is_closed
    with pytest.raises(ChannelClosed, match="404"):
        channel.publish(b"")
    assert (await temporary(await connection.channel(), name)) == name


async def test_a_channel_error_fails_unconfirmed_publishes(connection: Connection, name: str) -> None:
    channel = await connection.channel()
    await channel.confirm_select()
    confirm = channel.publish(b"x", f"{name}.missing", "k")
    with pytest.raises(ChannelClosed, match="no exchange"):
        await confirm
    with pytest.raises(ChannelClosed, match="no exchange"):
        await channel.wait_for_confirms()


async def test_deleting_the_queue_ends_its_consumers(connection: Connection, channel: Channel, name: str) -> None:
    queue = await temporary(channel, name)
    consumer = await channel.consume(queue)
    channel.publish(b"last", "", queue)
    assert (await anext(consumer)).body == b"last"
    await channel.delete_queue(queue)
    with pytest.raises(ConsumerCancelled, match=consumer.tag):
        await asyncio.wait_for(anext(consumer), 60)
    await consumer.cancel()
    assert not connection.is_closed


async def test_three_megabytes_go_in_many_frames(channel: Channel, name: str) -> None:
    queue = await temporary(channel, name)
    await channel.confirm_select()
    body = bytes(range(256)) * 12_000
    consumer = await channel.consume(queue)
    await channel.publish(body, "", queue)
    await channel.publish(b"", "", queue)
    assert (await anext(consumer)).body == body
    assert (await anext(consumer)).body == b""


@pytest.mark.parametrize("reply_queue", [False, True])
async def test_two_hundred_requests_outstanding(connection: Connection, name: str, reply_queue: bool) -> None:
    server = await connection.channel()
    await temporary(server, name)
    serving = asyncio.create_task(serve(server, name))
    async with await connection.rpc(reply_queue) as rpc:
        calls = [rpc.call(b"%d" % number, "", name, mandatory=True) for number in range(200)]
        replies = await asyncio.gather(*calls)
        assert [reply.body for reply in replies] == [b"%d!" % number for number in range(200)]
        assert rpc.outstanding == 0
    serving.cancel()


async def test_a_request_that_nobody_answers(connection: Connection, channel: Channel, name: str) -> None:
    rpc = await connection.rpc()
    with pytest.raises(Unroutable, match=name):
        await rpc.call(b"", "", name, mandatory=True)
    await temporary(channel, name)
    with pytest.raises(RpcTimeout, match=r"within 0\.05 s"):
        await rpc.call(b"", "", name, timeout_s=0.05)
    with pytest.raises(ChannelClosed, match="no exchange"):
        await rpc.call(b"", f"{name}.missing", "k")


async def test_wrong_password_and_unknown_vhost_are_told_clearly(url: str) -> None:
    host = url.rsplit("@", maxsplit=1)[-1].split("/", maxsplit=1)[0]
    with pytest.raises(AuthenticationFailed, match=r"403 ACCESS_REFUSED.*check user 'guest' and its password"):
        await connect(f"amqp://guest:wrong@{host}/", reconnect=False)
    with pytest.raises(ConnectionClosed, match=r"530 NOT_ALLOWED - vhost nowhere not found"):
        await connect(f"amqp://guest:guest@{host}/nowhere", reconnect=False)


async def test_heartbeats_keep_an_idle_connection(url: str, name: str) -> None:
    """For more than the two intervals after which a broker closes the connection."""
    interval_s = 4  # on a busy machine, a loop that sends heartbeats may be late by this much
    async with await connect(url, heartbeat_s=interval_s, reconnect=False) as connection:
        channel = await connection.channel()
        await asyncio.sleep(2.5 * interval_s)
        assert await temporary(channel, name) == name


async def test_closing_ends_what_waits(url: str, name: str) -> None:
    connection = await connect(url, reconnect=False)
    channel = await connection.channel()
    consumer = await channel.consume(await temporary(channel, name))
    waiting = asyncio.ensure_future(anext(consumer))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(ConnectionClosed, match="closed by this client"):
        await waiting
    with pytest.raises(ConnectionClosed):
        await connection.channel()
    await connection.close()


async def test_several_tasks_may_share_a_consumer(channel: Channel, name: str) -> None:
    consumer = await channel.consume(await temporary(channel, name), no_ack=True)
    takers = [asyncio.ensure_future(anext(consumer)) for _ in range(3)]
    await asyncio.sleep(0)
    takers[0].cancel()
    for body in (b"1", b"2"):
        channel.publish(body, "", name)
    taken = await asyncio.wait_for(asyncio.gather(*takers[1:]), 60)
    assert {delivery.body for delivery in taken} == {b"1", b"2"}
