"""Messages of a stream over AMQP, as the rows that sealing would make of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from leveret.client import BlockingConnection, ChannelClosed, ConsumerCancelled, Delivery
from leveret.lake.rows import RowMaker

PREFETCH: Final = 5000
SILENCE_S: Final = 1.0
"""After this time without a message the broker is asked whether retention has removed what is missing."""

# class, weight and body size precede the property flags in a content header
_FLAGS_AT: Final = 12
_ARRIVED: Final = b"\x11x-leveret-arrivedl"
_OFFSET: Final = b"\x0fx-stream-offsetl"
_ADDED_OCTETS: Final = len(_ARRIVED) + 8 + len(_OFFSET) + 8

_log = logging.getLogger("leveret.lake")


class StreamUnreadable(Exception):
    """The stream cannot be read as a table; the text says why and what to do."""


class LiveMessage(NamedTuple):
    """A delivery without what the broker added to its headers.

    Attributes:
        arrived_us: Microseconds since 1970; None if headers that fill a frame leave no room for it.
        raw: Flags and values of the content header, as published. An empty table of headers is left out.
    """

    offset: int
    arrived_us: int | None
    raw: bytes
    delivery: Delivery


def live_rows(
    connection: BlockingConnection, facts: dict[str, Any], first: int, end: int, maker: RowMaker
) -> Iterator[pa.RecordBatch]:
    """Yield the messages from offset `first` to before `end`, except those that retention removes meanwhile.

    facts: result of BlockingChannel.stream_facts for the stream. Raises StreamUnreadable if the stream is gone.
    """
    try:
        yield from _live_rows(connection, facts, first, end, maker)
    except (ChannelClosed, ConsumerCancelled) as error:
        raise StreamUnreadable(f"stream {facts['name']!r} was deleted while it was read: {error}") from None


def _live_rows(
    connection: BlockingConnection, facts: dict[str, Any], first: int, end: int, maker: RowMaker
) -> Iterator[pa.RecordBatch]:
    stream, at = facts["name"], first
    with connection.channel() as channel:
        arguments = {"x-stream-offset": first, "x-leveret-arrived": True}
        channel.consume(stream, arguments=arguments, prefetch_count=PREFETCH)
        while at < end:
            now = channel.stream_facts(stream)  # asked after consume: from then on a deletion cancels the consumer
            if now["creation"] != facts["creation"]:
                raise StreamUnreadable(f"stream {stream!r} was deleted and declared again while it was read")
            at = max(at, now["first_offset"])
            while at < end and (taken := channel.deliveries(PREFETCH // 2, SILENCE_S)):
                channel.ack(taken[-1].delivery_tag, multiple=True)
                messages = []
                for delivery in taken:
                    message = live_message(delivery, at)
                    if message.offset > at > facts["first_offset"]:
                        _log.warning("stream %r: offsets %d to %d no longer exist", stream, at, message.offset - 1)
                    at = message.offset + 1
                    if message.offset < end:
                        messages.append(message)
                if messages:
                    yield _rows(messages, maker)


def live_message(delivery: Delivery, expected: int) -> LiveMessage:
    """Return the message of a delivery to a consumer with x-leveret-arrived.

    expected: the offset of a message whose headers leave no room for one.
    """
    header = delivery.header
    at = _FLAGS_AT + 2
    for flag in (0x80, 0x40):  # content type and encoding precede the headers
        if header[_FLAGS_AT] & flag:
            at += 1 + header[at]
    size = int.from_bytes(header[at : at + 4], "big") if header[_FLAGS_AT] & 0x20 else 0
    end = at + 4 + size
    added = header[end - _ADDED_OCTETS : end] if size >= _ADDED_OCTETS else b""
    if not added.startswith(_ARRIVED) or added[-8 - len(_OFFSET) : -8] != _OFFSET:
        return LiveMessage(expected, None, header[_FLAGS_AT:], delivery)
    arrived_us = int.from_bytes(added[len(_ARRIVED) : len(_ARRIVED) + 8], "big")
    size -= _ADDED_OCTETS
    if size:
        raw = header[_FLAGS_AT:at] + size.to_bytes(4, "big") + header[at + 4 : at + 4 + size] + header[end:]
    else:
        flags = bytes([header[_FLAGS_AT] & ~0x20, header[_FLAGS_AT + 1]])
        raw = flags + header[_FLAGS_AT + 2 : at] + header[end:]
    return LiveMessage(int.from_bytes(added[-8:], "big"), arrived_us, raw, delivery)


def _rows(messages: list[LiveMessage], maker: RowMaker) -> pa.RecordBatch:
    deliveries = [message.delivery for message in messages]
    return maker.delivered(
        pa.array([message.offset for message in messages], pa.int64()),
        pa.array([message.arrived_us for message in messages], pa.int64()),
        pa.array([_octets(delivery.exchange) for delivery in deliveries], pa.binary()),
        pa.array([_octets(delivery.routing_key) for delivery in deliveries], pa.binary()),
        pa.array([message.raw for message in messages], pa.binary()),
        pa.array([delivery.body for delivery in deliveries], pa.binary()),
    )


def _octets(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
