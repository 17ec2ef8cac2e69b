"""Connections of all kinds come and go, LEVERET_CHURN times each; the broker's memory is then what it was before.

The garbage collector is off, as in a broker's own process. Compared are the number of objects, their octets, and the
broker's own figures. A leak never goes away, so the tests wait until all is as before.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest

from leveret.broker.broker import Broker, Settings
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.testing import eventually_async
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER, content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header

ROUNDS = int(os.environ.get("LEVERET_CHURN", "2"))
BODY_OCTETS = 300_000
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset

START = PROTOCOL_HEADER + method_frame(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0guest\0guest")
TUNED = START + method_frame(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
OPEN = TUNED + method_frame(0, grammar.CONNECTION_OPEN, virtual_host="/") + method_frame(1, grammar.CHANNEL_OPEN)
STREAM = {"x-queue-type": "stream"}
TAKE = method_frame(1, grammar.BASIC_CONSUME, queue="q")
GET = method_frame(1, grammar.BASIC_GET, queue="q")
ACK = method_frame(1, grammar.BASIC_ACK, delivery_tag=1)


def publish(key: str, size: int = 1, frame_max: int = 131072, **properties: object) -> bytes:
    header = encode_header(Properties(**properties), size)  # type: ignore[arg-type]
    method = method_frame(1, grammar.BASIC_PUBLISH, routing_key=key)
    return method + content_frames(1, header, bytes(size), frame_max)


UPLOAD = publish("q", BODY_OCTETS)
OWN = method_frame(1, grammar.QUEUE_DECLARE, queue="own", exclusive=True)
SAID = {
    "nothing": b"",
    "half a protocol header": PROTOCOL_HEADER[:5],
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "a login": START,
    "half a handshake": TUNED,
    "a channel": OPEN,
    "a publish without its header": OPEN + UPLOAD[:30],
    "half a small message": OPEN + publish("q", 4000)[:2000],
    "a part of a frame": OPEN + UPLOAD[:100_000],
    "some frames": OPEN + publish("q", BODY_OCTETS, 20_000)[:250_000],
    "a part of a message, and a close of its channel": OPEN + UPLOAD[:131_167] + method_frame(1, grammar.CHANNEL_CLOSE),
    "whole messages": OPEN + UPLOAD * 3,
    "messages that nobody acknowledges": OPEN + TAKE + publish("q") * 5,
    "a message that was fetched": OPEN + publish("q") + GET,
    "a transaction": OPEN + publish("q") + method_frame(1, grammar.TX_SELECT) + UPLOAD + GET + ACK,
    "a publish that wants a confirm": OPEN + method_frame(1, grammar.CONFIRM_SELECT) + publish("q", 9, delivery_mode=2),
    "a question": OPEN + method_frame(1, grammar.BASIC_CONSUME, queue="amq.rabbitmq.reply-to", no_ack=True)
    + publish("q", reply_to="amq.rabbitmq.reply-to"),
    "a stream": OPEN + method_frame(1, grammar.BASIC_QOS, prefetch_count=9)
    + method_frame(1, grammar.BASIC_CONSUME, queue="s", arguments={"x-stream-offset": "first"}),
    "a queue of its own": OPEN + OWN + publish("own", BODY_OCTETS) * 2 + method_frame(1, grammar.BASIC_CONSUME),
    "a mistake": OPEN + UPLOAD[:0] + method_frame(1, grammar.QUEUE_DECLARE, queue="missing", passive=True),
    "no frame": OPEN + b"\x09" * 8,
    "a close": OPEN + method_frame(0, grammar.CONNECTION_CLOSE),
    "too much for its socket": OPEN + OWN + method_frame(1, grammar.BASIC_CONSUME, no_ack=True)
    + publish("own", BODY_OCTETS) * 20,
}  # fmt: skip


@pytest.fixture
def without_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("leveret.net.server.CLOSED_PER_COLLECTION", 1 << 60)
    gc.collect()
    gc.disable()
    yield
    tracemalloc.stop()
    gc.enable()


def serve() -> Server:
    alarms = Alarms(ResourceLimits(0, 0), Gauges(lambda: 1, lambda: 0, lambda: None))
    stores = Journal(MemoryDisk(), "/j"), SegmentStore(MemoryDisk(), "/p"), StreamStore(MemoryDisk(), "/s")
    server = Server(Broker(Settings(), os.urandom), *stores, Reserve(MemoryDisk(), "/r"), alarms)
    server.recover()
    return server


async def come_and_go(server: Server, address: tuple[str, int], said: bytes, is_reset: bool) -> None:
    """Make one connection that sends `said`, and closes when all of it was read."""
    loop, broker = asyncio.get_running_loop(), server.broker
    opened = broker.connections_opened
    with socket.socket() as client:
        client.setblocking(False)
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        await loop.sock_connect(client, address)
        await eventually_async(lambda: broker.connections_opened > opened, 60)
        await loop.sock_sendall(client, said)
        await eventually_async(lambda: all(peer.octets.received >= len(said) for peer in server.peers()), 60)
    await eventually_async(lambda: not server.peers(), 60)


async def one_round(server: Server, address: tuple[str, int]) -> None:
    for said in SAID.values():
        for is_reset in (False, True):
            await come_and_go(server, address, said, is_reset)
    vhost = server.broker.vhosts["/"]
    vhost.purge(vhost.queues["q"])
    await server.settled()


def alive() -> Counter[str]:
    """Count leveret's objects by class, and memoryviews, which refer to data that was read."""
    kinds = (type(each) for each in gc.get_objects())
    return Counter(each.__name__ for each in kinds if each is memoryview or str(each.__module__).startswith("leveret."))


def accounts(server: Server) -> dict[str, int]:
    """Return the broker's own figures."""
    log, vhost = server.broker.log, server.broker.vhosts["/"]
    return {
        "connections": server.broker.connection_count,
        "channels": len(vhost.channels),
        "queues": len(vhost.queues),
        "replies": len(vhost.replies),
        "octets of messages": int(log.ready_octets),
        "messages that are alive": log.live(),
        "unacknowledged": sum(int(queue.unacked) for queue in vhost.queues.values()),
    }


async def test_connections_of_all_kinds_leave_nothing(without_collector: None) -> None:
    server = serve()
    host, port = await server.listen("127.0.0.1", 0)
    running = asyncio.create_task(server.run())
    await server.serving.wait()
    declare = method_frame(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    stream = method_frame(1, grammar.QUEUE_DECLARE, queue="s", durable=True, arguments=STREAM)
    await come_and_go(server, (host, port), OPEN + declare + stream + publish("s", 9, delivery_mode=2), False)
    await one_round(server, (host, port))  # from here on, what is made only once exists
    before, had = alive(), accounts(server)
    tracemalloc.start()
    for _ in range(ROUNDS):
        await one_round(server, (host, port))

    def grown() -> dict[str, int]:
        left = alive()
        left.subtract(before)
        found = {kind: count for kind, count in left.items() if count >= ROUNDS}
        octets = tracemalloc.get_traced_memory()[0]
        return found | ({"octets": octets} if octets > ROUNDS * BODY_OCTETS else {})

    await eventually_async(lambda: not grown(), 60)
    assert accounts(server) == had
    tracemalloc.stop()
    server.hurry()
    await running
