"""A server limits its memory without any input."""

import asyncio
import os

from leveret.broker.broker import Broker, Settings
from leveret.broker.peer import Peer
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.disk.paging import READY_OCTETS_MAX
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER, content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header


def fill(broker: Broker, octets: int) -> None:
    """Fill a queue without input, as messages do that move from another queue."""
    peer = Peer(broker, "test", True)
    peer.turn(PROTOCOL_HEADER, 1)
    for channel, spec, values in (
        (0, grammar.CONNECTION_START_OK, {"mechanism": "PLAIN", "response": b"\0guest\0guest"}),
        (0, grammar.CONNECTION_TUNE_OK, {"channel_max": 1, "frame_max": 131072}),
        (0, grammar.CONNECTION_OPEN, {"virtual_host": "/"}),
        (1, grammar.CHANNEL_OPEN, {}),
        (1, grammar.QUEUE_DECLARE, {"queue": "q"}),
    ):
        peer.turn(method_frame(channel, spec, **values), 1)
    size = 100_000
    publish = method_frame(1, grammar.BASIC_PUBLISH, routing_key="q")
    message = publish + content_frames(1, encode_header(Properties(), size), bytes(size), 131072)
    for _ in range(octets // size + 1):
        peer.turn(message, 1)


async def test_memory_is_looked_at_without_any_input() -> None:
    """Messages above the limit are paged out, and the freed memory is returned to the system."""
    loop = asyncio.get_running_loop()

    def trim_memory() -> None:
        loop.call_soon_threadsafe(server.stopping.set)

    segments = SegmentStore(MemoryDisk(), "/segments")
    reserve = Reserve(MemoryDisk(), "/reserve")
    alarms = Alarms(ResourceLimits(0, 1), Gauges(lambda: 1, lambda: 0, trim_memory))
    broker = Broker(Settings(), os.urandom)
    streams = StreamStore(MemoryDisk(), "/streams")
    server = Server(broker, Journal(MemoryDisk(), "/journal"), segments, streams, reserve, alarms)
    server.recover()
    fill(broker, READY_OCTETS_MAX)
    await server.run()
    assert segments.numbers() == [1]
    assert broker.log.ready_octets < READY_OCTETS_MAX // 2
