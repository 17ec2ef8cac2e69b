"""Two clients of one broker that send anything: octets, frames, methods with any fields, and sessions that make sense.

Whatever they send: nothing is raised, no answer is 541, answers are whole frames, the broker's counters are right, its
journal can be read and replays to the same queues, and nothing remains of clients that are gone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.peer import Peer
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.definitions import PARAMETER, POLICY, VHOST_LIMITS
from leveret.broker.storage.records import records
from leveret.broker.storage.recovery import Recovery
from leveret.broker.streams.stream import Stream
from leveret.session import lifecycle
from leveret.wire import grammar
from leveret.wire.errors import INTERNAL_ERROR
from leveret.wire.frames import PROTOCOL_HEADER, FrameReader, content_frames, frame
from leveret.wire.grammar import METHODS, MethodSpec
from leveret.wire.method import decode_method, method_frame
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import Value

from ..unit.support import SECOND_US, Bench
from .octets import Octets

OPERATIONS_MAX: Final = 80
CAPABILITIES: Final[dict[str, Value]] = {"consumer_cancel_notify": True, "connection.blocked": True}
POLICY_KEYS: Final = (
    "max-length", "message-ttl", "expires", "overflow", "dead-letter-exchange", "delivery-limit",
)  # fmt: skip
FRAME_MAX: Final = 131072
SPECS: Final = list(METHODS.values())
QUEUES: Final = ("q", "r", "d", "s", "", "amq.rabbitmq.reply-to", "amq.leveret.stage")
EXCHANGES: Final = ("", "amq.topic", "amq.fanout", "amq.headers", "x", "y", "z", "amq.rabbitmq.trace", "nope")
KEYS: Final = (
    "q",
    "r",
    "d",
    "s",
    "a.b.c",
    "#",
    "a.*",
    "*.#.c",
    "",
    "amq.rabbitmq.reply-to",
    "amq.leveret.stage",
    "k" * 255,
)
KINDS: Final = (
    "direct", "fanout", "topic", "headers", "x-consistent-hash", "x-modulus-hash", "x-random", "x-recent-history",
    "x-delayed-message", "x-federation-upstream", "none",
)  # fmt: skip
NUMBERS: Final = (0, 1, 2, 3, 5, 10, 255, 256, 1000, -1, 1 << 31, 1 << 40, (1 << 63) - 1)
TEXTS: Final = (
    "", "q", "r", "d", "s", "amq.topic", "x", "y", "nope", "all", "any", "classic", "quorum", "stream", "direct",
    "topic",
    "drop-head", "reject-publish", "reject-publish-dlx", "at-least-once", "at-most-once", "first", "last", "next", "1h",
    "7Y", "10", "0", "-5", "guest", "\udcff", "é", "x" * 300, '[{"name": "a", "type": "string"}]',
)  # fmt: skip
NAMES: Final = (
    "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow", "x-dead-letter-exchange",
    "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-delivery-limit", "x-queue-type", "x-max-priority",
    "x-single-active-consumer", "x-queue-mode", "x-max-age", "x-stream-max-segment-size-bytes", "x-stream-offset",
    "x-stream-filter", "x-priority", "x-cancel-on-ha-failover", "alternate-exchange", "x-delayed-type", "hash-header",
    "hash-property", "x-recent-history-length", "x-recent-history-no-store", "x-match", "x-max-hops", "x-delay", "CC",
    "BCC", "x-death", "x-first-death-queue", "x-first-death-reason", "x-first-death-exchange", "x-delivery-count",
    "x-stream-filter-value", "x-received-from", "x-leveret-schema", "x-leveret-seal-after-ms", "x-leveret-attempt",
    "x-leveret-batch", "x-leveret-query", "x-leveret-publisher", "x-leveret-sequence", "x-leveret-position",
    "x-leveret-positions", "x-leveret-expires-ms", "x-leveret-audit", "x-leveret-consumer", "x-internal-purpose", "a",
)  # fmt: skip


# valid values; half of all values come from here, so that sessions get past the checks
FITTING: Final[dict[str, tuple[Value, ...]]] = {
    "x-message-ttl": (0, 1, 1000), "x-expires": (1, 1000), "x-max-length": (0, 1, 2, 1000), "x-max-length-bytes": (0,
                                                                                                                   10),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx"), "x-dead-letter-exchange": ("", "amq.fanout",
                                                                                                    "x"),
    "x-dead-letter-routing-key": ("q", "r", "d"), "x-dead-letter-strategy": ("at-least-once", "at-most-once"),
    "x-delivery-limit": (0, 1, -1), "x-queue-type": ("classic", "quorum", "stream"), "x-max-priority": (1, 10, 255),
    "x-single-active-consumer": (True, False), "x-queue-mode": ("lazy", "default"), "x-max-age": ("1h", "7Y"),
    "x-stream-offset": ("first", "last", "next", 0, 3, "1h"), "x-stream-filter": ("a", ["a", "q"]),
    "x-priority": (-1, 0, 5), "alternate-exchange": ("amq.fanout", "x", "nope"), "hash-header": ("a",),
    "hash-property": ("message_id", "correlation_id"), "x-recent-history-length": (1, 3), "x-match": ("any", "all",
                                                                                                      "any-with-x"),
    "x-max-hops": (1, 2), "x-delay": (0, 1000, -1, 1 << 40), "CC": (["q"], ["r", "d"]), "BCC": (["d", "q"],),
    "x-delivery-count": (1,), "x-stream-filter-value": ("a",), "x-leveret-publisher": ("p",),
    "x-leveret-sequence": (1, 2, 3),
    "x-leveret-query": ("query",), "x-leveret-batch": (1, 2), "x-leveret-attempt": ("one", "two"),
    "x-death": ([{"count": 3, "queue": "q", "reason": "expired", "exchange": "", "routing-keys": ["q"]}],),
    "x-received-from": ([{"uri": "u", "exchange": "x", "cluster-name": "c", "vhost": "/"}],),
    "x-leveret-audit": (True,),
}  # fmt: skip
# what exists at the beginning: nothing, or ordinary queues, or queues whose arguments have effects
SHORES: Final[tuple[tuple[tuple[str, dict[str, Value]], ...], ...]] = (
    (("q", {}), ("r", {"x-max-length": 2}), ("d", {}), ("s", {"x-queue-type": "stream"})),
    (("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "d", "x-message-ttl": 1000}), ("d", {}),
     ("r", {"x-max-priority": 10, "x-max-length": 3, "x-overflow": "reject-publish"})),
    (("q", {"x-queue-type": "quorum", "x-delivery-limit": 1, "x-dead-letter-exchange": "x",
      "x-overflow": "reject-publish",
            "x-dead-letter-strategy": "at-least-once"}), ("d", {"x-single-active-consumer": True})),
    (("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "r", "x-message-ttl": 0}),
     ("r", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", "x-message-ttl": 1})),
    (),
)  # fmt: skip


def one_input(data: bytes) -> None:
    Rig(Octets(data)).run()


# -- what clients send -------------------------------------------------------------------------------------------------


def value_of(octets: Octets, depth: int = 0) -> Value:
    kind = octets.octet() % 12
    if kind <= 3:
        return octets.choice(NUMBERS)
    if kind <= 6:
        return octets.choice(TEXTS)
    if kind == 7:
        return octets.flag()
    if kind == 8:
        return octets.chunk()
    if kind == 9 or depth > 3:
        return octets.choice((None, 1.5, Decimal("1.5"), datetime(2020, 1, 1, tzinfo=UTC), float("nan")))
    if kind == 10:
        return [value_of(octets, depth + 1) for _ in range(octets.octet() % 4)]
    return table_of(octets, depth + 1)


def table_of(octets: Octets, depth: int = 0) -> dict[str, Value]:
    table: dict[str, Value] = {}
    for _ in range(octets.octet() % 5):
        name = octets.choice(NAMES)
        fitting = FITTING.get(name)
        table[name] = octets.choice(fitting) if fitting and octets.octet() % 8 else value_of(octets, depth)
    return table


def field_of(octets: Octets, name: str, kind: str) -> object:
    """Choose a value for a method's field."""
    if kind == "bit":
        return octets.octet() % 4 == 1
    if kind == "table":
        return octets.chunk_table() if octets.octet() % 8 == 7 else table_of(octets)
    if kind == "longstr":
        return octets.chunk()
    if kind == "shortstr":
        names = {"queue": QUEUES, "exchange": EXCHANGES, "source": EXCHANGES, "destination": EXCHANGES, "type": KINDS,
                 "routing_key": KEYS, "virtual_host": ("/", "other")}.get(name, TEXTS)  # fmt: skip
        return octets.choice([each for each in names if len(each.encode("utf-8", "surrogateescape")) < 256])
    if name == "delivery_tag":
        return octets.octet() % 8
    return octets.number({"octet": 1, "short": 2, "long": 2, "longlong": 8}[kind])


