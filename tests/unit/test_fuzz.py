"""Clients that send arbitrary data: octets of valid sessions, mutated, cut and shuffled.

Whatever comes: no exception is raised, no answer is 541, answers are whole frames, other clients are served as before,
a closed connection leaves nothing behind, and the journal can be read back.
"""

from __future__ import annotations

import gc
import random
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from leveret.broker.peer import Peer
from leveret.broker.storage.recovery import Recovery
from leveret.wire import grammar
from leveret.wire.errors import INTERNAL_ERROR
from leveret.wire.frames import FRAME_METHOD, FRAME_OVERHEAD, PROTOCOL_HEADER, Frame, FrameReader, content_frames, frame
from leveret.wire.grammar import METHODS
from leveret.wire.method import decode_method, method_frame
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import Value

from .support import SECOND_US, Bench, Client

NAMES = ("", "q", "r", "d", "amq.topic", "amq.rabbitmq.reply-to", "amq.rabbitmq.trace", "é", "x" * 255)
ARGUMENTS: dict[str, tuple[Value, ...]] = {
    "x-message-ttl": (0, 5, -1, "a", 1 << 40),
    "x-expires": (0, 60_000, None),
    "x-max-length": (0, 2, True),
    "x-max-length-bytes": (100, -5),
    "x-overflow": ("reject-publish", "reject-publish-dlx", "drop-head", 7),
    "x-dead-letter-exchange": ("", "amq.topic", "nope", [1]),
    "x-dead-letter-routing-key": ("q", "r", 1.5),
    "x-delivery-limit": (0, 1, "z"),
    "x-queue-type": ("classic", "quorum", b"\xff"),
    "x-single-active-consumer": (True, 1),
    "x-priority": (1, -1, "a"),
    "alternate-exchange": ("amq.fanout", 3),
    "x-match": ("any", "all", 4),
    "CC": (["q"], "q", [1]),
    "BCC": (["r", "q"], {}),
    "odd": (datetime(2020, 1, 1, tzinfo=UTC), Decimal("1.5"), {"deep": [{"er": None}]}, b"\0\xff", 1 << 62),
}
RARE = (grammar.CHANNEL_OPEN, grammar.CHANNEL_CLOSE_OK, grammar.CHANNEL_FLOW, grammar.BASIC_RECOVER, grammar.BASIC_QOS)
USUAL = [
    spec
    for spec in METHODS.values()
    if spec.class_id != 10 and not spec.has_content and not spec.name.endswith(("-ok", "-empty")) and spec not in RARE
]


