"""The hot path of a link: deliveries in, publishes out, confirms in, acknowledgements out. No sockets, no time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.link_peer import FRAME_OCTETS_MAX, LinkPeer
from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import ChannelCore, DeliverySink
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.url import parse_url
from leveret.federation.transfer import Transfer
from leveret.wire import grammar
from leveret.wire.frames import FrameReader, content_frames
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import Properties, decode_header, encode_header
from leveret.wire.table import Value

from .support import Bench
from .test_rewriting import HOP, ORIGIN, positioned
from .test_rewriting import properties as any_properties

TAG = "ctag"
Received = tuple[str, str, dict[str, Value] | None, bytes]


class Rig:
    """A broker with a federated exchange "fed" bound to a queue "q", and a link into it whose upstream is the test.

    near: another rig whose broker is shared.
    """

    def __init__(
        self,
        *,
        has_acks: bool = True,
        acks_on_publish: bool = False,
        max_hops: int = 1,
        has_positions: bool = False,
        is_general: bool = False,
        queue_arguments: dict[str, Value] | None = None,
        near: Rig | None = None,
    ) -> None:
        self.bench = near.bench if near is not None else Bench()
        self.events: list[str] = []
        self.bench.broker.on_event = self.events.append
        self.client = near.client if near is not None else self.bench.connect()
        if near is None:
            self.client.call(1, grammar.EXCHANGE_DECLARE, exchange="fed", type="fanout", durable=True)
            self.client.queue("q", durable=True, arguments=queue_arguments or {})
            self.client.call(1, grammar.QUEUE_BIND, queue="q", exchange="fed")
        vhost = self.client.peer.vhost
        has_confirms = has_acks and not acks_on_publish
        self.peer = LinkPeer(self.bench.broker, vhost, "the link", has_confirms, "key")
        self.transfer = Transfer(
            has_acks, acks_on_publish, max_hops, "down", "/", "fed", ORIGIN, False, self.peer,
            has_positions, TAG, 1,
        )  # fmt: skip
        self.core = ConnectionCore(parse_url("amqp://h/v"), 0, "link")
        self._open()
        if not is_general:
            self.core.deliveries = self.transfer
        self._reader = FrameReader(0)
        self._tag = 0

    def _open(self) -> None:
        core = self.core
        start = {"version_minor": 9, "mechanisms": b"PLAIN", "locales": b"en_US"}
        core.receive(method_frame(0, grammar.CONNECTION_START, **start))
        core.receive(method_frame(0, grammar.CONNECTION_TUNE, channel_max=5, frame_max=131072, heartbeat=0))
        core.receive(method_frame(0, grammar.CONNECTION_OPEN_OK))
        channel: ChannelCore[None] = core.open_channel(lambda _token, _error: None, lambda _error: None)
        channel.request(requests.open_channel())
        core.receive(method_frame(1, grammar.CHANNEL_OPEN_OK))
        channel.add_sink(DeliverySink(TAG, self.transfer.deliver, self.transfer.ended))
        core.take()

    def delivery(
        self, header: bytes, body: bytes, *, key: str = "rk", again: bool = False, room: int = 131072
    ) -> bytes:
        """Return the next delivery. room: the upstream's frame_max."""
        self._tag += 1
        values = {"consumer_tag": TAG, "exchange": "fed", "routing_key": key, "redelivered": again}
        method = method_frame(1, grammar.BASIC_DELIVER, delivery_tag=self._tag, **values)
        return method + content_frames(1, header, body, room)

    def cross(self, data: bytes) -> None:
        """Process bytes of the upstream as a link does."""
        self.core.receive(data)
        assert self.core.error is None
        self.publish()

    def publish(self) -> None:
        published = self.transfer.take_publishes()
        if published:
            self.peer.turn(published, self.bench.now_us)
        self.hear()

    def hear(self) -> None:
        """Process the answers of the link's own broker."""
        self.transfer.answered(b"".join(self.peer.take(self.bench.broker.log.synced)))

    def sync(self) -> None:
        self.bench.sync()
        self.hear()

    def acks(self) -> list[Method]:
        self._reader.feed(self.transfer.take_acks())
        found: list[Method] = []
        while (frame := self._reader.next()) is not None:
            found.append(decode_method(frame.payload))
        return found

    def acked(self) -> list[tuple[str, int, bool]]:
        return [(each.name, each.number("delivery_tag"), each.flag("multiple")) for each in self.acks()]

    def arrived(self) -> list[Received]:
        """Return (exchange, routing key, headers, body) of all messages in the queue."""
        reader = self.bench.connect()
        reader.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
        found: list[Received] = []
        where, headers, size, body = ("", ""), None, 0, b""
        for frame in reader.frames():
            if frame.kind == 1:
                method = decode_method(frame.payload)
                if method.spec is grammar.BASIC_DELIVER:
                    where = (method.text("exchange"), method.text("routing_key"))
                continue
            if frame.kind == 2:
                properties, size = decode_header(frame.payload)
                headers, body = properties.headers, b""
            else:
                body += frame.payload
            if len(body) == size:
                found.append((*where, headers, body))
        reader.send(0, grammar.CONNECTION_CLOSE)
        return found