def method_of(octets: Octets, spec: MethodSpec, number: int) -> bytes:
    values = {name: field_of(octets, name, kind) for name, kind in spec.fields}
    return method_frame(0 if spec.class_id == 10 else number, spec, **values)


def properties_of(octets: Octets) -> Properties:
    properties = Properties()
    properties.delivery_mode = octets.choice((2, 1, None, 2, 0, 3))
    which = octets.octet()
    if which & 1:
        properties.headers = table_of(octets)
    if which & 2:
        properties.expiration = octets.choice(("0", "1", "1000", "soon", "", "-1", "99999999999999999999"))
    if which & 4:
        properties.reply_to = octets.choice(("amq.rabbitmq.reply-to", "q", ""))
    if which & 8:
        properties.priority = octets.octet()
    if which & 16:
        properties.user_id = octets.choice(("guest", "other", ""))
    if which & 32:
        properties.correlation_id = octets.choice(("c", "", "x" * 255))
        properties.message_id = octets.choice(("m", ""))
    return properties


def publish_of(octets: Octets, number: int) -> bytes:
    method = method_frame(
        number, grammar.BASIC_PUBLISH, exchange=octets.choice(EXCHANGES), routing_key=octets.choice(KEYS),
        mandatory=octets.flag(),
    )  # fmt: skip
    body = octets.choice((b"x", b"", b"0123456789", b"long" * 1100, b"y" * 70_000))
    header = encode_header(properties_of(octets), len(body))
    if octets.octet() % 16 == 15:
        header = header[:12] + octets.chunk()
    return (method + content_frames(number, header, body, octets.choice((4096, FRAME_MAX)))) * octets.choice(
        (1, 1, 3, 20)
    )


