"""The client's sans-IO core against a scripted server: no sockets, no time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import ChannelCore, DeliverySink
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.errors import (
    AuthenticationFailed,
    ChannelClosed,
    ClientError,
    ConnectionClosed,
    ConsumerCancelled,
)
from leveret.client.protocol.model import Delivery
from leveret.client.protocol.url import parse_url
from leveret.wire import grammar
from leveret.wire.frames import FRAME_METHOD, PROTOCOL_HEADER, FrameReader, content_frames, frame
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import Properties, encode_header


class Wire:
    """A client core and the bytes that it wrote."""

    def __init__(self, heartbeat_s: int = 60) -> None:
        self.core = ConnectionCore(parse_url("amqp://u:p@h/v"), heartbeat_s, "test")
        self._reader = FrameReader(0)

    def say(self, spec: MethodSpec, channel: int = 0, **values: Any) -> None:
        """Pass a method of the server to the client."""
        self.core.receive(method_frame(channel, spec, **values))

    def heard(self) -> list[Method]:
        """Return the methods that the client wrote since the last call."""
        self._reader.feed(self.core.take())
        methods = []
        while (got := self._reader.next()) is not None:
            if got.kind == FRAME_METHOD:
                methods.append(decode_method(got.payload))
        return methods


def greet(wire: Wire, mechanisms: bytes = b"AMQPLAIN PLAIN") -> None:
    assert wire.core.take() == PROTOCOL_HEADER
    wire.say(
        grammar.CONNECTION_START,
        version_minor=9,
        server_properties={"product": "Hare"},
        mechanisms=mechanisms,
        locales=b"en_US",
    )


def opened(heartbeat_s: int = 60, tune_heartbeat: int = 60) -> Wire:
    wire = Wire(heartbeat_s)
    greet(wire)
    wire.say(grammar.CONNECTION_TUNE, channel_max=5, frame_max=8192, heartbeat=tune_heartbeat)
    wire.say(grammar.CONNECTION_OPEN_OK)
    assert wire.core.opened.done
    wire.heard()
    return wire


def channel_of(wire: Wire) -> ChannelCore[None]:
    channel: ChannelCore[None] = wire.core.open_channel(lambda _token, _error: None, lambda _error: None)
    waiter = channel.request(requests.open_channel())
    wire.say(grammar.CHANNEL_OPEN_OK, channel.number)
    assert waiter.done
    wire.heard()
    return channel


def test_the_handshake() -> None:
    wire = Wire()
    greet(wire)
    (start_ok,) = wire.heard()
    assert (start_ok.text("mechanism"), start_ok.data("response")) == ("PLAIN", b"\0u\0p")
    properties = start_ok.table("client_properties")
    assert properties["connection_name"] == "test"
    capabilities = properties["capabilities"]
    assert isinstance(capabilities, dict)
    assert capabilities["authentication_failure_close"] is True
    wire.say(grammar.CONNECTION_TUNE, channel_max=0, frame_max=4096, heartbeat=10)
    tune_ok, opening = wire.heard()
    agreed = [tune_ok.number(name) for name in ("channel_max", "frame_max", "heartbeat")]
    assert agreed == [2047, 4096, 10]
    assert opening.text("virtual_host") == "v"
    assert not wire.core.opened.done
    wire.say(grammar.CONNECTION_OPEN_OK)
    wire.core.opened.result()
    assert wire.core.server_properties == {"product": "Hare"}


@pytest.mark.parametrize(("ours", "theirs", "agreed"), [(60, 10, 10), (10, 60, 10), (60, 0, 60), (0, 60, 0)])
def test_heartbeats_are_agreed_on(ours: int, theirs: int, agreed: int) -> None:
    assert opened(ours, theirs).core.heartbeat_s == agreed


def test_a_server_without_plain_login_is_told_of() -> None:
    wire = Wire()
    greet(wire, b"EXTERNAL")
    with pytest.raises(ConnectionClosed, match="no PLAIN login, only EXTERNAL"):
        wire.core.opened.result()


def test_a_server_of_another_protocol_is_told_of() -> None:
    wire = Wire()
    wire.core.receive(b"AMQP\x00\x01\x00\x00")
    with pytest.raises(ConnectionClosed, match="does not speak AMQP 0-9-1"):
        wire.core.opened.result()


def test_refused_logins_say_what_to_do() -> None:
    wire = Wire()
    greet(wire)
    wire.say(grammar.CONNECTION_CLOSE, reply_code=403, reply_text="ACCESS_REFUSED - no")
    with pytest.raises(AuthenticationFailed, match="check user 'u' and its password"):
        wire.core.opened.result()
    wire = Wire()
    greet(wire)
    wire.core.lost("")
    with pytest.raises(ConnectionClosed, match="hung up during login; check user 'u'"):
        wire.core.opened.result()


def test_everything_that_waits_learns_that_the_connection_is_gone() -> None:
    wire = opened()
    channel = channel_of(wire)
    ends: list[ClientError] = []
    channel.add_sink(DeliverySink("t", lambda _delivery: None, ends.append))
    waiter = channel.request(requests.purge_queue("q"))
    wire.say(grammar.CONNECTION_CLOSE, reply_code=320, reply_text="CONNECTION_FORCED - bye")
    assert [method.name for method in wire.heard()] == ["queue.purge", "connection.close-ok"]
    for attempt in (waiter.result, channel.check_open, wire.core.check_open):
        with pytest.raises(ConnectionClosed, match="320 CONNECTION_FORCED - bye"):
            attempt()
    assert ends == [wire.core.error]


def test_the_broker_closes_a_channel_and_its_number_is_free_again() -> None:
    wire = opened()
    channel = channel_of(wire)
    waiter = channel.request(requests.purge_queue("q"))
    wire.say(grammar.CHANNEL_CLOSE, 1, reply_code=404, reply_text="NOT_FOUND - no queue", class_id=50, method_id=30)
    with pytest.raises(ChannelClosed, match="404 NOT_FOUND - no queue"):
        waiter.result()
    assert [method.name for method in wire.heard()] == ["queue.purge", "channel.close-ok"]
    assert channel_of(wire).number == 1


def test_channel_numbers_run_out_clearly() -> None:
    wire = opened()
    for _ in range(5):
        channel_of(wire)
    with pytest.raises(ClientError, match="all 5 channels"):
        channel_of(wire)


def test_a_channel_that_is_closing_takes_nothing_more() -> None:
    wire = opened()
    channel = channel_of(wire)
    closed = channel.close()
    with pytest.raises(ChannelClosed, match="being closed"):
        channel.publish(None, b"", "", "q", None, False)
    assert not closed.done
    wire.say(grammar.CHANNEL_CLOSE_OK, 1)
    assert closed.done
    assert channel.close().done


def test_a_cancel_from_the_broker_is_answered_unless_no_wait() -> None:
    wire = opened()
    channel = channel_of(wire)
    ends: list[ClientError] = []
    for tag in ("a", "b"):
        channel.add_sink(DeliverySink(tag, lambda _delivery: None, ends.append))
    wire.say(grammar.BASIC_CANCEL, 1, consumer_tag="a", no_wait=True)
    wire.say(grammar.BASIC_CANCEL, 1, consumer_tag="b", no_wait=False)
    assert [type(error) for error in ends] == [ConsumerCancelled] * 2
    assert [method.name for method in wire.heard()] == ["basic.cancel-ok"]


def test_flow_is_answered_and_blocked_is_kept() -> None:
    wire = opened()
    channel_of(wire)
    wire.say(grammar.CHANNEL_FLOW, 1, active=False)
    assert [method.name for method in wire.heard()] == ["channel.flow-ok"]
    heard: list[str | None] = []
    wire.core.on_blocked = heard.append
    wire.say(grammar.CONNECTION_BLOCKED, reason="low on memory")
    assert wire.core.blocked == "low on memory"
    wire.say(grammar.CONNECTION_UNBLOCKED)
    assert wire.core.blocked is None
    assert heard == ["low on memory", None]


def test_heartbeats_are_sent_when_idle_and_silence_ends_the_connection() -> None:
    wire = opened(10)
    wire.core.tick()
    assert wire.core.take() == b""
    wire.core.tick()
    assert wire.core.take() == frame(8, 0, b"")
    wire.core.receive(frame(8, 0, b""))
    for _ in range(4):
        wire.core.tick()
        assert wire.core.error is None
    wire.core.tick()
    with pytest.raises(ConnectionClosed, match="silent for 20 s"):
        wire.core.check_open()


def test_what_the_server_may_not_say_ends_the_connection() -> None:
    wire = opened()
    channel_of(wire)
    wire.say(grammar.QUEUE_PURGE_OK, 1, message_count=0)
    (close,) = wire.heard()
    assert (close.name, close.number("reply_code")) == ("connection.close", 503)
    with pytest.raises(ConnectionClosed, match="the server broke the protocol"):
        wire.core.check_open()


MESSAGES = st.lists(
    st.tuples(
        st.binary(max_size=60),
        st.builds(Properties, message_id=st.none() | st.text(max_size=5), priority=st.none() | st.integers(0, 9)),
        st.text(max_size=5),
        st.sampled_from(["known", "unknown"]),
        st.booleans(),
    ),
    max_size=10,
)


def deliver(wire: Wire, data: bytes, cuts: list[int]) -> list[Delivery]:
    """Return a consumer's deliveries when the bytes come in these pieces."""
    channel = channel_of(wire)
    got: list[Delivery] = []
    channel.add_sink(DeliverySink("known", got.append, lambda _error: None))
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, stop in itertools.pairwise(edges):
        wire.core.receive(data[start:stop])
    assert wire.core.error is None
    return got


