"""Deliveries of a stream's consumer, octet by octet: from the tail and from chunks, batches and single messages."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from leveret import client
from leveret.broker.streams.chunk import encode
from leveret.broker.streams.history import Fetched, History
from leveret.broker.streams.stream import Stream
from leveret.lake.live import live_message
from leveret.wire import grammar
from leveret.wire.frames import Frame, content_frames
from leveret.wire.method import Method, decode_method, method_frame
from leveret.wire.properties import Properties, decode_header, encode_header
from leveret.wire.table import Value

from .support import Bench

STREAM = {"x-queue-type": "stream"}
FRAME_MAX_MIN = 4096


class Delivery(NamedTuple):
    """A message as a client sees it."""

    method: Method
    properties: Properties
    body: bytes

    @property
    def offset(self) -> Value:
        return (self.properties.headers or {})["x-stream-offset"]


def deliveries(frames: list[Frame], channel: int, frame_max: int = 131_072) -> list[Delivery]:
    """Return the messages of complete deliveries; check channel and frame size."""
    found: list[Delivery] = []
    rest = iter(frames)
    for frame in rest:
        method, (properties, size), body = decode_method(frame.payload), decode_header(next(rest).payload), b""
        while len(body) < size:
            part = next(rest)
            assert part.kind == 3
            body += part.payload
        assert method.name == "basic.deliver"
        found.append(Delivery(method, properties, body))
    assert {frame.channel for frame in frames} <= {channel}
    assert all(len(frame.payload) + 8 <= frame_max for frame in frames)
    return found


class MessageLists:
    """A history in memory, which gets a stream's tail chunk by chunk."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._chunks: list[Fetched] = []
        self.history = History()
        self.history.fetch = self._fetch

    def store(self) -> None:
        """Move the committed part of the tail."""
        for groups in self._stream.chunks(1 << 40):
            self._chunks.append(Fetched(groups[0].offset, groups[-1].end, encode(groups)))
            self.history.end = groups[-1].end
        self._stream.stored()

    def _fetch(self, offset: int) -> Fetched:
        return next(chunk for chunk in self._chunks if chunk.first <= offset < chunk.end)


class Rig:
    """A stream "s", and a client that publishes on channel 1 and consumes on any channel."""

    def __init__(self, frame_max: int = 131_072) -> None:
        self.bench = Bench()
        self.publisher = self.bench.connect()
        self.bench.broker.log.open_history = self._open
        self.publisher.queue("s", durable=True, arguments=STREAM)
        self.consumer = self.bench.connect()
        self.consumer.peer.frame_max = frame_max
        self._channel = 1
        self._unacked = 0

    def _open(self, stream: Stream) -> History:
        self.stream = stream
        self.message_lists = MessageLists(stream)
        return self.message_lists.history

    def publish(self, messages: list[tuple[Properties, bytes]]) -> None:
        """Publish in one read, so that messages equal up to their bodies become one group."""
        method = method_frame(1, grammar.BASIC_PUBLISH, exchange="", routing_key="s")
        frames = (content_frames(1, encode_header(given, len(body)), body, 131_072) for given, body in messages)
        self.publisher.raw(b"".join(method + content for content in frames))
        self.bench.sync()

    def consume(self, channel: int, prefetch: int, offset: int = 0, **more: Value) -> None:
        self._channel = channel
        if channel != 1:
            self.consumer.call(channel, grammar.CHANNEL_OPEN)
        self.consumer.call(channel, grammar.BASIC_QOS, prefetch_count=prefetch)
        arguments = {"x-stream-offset": offset, **{name.replace("_", "-"): value for name, value in more.items()}}
        self.consumer.send(channel, grammar.BASIC_CONSUME, queue="s", consumer_tag="me", arguments=arguments)

    def read(self, count: int, frame_max: int = 131_072) -> list[Delivery]:
        """Acknowledge all deliveries until this many have arrived."""
        found: list[Delivery] = []
        while len(found) < count:
            frames = [frame for frame in self.consumer.frames() if not is_answer(frame)]
            assert frames, f"{len(found)} of {count} messages came"
            found += deliveries(frames, self._channel, frame_max)
            tag = found[-1].method.number("delivery_tag")
            self.consumer.send(self._channel, grammar.BASIC_ACK, delivery_tag=tag, multiple=True)
        return found


def is_answer(frame: Frame) -> bool:
    return frame.kind == 1 and decode_method(frame.payload).name != "basic.deliver"


def with_offset(given: Properties, offset: int) -> Properties:
    """Return the properties as a consumer gets them."""
    headers = {key: value for key, value in (given.headers or {}).items() if key != "x-stream-offset"}
    return Properties(**{**vars_of(given), "headers": {**headers, "x-stream-offset": offset}})  # type: ignore[arg-type]


def vars_of(given: Properties) -> dict[str, object]:
    return {name: getattr(given, name) for name in Properties.__dataclass_fields__}