# -- the broker and its clients ----------------------------------------------------------------------------------------


class Rig:
    """A broker and two connections to it; each may be replaced any number of times."""

    def __init__(self, octets: Octets) -> None:
        self.octets = octets
        self.bench = Bench()
        self.bench.batches.append(b"".join(self.bench.broker.snapshot()))
        self.answers: list[bytes] = []
        self.peers = [self.connect(), self.connect()]
        for name, arguments in octets.choice(SHORES):
            self.say(0, method_frame(1, grammar.QUEUE_DECLARE, queue=name, durable=True, arguments=arguments))
            self.say(0, method_frame(1, grammar.QUEUE_BIND, queue=name, exchange="amq.topic", routing_key="#"))

    def connect(self) -> Peer:
        bench = self.bench
        peer = Peer(bench.broker, "127.0.0.1:1", True)
        self.answers.append(b"")
        peer.turn(
            PROTOCOL_HEADER
            + method_frame(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0guest\0guest",
                           client_properties={"capabilities": CAPABILITIES})
            + method_frame(0, grammar.CONNECTION_TUNE_OK, channel_max=7, frame_max=FRAME_MAX)
            + method_frame(0, grammar.CONNECTION_OPEN, virtual_host="/")
            + method_frame(1, grammar.CHANNEL_OPEN)
            + method_frame(2, grammar.CHANNEL_OPEN),
            bench.now_us,
        )  # fmt: skip
        return peer

    def run(self) -> None:
        octets = self.octets
        for _ in range(OPERATIONS_MAX):
            if not octets.left:
                break
            which = octets.octet()
            index = which >> 7
            OPERATIONS[(which & 0x7F) % len(OPERATIONS)](self, index)
            self.look()
            if self.peers[index].state >= lifecycle.CLOSING:
                self.hang_up(index)
            elif which % 8:
                self.reopen(index)
        self.end()

    def say(self, index: int, data: bytes) -> None:
        peer = self.peers[index]
        peer.turn(data, self.bench.now_us)
        for _ in range(100):
            if not peer.has_more:
                break
            peer.turn(b"", self.bench.now_us)
        assert self.bench.broker.vhosts["/"].touched == []

    def raw(self, index: int) -> None:
        self.say(index, self.octets.chunk())

    def frame(self, index: int) -> None:
        octets = self.octets
        self.say(index, frame(octets.choice((1, 2, 3, 8, 0)), octets.octet() % 4, octets.chunk()))

    def method_payload(self, index: int) -> None:
        octets = self.octets
        spec = octets.choice(SPECS)
        self.say(
            index, frame(1, octets.octet() % 3, struct.pack(">HH", spec.class_id, spec.method_id) + octets.chunk())
        )

    def any_method(self, index: int) -> None:
        octets = self.octets
        self.say(index, method_of(octets, octets.choice(SPECS), 1 + octets.octet() % 2))

    def likely_method(self, index: int) -> None:
        octets = self.octets
        self.say(index, method_of(octets, octets.choice(LIKELY), 1 + octets.octet() % 2))

    def publish(self, index: int) -> None:
        octets = self.octets
        data = publish_of(octets, 1 + octets.octet() % 2)
        cut = octets.octet() * 16 if octets.octet() % 4 == 3 else len(data)
        self.say(index, data[:cut])
        if data[cut:]:
            self.say(index, data[cut:])

    def declare(self, index: int) -> None:
        """Declare a queue, usually one that is allowed."""
        octets = self.octets
        name = octets.choice(QUEUES[:4])
        durable = name != "r"
        self.say(index, method_frame(1, grammar.QUEUE_DECLARE, queue=name, durable=durable, arguments=table_of(octets)))

    def declare_exchange(self, index: int) -> None:
        octets = self.octets
        arguments: dict[str, Value] = {"x-delayed-type": "topic", **table_of(octets)}
        self.say(index, method_frame(
            1, grammar.EXCHANGE_DECLARE, exchange=octets.choice(("x", "y", "z")), type=octets.choice(KINDS),
            durable=octets.flag(), auto_delete=octets.octet() % 8 == 7, arguments=arguments,
        ))  # fmt: skip

    def bind(self, index: int) -> None:
        octets = self.octets
        self.say(index, method_frame(
            1, grammar.QUEUE_BIND, queue=octets.choice(QUEUES), exchange=octets.choice(EXCHANGES),
            routing_key=octets.choice(KEYS), arguments=table_of(octets),
        ))  # fmt: skip

    def consume(self, index: int) -> None:
        octets = self.octets
        self.say(index, method_frame(1 + octets.octet() % 2, grammar.BASIC_QOS, prefetch_count=octets.octet() % 8))
        self.say(index, method_frame(
            1 + octets.octet() % 2, grammar.BASIC_CONSUME, queue=octets.choice(QUEUES), no_ack=octets.flag(),
            arguments=table_of(octets),
        ))  # fmt: skip

    def settle(self, index: int) -> None:
        octets = self.octets
        spec = octets.choice((grammar.BASIC_ACK, grammar.BASIC_NACK, grammar.BASIC_REJECT))
        self.say(index, method_of(octets, spec, 1 + octets.octet() % 2))

    def get(self, index: int) -> None:
        octets = self.octets
        number = 1 + octets.octet() % 2
        self.say(index, method_frame(number, grammar.BASIC_GET, queue=octets.choice(QUEUES), no_ack=octets.flag()))

    def select(self, index: int) -> None:
        octets = self.octets
        spec = octets.choice((grammar.CONFIRM_SELECT, grammar.TX_SELECT, grammar.TX_COMMIT, grammar.TX_ROLLBACK))
        self.say(index, method_frame(1 + octets.octet() % 2, spec))

    def reopen(self, index: int) -> None:
        """Open channels again that were closed."""
        for number in (1, 2):
            channel = self.peers[index].channels.get(number)
            if channel is None or channel.state != 0:
                answer = method_frame(number, grammar.CHANNEL_CLOSE_OK) if channel is not None else b""
                self.say(index, answer + method_frame(number, grammar.CHANNEL_OPEN))

    def wait(self, _index: int) -> None:
        self.bench.pass_time(self.octets.choice((1, 1000, SECOND_US, 60 * SECOND_US, 3600 * SECOND_US)))
        for peer in self.peers:
            peer.now_us = self.bench.now_us
            peer.tick()
            peer.check_ack_timeouts(self.bench.now_us)

    def sync(self, _index: int) -> None:
        self.bench.sync()

    def take(self, index: int) -> None:
        peer = self.peers[index]
        self.answers[index] += b"".join(peer.take(self.bench.broker.log.synced))
        peer.drained(self.bench.now_us)

    def hang_up(self, index: int) -> None:
        peer = self.peers[index]
        self.answers[index] += b"".join(peer.take(self.bench.broker.log.synced))
        peer.lost(self.bench.now_us)
        answer = self.answers.pop(index)
        whole_frames(answer, peer.is_gated)
        self.peers[index] = self.connect()
        self.answers.insert(index, self.answers.pop())

    def alarm(self, _index: int) -> None:
        broker = self.bench.broker
        broker.block_reason = "" if broker.block_reason else "low on disk"
        for index, peer in enumerate(self.peers):
            if not broker.block_reason:
                self.say(index, peer.release())

    def govern(self, _index: int) -> None:
        """Set an operator's policies and limits."""
        octets, definitions = self.octets, self.bench.broker.definitions
        if octets.flag():
            key = octets.choice(POLICY_KEYS)
            value = octets.choice((1, 2, 1000, "reject-publish", "drop-head", "amq.fanout"))
            is_text = key in {"overflow", "dead-letter-exchange"}
            if is_text == isinstance(value, str) and not (key == "overflow" and value == "amq.fanout"):
                applies = octets.choice(("queues", "all", "exchanges"))
                policy: dict[str, Value] = {"vhost": "/", "name": "p", "pattern": "^[qrx]", "apply-to": applies,
                                            "priority": 0, "definition": {key: value}}  # fmt: skip
                definitions.put(POLICY, policy)
        else:
            limits: dict[str, Value] = {"vhost": "/", "component": VHOST_LIMITS, "name": "limits",
                                        "value": {"max-queues": octets.octet()}}  # fmt: skip
            definitions.put(PARAMETER, limits)
        while self.bench.broker.enforce_policies(self.bench.now_us):
            pass
        self.bench.broker.end_turn(self.bench.now_us)

    def trace(self, _index: int) -> None:
        self.bench.broker.trace("/", self.octets.flag())

    # -- what must hold ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Check that the broker's counters equal what exists."""
        vhost = self.bench.broker.vhosts["/"]
        assert self.bench.broker.connection_count == sum(peer.is_counted for peer in self.peers)
        unacked: dict[int, int] = {}
        consumers: dict[int, int] = {}
        channels = [channel for peer in self.peers for channel in peer.channels.values() if channel.state == 0]
        assert vhost.channels == set(channels)
        for channel in channels:
            outstanding = channel.outstanding()
            for entry in outstanding:
                unacked[id(entry.queue)] = unacked.get(id(entry.queue), 0) + 1
            assert channel.unacked.count >= len(outstanding)
            for consumer in channel.consumers.values():
                if consumer.queue is not None:
                    consumers[id(consumer.queue)] = consumers.get(id(consumer.queue), 0) + 1
                    mine = sum(entry.consumer is consumer for entry in outstanding)
                    assert isinstance(consumer.queue, Stream) or consumer.unacked == mine, consumer.tag
        for queue in vhost.queues.values():
            assert len(queue.consumers.all()) == queue.consumers.count == consumers.get(id(queue), 0), queue.name
            if isinstance(queue, Stream):
                continue
            assert queue.unacked == unacked.get(id(queue), 0), (queue.name, queue.unacked, unacked.get(id(queue), 0))
            for message_list in queue.every_list():
                there = sum(_count(item) for item in message_list.ready.items())
                assert message_list.ready.count() == there, (queue.name, message_list.ready.count(), there)

    def end(self) -> None:
        """End all connections; check that what is left is what the journal says."""
        bench = self.bench
        bench.sync()
        for index, peer in enumerate(self.peers):
            self.answers[index] += b"".join(peer.take(bench.broker.log.synced))
            whole_frames(self.answers[index], peer.is_gated)
            peer.lost(bench.now_us)
        vhost = bench.broker.vhosts["/"]
        assert vhost.channels == set()
        assert vhost.replies == {}
        assert bench.broker.connection_count == 0
        for queue in vhost.queues.values():
            assert (queue.consumers.count, queue.unacked, queue.owner) == (0, 0, None), queue.name
        bench.sync()
        self.replay()

    def replay(self) -> None:
        again = Bench()
        recovery = Recovery(again.broker, self.bench.now_us)
        for batch in self.bench.batches:
            list(records(batch))
            recovery.batch(batch)
        recovery.finish()
        before, after = self.bench.broker.vhosts["/"], again.broker.vhosts["/"]
        kept = {name for name, queue in before.queues.items() if queue.is_journalled}
        assert kept == set(after.queues), (kept, set(after.queues))
        assert {name for name, x in before.exchanges.items() if x.durable} == set(after.exchanges)
        for name in kept:
            now_us = self.bench.now_us
            mine, theirs = _kept(before.queues[name], now_us), _kept(after.queues[name], now_us)
            assert mine == theirs, (name, mine, theirs)