def header(body: bytes, headers: dict[str, Value] | None = None, mode: int | None = 2, id: int | None = None) -> bytes:
    found = encode_header(Properties(headers=headers, delivery_mode=mode), len(body))
    return found if id is None else positioned(found, id)


def test_a_message_crosses_and_is_acknowledged_when_it_is_on_disk() -> None:
    rig = Rig()
    rig.cross(rig.delivery(header(b"hello", {"a": 1}), b"hello"))
    assert rig.acks() == []
    assert rig.transfer.unacknowledged == 1
    rig.sync()
    assert rig.acked() == [("basic.ack", 1, False)]
    assert rig.transfer.unacknowledged == 0
    assert rig.arrived() == [("fed", "rk", {"x-received-from": [HOP], "a": 1}, b"hello")]
    assert rig.transfer.messages == 1


def test_a_run_of_messages_is_acknowledged_by_one_frame() -> None:
    rig = Rig()
    bodies = [bytes([number]) * 9 for number in range(100)]
    rig.cross(b"".join(rig.delivery(header(body), body) for body in bodies))
    rig.sync()
    assert rig.acked() == [("basic.ack", 100, True)]
    assert [body for *_, body in rig.arrived()] == bodies


def test_messages_of_one_length_keep_their_own_headers() -> None:
    rig = Rig(has_positions=True)
    rig.publish()
    data = [rig.delivery(header(b"xyz", {"a": word}, id=id), b"xyz") for id, word in enumerate("abbca", 1)]
    rig.cross(b"".join(data))
    rig.sync()
    assert [headers["a"] for _, _, headers, _ in rig.arrived() if headers] == list("abbca")


def test_a_transient_message_is_acknowledged_at_once() -> None:
    rig = Rig()
    rig.cross(rig.delivery(header(b"x", mode=1), b"x"))
    assert rig.acked() == [("basic.ack", 1, False)]


def test_on_publish_acknowledges_what_is_published() -> None:
    rig = Rig(acks_on_publish=True)
    rig.cross(rig.delivery(header(b"x"), b"x") + rig.delivery(header(b"y"), b"y"))
    assert rig.acked() == [("basic.ack", 2, True)]
    assert rig.transfer.messages == 2


def test_no_ack_acknowledges_nothing() -> None:
    rig = Rig(has_acks=False)
    rig.cross(rig.delivery(header(b"x"), b"x") + rig.delivery(b"\0" * 20, b""))
    rig.sync()
    assert rig.acks() == []
    assert (rig.transfer.messages, rig.transfer.unacknowledged) == (1, 0)


def test_a_message_that_has_gone_far_enough_is_acknowledged_and_dropped() -> None:
    rig = Rig(max_hops=1)
    rig.cross(rig.delivery(header(b"x", {"x-received-from": [{"cluster-name": "a"}]}), b"x"))
    assert rig.acked() == [("basic.ack", 1, False)]
    assert (rig.transfer.looped, rig.transfer.messages, rig.arrived()) == (1, 0, [])


