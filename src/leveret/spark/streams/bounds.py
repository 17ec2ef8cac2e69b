"""What the driver asks a broker about streams: which exist, their first and next offsets, the offset of a time.

leveret answers with all facts of a stream in one request. RabbitMQ has no such request, and its counters lag, so a
consumer reads the first message and another one the last chunk: everything in that chunk is delivered before the answer
to a later request on the same channel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed, ClientError, Delivery
from leveret.spark.streams.errors import NoStream, StreamBroken, explained
from leveret.spark.streams.options import EARLIEST, LATEST, PARTITIONS_MAX, Place, StreamOptions
from leveret.spark.streams.tail_notifier import TailNotifier
from leveret.wire.errors import NOT_FOUND, PRECONDITION_FAILED
from leveret.wire.table import Value

OFFSET: Final = "x-stream-offset"
CHUNK_MESSAGES: Final = 5000
"""More messages than a chunk of RabbitMQ has."""

NOTHING_COMES_S: Final = 2.0
"""Seconds to wait for a message that may not exist, since a time of arrival may lie after the last message."""

SILENCE_S: Final = 60.0
"""Seconds to wait for messages that do exist; a broker may have to read them from a slow disk."""

SAMPLE_MESSAGES: Final = 100
"""Messages that are read to estimate the average size of the messages that follow."""

FRAMES_OCTETS: Final = 60
"""Estimated octets of a delivery's frames, tag and lengths."""


@dataclass(frozen=True)
class Bounds:
    """The offsets of a stream's messages: from ``first`` to before ``next``.

    Attributes:
        id: the stream's creation, None if the broker does not tell.
        facts: all that leveret tells about the stream; None on other brokers.
    """

    first: int
    next: int
    id: str | None = None
    facts: dict[str, Any] | None = None