def _count(item: object) -> int:
    return int(item.buffer.count - item.taken) if isinstance(item, MessageBatch) else 1


def _kept(queue: Queue, now_us: int) -> list[int]:
    """Return the ids of waiting messages that are in the journal and have not expired.

    An expired message may remain behind one that has not expired.
    """
    if isinstance(queue, Stream):
        return list(range(int(queue.first), int(queue.next_offset)))
    return sorted(int(entry.id) for entry in queue.in_memory() if entry.id and not 0 < entry.expires_us <= now_us)


def whole_frames(answer: bytes, is_gated: bool) -> None:
    """Check that an answer consists of whole frames, all methods can be decoded, and none reports an internal error."""
    reader = FrameReader(FRAME_MAX)
    reader.feed(answer.removesuffix(PROTOCOL_HEADER))
    size = 0
    while (got := reader.next()) is not None:
        size += len(got.payload) + 8
        if got.kind == 1:
            method = decode_method(got.payload)
            if method.spec in {grammar.CONNECTION_CLOSE, grammar.CHANNEL_CLOSE}:
                assert method.number("reply_code") != INTERNAL_ERROR, method
    assert is_gated or size == len(answer.removesuffix(PROTOCOL_HEADER)), "the broker sends what is no frame"


LIKELY: Final = [
    spec
    for spec in SPECS
    if spec.class_id in {20, 40, 50, 60, 85, 90} and not spec.has_content and not spec.name.endswith(("-ok", "-empty"))
]
OPERATIONS: Final[tuple[Callable[[Rig, int], None], ...]] = (
    Rig.publish, Rig.declare, Rig.consume, Rig.settle, Rig.likely_method, Rig.get, Rig.bind,
    Rig.declare_exchange, Rig.select, Rig.reopen, Rig.wait, Rig.sync, Rig.take, Rig.hang_up, Rig.alarm,
    Rig.govern, Rig.trace, Rig.any_method, Rig.method_payload, Rig.frame, Rig.raw, Rig.publish,
    Rig.settle, Rig.reopen,
)  # fmt: skip
