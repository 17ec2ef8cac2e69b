"""Reads a span of a stream over AMQP, for a task: all messages, in order, or an error.

The client's loop (client/protocol/delivering.py) cuts deliveries out of the octets as received, here without an object
for each. What the loop does not handle is delivered one by one, as to any consumer.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.client import BlockingChannel, BlockingConnection, ChannelClosed, ConsumerCancelled, Delivery
from leveret.client.protocol.channel_core import ChannelCore
from leveret.client.protocol.delivering import DeliveryReader, RawDeliveries
from leveret.spark.rows.bulk import BulkRows, MessageRun
from leveret.spark.rows.deliveries import SLICE_END
from leveret.spark.streams.bounds import OFFSET, SILENCE_S, first_message
from leveret.spark.streams.errors import StreamBroken
from leveret.spark.streams.loss import counted, lost
from leveret.spark.streams.offsets import Span
from leveret.wire.errors import NOT_FOUND
from leveret.wire.properties import decode_header

PREFETCH_MAX: Final = 20_000
"""Limit of unacknowledged messages. Half of them are acknowledged at a time, so that more arrive while these are
read."""

BATCH_ROWS: Final = 10_000
BATCH_OCTETS: Final = 4 << 20

_MARK: Final = b"\x0fx-stream-offsetl"
"""The octets before the eight octets of the offset in the table of headers."""

_MARK_OCTETS: Final = len(_MARK)
_PACK: Final = struct.Struct(">Q").pack
_ZERO: Final = bytes(8)
_FLAGS_AT: Final = 12
"""Octets of class, weight and body size, which precede the property flags in a content header."""


def read_tail(
    connection: BlockingConnection, span: Span, schema: pa.Schema, is_loss_failure: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ``span`` in batches with the columns of ``schema``.

    Raises ``DataLoss`` if messages are missing and that is a failure. After ``ClientError`` and ``StreamBroken`` Spark
    repeats the task.
    """
    usual = connection.core.deliveries
    try:
        with connection.channel() as channel:
            rows = BulkRows(schema, span.stream)
            tail = _Tail(connection, channel, span, rows.needs_headers, is_loss_failure)
            connection.core.deliveries = tail
            if tail.begin():
                for run in tail.runs():
                    yield rows.batch(run)
    finally:
        connection.core.deliveries = usual


