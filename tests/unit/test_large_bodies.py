"""Large bodies go from the publisher's reads to the consumer's socket by reference, without visible effects."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.session.output import LARGE_OCTETS_MIN, WIDE_OCTETS, Output, cut
from leveret.wire import grammar
from leveret.wire.frames import Frame, content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header

from .support import Bench, Client

FRAME_MAX = 131072
BODIES = st.tuples(
    st.sampled_from((0, 1, 5000, LARGE_OCTETS_MIN - 1, LARGE_OCTETS_MIN, 65536, FRAME_MAX - 8, FRAME_MAX - 7, 400_000)),
    st.sampled_from((4096, 20_000, FRAME_MAX)),  # of its frames
    st.booleans(),  # with a header of its own
)


def body_of(number: int, size: int) -> bytes:
    return (b"%08d" % number * (size // 8 + 1))[:size]


def message(number: int, size: int, frame_max: int, *, is_marked: bool = False, key: str = "q") -> bytes:
    properties = Properties(headers={"number": number} if is_marked else None)
    method = method_frame(1, grammar.BASIC_PUBLISH, routing_key=key)
    return method + content_frames(1, encode_header(properties, size), body_of(number, size), frame_max)


def consuming(bench: Bench, channel: int = 1, frame_max: int = FRAME_MAX, *, no_ack: bool = True) -> Client:
    """Return a consumer of the queue q."""
    client = bench.connect(frame_max=frame_max)
    if channel != 1:
        client.call(channel, grammar.CHANNEL_OPEN)
    client.queue("q")
    client.call(channel, grammar.BASIC_CONSUME, queue="q", no_ack=no_ack)
    return client


def bodies(frames: list[Frame], frame_max: int = FRAME_MAX, channel: int = 1) -> list[bytes]:
    """Return the bodies of deliveries, and check their frames."""
    found: list[bytes] = []
    for frame in frames:
        assert frame.channel == channel
        assert len(frame.payload) + 8 <= frame_max
        if frame.kind == 2:
            found.append(b"")
        elif frame.kind == 3:
            found[-1] += frame.payload
    return found


@settings(max_examples=60, deadline=None)
@given(
    messages=st.lists(BODIES, min_size=1, max_size=6),
    steps=st.lists(st.sampled_from((1, 6, 20, 100, 5000, 17_000, 70_000, 262_144)), min_size=1, max_size=6),
    channel=st.sampled_from((1, 7)),
    frame_max=st.sampled_from((4096, FRAME_MAX)),
    no_ack=st.booleans(),
    reads=st.booleans(),
)
def test_bodies_arrive_as_they_were_sent_however_they_are_cut(
    messages: list[tuple[int, int, bool]], steps: list[int], channel: int, frame_max: int, no_ack: bool, reads: bool
) -> None:
    bench = Bench()
    consumer = consuming(bench, channel, frame_max, no_ack=no_ack)
    publisher = bench.connect()
    publisher.call(1, grammar.CONFIRM_SELECT)
    sent = [
        message(number, size, frames_of, is_marked=is_marked)
        for number, (size, frames_of, is_marked) in enumerate(messages)
    ]
    data = b"".join(sent)
    found: list[Frame] = []
    at = index = 0
    while at < len(data):
        step = steps[index % len(steps)]
        publisher.raw(data[at : at + max(step, len(data) // 2000)])
        at += max(step, len(data) // 2000)
        index += 1
        if reads:
            found += consumer.frames()
            consumer.peer.drained(bench.now_us)
    while more := consumer.frames():
        found += more
        consumer.peer.drained(bench.now_us)
    assert bodies(found, frame_max, channel) == [body_of(number, size) for number, (size, *_) in enumerate(messages)]
    confirmed = 0
    for method in publisher.methods():
        confirmed = max(confirmed, method.number("delivery_tag"))
    assert confirmed == len(messages)
    assert bench.broker.vhosts["/"].queues["q"].count() == 0


def test_what_is_passed_on_is_not_copied() -> None:
    bench = Bench()
    consumer, publisher = consuming(bench), bench.connect()
    data = message(0, 60_000, FRAME_MAX)
    publisher.raw(data)  # the first message of a route is parsed
    consumer.frames()
    publisher.raw(data + data[:30_000])
    publisher.raw(data[30_000:])
    buffers = consumer.peer.take(0)
    pieces = [buffer for buffer in buffers if isinstance(buffer, memoryview)]
    assert len(pieces) == 2 + 1  # the first part of the second one was too short to be worth a reference
    assert sum(map(len, pieces)) > 100_000


@pytest.mark.parametrize("cut_at", [17_000, 40_000, 59_000])
def test_a_body_frame_without_its_end_closes_the_connection_however_it_came(cut_at: int) -> None:
    bench = Bench()
    publisher = bench.connect()
    publisher.queue("q")
    data = bytearray(message(0, 60_000, FRAME_MAX))
    data[-1] = 0
    publisher.raw(bytes(data[:cut_at]))
    publisher.raw(bytes(data[cut_at:]))
    closed = publisher.methods()[-1]
    assert closed.spec is grammar.CONNECTION_CLOSE
    assert "invalid_frame_end_marker,0" in closed.text("reply_text")


@pytest.mark.parametrize(
    ("code", "close", "answer"),
    [
        (404, grammar.CHANNEL_CLOSE, method_frame(1, grammar.CHANNEL_CLOSE_OK)),
        (541, grammar.CONNECTION_CLOSE, method_frame(0, grammar.CONNECTION_CLOSE_OK)),
    ],
    ids=["channel", "connection"],
)
def test_what_is_closed_in_the_middle_of_a_frame_swallows_the_rest(
    code: int, close: grammar.MethodSpec, answer: bytes
) -> None:
    bench = Bench()
    publisher = bench.connect()
    publisher.queue("q")
    data = message(0, 60_000, FRAME_MAX)
    publisher.raw(data[:30_000])
    publisher.peer.close_channel(publisher.peer.channels[1], code, "enough")
    assert publisher.methods()[-1].spec is close
    publisher.raw(data[30_000:] + answer)
    assert publisher.frames() == []
    assert bench.broker.vhosts["/"].queues["q"].count() == 0


def test_a_message_for_nobody_closes_its_channel_and_the_next_one_is_heard() -> None:
    bench = Bench()
    publisher = bench.connect()
    publisher.queue("q")
    publisher.call(2, grammar.CHANNEL_OPEN)
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange="nowhere", routing_key="q")
    content = content_frames(1, encode_header(Properties(), 60_000), bytes(60_000), FRAME_MAX)
    publisher.raw(method + content[:30_000])
    publisher.raw(content[30_000:] + method_frame(2, grammar.QUEUE_DECLARE, queue="other"))
    said = publisher.methods()
    assert [each.spec for each in said] == [grammar.CHANNEL_CLOSE, grammar.QUEUE_DECLARE_OK]
    assert said[0].number("reply_code") == 404


def test_a_frame_that_has_begun_waits_for_an_alarm_to_be_over() -> None:
    bench = Bench()
    consumer, publisher = consuming(bench), bench.connect()
    data = message(0, 60_000, FRAME_MAX)
    publisher.raw(data[:30_000])
    bench.broker.block_reason = "memory"
    publisher.raw(data[30_000:50_000])
    publisher.raw(data[50_000:])
    assert consumer.bodies() == []
    bench.broker.block_reason = ""
    publisher.raw(publisher.peer.release())
    assert consumer.bodies() == [body_of(0, 60_000)]


def test_a_gate_stands_where_it_was_set_among_large_buffers() -> None:
    output = Output()
    large = bytes(range(256)) * 256
    output.writer.write(b"one")
    output.attach(large)
    output.writer.write(b"two")
    output.gate(5, 3)  # in front of "two"
    output.attach(memoryview(large)[1000:])
    output.gate(6, len(large) - 2000)
    output.writer.write(b"three")
    assert b"".join(output.take(4)) == b"one" + large
    assert output.octets() == 3 + len(large) - 1000 + 5
    output.write_ahead(b"!")
    assert b"".join(output.take(5)) == b"two" + large[1000:2000] + b"!"
    assert b"".join(output.take(6)) == large[2000:] + b"three"
    assert output.take(6) == []
    assert not output.is_gated


def test_a_small_part_of_a_large_read_does_not_keep_all_of_it() -> None:
    assert isinstance(cut(bytes(9 * LARGE_OCTETS_MIN), 0, LARGE_OCTETS_MIN), bytes)
    assert isinstance(cut(bytes(7 * LARGE_OCTETS_MIN), 0, LARGE_OCTETS_MIN), memoryview)
    assert isinstance(cut(bytes(LARGE_OCTETS_MIN), 1, LARGE_OCTETS_MIN), bytes)


def test_a_long_turn_leaves_no_long_buffer() -> None:
    """A writer never shrinks, and a client that got much data once may stay for years."""
    output = Output()
    writer = output.writer
    for size, is_kept in ((WIDE_OCTETS, True), (WIDE_OCTETS + 1, False)):
        writer.write(bytes(size))
        output.narrow()
        assert output.writer is writer, "what is in it has not been taken"
        assert output.take(0) == [bytes(size)]
        output.narrow()
        assert (output.writer is writer) == is_kept
    assert output.take(0) == []
