"""A broker without sockets, disk or clock, which the tests of the core drive by hand."""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker.broker import Broker, Settings
from leveret.broker.peer import Peer
from leveret.broker.storage.recovery import Recovery
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER, Frame, FrameReader, content_frames
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import Properties, encode_header

SECOND_US = 1_000_000


def counted_bytes(number: int = 0) -> Iterator[bytes]:
    """Yield distinct 'random' octets, the same in every run with this number."""
    while True:
        number += 1
        yield number.to_bytes(16, "big")


class Bench:
    """A broker with a virtual clock, and a journal that is synced when the test says so."""

    def __init__(self, settings: Settings | None = None, chance: int = 0) -> None:
        source = counted_bytes(chance)
        self.broker = Broker(settings or Settings(), lambda count: next(source)[-count:])
        self.broker.on_event = lambda _: None
        self.now_us = 1_700_000_000 * SECOND_US
        self.batches: list[bytes] = []  # what is on disk

    def connect(self, vhost: str = "/", frame_max: int = 131072) -> Client:
        """Return a client that has done the handshake and opened channel 1."""
        client = Client(self, Peer(self.broker, "test:1", True))
        client.raw(PROTOCOL_HEADER)
        client.send(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0guest\0guest")
        client.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=frame_max)
        client.send(0, grammar.CONNECTION_OPEN, virtual_host=vhost)
        client.call(1, grammar.CHANNEL_OPEN)
        client.frames()
        return client

    def pass_time(self, us: int) -> None:
        self.now_us += us
        self.broker.run_timers(self.now_us)

    def sync(self) -> bytes:
        """Write one batch to the disk, and return its records."""
        batch = self.broker.log.batch
        data = b"".join(self.broker.log.close_batch())
        self.broker.log.on_disk(batch)
        self.batches.append(data)
        return data


class Client:
    """The client's end of a connection."""

    def __init__(self, bench: Bench, peer: Peer) -> None:
        self.bench = bench
        self.peer = peer
        self.reader = FrameReader(0)

    def raw(self, data: bytes) -> None:
        self.peer.turn(data, self.bench.now_us)

    def send(self, channel: int, spec: grammar.MethodSpec, **values: object) -> None:
        self.raw(method_frame(channel, spec, **values))

    def publish(
        self, key: str, body: bytes = b"x", *, exchange: str = "", mandatory: bool = False, **values: object
    ) -> None:
        self.raw(self.encoded(key, body, exchange=exchange, mandatory=mandatory, **values))

    def encoded(
        self, key: str, body: bytes = b"x", *, exchange: str = "", mandatory: bool = False, **values: object
    ) -> bytes:
        """Return the frames of a publish."""
        properties = Properties(**values)  # type: ignore[arg-type]
        method = method_frame(1, grammar.BASIC_PUBLISH, exchange=exchange, routing_key=key, mandatory=mandatory)
        return method + content_frames(1, encode_header(properties, len(body)), body, 131072)

    def frames(self) -> list[Frame]:
        """Return the frames that came since the last call, except output that waits for a sync."""
        self.reader.feed(b"".join(self.peer.take(self.bench.broker.log.synced)))
        found: list[Frame] = []
        while (frame := self.reader.next()) is not None:
            found.append(frame)
        return found

    def methods(self) -> list[Method]:
        return [decode_method(frame.payload) for frame in self.frames() if frame.kind == 1]

    def bodies(self) -> list[bytes]:
        """Return the bodies that were delivered since the last call."""
        return [frame.payload for frame in self.frames() if frame.kind == 3]

    def call(self, channel: int, spec: grammar.MethodSpec, **values: object) -> Method:
        """Send a method, sync, and return the last method of the answer."""
        self.send(channel, spec, **values)
        self.bench.sync()
        return self.methods()[-1]

    def queue(self, name: str, **values: object) -> None:
        self.call(1, grammar.QUEUE_DECLARE, queue=name, **values)


def recovered(batches: list[bytes], chance: int = 0) -> Bench:
    """Return a new broker with the content of these batches; `chance` seeds its randomness."""
    bench = Bench(chance=chance)
    recovery = Recovery(bench.broker, bench.now_us)
    for batch in batches:
        recovery.batch(batch)
    recovery.finish()
    return bench


STREAM = {"x-queue-type": "stream"}


def begun() -> Bench:
    """Return a bench with the stream s, whose declaration is in its batches."""
    bench = Bench()
    bench.batches.append(b"".join(bench.broker.snapshot()))
    bench.connect().queue("s", durable=True, arguments=STREAM)
    return bench