@given(MESSAGES, st.lists(st.integers(0, 5000), max_size=6), st.sampled_from([40, 8192]))
def test_deliveries_are_equal_however_the_bytes_are_cut(
    messages: list[tuple[bytes, Properties, str, str, bool]], cuts: list[int], frame_max: int
) -> None:
    data = b""
    for number, (body, properties, key, tag, redelivered) in enumerate(messages):
        data += method_frame(
            1,
            grammar.BASIC_DELIVER,
            consumer_tag=tag,
            delivery_tag=number,
            redelivered=redelivered,
            exchange="x",
            routing_key=key,
        ) + content_frames(1, encode_header(properties, len(body)), body, frame_max)
    expected = [
        (number, body, properties, "x", key, redelivered, tag)
        for number, (body, properties, key, tag, redelivered) in enumerate(messages)
        if tag == "known"
    ]
    for pieces in (cuts, list(range(len(data)))):
        got = [
            (d.delivery_tag, d.body, d.properties, d.exchange, d.routing_key, d.redelivered, d.consumer_tag)
            for d in deliver(opened(), data, pieces)
        ]
        assert got == expected


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=80)), st.booleans())
def test_no_bytes_raise_anything(pieces: list[bytes], is_framed: bool) -> None:
    wire = opened()
    channel = channel_of(wire)
    channel.add_sink(DeliverySink("", lambda _delivery: None, lambda _error: None))
    for piece in pieces:
        wire.core.receive(frame(piece[0] % 4, 1, piece[1:]) if is_framed and piece else piece)


@given(st.binary(max_size=40), st.binary(max_size=30), st.integers(0, 3))
def test_no_delivery_raises_anything(method: bytes, header: bytes, size: int) -> None:
    wire = opened()
    channel = channel_of(wire)
    channel.add_sink(DeliverySink("", lambda _delivery: None, lambda _error: None))
    deliver_key = grammar.BASIC_DELIVER.key.to_bytes(4, "big")
    content_head = b"\0\x3c\0\0" + size.to_bytes(8, "big")
    data = frame(1, 1, deliver_key + method) + frame(2, 1, content_head + header)
    wire.core.receive(data + (frame(3, 1, b"x" * size) if size else b""))
    assert wire.core.error is None or wire.core.error.code in {501, 502, 503, 505}