class _Tail:
    """A consumer of one stream, alone on its channel."""

    def __init__(
        self,
        connection: BlockingConnection,
        channel: BlockingChannel,
        span: Span,
        needs_headers: bool,
        is_loss_failure: bool,
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._span = span
        self._needs_headers = needs_headers
        self._is_loss_failure = is_loss_failure
        self._prefetch_count = min(PREFETCH_MAX, len(span))
        self._run = MessageRun(span.first)
        self._raw = RawDeliveries(channel.number)  # received and not checked yet
        self._reader = DeliveryReader(self._raw)
        self._delivered = self._acknowledged = 0

    def begin(self) -> bool:
        """Start the consumer. Returns False if the stream is gone and that is no failure."""
        span = self._span
        try:
            self._channel.consume(
                span.stream, arguments={OFFSET: span.first}, prefetch_count=self._prefetch_count, deliver=self.deliver
            )
            # ask after consume: from then on the deletion of the stream cancels the consumer
            if span.id is None or self._channel.stream_facts(span.stream)["creation"] == span.id:
                return True
            self._lost(f"stream {span.stream!r} was deleted and declared again: {counted(len(span))} are gone")
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise
            self._lost(f"stream {span.stream!r} is gone, and {counted(len(span))} with it ({error})")
        return False

    def runs(self) -> Iterator[MessageRun]:
        """Yield all messages of the span, in batches of some thousands."""
        end = self._span.end
        while True:
            with self._connection.lock:  # the thread that sends heartbeats reads, too
                gap = self._look()
            run = self._run
            reached = run.first + len(run)
            is_due = gap is not None or reached >= end or len(run) >= BATCH_ROWS or run.octets >= BATCH_OCTETS
            if run.bodies and is_due:
                yield run
                self._run = MessageRun(reached)
            if gap is not None:
                found = min(gap, end)
                if not self._has_own_offsets(reached):
                    what = f"stream {self._span.stream!r} no longer has offsets {reached} to {found - 1}"
                    self._lost(f"{what}: {counted(found - reached)} are gone")
                self._run = MessageRun(found)
                reached = found
            if reached >= end:
                return
            if gap is None and not self._receive(reached):
                return

    def _receive(self, expected: int) -> bool:
        """Read deliveries; returns False if the stream is gone and that is no failure."""
        half = self._prefetch_count // 2
        if self._delivered - self._acknowledged > half:
            self._acknowledged = self._delivered
            self._channel.ack(self._delivered, multiple=True)
        while not self._raw.headers:
            try:
                is_read = self._channel.receive(SILENCE_S)
            except ConsumerCancelled:
                left = counted(self._span.end - expected)
                self._lost(f"stream {self._span.stream!r} was deleted while it was read, and {left} with it")
                return False
            if not is_read and not self._raw.headers:
                raise StreamBroken(
                    f"stream {self._span.stream!r} delivered nothing for {SILENCE_S:g} s, but should have messages "
                    f"from offset {expected} on: see the broker's log"
                )
        return True

    def _look(self) -> int | None:
        """Move received messages into the batch, up to the end of the span or a gap. Returns the offset after the gap,
        or None."""
        run, end = self._run, self._span.end
        expected = run.first + len(run)
        headers = self._raw.headers[: end - expected]
        hidden = hidden_offsets(headers, expected)
        if hidden is None:
            return self._look_at_each(headers, expected)
        if self._needs_headers:
            run.headers.append(hidden)
        self._move(0, len(headers))
        return None

    def _look_at_each(self, headers: list[bytes], expected: int) -> int | None:
        """Do what :meth:`_look` does for headers of any layout, and offsets that may be unexpected.

        There are no more headers than messages that the span lacks.
        """
        run = self._run
        kept: list[bytes] = []
        needs_headers = self._needs_headers
        begin = stop = 0
        gap = None
        for header in headers:
            # leveret puts the offset last into the table; a publisher's own header of that name comes before it
            at = header.rfind(_MARK + _PACK(expected))
            if at < 0:
                offset = _offset(header, expected)
                if offset > expected:
                    gap = offset
                    break
                if offset < expected:
                    if stop > begin or run.bodies:
                        raise StreamBroken(f"offset {offset} arrived where {expected} was expected")
                    begin = stop = stop + 1  # RabbitMQ begins with the chunk
                    continue
                if needs_headers:
                    kept.append(header[_FLAGS_AT:])
            elif needs_headers:
                after = at + _MARK_OCTETS
                kept.append(header[_FLAGS_AT:after] + _ZERO + header[after + 8 :])
            expected += 1
            stop += 1
        run.headers.append(pa.array(kept, pa.binary()))
        self._move(begin, stop)
        return gap

    def _move(self, begin: int, stop: int) -> None:
        """Move the messages from index ``begin`` on and below ``stop`` into the batch, and drop those before them."""
        taken = self._raw.take(stop).part(begin, stop)
        self._run.bodies += taken.bodies
        self._run.methods += taken.methods
        self._run.octets += taken.octets

    # called by the connection

    def deliver(self, delivery: Delivery) -> None:
        """Take a delivery that the loop of ``read`` has left."""
        self._raw.add(delivery)
        self._delivered += 1

    def read(self, channels: Mapping[int, ChannelCore[Any]], data: bytes, start: int) -> int:
        """Take the deliveries that begin at ``start`` and are complete in ``data``; returns the first unused
        position."""
        before = len(self._raw.headers)
        start = self._reader.read(channels, data, start)
        self._delivered += len(self._raw.headers) - before
        return start

    def _has_own_offsets(self, missing: int) -> bool:
        """Whether a gap holds no messages: RabbitMQ stores records of its own among them, which have offsets, too.

        Only the oldest messages are ever removed, so nothing is lost if a message exists before the gap.
        """
        return self._span.id is None and first_message(self._connection, self._span.stream) < missing

    def _lost(self, what: str) -> None:
        lost(what, self._is_loss_failure)


def hidden_offsets(headers: list[bytes], first: int) -> pa.BinaryArray | None:
    """Return content headers from the flags on, with their offsets set to 0; None unless these are consecutive from
    ``first`` on and at the same place in all headers."""
    at = headers[0].rfind(_MARK + _PACK(first)) if headers else -1
    if at < 0:
        return None
    offsets = array("Q", range(first, first + len(headers)))
    if sys.byteorder == "little":
        offsets.byteswap()
    octets = pa.array(headers, pa.binary())
    after = at + _MARK_OCTETS
    found = pc.binary_slice(octets, after, after + 8).buffers()[2].to_pybytes()
    if found != offsets.tobytes() or not pc.all(pc.equal(pc.binary_slice(octets, at, after), _MARK)).as_py():
        return None
    parts = (pc.binary_slice(octets, _FLAGS_AT, after), pc.binary_slice(octets, after + 8, SLICE_END))
    return pc.binary_join_element_wise(parts[0], _ZERO, parts[1], b"")


def _offset(header: bytes, expected: int) -> int:
    """Return the offset of a delivery, ``expected`` if it has none: headers that fill a frame leave no room for it."""
    offset = (decode_header(header)[0].headers or {}).get(OFFSET, expected)
    if not isinstance(offset, int):
        raise StreamBroken(f"a delivery of a stream has an invalid offset: {offset!r}")
    return offset
