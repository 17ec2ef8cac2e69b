"""How `leveret bench` counts runs of deliveries, confirms, and times."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from leveret.cli.bench.frames import FrameBatch, Scanner, sampled
from leveret.cli.bench.histogram import LatencyHistogram
from leveret.cli.bench.show import at, medians, notes
from leveret.wire import grammar
from leveret.wire.frames import FRAME_BODY, FRAME_HEADER, FrameReader
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties

FRAME_MAX = 4096


class FakeChannel:
    is_between_contents = True


def delivery(tag: int, body: bytes, key: str = "q") -> bytes:
    """Encode a delivery as a broker sends it."""
    head = method_frame(
        1, grammar.BASIC_DELIVER, consumer_tag="c", delivery_tag=tag, redelivered=False, exchange="", routing_key=key
    )
    batch = FrameBatch(1, FRAME_MAX, "", key, body, Properties(), 1)
    publish = method_frame(1, grammar.BASIC_PUBLISH, exchange="", routing_key=key)
    return head + batch.stamped(int.from_bytes(body[:8])).removeprefix(publish)


def scanned(data: bytes) -> tuple[Scanner, int, list[int]]:
    """Feed a scanner; return it, the number of octets that it used, and the times that it saw."""
    times: list[int] = []

    def on_run(data: bytes, start: int, stride: int, count: int) -> None:
        times.extend(time for time, _ in sampled(data, start, stride, count))

    scanner = Scanner(on_run)
    channels: Any = {1: FakeChannel()}
    return scanner, scanner.read(channels, data, 0), times


def body(time: int, size: int = 16) -> bytes:
    return struct.pack(">Q", time) + b"\x01" * (size - 8)


def test_a_batch_is_what_a_client_would_send() -> None:
    frames = FrameBatch(3, FRAME_MAX, "ex", "key", bytes(8) + b"abc", Properties(delivery_mode=2), 2).stamped(
        0x0102030405060708
    )
    reader = FrameReader(FRAME_MAX)
    reader.feed(frames)
    seen = [reader.next() for _ in range(6)]
    assert reader.next() is None
    assert [frame.channel for frame in seen if frame] == [3] * 6
    assert [frame.payload for frame in seen if frame and frame.kind == FRAME_BODY] == [bytes(range(1, 9)) + b"abc"] * 2
    headers = [frame.payload for frame in seen if frame and frame.kind == FRAME_HEADER]
    assert struct.unpack_from(">Q", headers[0], 4) == (11,)


def test_the_first_of_a_batch() -> None:
    batch = FrameBatch(1, FRAME_MAX, "", "q", bytes(16), Properties(), 10)
    assert batch.stamped(7, 3) == batch.stamped(7)[: 3 * batch.octets]


@pytest.mark.parametrize("size", [16, 5000], ids=["one frame", "two frames of body"])
def test_a_run_is_counted_at_once(size: int) -> None:
    data = b"".join(delivery(tag, body(1000 + tag, size)) for tag in range(1, 8))
    scanner, used, times = scanned(data)
    assert (used, scanner.delivered, scanner.last_tag) == (len(data), 7, 7)
    assert times == [1000 + tag for tag in range(1, 8)]  # of so few, every one is sampled


def test_deliveries_that_are_not_alike_are_counted_one_by_one() -> None:
    data = delivery(1, body(1)) + delivery(2, body(2, 32), "longer") + delivery(3, body(3)) + delivery(4, body(4))
    scanner, used, times = scanned(data)
    assert (used, scanner.delivered, times) == (len(data), 4, [1, 2, 3, 4])


@pytest.mark.parametrize("missing", [1, 10, 25, 40])
def test_what_is_not_wholly_there_is_left(missing: int) -> None:
    first, second = delivery(1, body(1)), delivery(2, body(2))
    scanner, used, _ = scanned((first + second)[:-missing])
    assert (used, scanner.delivered) == (len(first), 1)


def test_other_methods_are_left_to_the_client() -> None:
    other = method_frame(1, grammar.BASIC_CANCEL, consumer_tag="leveret-1")
    scanner, used, _ = scanned(delivery(1, body(1)) + other + delivery(2, body(2)))
    assert (used, scanner.delivered) == (len(delivery(1, body(1))), 1)


def ack(tag: int, multiple: bool = False) -> bytes:
    return method_frame(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=multiple)


@pytest.mark.parametrize(
    ("frames", "confirmed"),
    [
        ([ack(1), ack(2)], 2),
        ([ack(2), ack(3)], 0),
        ([ack(2), ack(3), ack(1)], 3),
        ([ack(3, True), ack(4)], 4),
        ([ack(5), ack(4, True)], 5),
    ],
)
def test_confirms(frames: list[bytes], confirmed: int) -> None:
    assert scanned(b"".join(frames))[0].confirmed == confirmed


def test_refusals_are_answers_too() -> None:
    nack = method_frame(1, grammar.BASIC_NACK, delivery_tag=3, multiple=True)
    scanner, _, _ = scanned(ack(1) + nack)
    assert (scanner.confirmed, scanner.refused) == (3, 2)


def test_a_reply_has_the_time_of_its_request() -> None:
    requests = b"".join(delivery(tag, body(100 + tag)) for tag in range(1, 4))
    replies = FrameBatch(1, FRAME_MAX, "", "amq.rabbitmq.reply-to.x", body(0), Properties(), 1)
    stride = len(requests) // 3
    frames = replies.copied(requests, stride - 17, stride, 3)
    times = [struct.unpack_from(">Q", frames, index * replies.octets + replies.body_at)[0] for index in range(3)]
    assert times == [101, 102, 103]


def test_samples_stand_for_all() -> None:
    data = b"".join(body(number) for number in range(100))
    found = sampled(data, 0, 16, 100)
    assert sum(times for _, times in found) == 100
    assert [time for time, _ in found] == list(range(0, 100, 13))


def test_percentiles() -> None:
    times = LatencyHistogram()
    for us in range(1, 1001):
        times.add(us)
    other = LatencyHistogram()
    other.add(-5)
    times.merge(other)
    figures = times.figures()
    assert figures["max"] == 1000
    assert 0.97 * 500 <= figures["p50"] <= 500
    assert 0.97 * 990 <= figures["p99"] <= 990
    assert (times.early, times.early_us_max) == (1, 5)
    assert LatencyHistogram().figures() == {}


def test_medians_and_notes() -> None:
    rounds = [
        {"published_per_s": value, "latency_us": {"p50": value}, "missing": 0, "generator_cpu": {"publisher": share}}
        for value, share in ((1, 0.5), (30, 0.95), (5, 0.97))
    ]
    middle = medians(rounds)
    assert (middle["published_per_s"], at(middle, "latency_us.p50"), at(middle, "nothing.p50")) == (5, 5, 0.0)
    (note,) = notes({"it": middle})
    assert note.startswith("Note: a publisher used 95% of a processor against it: the load generator was the bottle")
    assert notes({"it": middle | {"generator_cpu": {"publisher": 0.2}}}) == []
