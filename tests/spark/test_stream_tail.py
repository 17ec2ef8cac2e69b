"""Messages of a stream over AMQP: the fast loop and the general path give the same rows, and errors are not hidden."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leveret.client import BlockingChannel, BlockingConnection, ConnectionClosed, Delivery, Properties
from leveret.spark.rows.columns import STREAM_SCHEMA
from leveret.spark.rows.shape import RowOptions
from leveret.spark.streams import tail as tail_module
from leveret.spark.streams.bounds import OFFSET
from leveret.spark.streams.errors import StreamBroken
from leveret.spark.streams.offsets import Span
from leveret.spark.streams.tail import read_tail
from leveret.wire.properties import encode_header

from .streams import SHAPE, append, bodies

FRAME_MAX = 131_072


@pytest.fixture
def connection(url: str) -> Iterator[BlockingConnection]:
    with BlockingConnection(url, reconnect=False) as connection:
        yield connection


def all_rows(connection: BlockingConnection, stream: str, first: int, end: int) -> list[dict[str, Any]]:
    span = Span(stream, None, first, end)
    return [row for batch in read_tail(connection, span, SHAPE.raw, True) for row in batch.to_pylist()]


def publish_odd_ones(channel: BlockingChannel, stream: str) -> int:
    """Publish messages that differ in everything that the loop checks; return their number."""
    numbers = random.Random(1)
    exchange = f"odd.{stream}"
    channel.declare_exchange(exchange, "fanout", durable=False)
    channel.bind_queue(stream, exchange)
    odd = [
        Properties(),
        Properties(headers={}),
        Properties(headers={"a": 1, "b": None, "c": [1, {"d": "e"}]}, app_id="app"),
        Properties(headers={OFFSET: 7}, message_id="claims an offset"),
        Properties(message_id="\x0fx-stream-offsetl" + "\0" * 8),
        Properties("text/plain", "gzip", {"t": True}, 2, 9, "cor", "rep", "60000", "id", 1_700_000_000, "type"),
    ]
    sizes = [0, 1, 100, FRAME_MAX - 8, FRAME_MAX, 3 * FRAME_MAX]
    count = 400
    for number in range(count):
        body = numbers.randbytes(numbers.choice(sizes) if number % 10 == 0 else numbers.choice(sizes[:3]))
        channel.publish(body, numbers.choice(["", exchange]), stream, numbers.choice(odd))
    channel.wait_for_confirms(60)
    channel.delete_exchange(exchange)
    return count


def test_the_fast_loop_gives_what_the_general_path_gives(
    connection: BlockingConnection, channel: BlockingChannel, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = publish_odd_ones(channel, stream)
    fast = all_rows(connection, stream, 0, count)
    monkeypatch.setattr(tail_module._Tail, "read", lambda self, channels, data, start: start)
    assert all_rows(connection, stream, 0, count) == fast
    assert [row["offset"] for row in fast] == list(range(count))
    consumer = connection.channel()
    consumer.consume(stream, arguments={OFFSET: "first"}, prefetch_count=count)
    expected = []
    while len(expected) < count:
        delivery = consumer.next_delivery(30)
        assert delivery is not None
        expected.append(delivery)
    headers = [(one.properties.headers or {}) for one in expected]
    assert [(row["body"], row["exchange"], row["routing_key"], row["app_id"], row["message_id"]) for row in fast] == [
        (one.body, one.exchange, one.routing_key, one.properties.app_id, one.properties.message_id) for one in expected
    ]
    assert [{name for name, _ in row["headers"] or []} for row in fast] == [set(each) - {OFFSET} for each in headers]


@pytest.mark.parametrize(("first", "end"), [(0, 1), (0, 50), (7, 8), (7, 43), (49, 50)])
def test_a_span_is_read_to_the_message(
    connection: BlockingConnection, channel: BlockingChannel, stream: str, first: int, end: int
) -> None:
    """RabbitMQ begins with the chunk that contains the offset; messages after the span are dropped."""
    appended = append(channel, stream, 0, 50)
    assert bodies(all_rows(connection, stream, first, end)) == appended[first:end]
    assert bodies(all_rows(connection, stream, first, end)) == appended[first:end], "the connection can be used again"


def test_more_than_is_under_way_at_a_time(
    connection: BlockingConnection, channel: BlockingChannel, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "PREFETCH_MAX", 10)
    monkeypatch.setattr(tail_module, "BATCH_ROWS", 25)
    appended = append(channel, stream, 0, 95)
    span = Span(stream, None, 0, 95)
    batches = list(read_tail(connection, span, SHAPE.raw, True))
    assert [body for batch in batches for body in batch.column("body").to_pylist()] == appended
    if "leveret_version" in connection.server_properties:
        # RabbitMQ sends whole chunks, whatever the prefetch, and the number of messages in a chunk varies
        assert len(batches) > 1
        assert all(batch.num_rows < 60 for batch in batches)


def test_only_what_is_asked_for_is_decoded(
    connection: BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    append(channel, stream, 0, 3)
    span = Span(stream, None, 0, 3)
    for names in (["offset"], ["message_id", "stream"], ["routing_key"], ["headers", "offset"]):
        schema = RowOptions(columns=tuple(names)).schema(STREAM_SCHEMA)
        shape = RowOptions().shape(schema, STREAM_SCHEMA)
        assert [batch.schema.names for batch in read_tail(connection, span, shape.raw, True)] == [names]
    nothing = RowOptions().shape(type(STREAM_SCHEMA)([]), STREAM_SCHEMA)
    assert [batch.num_rows for batch in read_tail(connection, span, nothing.raw, True)] == [3]


def test_a_lost_connection_fails_the_task(
    connection: BlockingConnection, channel: BlockingChannel, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark repeats the task with the same range. A part of it never passes for all of it."""
    monkeypatch.setattr(tail_module, "PREFETCH_MAX", 10)
    monkeypatch.setattr(tail_module, "BATCH_ROWS", 5)
    append(channel, stream, 0, 50)
    found = read_tail(connection, Span(stream, None, 0, 50), SHAPE.raw, True)
    next(found)
    connection.close()
    with pytest.raises(ConnectionClosed):
        list(found)