PROPERTIES = st.builds(
    Properties,
    content_type=st.none() | st.sampled_from(["a", "application/json", "x" * 255]),
    content_encoding=st.none() | st.just("gzip"),
    headers=st.none() | st.sampled_from([{}, {"k": "v", "n": 7}, {"x-stream-offset": 1_000_000, "k": "v"}]),
    delivery_mode=st.none() | st.just(2),
    message_id=st.none() | st.just("id"),
)
# messages of the same size in one read form a group
RUNS = st.lists(st.tuples(PROPERTIES, st.integers(0, 40), st.integers(1, 9), st.booleans()), min_size=1, max_size=6)


@given(RUNS, st.sampled_from([1, 3]), st.integers(1, 12), st.integers(0, 10))
def test_every_message_comes_as_it_was_with_its_offset(
    runs: list[tuple[Properties, int, int, bool]], channel: int, prefetch: int, begin: int
) -> None:
    rig = Rig()
    sent: list[tuple[Properties, bytes]] = []
    for given_properties, size, count, is_stored in runs:
        part = [(given_properties, bytes([len(sent) + index]) * size) for index in range(count)]
        rig.publish(part)
        sent += part
        if is_stored:
            rig.message_lists.store()
    begin = min(begin, len(sent) - 1)
    rig.consume(channel, prefetch, begin)
    found = rig.read(len(sent) - begin)
    assert [delivery.offset for delivery in found] == list(range(begin, len(sent)))
    assert [delivery.body for delivery in found] == [body for _, body in sent[begin:]]
    for delivery, (given_properties, _) in zip(found, sent[begin:], strict=True):
        assert delivery.properties == with_offset(given_properties, delivery.offset)  # type: ignore[arg-type]
        assert delivery.method.text("routing_key") == "s"
        assert delivery.method.text("consumer_tag") == "me"
        assert not delivery.method.flag("redelivered")


@given(RUNS, st.sampled_from([1, 3]), st.booleans())
def test_a_consumer_may_ask_for_the_time_of_arrival(
    runs: list[tuple[Properties, int, int, bool]], channel: int, is_stored: bool
) -> None:
    """The reader of live messages finds it, and the properties as they were published."""
    rig = Rig()
    sent: list[tuple[Properties, bytes]] = []
    times: list[int] = []
    for given_properties, size, count, _ in runs:
        rig.publish([(given_properties, b"x" * size)] * count)
        sent += [(given_properties, b"x" * size)] * count
        times += [int(rig.stream.tail[-1].time_us)] * count
        rig.bench.pass_time(1_000_003)
    if is_stored:
        rig.message_lists.store()
    rig.consume(channel, 1000, x_leveret_arrived=True)
    frames = [frame for frame in rig.consumer.frames() if not is_answer(frame)]
    headers = [frame.payload for frame in frames if frame.kind == 2]
    found = [live_message(client.Delivery(b"", header, "", "", 1, False, ""), -1) for header in headers]
    assert [message.offset for message in found] == list(range(len(sent)))
    assert [message.arrived_us for message in found] == times
    for message, (given_properties, body) in zip(found, sent, strict=True):
        published = given_properties.headers or None
        expected = Properties(**{**vars_of(given_properties), "headers": published})  # type: ignore[arg-type]
        assert message.raw == encode_header(expected, len(body))[12:]


def test_headers_without_room_for_the_time_come_as_they_were() -> None:
    rig = Rig(FRAME_MAX_MIN)
    full = Properties(headers={"k": "v" * 4030})  # there is room for the offset alone
    rig.publish([(full, b"1")])
    rig.consume(1, 100, x_leveret_arrived=True)
    [header] = [frame.payload for frame in rig.consumer.frames() if frame.kind == 2]
    found = live_message(client.Delivery(b"", header, "", "", 1, False, ""), 7)
    assert (found.offset, found.arrived_us, found.raw) == (7, None, encode_header(full, 1)[12:])


def test_bodies_are_cut_for_a_consumer_with_smaller_frames() -> None:
    rig = Rig(FRAME_MAX_MIN)
    sent = [(Properties(), b"x" * 10_000)] * 5 + [(Properties(), b"y" * 9_000)]
    rig.publish(sent)
    rig.message_lists.store()
    rig.consume(2, 100)
    assert [found.body for found in rig.read(6, FRAME_MAX_MIN)] == [body for _, body in sent]


def test_headers_without_room_for_an_offset_come_without_one() -> None:
    rig = Rig(FRAME_MAX_MIN)
    full = Properties(headers={"k": "v" * 4050})
    rig.publish([(full, b"1")] * 5)
    rig.publish([(full, b"12")])
    rig.consume(1, 100)
    found = rig.read(6, FRAME_MAX_MIN)
    assert [delivery.body for delivery in found] == [b"1"] * 5 + [b"12"]
    assert all(delivery.properties == full for delivery in found)


def test_no_more_than_the_prefetch_is_outstanding() -> None:
    rig = Rig()
    rig.publish([(Properties(), b"x")] * 20)
    rig.consume(1, 7)
    frames = [frame for frame in rig.consumer.frames() if not is_answer(frame)]
    assert [delivery.offset for delivery in deliveries(frames, 1)] == list(range(7))
    rig.consumer.send(1, grammar.BASIC_ACK, delivery_tag=2, multiple=True)
    assert [delivery.offset for delivery in deliveries(rig.consumer.frames(), 1)] == [7, 8]
