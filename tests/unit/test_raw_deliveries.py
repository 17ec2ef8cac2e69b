"""Deliveries of one channel as octets, for a reader that needs no objects: the Spark source of streams."""

from __future__ import annotations

import struct
from typing import Any

from leveret.client.protocol.delivering import DeliveryReader, RawDeliveries
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import encode_short


class FakeChannel:
    is_between_contents = True


def delivery(channel: int, tag: int, key: str, body: bytes, properties: Properties) -> bytes:
    """Encode a delivery as a broker sends it."""
    method = method_frame(
        channel, grammar.BASIC_DELIVER, consumer_tag="c", delivery_tag=tag, exchange="x", routing_key=key
    )
    return method + content_frames(channel, encode_header(properties, len(body)), body, 4096)


def test_what_comes_on_the_channel_is_taken_as_it_is_and_the_rest_is_left() -> None:
    messages = [
        (key, body, properties)
        for key in ("", "k", "key")
        for body in (b"", b"1", b"\xce" * 100)
        for properties in (Properties(), Properties(headers={"a": 1}, message_id="m"))
    ]
    taken = b"".join(delivery(1, tag, *message) for tag, message in enumerate(messages, 1))
    raw = RawDeliveries(1)
    channels: Any = {1: FakeChannel(), 2: FakeChannel()}
    for rest in (delivery(2, 1, *messages[-1]), taken[: len(taken) // 40], method_frame(1, grammar.CHANNEL_CLOSE_OK)):
        for each in (raw.headers, raw.bodies, raw.methods):
            each.clear()
        assert DeliveryReader(raw).read(channels, taken + rest, 0) == len(taken)
        assert raw.bodies == [body for _, body, _ in messages]
        assert raw.headers == [encode_header(properties, len(body)) for _, body, properties in messages]
        tags = [struct.pack(">QB", tag, 0) for tag in range(1, len(messages) + 1)]
        routes = [encode_short("x") + encode_short(key) for key, _, _ in messages]
        assert raw.methods == [tag + route for tag, route in zip(tags, routes, strict=True)]
