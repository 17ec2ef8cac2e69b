"""Connections closed by connection.close whose clients keep the socket open."""

import asyncio
import os

import pytest

from leveret.broker.broker import Broker, Settings
from leveret.broker.peer import CLOSE_DELAY_US
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER
from leveret.wire.method import decode_method, method_frame


def method(data: bytes) -> grammar.MethodSpec:
    """Return the method of a frame."""
    return decode_method(data[7:-1]).spec


async def frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(7)
    return head + await reader.readexactly(int.from_bytes(head[3:]) + 1)


CLOSE = method_frame(0, grammar.CONNECTION_CLOSE, reply_code=200, reply_text="", class_id=0, method_id=0)
UNKNOWN = method_frame(0, grammar.CONNECTION_BLOCKED, reason="a client may not say this")


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(CLOSE, grammar.CONNECTION_CLOSE_OK), (UNKNOWN, grammar.CONNECTION_CLOSE)],
    ids=["close", "error"],
)
async def test_the_socket_is_closed_after_a_while(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, answer: grammar.MethodSpec
) -> None:
    disk = MemoryDisk()
    alarms = Alarms(ResourceLimits(0, 1), Gauges(lambda: 1, lambda: 0, lambda: None))
    segments, reserve = SegmentStore(disk, "/segments"), Reserve(disk, "/reserve")
    streams = StreamStore(disk, "/streams")
    server = Server(Broker(Settings(), os.urandom), Journal(disk, "/journal"), segments, streams, reserve, alarms)
    server.recover()
    host, port = await server.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(PROTOCOL_HEADER)
    assert method(await frame(reader)) is grammar.CONNECTION_START
    writer.write(sent)
    assert method(await frame(reader)) is answer
    [peer] = server._protocols
    monkeypatch.setattr(server, "now_us", lambda: peer.sent_us + CLOSE_DELAY_US)
    server.begin()
    assert not server._protocols[peer].transport.is_closing()
    monkeypatch.setattr(server, "now_us", lambda: peer.sent_us + CLOSE_DELAY_US + 1)
    server.stopping.set()  # no further ticks
    server.begin()
    assert await reader.read() == b""
    writer.close()
    server.listening.suspend()
    server._sync.stop()
    server._pages_thread.shutdown()
