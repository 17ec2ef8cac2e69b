"""Reading of streams by offsets over AMQP 0-9-1, from leveret and RabbitMQ alike.

AMQP does not tell where a stream ends, so the last message is fetched. x-stream-offset "last" means the last chunk: one
message or a few thousand. All of it that exists is sent before the answer to a later request on the same channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from leveret.client import BlockingChannel, BlockingConnection, Delivery
from leveret.wire.table import Value

OFFSET: Final = "x-stream-offset"
FILTER: Final = "x-stream-filter"
FILTER_VALUE: Final = "x-stream-filter-value"
PREFETCH: Final = 500
# more messages than a chunk of RabbitMQ has
CHUNK: Final = 5000
# no message after a given time may exist; a broker that reads from a slow disk gets this long to send one
NOTHING_COMES_S: Final = 2.0

Where = int | datetime | str
"""An offset, a time, or "first", "last", "next"."""


class NotAStream(Exception):
    """The queue is not a stream: its deliveries have no offsets."""


class StreamMessage:
    """A delivery of a stream.

    Args:
        delivery: the delivery.
        expected: the offset if the delivery has none, since headers that fill a frame leave no room for it. With None,
            a
            missing offset raises NotAStream.
    """

    __slots__ = ("delivery", "headers", "offset")

    def __init__(self, delivery: Delivery, expected: int | None = None) -> None:
        headers = dict(delivery.properties.headers or {})
        offset = headers.pop(OFFSET, expected)
        if not isinstance(offset, int):
            raise NotAStream
        self.delivery = delivery
        self.headers = headers  # without the offset
        self.offset = offset

    def is_wanted(self, value: str | None) -> bool:
        """Whether the message has this filter value (None: any)."""
        return value is None or self.headers.get(FILTER_VALUE) == value


class StreamBrowser:
    """A reader of a stream, which it does not change. Methods raise NotAStream, and ClientError as the client does."""

    def __init__(self, connection: BlockingConnection, name: str) -> None:
        self.name = name
        self._connection = connection

    def first(self) -> int | None:
        """Return the offset of the oldest message; None if the stream is empty."""
        if self.end() is None:
            return None
        with self._connection.channel() as channel:
            self._consume(channel, "first", 1)
            return _next(channel).offset

    def end(self) -> int | None:
        """Return the offset after the last message; None if the stream is empty."""
        with self._connection.channel() as channel:
            self._consume(channel, "last", CHUNK)
            found: StreamMessage | None = None
            count = 0
            while count < CHUNK:
                is_empty = channel.declare_queue(self.name, passive=True).message_count == 0
                deliveries = channel.deliveries(CHUNK, 0)
                if not deliveries and found is None and not is_empty:
                    deliveries = [_next(channel).delivery]  # the broker reads it from the disk
                if not deliveries:
                    break
                count += len(deliveries)
                found = StreamMessage(deliveries[-1])
            return found.offset + 1 if found is not None else None

    def since(self, time: datetime, end: int) -> int:
        """Return the offset of the first message before `end` that arrived at this time or later; else `end`.

        RabbitMQ gives the first offset of that message's chunk.
        """
        return next((message.offset for message in self.messages(time, end)), end)

    def messages(self, begin: Where, end: int) -> Iterator[StreamMessage]:
        """Yield the messages from `begin` to the last one before `end`; the message at `end` - 1 must exist."""
        with self._connection.channel() as channel:
            self._consume(channel, begin, PREFETCH)
            timeout_s = None
            if isinstance(begin, datetime):
                channel.declare_queue(self.name, passive=True)
                timeout_s = NOTHING_COMES_S
            for message in _delivered(channel, timeout_s):
                if message.offset >= end:
                    return
                yield message
                if message.offset == end - 1:
                    return

    def last(self, count: int, end: int, value: str | None) -> list[StreamMessage]:
        """Return the last `count` messages before `end` with this filter value."""
        window = count
        while True:
            begin = max(0, end - window)
            first = end
            found: deque[StreamMessage] = deque(maxlen=count)
            for message in self.messages(begin, end):
                first = min(first, message.offset)
                if message.is_wanted(value):
                    found.append(message)
            if len(found) == count or begin == 0 or first > begin:  # nothing older is there
                return list(found)
            window *= 8

    def following(self, begin: Where, value: str | None) -> Iterator[StreamMessage]:
        """Yield all messages with this filter value from `begin` on, including future ones, without end."""
        with self._connection.channel() as channel:
            self._consume(channel, begin, PREFETCH, {} if value is None else {FILTER: value})
            for message in _delivered(channel, None):
                if message.is_wanted(value):
                    yield message

    def _consume(
        self, channel: BlockingChannel, begin: Where, prefetch: int, more: dict[str, Value] | None = None
    ) -> None:
        channel.consume(self.name, arguments={OFFSET: begin, **(more or {})}, prefetch_count=prefetch)


def _delivered(channel: BlockingChannel, first_timeout_s: float | None) -> Iterator[StreamMessage]:
    """Yield messages, acknowledging them in time for more. Ends if none arrives within first_timeout_s."""
    timeout_s = first_timeout_s
    count = 0
    expected: int | None = None
    while (delivery := channel.next_delivery(timeout_s)) is not None:
        timeout_s = None
        count += 1
        message = StreamMessage(delivery, expected)
        expected = message.offset + 1
        yield message
        if count % (PREFETCH // 2) == 0:
            channel.ack(delivery.delivery_tag, multiple=True)


def _next(channel: BlockingChannel) -> StreamMessage:
    delivery = channel.next_delivery()
    assert delivery is not None
    return StreamMessage(delivery)
