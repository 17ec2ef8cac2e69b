"""Each fault as a real client sees it, and how the fault ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pika
import pika.exceptions
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
    connect,
)
from leveret.testing import BrokerDown, LiveBroker, broker, eventually, eventually_async
from leveret.testing.kit.steps import BROKER, CLIENT, STEPS, Steps
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import encode_header

PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture
async def connection(leveret_broker: LiveBroker) -> AsyncIterator[Connection]:
    connection = await connect(leveret_broker, name="worker", reconnect=False)
    yield connection
    if not connection.is_closed:
        await connection.close()


@pytest.fixture
async def channel(connection: Connection) -> Channel:
    """Open a channel in confirm mode, with the durable queue tasks."""
    channel = await connection.channel()
    await channel.declare_queue("tasks")
    await channel.confirm_select()
    return channel


def publish(channel: Channel, body: bytes = b"paint") -> asyncio.Future[None]:
    return channel.publish(body, routing_key="tasks", properties=PERSISTENT)


async def is_pending(future: asyncio.Future[None]) -> bool:
    """Return whether there is still no answer after everything that the broker has sent was read."""
    for _ in range(10):
        await asyncio.sleep(0)
    return not future.done()


# -- connections -------------------------------------------------------------------------------------------------------


async def test_a_dropped_connection_ends_without_a_word(leveret_broker: LiveBroker, channel: Channel) -> None:
    assert leveret_broker.faults.drop() == 1
    with pytest.raises(ConnectionClosed) as raised:
        await publish(channel)
    assert raised.value.code == 0
    async with await connect(leveret_broker, reconnect=False):
        pass  # the fault was for one connection only


async def test_only_the_connection_of_that_name_is_dropped(leveret_broker: LiveBroker, channel: Channel) -> None:
    async with await connect(leveret_broker, name="other", reconnect=False) as other:
        assert leveret_broker.faults.drop(name="other") == 1
        await publish(channel)
        assert await eventually_async(lambda: other.is_closed)


@pytest.mark.parametrize(("when", "taken"), [("before", [b"1", b"2"]), ("after", [b"1", b"2", b"3"])])
async def test_dropped_at_the_third_publish(
    leveret_broker: LiveBroker, channel: Channel, when: str, taken: list[bytes]
) -> None:
    """With "after", the broker has stored the third message, but its publisher does not know."""
    leveret_broker.faults.drop_at("publish", 3, when=when)  # type: ignore[arg-type]
    await publish(channel, b"1")
    await publish(channel, b"2")
    with pytest.raises(ConnectionClosed):
        await publish(channel, b"3")
    assert [message.body for message in leveret_broker.messages("tasks")] == taken
    assert leveret_broker.faults.active == []


async def test_dropped_in_the_midst_of_many(leveret_broker: LiveBroker, channel: Channel) -> None:
    """All messages leave in one write, so the broker reads them together."""
    leveret_broker.faults.drop_at("publish", 60, when="before")
    futures = [publish(channel, b"%d" % number) for number in range(100)]
    await asyncio.gather(*futures, return_exceptions=True)
    assert leveret_broker.queue_depth("tasks") == 59


async def test_dropped_with_the_confirm_written_but_not_sent(leveret_broker: LiveBroker, channel: Channel) -> None:
    with leveret_broker.faults.drop_at("confirm", when="before", name="worker"), pytest.raises(ConnectionClosed):
        await publish(channel)
    leveret_broker.confirmed("tasks", count=1)
    leveret_broker.restart(crash=True)
    assert leveret_broker.queue_depth("tasks") == 1


async def test_dropped_after_a_delivery(leveret_broker: LiveBroker, channel: Channel) -> None:
    await publish(channel)
    leveret_broker.faults.drop_at("deliver")
    consumer = await channel.consume("tasks")
    assert (await anext(consumer)).body == b"paint"
    with pytest.raises(ConnectionClosed):
        await anext(consumer)
    await eventually_async(lambda: leveret_broker.queue_depth("tasks") == 1)
    assert leveret_broker.messages("tasks")[0].redelivered


async def test_a_drop_that_was_undone_drops_nothing(leveret_broker: LiveBroker, channel: Channel) -> None:
    with leveret_broker.faults.drop_at("publish") as fault:
        pass
    await publish(channel)
    assert leveret_broker.faults.active == []
    assert repr(fault) == "<fault: drop after publish 1, undone>"


def test_an_unknown_step_is_named(leveret_broker: LiveBroker) -> None:
    with pytest.raises(ValueError, match="unknown step 'publsh'; did you mean 'publish'"):
        leveret_broker.faults.drop_at("publsh")
    with pytest.raises(ValueError, match="nth must be at least 1"):
        leveret_broker.faults.drop_at("publish", 0)


def test_steps_are_found_however_the_bytes_are_cut() -> None:
    body = b"x" * 50
    publish_frames = method_frame(1, grammar.BASIC_PUBLISH, exchange="", routing_key="q")
    content = content_frames(1, encode_header(Properties(), len(body)), body, 30)
    whole = b"AMQP\0\0\x09\x01" + method_frame(1, grammar.CHANNEL_OPEN) + publish_frames + content
    start = whole.index(publish_frames)
    for size in (1, 7, 30, len(whole)):
        steps, found = Steps(CLIENT), []
        for at in range(0, len(whole), size):
            found += [(step.method, at + step.start, at + step.stop) for step in steps.feed(whole[at : at + size])]
        assert found == [
            (STEPS["channel"][1], 8, start),
            (STEPS["publish"][1], start, len(whole)),
        ]
    assert Steps(BROKER).feed(method_frame(1, grammar.BASIC_ACK, delivery_tag=1))[0].method == STEPS["confirm"][1]


async def test_latency_counts_both_ways(leveret_broker: LiveBroker, channel: Channel) -> None:
    loop = asyncio.get_running_loop()
    with leveret_broker.faults.latency(30):
        started_s = loop.time()
        await publish(channel)
        assert loop.time() - started_s >= 0.06
        futures = [publish(channel, b"%d" % number) for number in range(20)]
        await asyncio.gather(*futures)  # answers come in order, and without waiting for each other
    assert [message.body for message in leveret_broker.messages("tasks")][1:] == [b"%d" % n for n in range(20)]


async def test_nothing_is_heard_while_the_broker_does_not_write(leveret_broker: LiveBroker, channel: Channel) -> None:
    with leveret_broker.faults.not_writing():
        confirm = publish(channel)
        await eventually_async(lambda: leveret_broker.confirmed("tasks"))
        assert await is_pending(confirm)
    await confirm


async def test_a_client_is_stuck_while_the_broker_does_not_read(leveret_broker: LiveBroker, channel: Channel) -> None:
    with leveret_broker.faults.not_reading():
        confirms = [publish(channel, bytes(1 << 20)) for _ in range(16)]
        draining = asyncio.ensure_future(channel.drain())
        assert await is_pending(draining)  # type: ignore[arg-type]
        assert leveret_broker.queue_depth("tasks") == 0
    await draining
    await asyncio.gather(*confirms)
    assert leveret_broker.queue_depth("tasks") == 16


# -- what the broker answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["memory", "disk"])
async def test_publishers_are_blocked(
    leveret_broker: LiveBroker, connection: Connection, channel: Channel, resource: str
) -> None:
    with leveret_broker.faults.blocked(resource):  # type: ignore[arg-type]
        confirm = publish(channel)
        assert await eventually_async(lambda: connection.blocked) == f"low on {resource}"
        assert not confirm.done()
    await confirm
    await eventually_async(lambda: connection.blocked is None)
    with pytest.raises(ValueError, match="the resource must be"):
        leveret_broker.faults.blocked("processor")  # type: ignore[arg-type]


async def test_publishes_are_nacked(leveret_broker: LiveBroker, channel: Channel) -> None:
    await channel.declare_queue("other", arguments={"x-max-length": 5})
    with leveret_broker.faults.nack_publishes():
        with pytest.raises(Nacked):
            await publish(channel)
        with pytest.raises(Nacked):
            await channel.publish(b"", routing_key="other")
        with pytest.raises(AssertionError, match=r"1 of 1 messages were not confirmed.*refused by basic.nack"):
            leveret_broker.confirmed("tasks")
    await publish(channel)
    for _ in range(7):
        await channel.publish(b"", routing_key="other")
    assert leveret_broker.queue_depth("tasks") == 1
    assert leveret_broker.queue_depth("other") == 5  # its own limit is unchanged


async def test_only_one_queue_nacks(leveret_broker: LiveBroker, channel: Channel) -> None:
    await channel.declare_queue("other")
    with leveret_broker.faults.nack_publishes("other"):
        await publish(channel)
        with pytest.raises(Nacked):
            await channel.publish(b"", routing_key="other")
    with pytest.raises(AssertionError, match=r"no queue 'othr'.*'other'"):
        leveret_broker.faults.nack_publishes("othr")


async def test_logins_are_refused(leveret_broker: LiveBroker, channel: Channel) -> None:
    with leveret_broker.faults.refuse_logins():
        for _ in range(10):  # so many that later logins would have to wait
            with pytest.raises(AuthenticationFailed):
                await connect(leveret_broker, reconnect=False)
        await publish(channel)
    async with await connect(leveret_broker, reconnect=False):
        pass


async def test_consumers_hear_that_they_are_cancelled(leveret_broker: LiveBroker, channel: Channel) -> None:
    consumer = await channel.consume("tasks")
    assert leveret_broker.faults.cancel_consumers("tasks") == 1
    with pytest.raises(ConsumerCancelled):
        await anext(consumer)
    assert leveret_broker.consumers("tasks") == 0
    again = await channel.consume("tasks")
    await publish(channel)
    assert (await anext(again)).body == b"paint"


async def test_channels_are_closed_with_an_error(leveret_broker: LiveBroker, channel: Channel) -> None:
    assert leveret_broker.faults.close_channels(404, "no such thing", name="worker") == 1
    with pytest.raises(ChannelClosed, match="404 NOT_FOUND - no such thing"):
        await publish(channel)
    assert any("no such thing" in line for line in leveret_broker.log)


async def test_connections_are_closed_with_an_error(leveret_broker: LiveBroker, channel: Channel) -> None:
    assert leveret_broker.faults.close_connections(541, "oops") == 1
    with pytest.raises(ConnectionClosed, match="541 INTERNAL_ERROR - oops"):
        await publish(channel)


# -- the disk ----------------------------------------------------------------------------------------------------------


async def test_what_is_durable_waits_for_room(
    leveret_broker: LiveBroker, connection: Connection, channel: Channel
) -> None:
    with leveret_broker.faults.disk_full():
        confirm = publish(channel)
        # connection.blocked is sent to connections that publish while the alarm is on, so wait for the alarm first.
        await eventually_async(lambda: leveret_broker.block_reason)
        publish(channel)
        assert await eventually_async(lambda: connection.blocked) == "low on disk"
        assert not confirm.done()
    await confirm
    await publish(channel)
    leveret_broker.restart(crash=True)
    assert leveret_broker.queue_depth("tasks") == 3


async def test_a_broker_whose_disk_fails_stops(leveret_broker: LiveBroker, channel: Channel) -> None:
    await publish(channel, b"safe")
    with leveret_broker.faults.disk_broken():
        with pytest.raises(ConnectionClosed):
            await publish(channel, b"lost")
        await eventually_async(lambda: not leveret_broker.is_up)
        assert "Input/output error" in str(leveret_broker.failure)
        assert "is down: " in leveret_broker.report()
        with pytest.raises(BrokerDown, match="stopped unexpectedly"):
            leveret_broker.queue_depth("tasks")
    leveret_broker.start()
    assert leveret_broker.failure is None
    assert b"safe" in [message.body for message in leveret_broker.messages("tasks")]


async def test_confirms_wait_for_a_slow_disk(leveret_broker: LiveBroker, channel: Channel) -> None:
    loop = asyncio.get_running_loop()
    with leveret_broker.faults.slow_disk(60):
        started_s = loop.time()
        confirm = publish(channel)
        await channel.declare_queue("meanwhile", durable=False, exclusive=True)  # the broker itself is not slow
        assert await is_pending(confirm)
        await confirm
        assert loop.time() - started_s >= 0.06


@pytest.mark.parametrize("is_confirmed", [False, True])
async def test_a_crash_loses_what_was_not_confirmed(
    leveret_broker: LiveBroker, channel: Channel, is_confirmed: bool
) -> None:
    await publish(channel, b"first")
    if is_confirmed:
        await publish(channel, b"second")
        leveret_broker.restart(crash=True)
    else:
        with leveret_broker.faults.disk_stalled():
            confirm = publish(channel, b"second")
            await eventually_async(lambda: leveret_broker.queue_depth("tasks") == 2)
            leveret_broker.crash()
            with pytest.raises(ConnectionClosed):
                await confirm
        leveret_broker.start()
    kept = [b"first", b"second"] if is_confirmed else [b"first"]
    assert [message.body for message in leveret_broker.messages("tasks")] == kept


def test_a_broker_that_is_down_refuses_connections_and_comes_back_on_its_port(leveret_broker: LiveBroker) -> None:
    port = leveret_broker.port
    stalled = leveret_broker.faults.disk_stalled()  # a fault may begin in one run of the broker and end in the next
    with leveret_broker.down(crash=True):
        assert not leveret_broker.is_up
        with pytest.raises(BrokerDown, match=r"start\(\) starts it again"):
            leveret_broker.queues()
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.URLParameters(leveret_broker))
        stalled.undo()
    assert leveret_broker.is_up
    assert leveret_broker.port == port
    pika.BlockingConnection(pika.URLParameters(leveret_broker)).close()


def test_an_orderly_stop_tells_the_clients(leveret_broker: LiveBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(leveret_broker))
    leveret_broker.restart()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED"):
        connection.process_data_events(1)


def test_an_orderly_stop_does_not_wait_for_a_stalled_disk(leveret_broker: LiveBroker) -> None:
    with leveret_broker.faults.disk_stalled(), pytest.raises(RuntimeError, match=r"undo that fault, or crash\(\)"):
        leveret_broker.restart()
    leveret_broker.restart()


def test_all_faults_end_with_their_broker() -> None:
    with broker() as rabbit:
        rabbit.faults.disk_stalled()
        rabbit.faults.not_reading()
        rabbit.faults.blocked()
        rabbit.faults.nack_publishes()
        rabbit.faults.latency(1000)
        assert "fault: disk stalled" in rabbit.report()
    assert rabbit.faults.active == []
    eventually(lambda: not rabbit.is_up)