class QueryStreams:
    """The streams of a query, asked over one connection that opens when it is needed.

    Methods raise ``NoStream`` and the client's ``ClientError``; the next call reconnects.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._connection: BlockingConnection | None = None
        self._channel: BlockingChannel | None = None
        self._notifier: TailNotifier | None = None
        self._has_facts = True
        self._names: list[str] = []
        self._empty: set[str] = set()  # found empty after waiting for a first message

    def partitions(self, known: Collection[str] = ()) -> list[str]:
        """Return the streams to read: the stream of that name, or the partitions of the super stream, in order,
        followed by those that are ``known`` from a checkpoint.

        The lookup is done once. Partitions are named as ``ctl add_super_stream`` and ``rabbitmq-streams`` name them.
        AMQP cannot list bindings: without option partitions they are numbered from 0 on, up to the first that does not
        exist.
        """
        if not self._names:
            try:
                self._names = self._found()
            except NoStream:
                if not known:
                    raise
                return list(known)
        return self._names + [name for name in known if name not in self._names]

    def _found(self) -> list[str]:
        name = self._options.stream
        if self._options.partitions is not None:
            return [f"{name}-{partition}" for partition in self._options.partitions]
        if self._is_there(name):
            return [name]
        found: list[str] = []
        while len(found) < PARTITIONS_MAX and self._is_there(f"{name}-{len(found)}"):
            found.append(f"{name}-{len(found)}")
        if not found:
            raise NoStream(
                f"there is no stream {name!r}, and no super stream with a partition {name + '-0'!r}: see option "
                "stream, and option partitions for partitions named by routing keys"
            )
        return found

    def bounds(self, stream: str) -> Bounds:
        """Return the stream's current bounds."""
        if self._has_facts:
            try:
                facts = self._talk().stream_facts(stream)
            except ChannelClosed as error:
                self._refused(stream, error, unless=NOT_FOUND)
                self._has_facts = False
            else:
                return Bounds(facts["first_offset"], facts["next_offset"], facts["creation"], facts)
        try:
            return self._probe(stream)
        except NoStream:
            self._has_facts = True  # the 404 may have come from a leveret
            raise

    def locate(self, stream: str, place: Place, bounds: Bounds) -> int:
        """Return the offset of a place. A time means the first message that arrived then or later, to the second; on
        RabbitMQ the first message of the chunk with that time."""
        if place == EARLIEST:
            return bounds.first
        if place == LATEST:
            return bounds.next
        if isinstance(place, int):
            return place
        if bounds.first == bounds.next:
            return bounds.next
        assert isinstance(place, datetime)
        with self._consume(stream, place, 1) as channel:
            delivery = channel.next_delivery(NOTHING_COMES_S)
            return bounds.next if delivery is None else max(bounds.first, min(bounds.next, _offset(delivery, stream)))

    def octets_per_message(self, stream: str, first: int, end: int) -> int:
        """Return the average size of messages from ``first`` on, estimated by reading a few of them."""
        count = min(SAMPLE_MESSAGES, end - first)
        octets = seen = 0
        with self._consume(stream, first, count) as channel:
            while seen < count and (delivery := channel.next_delivery(NOTHING_COMES_S)) is not None:
                octets += len(delivery.body) + len(delivery.header) + FRAMES_OCTETS
                seen += 1
        return max(1, octets // max(1, seen))

    def wait(self, nexts: Mapping[str, int], timeout_s: float) -> bool:
        """Whether a stream has grown beyond its offset in ``nexts``, or does so within ``timeout_s`` seconds."""
        self._talk()
        assert self._connection is not None
        if self._notifier is None:
            self._notifier = TailNotifier(self._connection)
        return self._notifier.wait(nexts, timeout_s)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._channel, self._notifier = self._connection, None, None, None
        if connection is not None:
            connection.close()

    def _probe(self, stream: str) -> Bounds:
        end = self._end(stream)
        if end is None:
            return Bounds(0, 0)
        assert self._connection is not None
        return Bounds(first_message(self._connection, stream), end)

    def _end(self, stream: str) -> int | None:
        """Return the offset after the last message, None for an empty stream. The deliveries of a chunk arrive
        together."""
        found: int | None = None
        count = 0
        with self._consume(stream, "last", CHUNK_MESSAGES) as channel:
            while count < CHUNK_MESSAGES:
                # a count of 0 may be outdated, so wait for a message unless the stream was empty before
                is_empty = channel.declare_queue(stream, passive=True).message_count == 0 and stream in self._empty
                deliveries = channel.deliveries(CHUNK_MESSAGES, 0)
                if not deliveries and found is None and not is_empty:
                    deliveries = channel.deliveries(CHUNK_MESSAGES, NOTHING_COMES_S)  # the chunk is read from disk
                if not deliveries:
                    break
                count += len(deliveries)
                found = _offset(deliveries[-1], stream) + 1
        if found is None:
            self._empty.add(stream)
        else:
            self._empty.discard(stream)
        return found

    def _is_there(self, stream: str) -> bool:
        try:
            self._talk().declare_queue(stream, passive=True)
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise
            return False
        return True

    def _consume(self, stream: str, begin: Value, prefetch_count: int) -> BlockingChannel:
        self._talk()
        assert self._connection is not None
        channel = self._connection.channel()
        try:
            channel.consume(stream, arguments={OFFSET: begin}, prefetch_count=prefetch_count)
        except ChannelClosed as error:
            self._refused(stream, error)
        return channel

    def _refused(self, stream: str, error: ChannelClosed, unless: int = 0) -> None:
        if error.code == unless:
            return
        if error.code == NOT_FOUND:
            raise NoStream(f"there is no stream {stream!r} ({error}): see options stream and partitions") from None
        if error.code == PRECONDITION_FAILED:
            raise _no_stream(stream) from None
        raise error

    def _talk(self) -> BlockingChannel:
        if self._connection is None or self._connection.is_closed:
            self.close()
            self._connection = BlockingConnection(self._options.url, name="leveret spark stream", reconnect=False)
        if self._channel is None or self._channel.is_closed:
            self._channel = self._connection.channel()
        return self._channel


def first_message(connection: BlockingConnection, stream: str) -> int:
    """Return the offset of the oldest message of a stream that is not empty; raises ``ChannelClosed``."""
    with connection.channel() as channel:
        channel.consume(stream, arguments={OFFSET: "first"}, prefetch_count=1)
        delivery = channel.next_delivery(SILENCE_S)
        if delivery is None:
            raise StreamBroken(f"stream {stream!r} has messages, but none arrive: see the broker's log")
        return _offset(delivery, stream)


def check_there(options: StreamOptions) -> None:
    """Raise ``NoStream`` if the stream does not exist. An unreachable or refusing broker is left to the query, which
    retries and explains; so is a stream that may be gone, with failOnDataLoss=false."""
    if not options.is_loss_failure:
        return
    streams = QueryStreams(options)
    try:
        streams.partitions()
    except NoStream as error:
        raise NoStream(f"{error}. A query with a checkpoint continues with option failOnDataLoss=false") from None
    except (ClientError, OSError):
        return
    finally:
        streams.close()


def stream_schema(options: StreamOptions) -> str | None:
    """Return the streams' x-leveret-schema, None without one; ``ValueError`` if partitions have different ones."""
    streams = QueryStreams(options)
    try:
        with explained():
            facts = [streams.bounds(name).facts for name in streams.partitions()]
    finally:
        streams.close()
    schemas = {None if each is None else each["schema"] for each in facts}
    if len(schemas) > 1:
        raise ValueError(f"option parse=stream: the partitions of {options.stream!r} have different schemas")
    return schemas.pop()


def _offset(delivery: Delivery, stream: str) -> int:
    offset = (delivery.properties.headers or {}).get(OFFSET)
    if not isinstance(offset, int):
        raise _no_stream(stream)
    return offset


def _no_stream(stream: str) -> NoStream:
    return NoStream(f"{stream!r} is a queue, not a stream: use option queue instead of option stream")
