"""Delayed exchanges: never early, never twice, in the order in which messages are due, whatever happens meanwhile."""

from __future__ import annotations

import struct

import pytest

from leveret.broker.delay import delay_us_of, released
from leveret.wire import grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, decode_header, encode_header
from leveret.wire.table import Value, join_table

from .support import SECOND_US, Bench, Client

MS = 1000
HOUR_MS = 3_600_000


def content(headers: dict[str, Value] | None, body: bytes = b"body", **values: object) -> bytes:
    return content_frames(1, encode_header(Properties(headers=headers, **values), len(body)), body, 131072)  # type: ignore[arg-type]


def raw_content(value: bytes) -> bytes:
    """Frames with an x-delay of this encoding."""
    header = encode_header(Properties(headers={}), 0)
    return content_frames(1, header[:14] + join_table([(b"x-delay", value)]), b"", 131072)


def headers_in(data: bytes) -> dict[str, Value]:
    size: int = struct.unpack_from(">I", data, 3)[0]
    return decode_header(data[7 : 7 + size])[0].headers or {}


def declare(client: Client, name: str = "d", kind: str = "direct", durable: bool = True, **arguments: object) -> None:
    given = {"x-delayed-type": kind, **{key.replace("_", "-"): value for key, value in arguments.items()}}
    client.send(
        1, grammar.EXCHANGE_DECLARE, exchange=name, type="x-delayed-message", durable=durable, arguments=given
    )


def bind(client: Client, queue: str = "q", exchange: str = "d", key: str = "k", durable: bool = True) -> None:
    client.send(1, grammar.QUEUE_DECLARE, queue=queue, durable=durable)
    client.send(1, grammar.QUEUE_BIND, queue=queue, exchange=exchange, routing_key=key)


def opened(bench: Bench, **values: object) -> Client:
    client = bench.connect()
    declare(client, **values)  # type: ignore[arg-type]
    bind(client)
    bench.sync()
    client.frames()
    return client


def send(client: Client, body: bytes, delay_ms: Value, key: str = "k", exchange: str = "d", **values: object) -> None:
    client.publish(key, body, exchange=exchange, headers={"x-delay": delay_ms}, **{"delivery_mode": 2, **values})


def fetch(client: Client, queue: str = "q") -> list[bytes]:
    """All that is in a queue."""
    client.send(1, grammar.BASIC_CONSUME, queue=queue, no_ack=True, consumer_tag=queue)
    bodies = client.bodies()
    client.send(1, grammar.BASIC_CANCEL, consumer_tag=queue)
    client.frames()
    return bodies


# -- the header ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "delay_ms"),
    [
        (b"b\x05", 5), (b"B\xff", 255), (b"s\x01\x00", 256), (b"u\xff\xff", 65535), (b"I\x00\x00\x13\x88", 5000),
        (b"i\xff\xff\xff\xff", 4_294_967_295), (b"l" + struct.pack(">q", 315_360_000_000), 315_360_000_000),
        (b"S\x00\x00\x00\x045000", 5000), (b"S\x00\x00\x00\x03+50", 50), (b"d" + struct.pack(">d", 1500.9), 1500),
        (b"f" + struct.pack(">f", 2.5), 2), (b"D\x01" + struct.pack(">i", 125), 12),
        (b"I\x00\x00\x00\x00", 0), (b"I\xff\xff\xff\xff", 0), (b"S\x00\x00\x00\x02-5", 0), (b"d" + bytes(8), 0),
        (b"t\x01", 0), (b"V", 0), (b"T" + bytes(7) + b"\x09", 0), (b"F\x00\x00\x00\x00", 0), (b"A\x00\x00\x00\x00", 0),
        (b"x\x00\x00\x00\x015", 0),
    ],
)  # fmt: skip
def test_the_delay_may_be_any_number(value: bytes, delay_ms: int) -> None:
    assert delay_us_of(raw_content(value)) == delay_ms * MS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("soon", "invalid x-delay 'soon': no_integer"),
        ("", "invalid x-delay '': no_integer"),
        ("1.5", "invalid x-delay '1.5': no_integer"),
        ("\u0665", "invalid x-delay '\u0665': no_integer"),
        (float("nan"), "invalid x-delay 'nan': no_integer"),
        (float("inf"), "invalid x-delay 'inf': no_integer"),
        (315_360_000_001, "invalid x-delay '315360000001': {value_too_large,315360000001}"),
        ("9" * 30, f"invalid x-delay '{'9' * 30}': {{value_too_large,{'9' * 30}}}"),
    ],
)
def test_a_delay_that_cannot_be_is_refused(value: Value, text: str) -> None:
    with pytest.raises(ProtocolError) as error:
        delay_us_of(content({"x-delay": value}))
    assert (error.value.code, error.value.text) == (406, text)


@pytest.mark.parametrize("headers", [None, {}, {"y-delay": 5}, {"a": "\x07x-delayI\x00\x00\x00\x05"}, {"x-dela": 5}])
def test_without_the_header_nothing_is_held(headers: dict[str, Value] | None) -> None:
    assert delay_us_of(content(headers, content_type="t", content_encoding="e")) == 0
    assert released(content(headers)) == content(headers)


@pytest.mark.parametrize("delay_ms", [5000, "5000", 2**31, 2**31 - 1, 2**31 + 1, 12.7, "+7"])
def test_the_delay_is_negated_when_it_is_over(delay_ms: Value) -> None:
    others: dict[str, Value] = {"a": "b", "x-delay": delay_ms, "z": [1, {"x-delay": 3}]}
    after = released(content(others, content_type="t", content_encoding="e", priority=3))
    assert headers_in(after) == others | {"x-delay": -int(delay_ms)}  # type: ignore[arg-type]
    assert after == content(headers_in(after), content_type="t", content_encoding="e", priority=3)
    assert delay_us_of(after) == 0


# -- routing -------------------------------------------------------------------------------------------------------


def test_a_message_comes_when_it_is_due_and_not_before() -> None:
    bench = Bench()
    client = opened(bench)
    send(client, b"late", 5000)
    send(client, b"soon", 1000)
    send(client, b"now", 0)
    assert fetch(client) == [b"now"]
    bench.pass_time(SECOND_US - 1)
    assert fetch(client) == []
    bench.pass_time(1)
    assert fetch(client) == [b"soon"]
    bench.pass_time(4 * SECOND_US - 1)
    assert fetch(client) == []
    bench.pass_time(1)
    assert fetch(client) == [b"late"]
    assert bench.broker.timers.next_us() == 0
