"""Streams of either broker: appending to them, and reading them from an offset on."""

from __future__ import annotations

from typing import Any

from .collect import answers
from .raw import Frame, RawClient

STREAM = {"x-queue-type": "stream"}
END = b"the end"
PREFETCH = 1000


def declare(client: RawClient, stream: str, **arguments: object) -> Frame:
    """Declare a stream; underscores in the names of x-arguments stand for hyphens."""
    given = {key.replace("_", "-"): item for key, item in arguments.items()}
    return client.call("queue.declare", queue=stream, durable=True, arguments={**STREAM, **given})


def append(client: RawClient, stream: str, *bodies: bytes, exchange: str = "", **properties: Any) -> None:
    """Publish one by one on a new channel and wait for each confirm, so that RabbitMQ makes a chunk of each message."""
    client.call("channel.open", 9)
    client.call("confirm.select", 9)
    for tag, body in enumerate(bodies, 1):
        client.publish(body, exchange, stream, channel=9, **properties)
        assert answers(client, 1, tag) == "a"
    client.call("channel.close", 9)


def numbers(count: int, first: int = 0) -> list[bytes]:
    """Return bodies that contain their offsets."""
    return [b"%d" % number for number in range(first, first + count)]


def start(client: RawClient, stream: str, *offset: object, prefetch: int = PREFETCH, tag: str = "",
          channel: int = 2, **flags: bool) -> list[Frame]:
    """Consume, from an offset if one is given; return what arrived before consuming had certainly started."""
    arguments = {"x-stream-offset": offset[0]} if offset else {}
    client.call("basic.qos", channel, prefetch_count=prefetch)
    client.call("basic.consume", channel, queue=stream, consumer_tag=tag, arguments=arguments, **flags)
    client.send("basic.qos", channel, prefetch_count=prefetch)
    early = []
    while (got := client.read("basic.deliver", "basic.qos-ok")).name == "basic.deliver":
        early.append(got)
    return early


def read(client: RawClient, stream: str, count: int, *offset: object, **more: Any) -> list[Frame]:
    """Return the first `count` messages from an offset on."""
    found = start(client, stream, *offset, **more)
    return [*found, *client.deliveries(count - len(found))]


def offsets_until_end(client: RawClient, other: RawClient, stream: str, *offset: object, later: int = 1) -> list[int]:
    """Return the offsets that a consumer starting there gets, if `later` messages are appended once it has started."""
    found = start(client, stream, *offset)
    append(other, stream, *[b"later"] * (later - 1), END)
    while not found or found[-1].body != END:
        found.append(client.read("basic.deliver"))
    return [offset_of(each) for each in found]


def offset_of(delivery: Frame) -> int:
    return int(delivery.properties["headers"]["x-stream-offset"])