def test_what_is_dropped_waits_for_what_came_before_it() -> None:
    rig = Rig()
    first = rig.delivery(header(b"x"), b"x")
    rig.cross(first + rig.delivery(header(b"y", {"x-received-from": [{}]}), b"y"))
    assert rig.acks() == []
    rig.sync()
    assert rig.acked() == [("basic.ack", 2, True)]


def test_what_was_recorded_is_known_after_a_reconnect() -> None:
    rig = Rig(has_positions=True)
    rig.sync()
    rig.cross(rig.delivery(header(b"x", id=5), b"x") + rig.delivery(header(b"y", id=6), b"y"))
    rig.sync()
    assert rig.acked() == [("basic.ack", 2, True)]
    again = Rig(has_positions=True, near=rig)
    again.publish()
    again.cross(again.delivery(header(b"y", id=6), b"y", again=True) + again.delivery(header(b"z", id=7), b"z"))
    again.sync()
    assert again.acked() == [("basic.ack", 2, True)]
    assert (again.transfer.known, again.transfer.messages) == (1, 1)
    assert [body for *_, body in again.arrived()] == [b"x", b"y", b"z"]


def test_what_is_known_from_an_unsynced_batch_is_not_acknowledged_before_that_is_synced() -> None:
    rig = Rig(has_positions=True)
    rig.publish()
    rig.cross(rig.delivery(header(b"x", id=5), b"x"))
    again = Rig(has_positions=True, near=rig)  # the connection was cut; the record is not on disk yet
    again.publish()
    again.cross(again.delivery(header(b"x", id=5), b"x", again=True))
    assert again.transfer.known == 1
    assert again.acks() == []
    again.sync()
    assert again.acked() == [("basic.ack", 1, False)]


def test_a_message_without_a_position_crosses() -> None:
    rig = Rig(has_positions=True)
    rig.publish()
    for _ in range(2):
        rig.cross(rig.delivery(header(b"x", mode=1, id=0), b"x"))
    assert [headers for _, _, headers, _ in rig.arrived()] == [{"x-received-from": [HOP]}] * 2
    assert rig.transfer.known == 0


