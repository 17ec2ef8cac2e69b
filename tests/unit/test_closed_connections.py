"""A closed connection leaves nothing in memory, though the broker's garbage collector is off."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from leveret.broker.broker import Broker, Settings
from leveret.broker.channel import BrokerChannel
from leveret.broker.peer import Peer
from leveret.broker.queues.consumer import Consumer
from leveret.broker.streams.reader import Reader
from leveret.client import BlockingConnection, ChannelClosed, Properties
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.connections.protocol import PeerProtocol
from leveret.net.connections.stream import TcpStream
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.testing import eventually_async

KINDS = (BrokerChannel, Consumer, Peer, PeerProtocol, Reader, TcpStream)
STREAM = {"x-queue-type": "stream"}


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Run a server on a disk in memory; yield its URL."""
    alarms = Alarms(ResourceLimits(0, 0), Gauges(lambda: 1, lambda: 0, lambda: None))
    stores = Journal(MemoryDisk(), "/j"), SegmentStore(MemoryDisk(), "/p"), StreamStore(MemoryDisk(), "/s")
    server = Server(Broker(Settings(), os.urandom), *stores, Reserve(MemoryDisk(), "/r"), alarms)
    server.recover()
    host, port = await server.listen("127.0.0.1", 0)
    running = asyncio.create_task(server.run())
    await server.serving.wait()
    yield f"amqp://guest:guest@{host}:{port}/%2F"
    server.hurry()
    await running


def living() -> Counter[str]:
    """Count the objects of connections by class."""
    return Counter(type(each).__name__ for each in gc.get_objects() if type(each) in KINDS)


def comes_and_goes(connection: BlockingConnection) -> None:
    connection.channel()


def publishes(connection: BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_select()
    channel.publish(b"paint", "", "tasks", Properties(delivery_mode=2))
    channel.wait_for_confirms()


def consumes(connection: BlockingConnection) -> None:
    channel = connection.channel()
    channel.consume("tasks")
    assert channel.next_delivery(60) is not None  # it stays unacknowledged


def reads_a_stream(connection: BlockingConnection) -> None:
    channel = connection.channel()
    channel.qos(10)
    channel.consume("past", arguments={"x-stream-offset": "first"})
    assert channel.next_delivery(60) is not None


def deletes_a_stream_that_it_reads(connection: BlockingConnection) -> None:
    channel = connection.channel()
    channel.declare_queue("brief", durable=True, arguments=STREAM)
    channel.qos(10)
    channel.consume("brief")
    channel.delete_queue("brief")


def has_a_queue_of_its_own(connection: BlockingConnection) -> None:
    channel = connection.channel()
    name = channel.declare_queue("", exclusive=True).name
    channel.consume(name)
    channel.publish(b"paint", "", name)
    assert channel.next_delivery(60) is not None


def asks_by_direct_reply(connection: BlockingConnection) -> None:
    channel = connection.channel()
    channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    channel.publish(b"paint?", "", "tasks", Properties(reply_to="amq.rabbitmq.reply-to"))
    channel.flush()


def leaves_a_transaction(connection: BlockingConnection) -> None:
    channel = connection.channel()
    channel.tx_select()
    channel.publish(b"paint", "", "tasks")
    channel.get("tasks")
    channel.ack(0, multiple=True)
    channel.flush()


def is_refused(connection: BlockingConnection) -> None:
    with pytest.raises(ChannelClosed):
        connection.channel().declare_queue("nowhere", passive=True)


def declare(url: str) -> None:
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_queue("tasks", durable=True)
        channel.declare_queue("past", durable=True, arguments=STREAM)
        channel.confirm_select()
        for name in ("tasks", "past"):
            channel.publish(b"paint", "", name, Properties(delivery_mode=2))
        channel.wait_for_confirms()


def visit(url: str, what: Callable[[BlockingConnection], None], is_orderly: bool) -> None:
    connection = BlockingConnection(url, reconnect=False)
    what(connection)
    assert living()["Peer"]
    if is_orderly:
        connection.close()
    else:
        connection._stream.close()  # as if its machine had crashed


@pytest.mark.parametrize("what", [
    comes_and_goes, publishes, consumes, reads_a_stream, deletes_a_stream_that_it_reads, has_a_queue_of_its_own,
    asks_by_direct_reply, leaves_a_transaction, is_refused,
])  # fmt: skip
@pytest.mark.parametrize("is_orderly", [True, False])
async def test_a_closed_connection_is_gone(what: Callable[[BlockingConnection], None], is_orderly: bool) -> None:
    gc.collect()
    gc.disable()
    before = living()  # left over from other tests
    try:
        async with serving() as url:
            await asyncio.to_thread(declare, url)
            await eventually_async(lambda: not living() - before, 60)
            await asyncio.to_thread(visit, url, what, is_orderly)
            await eventually_async(lambda: not living() - before, 60)
    finally:
        gc.enable()