def test_messages_that_do_not_come_fail_the_task(
    connection: BlockingConnection, channel: BlockingChannel, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "SILENCE_S", 0.05)
    append(channel, stream, 0, 5)
    with pytest.raises(StreamBroken, match=r"delivered nothing for 0.05 s, but should have messages from offset 5 on"):
        all_rows(connection, stream, 0, 6)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "bb"]), st.sampled_from([None, "m", "mm"])), min_size=1, max_size=6),
    st.integers(1 << 40, 1 << 62),
    st.sampled_from([[], [0], [3], [0, 1]]),
)
@example([("a", "m")] * 6, 1 << 40, [3])
def test_offsets_at_one_place_are_hidden_together(
    several: list[tuple[str, str | None]], first: int, skipped: list[int]
) -> None:
    offsets = [first + number for number in range(20) if number not in skipped][: len(several)]
    headers = [
        encode_header(Properties(content_type=kind, message_id=text, headers={"own": kind, OFFSET: offset}), 1)
        for (kind, text), offset in zip(several, offsets, strict=True)
    ]
    expected = [
        header[12:].replace(offset.to_bytes(8, "big"), bytes(8))
        for header, offset in zip(headers, offsets, strict=True)
    ]
    found = tail_module.hidden_offsets(headers, first)
    is_consecutive = offsets == list(range(first, first + len(several)))
    is_at_one_place = len({len(kind) for kind, _ in several}) == 1
    if is_consecutive and is_at_one_place:
        assert found is not None
    assert found is None or (is_consecutive and found.to_pylist() == expected)


def test_what_comes_before_and_behind_a_span_is_left_out() -> None:
    """RabbitMQ may begin with the chunk that contains the offset, and any broker sends messages after the span."""
    base = 1 << 40  # a number that needs a long, as brokers write offsets
    connection = mock.MagicMock()
    tail = tail_module._Tail(connection, mock.Mock(number=1), Span("s", None, base + 7, base + 10), True, True)
    for number in range(5, 15):
        header = encode_header(Properties(headers={OFFSET: base + number}), 1)
        tail.deliver(Delivery(b"%d" % number, header, "", "s", number, False, ""))
    (run,) = tail.runs()
    assert (run.first, run.bodies) == (base + 7, [b"7", b"8", b"9"])
    assert (sum(map(len, run.headers)), len(run.methods)) == (3, 3)
    assert connection.lock.__enter__.called, "the thread of heartbeats must not read meanwhile"