def test_what_a_full_queue_rejects_goes_back_later() -> None:
    rig = Rig(queue_arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    rig.cross(b"".join(rig.delivery(header(body), body) for body in (b"x", b"y")))
    rig.sync()
    assert rig.acked() == [("basic.ack", 1, False)]
    assert rig.transfer.has_refused
    rig.transfer.requeue()
    (nack,) = rig.acks()
    assert (nack.spec, nack.number("delivery_tag"), nack.flag("requeue")) == (grammar.BASIC_NACK, 2, True)
    assert not rig.transfer.has_refused


def test_a_header_that_does_not_fit_into_a_frame_any_more_is_dead_lettered_and_said() -> None:
    rig = Rig()
    size = FRAME_OCTETS_MAX - 8 - len(header(b"x", {"a": ""}))
    large = header(b"x", {"a": "a" * size})
    assert len(large) == FRAME_OCTETS_MAX - 8
    rig.cross(rig.delivery(large, b"x", key="rk1") + rig.delivery(header(b"y"), b"y"))
    (nack,) = rig.acks()
    assert (nack.number("delivery_tag"), nack.flag("requeue")) == (1, False)
    rig.sync()
    assert rig.acked() == [("basic.ack", 2, False)]
    (event,) = (event for event in rig.events if event.startswith("'the link "))
    assert ": a message with routing key 'rk1' was dropped: its header of 131" in event
    assert [body for *_, body in rig.arrived()] == [b"y"]
    assert (rig.transfer.rejected, rig.transfer.messages) == (1, 1)


def test_the_largest_header_that_fits_crosses() -> None:
    rig = Rig()
    room = FRAME_OCTETS_MAX - 8 - len(header(b"x", {"x-received-from": [HOP], "a": ""}))
    rig.cross(rig.delivery(header(b"x", {"a": "a" * room}), b"x"))
    assert rig.transfer.rejected == 0
    assert len(rig.arrived()) == 1


def test_a_malformed_header_is_dead_lettered() -> None:
    rig = Rig()
    broken = encode_header(Properties(), 1)[:12] + b"\x80\x00\x05abc"
    rig.cross(rig.delivery(broken, b"x") + rig.delivery(header(b"y"), b"y"))
    rig.sync()
    assert [method.name for method in rig.acks()] == ["basic.nack", "basic.ack"]
    assert rig.transfer.rejected == 1


def test_a_message_at_fault_is_dead_lettered() -> None:
    rig = Rig()
    rig.cross(b"".join(rig.delivery(header(b"x", mode=mode), b"x") for mode in (2, 9, 2)))
    rig.sync()
    nack, ack = rig.acks()
    assert (nack.spec, nack.number("delivery_tag"), nack.flag("requeue")) == (grammar.BASIC_NACK, 2, False)
    assert (ack.spec, ack.number("delivery_tag"), ack.flag("multiple")) == (grammar.BASIC_ACK, 3, True)
    assert (rig.transfer.messages, rig.transfer.rejected, rig.transfer.unacknowledged) == (3, 1, 0)


def test_a_large_body_is_cut_as_the_door_wants_it() -> None:
    rig = Rig()
    body = bytes(range(256)) * 1200
    rig.cross(rig.delivery(header(body), body, room=4096) + rig.delivery(header(body), body))
    rig.sync()
    assert [found for *_, found in rig.arrived()] == [body, body]


def test_the_end_of_the_own_channel_is_told() -> None:
    rig = Rig()
    rig.client.send(1, grammar.EXCHANGE_DELETE, exchange="fed")
    rig.cross(rig.delivery(header(b"x"), b"x"))
    rig.sync()
    assert rig.transfer.failure == "404 NOT_FOUND - no exchange 'fed' in vhost '/'"


def test_a_route_whose_lengths_do_not_add_up_ends_the_connection() -> None:
    rig = Rig()
    data = bytearray(rig.delivery(header(b"x"), b"x", key="abc"))
    data[data.index(b"\x03abc")] = 2
    rig.core.receive(bytes(data))
    assert rig.core.error is not None
    assert rig.core.error.code == 501


def test_deliveries_to_another_consumer_are_left_alone() -> None:
    rig = Rig()
    data = rig.delivery(header(b"x"), b"x").replace(b"\x04ctag", b"\x04gatc")
    rig.cross(data)
    assert rig.transfer.messages == 0


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_answers_may_come_in_pieces(size: int) -> None:
    rig = Rig()
    rig.core.receive(rig.delivery(header(b"x"), b"x"))
    rig.peer.turn(rig.transfer.take_publishes(), rig.bench.now_us)
    rig.bench.sync()
    data = b"".join(rig.peer.take(rig.bench.broker.log.synced))
    for start in range(len(data)):
        rig.transfer.answered(data[start : start + 1])
    assert rig.acked() == [("basic.ack", 1, False)]


messages = st.lists(
    st.tuples(
        any_properties,
        st.integers(0, 3),  # number of equal messages in a row
        st.sampled_from(["rk", "a.b", ""]),
        st.sampled_from([b"", b"x", b"xy", bytes(4097)]),
        st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=150)
@given(messages, st.lists(st.integers(1, 400), min_size=1, max_size=5), st.booleans())
def test_runs_and_single_deliveries_are_published_alike(
    story: list[tuple[Properties, int, str, bytes, bool]], cuts: list[int], has_positions: bool
) -> None:
    rigs = [Rig(is_general=is_general, has_positions=has_positions, max_hops=3) for is_general in (False, True)]
    published: list[bytes] = []
    for rig in rigs:
        data, id = b"", 0
        for properties, times, key, body, again in story:
            for _ in range(times):
                id += 1
                each = encode_header(properties, len(body))
                data += rig.delivery(
                    positioned(each, id) if has_positions else each, body, key=key, again=again, room=4096
                )
        at = 0
        while at < len(data):
            size = cuts[at % len(cuts)]
            rig.core.receive(data[at : at + size])
            at += size
        assert rig.core.error is None
        published.append(rig.transfer.take_publishes() + rig.transfer.take_acks())
    assert published[0] == published[1]
    first, second = (rig.transfer for rig in rigs)
    assert (first.messages, first.looped, first.rejected) == (second.messages, second.looped, second.rejected)