class Script:
    """A session of valid frames with random contents."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def table(self) -> dict[str, Value]:
        names = self.random.sample(sorted(ARGUMENTS), self.random.choice((0, 0, 1, 2, 5)))
        return {name: self.random.choice(ARGUMENTS[name]) for name in names}

    def method(self) -> bytes:
        random = self.random
        spec = random.choice(list(METHODS.values()) if random.random() < 0.03 else USUAL)
        values: dict[str, object] = {}
        for name, kind in spec.fields:
            if kind == "table":
                values[name] = self.table()
            elif kind in ("shortstr", "longstr"):
                values[name] = random.choice(("direct", "fanout")) if name == "type" else random.choice(NAMES)
            elif kind == "bit":
                values[name] = random.random() < (0.8 if name == "requeue" else 0.2)
            elif name != "prefetch_size":
                values[name] = random.choice((0, 1, 2, 3))
        number = 0 if spec.class_id == 10 else random.choice((1, 2))
        return method_frame(number, spec, **values)

    def publish(self) -> bytes:
        random = self.random
        number = random.choice((1, 1, 2))
        method = method_frame(
            number,
            grammar.BASIC_PUBLISH,
            exchange=random.choice(("", "", "amq.topic", "amq.headers", "amq.fanout")),
            routing_key=random.choice(NAMES),
            mandatory=random.random() < 0.3,
        )
        properties = Properties()
        properties.delivery_mode = random.choice((None, 1, 2, 2))
        properties.headers = random.choice((None, self.table()))
        properties.expiration = random.choice((None, None, "0", "1000", "soon"))
        properties.reply_to = random.choice((None, None, "amq.rabbitmq.reply-to", "q"))
        body = random.randbytes(random.choice((0, 1, 10, 5000)))
        content = content_frames(number, encode_header(properties, len(body)), body, random.choice((131072, 4096)))
        return (method + content) * random.choice((1, 1, 3))

    def session(self) -> list[bytes]:
        """Return the frames of a connection from its first octet on, a few of them mutated, mostly after the
        handshake."""
        frames = [
            PROTOCOL_HEADER,
            method_frame(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0guest\0guest"),
            method_frame(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072),
            method_frame(0, grammar.CONNECTION_OPEN, virtual_host="/"),
            method_frame(1, grammar.CHANNEL_OPEN),
            method_frame(2, grammar.CHANNEL_OPEN),
            method_frame(1, grammar.QUEUE_DECLARE, queue="q", durable=True),
            method_frame(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c", no_ack=self.random.random() < 0.5),
            self.random.choice((method_frame(1, grammar.CONFIRM_SELECT), method_frame(1, grammar.TX_SELECT), b"")),
        ]
        frames += [self.publish() if self.random.random() < 0.5 else self.method() for _ in range(30)]
        first = 0 if self.random.random() < 0.2 else 6
        for index in self.random.sample(range(first, len(frames)), self.random.choice((0, 1, 1, 2, 4))):
            frames[index] = self._mutation(frames, index)
        return frames

    def _mutation(self, frames: list[bytes], index: int) -> bytes:
        random, data = self.random, bytearray(frames[index])
        kind = random.randrange(8)
        if kind == 0:
            return bytes(data) + random.choice(frames)
        if kind == 1:
            return b""
        if kind == 2 or not data:
            return bytes(data) + frame(random.choice((0, 1, 2, 3, 4, 8)), random.randrange(4), random.randbytes(20))
        if kind == 7 and frames[index] != PROTOCOL_HEADER:
            return self._cut(frames[index])
        at = random.randrange(len(data))
        if kind == 3:
            del data[at : at + random.randrange(1, 9)]
        elif kind == 4:
            data[at:at] = random.randbytes(random.randrange(1, 9))
        elif kind == 5 and len(data) > 8:
            # another payload in a sound frame
            payload = bytearray(data[7:-1])
            payload[random.randrange(len(payload))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            return bytes(data[:7]) + bytes(payload) + b"\xce"
        else:
            data[at] = random.randrange(256)
        return bytes(data)

    def _cut(self, data: bytes) -> bytes:
        """Return the frames, one of them with a shorter payload, but otherwise sound."""
        reader = FrameReader(0)
        reader.feed(data)
        found: list[Frame] = []
        while (got := reader.next()) is not None:
            found.append(got)
        cut = self.random.choice(found)
        cut.payload = cut.payload[: self.random.choice((4, 5, self.random.randrange(len(cut.payload) + 1)))]
        return b"".join(frame(each.kind, each.channel, each.payload) for each in found)


def served(client: Client, body: bytes) -> bool:
    """Return whether a client with its own queue gets what it publishes."""
    client.publish("own", body)
    client.send(1, grammar.BASIC_GET, queue="own", no_ack=True)
    client.bench.sync()
    return client.bodies() == [body]


def abuse(bench: Bench, seed: int) -> None:
    """Run one connection to the end of its socket, and check all that it is sent.

    It opens closed channels again, so that most sessions run to their end.
    """
    script = Script(seed)
    rude = Client(bench, Peer(bench.broker, f"test:{seed}", True))
    frames = script.session()
    while frames:
        count = script.random.choice((1, 1, 2, 5))
        data, frames = b"".join(frames[:count]), frames[count:]
        while data:
            cut = script.random.choice((1, 7, 100, 4000, 100_000))
            rude.raw(data[:cut])
            data = data[cut:]
        if script.random.random() < 0.05:
            bench.pass_time(SECOND_US)
        bench.sync()
        for number in look_at(b"".join(rude.peer.take(bench.broker.log.synced))):
            rude.send(number, grammar.CHANNEL_CLOSE_OK)
            rude.send(number, grammar.CHANNEL_OPEN)
    rude.peer.lost(bench.now_us)


def look_at(answer: bytes) -> list[int]:
    """Check that the frames are whole, the methods decodable and none reports an internal error; return closed
    channels."""
    closed: list[int] = []
    if answer == PROTOCOL_HEADER:
        return closed
    reader = FrameReader(131072)
    reader.feed(answer)
    size = 0
    while (got := reader.next()) is not None:
        size += len(got.payload) + FRAME_OVERHEAD
        if got.kind == FRAME_METHOD:
            method = decode_method(got.payload)
            if method.spec in (grammar.CONNECTION_CLOSE, grammar.CHANNEL_CLOSE):
                assert method.number("reply_code") != INTERNAL_ERROR, method
                closed += [got.channel] if got.channel else []
    assert size == len(answer)
    return closed


def peers() -> list[Peer]:
    """Return the broker's ends of all connections in memory."""
    return [each for each in gc.get_objects() if isinstance(each, Peer)]


@pytest.mark.parametrize("first", range(0, 1200, 100))
def test_nothing_that_a_client_sends_hurts(first: int) -> None:
    """In every other broker the firehose traces everything."""
    before = peers()  # other tests may have left some
    bench = Bench()
    bench.broker.trace("/", first % 200 == 100)
    polite = bench.connect()
    polite.queue("told", exclusive=True)
    polite.send(1, grammar.QUEUE_BIND, queue="told", exchange="amq.rabbitmq.trace", routing_key="#")
    polite.queue("own", exclusive=True)
    for seed in range(first, first + 100):
        abuse(bench, seed)
        assert served(polite, b"%d" % seed), seed
    vhost = bench.broker.vhosts["/"]
    assert len(vhost.channels) == 1
    assert vhost.replies == {}
    for queue in vhost.queues.values():
        assert (queue.consumers.count, queue.unacked) == (0, 0), queue.name
        assert queue.owner in (None, polite.peer)
    bench.broker.dirty.clear()  # the network has written what they were sent
    gc.collect()
    assert [peer for peer in peers() if peer not in before] == [polite.peer]
    bench.pass_time(61 * SECOND_US)
    bench.sync()
    again = Bench()
    recovery = Recovery(again.broker, again.now_us)
    for batch in bench.batches:
        recovery.batch(batch)
    recovery.finish()
    assert {name for name, queue in vhost.queues.items() if queue.is_journalled} == set(again.broker.vhosts["/"].queues)
