"""How a consumer reads a stream: its place, and the encoding of its deliveries.

A delivery has the message's offset in its header x-stream-offset, a long. It is the last of the table, so that clients
see it even if the publisher's own headers have one. A consumer with x-leveret-arrived also gets the time of arrival (µs
since 1970), a long in the header of that name, before the offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from leveret.broker.messages.content import write_content
from leveret.broker.messages.entry import Entry
from leveret.broker.streams.chunk import ChunkGroup, Cursor
from leveret.broker.streams.filter import Filter
from leveret.broker.streams.read import Read

if TYPE_CHECKING:
    from leveret.broker.queues.consumer import Consumer
    from leveret.broker.streams.naming import Named
    from leveret.broker.streams.stream import Stream

ARRIVED: Final = "x-leveret-arrived"
HEADER: Final = b"\x0fx-stream-offsetl"
_ARRIVED_HEADER: Final = b"\x11x-leveret-arrivedl"
_OCTETS: Final[i64] = 25
_ARRIVED_OCTETS: Final[i64] = 27
# output of one group before the consumer is asked again whether it can take more
_WRITE_OCTETS: Final[i64] = 256 << 10
# groups that may be skipped in one turn; a search in the files counts as _FETCH_LOOKS groups
_LOOK_MAX: Final[i64] = 1024
_FETCH_LOOKS: Final[i64] = 64
# from this many messages on that differ in their bodies only, a template of what precedes their bodies pays
_MANY: Final[i64] = 4


def write_head(out: BytesWriter, data: bytes, at: i64, channel: i64, frame_max: i64, arrived_us: i64) -> i64:
    """Write the header frame at `at` up to the value of the offset; return where its rest begins, relative to `at`.

    arrived_us: the time of arrival to write, -1 = none. Returns 0, without writing, if the frame would exceed frame_max
    octets.
    """
    octets = _OCTETS if arrived_us < 0 else _OCTETS + _ARRIVED_OCTETS
    size: i64 = i64(read_i32_be(data, at + 3))
    flags: i64 = i64(data[at + 19])  # the upper eight of them
    has_headers = flags & 0x20 != 0
    longer = size + (octets if has_headers else octets + 4)
    if longer + 8 > frame_max:
        return 0
    end = at + 21
    if flags & 0x80 != 0:
        end += 1 + i64(data[end])
    if flags & 0x40 != 0:
        end += 1 + i64(data[end])
    out.append(2)
    write_i16_be(out, i16(channel))
    write_i32_be(out, i32(longer))
    out.write(data[at + 7 : at + 19])
    out.append(data[at + 19] | 0x20)
    out.write(data[at + 20 : end])
    table: i64 = 0
    if has_headers:
        table = i64(read_i32_be(data, end))
        end += 4
    write_i32_be(out, i32(table + octets))
    out.write(data[end : end + table])
    if arrived_us >= 0:
        out.write(_ARRIVED_HEADER)
        write_i64_be(out, arrived_us)
    out.write(HEADER)
    return end + table - at


class Reader:
    """A consumer's place in a stream."""

    def __init__(self, consumer: Consumer, stream: Stream, next: i64, from_us: i64) -> None:
        self.consumer = consumer
        self.stream = stream
        self.next = next  # the offset of the next message
        self.from_us = from_us  # messages that arrived before this time are skipped, 0 = none
        self.filter: Filter | None = None  # None = all messages
        self.named: Named | None = None  # None = it has no name
        self.tells_arrival = False
        self._left: i64 = 0  # groups that it may still skip in this turn
        self._seen = b""  # the header that was examined last
        self._is_wanted = False  # whether the filter admits it
        self._cursor = Cursor()
        self._groups: list[ChunkGroup] = []  # of the tail, to be read from _index on
        self._index: i64 = 0
        tag = consumer.tag.encode("utf-8", "surrogateescape")
        self._named = b"\x00\x3c\x00\x3c" + bytes([len(tag)]) + tag

    def serve(self, now_us: i64) -> None:
        """Deliver as much as the consumer can take. Many skipped messages in a row end the turn."""
        self._left = _LOOK_MAX
        while self._left > 0 and self.consumer.can_take() and self._find():
            if self._cursor.time_us < self.from_us or (self.filter is not None and not self._wants(self.filter)):
                self.next = self._cursor.end
                self._left -= 1
            else:
                self._deliver()
        if self._left <= 0:
            self.stream.wake(now_us)

    def go_to(self, offset: i64) -> None:
        """Continue with the message of this offset, whenever it arrived."""
        self.next = offset
        self.from_us = 0
        self._drop()

    def let_go(self) -> None:
        """Drop everything when the consumer is gone, and break the reference cycle: the garbage collector is off."""
        self._drop()
        self.consumer.reader = None

    def _drop(self) -> None:
        self._cursor = Cursor()
        self._groups = []
        self._index = 0

    def _wants(self, filter: Filter) -> bool:
        data, at = self._cursor.data, self._cursor.at
        header = data[at : at + i64(read_i32_be(data, at + 3)) + 8]
        if header != self._seen:
            self._seen = header
            self._is_wanted = filter.admits(header)
        return self._is_wanted

    def _find(self) -> bool:
        """Move the cursor to the message with the next offset; False if it is not available now."""
        cursor = self._cursor
        while cursor.end <= self.next:
            if cursor.advance():
                continue
            if self._index < len(self._groups):
                cursor.show(self._groups[self._index])
                self._index += 1
            elif not self._fetch():
                return False
        self.next = max(self.next, cursor.offset)  # what stood before it is lost
        return self.next < self.stream.committed

    def _fetch(self) -> bool:
        """Get more of the stream from the next offset on; False if that is not available now."""
        stream = self.stream
        self._groups = []
        self._index = 0
        self.next = max(self.next, stream.first)  # retention has deleted messages that it had not read yet
        if self.next >= stream.committed:
            return False
        if self.next >= stream.history.end:
            self._groups = stream.tail_from(self.next)
            return bool(self._groups)
        if self.filter is not None:
            self._left -= _FETCH_LOOKS
            wanted: i64 = stream.history.pass_over(int(self.next), self.filter.may_admit)
            if wanted > self.next:
                self.next = wanted
                return self._left > 0
        fetched = stream.history.fetch(int(self.next))
        if fetched is None:
            return False
        self._cursor.open(fetched.payload, fetched.first)
        if not fetched.payload:
            self.next = fetched.end
        return True

    def _deliver(self) -> None:
        consumer, cursor = self.consumer, self._cursor
        start = self.next - cursor.offset
        count = min(cursor.count - start, _WRITE_OCTETS // cursor.size + 1)
        if not consumer.no_ack:
            count = min(count, consumer.limit - consumer.unacked)
        if self.stream.vhost.tracing is not None:
            self._trace(start, count)
        if self.named is not None:
            self.named.progress.delivered(self.next, count)
        self._write(start, count)
        self.next += count
        if not consumer.connection.is_dirty:
            consumer.connection.mark()

    def _write(self, index: i64, count: i64) -> None:
        consumer, channel, cursor = self.consumer, self.consumer.channel, self._cursor
        number, frame_max = channel.number, consumer.connection.frame_max
        data, size = cursor.data, cursor.size
        at = cursor.at + index * size
        offset = cursor.offset + index
        arrived_us: i64 = cursor.time_us if self.tells_arrival else -1
        output = consumer.connection.output
        out = output.writer
        is_whole = i64(read_i16_be(data, at + 1)) & 0xFFFF == number and not channel.must_cut
        no_ack = consumer.no_ack
        prefix = middle = b""
        rest: i64 = 0
        if count >= _MANY:
            consumer.meet(cursor.key)
            head = BytesWriter()
            rest = write_head(head, data, at, number, frame_max, arrived_us)
            prefix, middle = consumer.prefix, b"\x00" + consumer.suffix + head.getvalue()
        tag = channel.next_tag
        left = count
        while left > 0:
            if prefix:
                out.write(prefix)
                write_i64_be(out, tag)
                out.write(middle)
            else:
                self._write_method(out, tag)
                rest = write_head(out, data, at, number, frame_max, arrived_us)
            if rest == 0:
                write_content(output, data, number, frame_max, at, at + size)
            else:
                write_i64_be(out, offset)
                if is_whole:
                    output.quote(data, at + rest, at + size)
                else:
                    bodies_at = at + i64(read_i32_be(data, at + 3)) + 8
                    out.write(data[at + rest : bodies_at])
                    write_content(output, data, number, frame_max, bodies_at, at + size)
            if not no_ack:
                channel.unacked.add(tag, Read(self, offset))
            tag += 1
            offset += 1
            at += size
            left -= 1
        channel.next_tag = tag
        consumer.delivered += count
        if not no_ack:
            consumer.unacked += count
            self.stream.unacked += count

    def _write_method(self, out: BytesWriter, tag: i64) -> None:
        """Write basic.deliver for the message at the cursor, like Consumer, but without caching it."""
        key = self._cursor.key
        middle = 1 + i64(key[0])
        octets = middle + 1 + i64(key[middle])
        out.append(1)
        write_i16_be(out, i16(self.consumer.channel.number))
        write_i32_be(out, i32(len(self._named) + 9 + octets))
        out.write(self._named)
        write_i64_be(out, tag)
        out.append(0)
        out.write(key if octets == len(key) else key[:octets])  # BCC keys may follow it
        out.append(0xCE)

    def _trace(self, index: i64, count: i64) -> None:
        """Pass each delivery to the firehose, with its x-stream-offset."""
        tracing = self.stream.vhost.tracing
        assert tracing is not None
        number, cursor = int(self.consumer.channel.number), self._cursor
        size, frame_max = cursor.size, self.consumer.connection.frame_max
        at = cursor.at + index * size
        offset = cursor.offset + index
        while count > 0:
            out = BytesWriter()
            rest = write_head(out, cursor.data, at, number, frame_max, -1)
            if rest != 0:
                write_i64_be(out, offset)
            out.write(cursor.data[at + rest : at + size])
            entry = Entry(self.stream.message_list, out.getvalue(), cursor.key, 0, 0, 0)
            tracing.delivered(self.consumer.connection, number, self.stream, entry)
            at += size
            offset += 1
            count -= 1
