"""A consumer: its settings, how much it may still take, and the encoding of its deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i16_be, write_i64_be
from mypy_extensions import i64

from leveret.broker.epochs import NO_EPOCH, Epochs
from leveret.broker.messages.content import write_content, write_stamped
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.ack_timeout import NOT_GIVEN
from leveret.broker.queues.batch_delivery import BatchDelivery
from leveret.session.output import LARGE_OCTETS_MIN, Buffer
from leveret.wire.grammar import BASIC_CANCEL
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.peer import Peer
    from leveret.broker.queues.consumers import PriorityLevel
    from leveret.broker.queues.queue import Queue
    from leveret.broker.streams.reader import Reader

# how much output a consumer may produce in one turn, so that a long queue is not copied into the output at once
OUT_OCTETS_MAX: Final[i64] = 1 << 20
# the same for a crowded queue: most of it may have to be read from disk, which takes longer
CROWDED_OCTETS_MAX: Final[i64] = 64 << 10
ANY_NUMBER: Final[i64] = 1 << 62


class Consumer:
    """A consumer of a queue, of a stream or of direct reply-to."""

    def __init__(
        self, connection: Peer, channel: BrokerChannel, queue: Queue | None, tag: str, no_ack: bool, limit: int
    ) -> None:
        self.connection = connection
        self.channel = channel
        self.queue = queue  # None for a reply consumer
        self.tag = tag
        self.no_ack = no_ack
        self.limit: i64 = limit  # prefetch of this consumer, 0 = none
        self.unacked: i64 = 0  # number of its unacknowledged deliveries
        self.is_exclusive = False
        self.priority = 0
        self.timeout_ms: i64 = NOT_GIVEN  # see ack_timeout.py
        self.level: PriorityLevel | None = None  # its priority level among its queue's consumers
        # 0 = in its level's line; else it left the line because it could take nothing, after those with smaller numbers
        self.aside: i64 = 0
        self.delivered: i64 = 0  # delivered and redelivered: not added to the counters yet, see `count`
        self.redelivered: i64 = 0
        self.arguments: dict[str, Value] = {}  # of basic.consume
        # set if it is a link, which gets the position of each message (its channel has must_cut); else None
        self.epochs: Epochs | None = None
        self.reader: Reader | None = None  # of a stream; None for all other queues
        # prefix and suffix: the method frame around tag and redelivered, for messages with the current key
        self.prefix = b""
        self.suffix = b""
        self._key: bytes | None = None
        self._shown_octets: i64 = -1  # length of exchange and routing key for which the prefix is right
        tag_octets = tag.encode("utf-8", "surrogateescape")
        self._head = b"\x01" + int(channel.number).to_bytes(2, "big")
        self._middle = b"\x00\x3c\x00\x3c" + bytes([len(tag_octets)]) + tag_octets

    def tell_cancelled(self) -> None:
        """Write basic.cancel because the queue is gone, if the client supports it."""
        if self.connection.hears_cancel:
            self.connection.send(self.channel.number, BASIC_CANCEL, consumer_tag=self.tag, no_wait=True)

    def can_take(self, is_crowded: bool = False) -> bool:
        """Return whether the next message may go to it: the socket takes bytes, the connection has not had its share of
        this turn, and no prefetch limit is reached. is_crowded: the queue is crowded."""
        connection = self.connection
        if connection.is_full:
            return False
        if connection.output.octets() > (CROWDED_OCTETS_MAX if is_crowded else OUT_OCTETS_MAX):
            connection.is_full = True
            return False
        channel = self.channel
        if channel.limit != 0 and channel.unacked.count - channel.fetched >= channel.limit:
            return False
        return self.no_ack or self.limit == 0 or self.unacked < self.limit

    def room(self) -> i64:
        """Return how many messages the prefetch limits allow now. Call it only if can_take()."""
        room = ANY_NUMBER
        if not self.no_ack:
            channel = self.channel
            if channel.limit != 0:
                room = channel.limit - (channel.unacked.count - channel.fetched)
            if self.limit != 0:
                room = min(room, self.limit - self.unacked)
        return room

    def takes_batches(self) -> bool:
        """Return whether messages of a run can be written in bulk: its frames are not cut, and the firehose is off."""
        return not self.channel.must_cut and not self._is_traced()

    def try_again(self) -> None:
        """Put the consumer back into its level's line if it can take a message again."""
        level = self.level
        assert level is not None
        if self.can_take():
            level.line_up(self)

    def _write_method(self, redelivered: bool) -> i64:
        """Write the method frame of the next delivery; return its tag."""
        channel = self.channel
        out = self.connection.output.writer
        tag = channel.next_tag
        channel.next_tag = tag + 1
        out.write(self.prefix)
        write_i64_be(out, tag)
        if redelivered:
            out.append(1)
            self.redelivered += 1
        else:
            out.append(0)
        self.delivered += 1
        out.write(self.suffix)
        return tag

    def deliver(self, entry: Entry) -> None:
        """Write basic.deliver with the content, and count it as unacknowledged unless no_ack is set."""
        connection = self.connection
        channel = self.channel
        out = connection.output.writer
        if self._key is not entry.key:
            self._meet(entry)
        tag = self._write_method(entry.redelivered)
        content = entry.shown()
        if i64(read_i16_be(content, 1)) & 0xFFFF == channel.number and not channel.must_cut:
            if len(content) < LARGE_OCTETS_MIN:
                out.write(content)
            else:
                connection.output.attach(content)
        elif self.epochs is None:
            write_content(connection.output, content, channel.number, connection.frame_max)
        else:
            self._write_stamped(self.epochs, entry, content)
        if not connection.is_dirty:
            connection.mark()
        if not self.no_ack:
            entry.consumer = self
            self.unacked += 1
            channel.unacked.add(tag, entry)

    def takes_as_is(self, data: bytes, start: i64) -> bool:
        """Return whether the content at `start` can be sent in the frames that its publisher sent."""
        return i64(read_i16_be(data, start + 1)) & 0xFFFF == self.channel.number and not self.channel.must_cut

    def pass_on(self, key: bytes, data: bytes, start: i64, stop: i64, pieces: list[Buffer] | None = None) -> None:
        """Write a delivery straight from its publisher's frames, to a consumer with no_ack.

        The content is data[start:stop]; or all of `pieces`, of which data is the first, if it takes_as_is.
        """
        connection = self.connection
        channel = self.channel
        output = connection.output
        out = connection.output.writer
        if self._key is not key:
            self._set_key(key)
        self._write_method(False)
        if not self.takes_as_is(data, start):
            write_content(output, data, channel.number, connection.frame_max, start, stop)
        elif pieces is not None:
            for piece in pieces:
                if len(piece) < LARGE_OCTETS_MIN:
                    out.write(bytes(piece))
                else:
                    output.attach(piece)
        else:
            output.quote(data, start, stop)
        if not connection.is_dirty:
            connection.mark()

    def _write_stamped(self, epochs: Epochs, entry: Entry, content: bytes) -> None:
        """Write the content with its position.

        A message that a crash could still take away is held until it is on disk: otherwise it would come once more over
        the link that brought it here, under another position.
        """
        queue = entry.message_list.queue
        log = queue.vhost.log
        if queue.unacked != self.unacked and entry.id != 0 and entry.id >= queue.unplaced_below:
            queue.unplace()
            log.hold(self.connection, log.next_id, 0)
        if entry.id >= log.safe_below:
            log.hold(self.connection, entry.id, len(self.prefix) + 9 + len(self.suffix))
        epoch = epochs.of(entry.id)
        id = entry.id if epoch != NO_EPOCH and entry.id >= queue.unplaced_below else 0
        # positions of different queues never equal, even on one broker: see content.py
        epoch = epoch ^ queue.number if id != 0 else NO_EPOCH
        write_stamped(self.connection.output, content, self.channel.number, self.connection.frame_max, epoch, id)

    def deliver_batch(self, run: MessageBatch, index: i64, count: i64) -> None:
        """Write `count` messages of a run from this index on, and count them as unacknowledged by one RunDelivery."""
        buffer = run.buffer
        stride = buffer.stride
        start = index * stride
        tag = self.channel.next_tag
        stop = start + count * stride
        self.deliver_alike(buffer.key, buffer.data, start, stop, stride, buffer.size, run.redelivered)
        if not self.no_ack:
            self.unacked += count
            self.channel.unacked.add_batch(tag, BatchDelivery(run, index, count, self, tag), count)

    def deliver_alike(
        self, key: bytes, data: bytes, start: i64, stop: i64, stride: i64, size: i64, redelivered: bool
    ) -> None:
        """Write deliveries of the contents in data[start:stop], of `size` octets each, `stride` octets apart."""
        connection = self.connection
        channel = self.channel
        if self._key is not key:
            self._set_key(key)
        out = connection.output.writer
        prefix = self.prefix
        suffix = (b"\x01" if redelivered else b"\x00") + self.suffix
        is_same = i64(read_i16_be(data, start + 1)) & 0xFFFF == channel.number
        tag = channel.next_tag
        first = tag
        at = start
        while at < stop:
            out.write(prefix)
            write_i64_be(out, tag)
            out.write(suffix)
            if is_same:
                out.write(data[at : at + size])
            else:
                write_content(connection.output, data, channel.number, connection.frame_max, at, at + size)
            tag += 1
            at += stride
        channel.next_tag = tag
        self.delivered += tag - first
        if redelivered:
            self.redelivered += tag - first
        if not connection.is_dirty:
            connection.mark()

    def count(self) -> None:
        """Add the deliveries since the last call to the counters of its queue and channel."""
        queue = self.queue
        if self.delivered == 0 or queue is None:
            return
        for counters in (queue.counters, self.channel.counters):
            if self.no_ack:
                counters.deliver_no_ack += self.delivered
            else:
                counters.deliver += self.delivered
            counters.redeliver += self.redelivered
        self.delivered = 0
        self.redelivered = 0

    def meet(self, key: bytes) -> None:
        """Prepare for messages with this key (exchange and routing key as in basic.deliver)."""
        if self._key is not key:
            self._set_key(key)

    def forget_key(self) -> None:
        """Treat the next message as one with another key, so that `_meet` sees it."""
        self._key = None

    def _is_traced(self) -> bool:
        return self.queue is not None and self.queue.vhost.tracing is not None

    def _meet(self, entry: Entry) -> None:
        """Prepare for a message with another key than the last one, or for any message while the firehose is on."""
        self._set_key(entry.key)
        queue = self.queue
        if queue is not None and queue.vhost.tracing is not None:
            queue.vhost.tracing.delivered(self.connection, int(self.channel.number), queue, entry)
            self.forget_key()

    def _set_key(self, key: bytes) -> None:
        middle = 1 + i64(key[0])
        octets = middle + 1 + i64(key[middle])
        if octets != self._shown_octets:
            self._shown_octets = octets
            self.prefix = self._head + (len(self._middle) + 9 + int(octets)).to_bytes(4, "big") + self._middle
        shown = key if octets == len(key) else key[:octets]  # BCC keys may follow
        self.suffix = shown + b"\xce"
        self._key = key
