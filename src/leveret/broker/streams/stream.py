"""A stream: a queue whose messages have offsets, and stay until retention removes them.

Messages come through the journal as those of any durable queue, and are confirmed when its batch is on disk. From then
on they are committed: only then may consumers see them, so an offset never has two meanings. The tail stands in memory
and in the journal, until its owner (net/disk/streams.py) has written it to the stream's files, in chunks; then the
journal lets go of it.

The journal does not store offsets: they follow from the order of its records. It has `next_offset` at the beginning of
each of its files, and the time of arrival in the field that holds the expiry for other queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.messages.message_batch import BatchBuffer
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.log import meta_record
from leveret.broker.streams.chunk import ChunkGroup
from leveret.broker.streams.history import History
from leveret.broker.streams.leases import Leases
from leveret.broker.streams.limits import stream_limits
from leveret.broker.streams.marks import Marks
from leveret.broker.streams.offsets import FIRST, LAST, NEXT, OFFSET, OffsetSpec
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

MARKS: Final = "stream.marks"
# a tail of this size is written to the files
TAIL_OCTETS: Final[i64] = 1 << 20
# of one chunk, which a reader has in memory
CHUNK_OCTETS: Final[i64] = 128 << 10
# groups of the tail that a reader gets at a time
_LOOK_MAX: Final[i64] = 1024


class StreamIntake(MessageList):
    """The message list in which routed messages arrive; it passes them to the stream and keeps none."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, 0)
        self._stream = stream

    def enqueue(
        self, content: bytes, key: bytes, id: i64, expires_us: i64, redelivered: bool = False, returns: i64 = 0
    ) -> None:
        self._stream.append(content, key, len(content), 1, id, expires_us)

    def enqueue_batch(self, buffer: BatchBuffer, id: i64, expires_us: i64, redelivered: bool = False) -> None:
        data = buffer.contents_from(0)
        self._stream.append(data, buffer.key, buffer.size, buffer.count, id, expires_us)


class Stream(Queue):
    """A queue of type stream."""

    def __init__(self, vhost: VHost, name: str, durable: bool, auto_delete: bool, arguments: dict[str, Value]) -> None:
        super().__init__(vhost, name, durable, auto_delete, arguments)
        self.is_stream = True
        self.keeps_all = True
        self.message_list = StreamIntake(self)
        self.message_lists = [self.message_list]
        # 16 hex digits, drawn at its declaration: they tell it from a later stream of the same name
        self.creation = vhost.random_bytes(8).hex()
        self.next_offset: i64 = 0  # of the message that arrives next
        self.committed: i64 = 0  # messages below it are on disk
        self.history = History()  # what is in files
        self.tail: list[ChunkGroup] = []  # everything after it
        self.tail_octets: i64 = 0
        self.kept = stream_limits(arguments)  # retention, and the size of its files
        # protect messages from retention for a while
        self.leases = Leases(vhost.log, vhost.name, name, vhost.random_bytes)
        self.is_appended = False  # it has messages in the current batch, and is in Log.appended
        self.is_long = False  # its tail waits to be written to the files
        self.offsets = Marks()  # of named consumers (naming.py)
        self.sequences = Marks()  # of publishers (numbers.py)
        self.is_marked = False  # the journal has to record changes of these
        self._readers: i64 = 0  # number of named readers so far
        self._closing: i64 = 0  # next_offset when the batch was closed that is being written
        self._last_us: i64 = 0  # arrival time of the last message

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def expiry(self, now_us: i64, message_ttl_us: i64) -> i64:
        """Return the time of arrival by the wall clock, which the journal stores in place of an expiry."""
        self._last_us = max(self._last_us, self.vhost.timeline.wall_us(now_us))
        return self._last_us

    def append(self, data: bytes, key: bytes, size: i64, count: i64, id: i64, time_us: i64) -> None:
        """Append messages that differ in their bodies only, which the journal has under these ids."""
        group = ChunkGroup(self.next_offset, time_us, key, data, size, count, id)
        self.next_offset += count
        self.tail.append(group)
        log = self.vhost.log
        self._count(group.octets())
        if not self.is_appended:
            self.is_appended = True
            log.appended.append(self)
        if self.tail_octets >= TAIL_OCTETS:
            self.lengthened()
        if log.tail_octets > log.relieve_at:
            log.has_stream_work = True
        if self.consumers.count > 0:
            log.is_awaited = True

    def lengthened(self) -> None:
        """Ask for the tail to be written to the files."""
        if not self.is_long:
            self.is_long = True
            self.vhost.log.long_streams.append(self)
            self.vhost.log.has_stream_work = True

    def _count(self, octets: i64) -> None:
        self.tail_octets += octets
        self.vhost.log.tail_octets += octets

    def close_batch(self) -> None:
        """Note the arrivals that the closed batch contains, which is about to be written."""
        self.is_appended = False
        self._closing = self.next_offset

    def synced(self) -> None:
        """Commit the messages of that batch, which is on disk now."""
        self.committed = self._closing
        if self.tail_octets >= TAIL_OCTETS:
            self.lengthened()
        if self.consumers.count > 0 and not self.is_deleted:
            self.vhost.log.is_stirred = True
            if not self.is_touched:
                self.touch()

    # -- the files -----------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        self.history = self.vhost.log.open_history(self)

    def chunks(self, octets_max: i64) -> list[list[ChunkGroup]]:
        """Return the oldest committed part of the tail, about `octets_max`, as chunks without gaps in their offsets."""
        found: list[list[ChunkGroup]] = []
        octets: i64 = CHUNK_OCTETS
        end: i64 = 0
        left = octets_max
        for group in self.tail:
            if group.end > self.committed or left <= 0:
                break
            if octets >= CHUNK_OCTETS or group.offset != end:
                found.append([])
                octets = 0
            found[-1].append(group)
            end = group.end
            octets += group.octets()
            left -= group.octets()
        return found

    def stored(self) -> None:
        """Drop the part of the tail that the files have now, according to the history."""
        count: i64 = 0
        log = self.vhost.log
        for group in self.tail:
            if group.end > self.history.end:
                break
            log.stored(group.id, group.count)
            self._count(-group.octets())
            count += 1
        del self.tail[:count]

    def abandon(self) -> None:
        """Handle the deletion: the files are deleted when the journal has it on disk."""
        log = self.vhost.log
        if not log.is_replaying:  # there only what is left at the end counts
            for group in self.tail:
                log.stored(group.id, group.count)
        self.tail.clear()
        self._count(-self.tail_octets)
        log.dead_streams.append((log.batch, int(self.number)))
        log.has_stream_work = True

    # -- reading -------------------------------------------------------------------------------------------------------

    def begin(self, spec: OffsetSpec) -> i64:
        """Return the offset where a consumer begins; for a time, one at or before the first message of that time."""
        if spec.kind == FIRST:
            return self.first
        if spec.kind == LAST:
            return max(self.first, self.committed - 1)
        if spec.kind == NEXT:
            return self.next_offset
        if spec.kind == OFFSET:
            return max(self.first, spec.value)
        if not self.tail or self.tail[0].time_us >= spec.value:
            return self.history.since(int(spec.value))
        low: i64 = 0
        high: i64 = len(self.tail)
        while low < high:
            middle = (low + high) // 2
            if self.tail[middle].time_us < spec.value:
                low = middle + 1
            else:
                high = middle
        return self.tail[low].offset if low < len(self.tail) else self.next_offset

    @property
    def first(self) -> i64:
        """The offset of the oldest message; next_offset if the stream is empty."""
        if self.history.end > self.history.first:
            return self.history.first
        return self.tail[0].offset if self.tail else self.next_offset

    def tail_from(self, offset: i64) -> list[ChunkGroup]:
        """Return groups of the tail from the one with this offset on."""
        low: i64 = 0
        high: i64 = len(self.tail)
        while low < high:
            middle = (low + high) // 2
            if self.tail[middle].end <= offset:
                low = middle + 1
            else:
                high = middle
        return self.tail[low : low + _LOOK_MAX]

    def serve(self, now_us: i64) -> None:
        served: set[str] = set()
        for consumer in self.consumers.all():
            reader = consumer.reader
            if reader is None:
                continue
            named = reader.named
            if named is not None and named.is_single:
                if named.name in served:
                    continue  # those that came before it are served
                served.add(named.name)
                if not named.is_active:
                    named.take_over()
            reader.serve(now_us)

    def count(self) -> i64:
        return self.next_offset - self.first

    def outstanding(self) -> i64:
        """None: what consumers have is there all the same, and counted as such. So it is in RabbitMQ."""
        return 0

    def body_octets(self) -> i64:
        """Return the size of all messages, including frames."""
        return self.history.octets + self.tail_octets

    def next_reader(self) -> i64:
        """Return a number for a new named reader."""
        self._readers += 1
        return self._readers

    # -- the journal ---------------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Value]:
        marks: dict[str, Value] = {"offsets": self.offsets.table(), "sequences": self.sequences.table()}
        return super().record() | {"creation": self.creation, "next_offset": int(self.next_offset)} | marks

    def encoded(self) -> bytes:
        return meta_record(self.record())  # not cached: it changes all the time

    def mark(self) -> None:
        """Have the current batch record the changed offsets or sequences when it is closed."""
        log = self.vhost.log
        log.events += 1
        if not self.is_marked:
            self.is_marked = True
            log.marked.append(self)

    def marks(self) -> dict[str, Value]:
        """Return the journal's record of the changes since the last one."""
        self.is_marked = False
        changes: dict[str, Value] = {"offsets": self.offsets.changes(), "sequences": self.sequences.changes()}
        return {"op": MARKS, "vhost": self.vhost.name, "name": self.name} | changes

    def restore_marks(self, record: dict[str, Value]) -> None:
        """Apply a record of `marks`."""
        self.offsets.restore(record["offsets"])
        self.sequences.restore(record["sequences"])

    def restore(self, record: dict[str, Value]) -> None:
        """Apply its record from the beginning of a journal file."""
        next_offset = record.get("next_offset", 0)
        assert isinstance(next_offset, int)
        self.creation = str(record.get("creation", self.creation))
        self.next_offset = max(self.next_offset, next_offset)
        self.offsets.reset(record.get("offsets"))
        self.sequences.reset(record.get("sequences"))

    def replay(self, buffer: BatchBuffer, id: i64, time_us: i64) -> None:
        """Restore messages from the journal, in its order; those in files are skipped."""
        offset = self.next_offset
        self.next_offset += buffer.count
        self._last_us = max(self._last_us, time_us)
        if self.next_offset > self.history.end:
            gone = max(0, self.history.end - offset)
            count = buffer.count - gone
            data = buffer.contents_from(gone)
            group = ChunkGroup(offset + gone, time_us, buffer.key, data, buffer.size, count, id + gone)
            self.tail.append(group)
            self._count(group.octets())

    def recovered(self) -> i64:
        """Handle the end of recovery; return how many messages are missing between files and journal."""
        self.next_offset = max(self.next_offset, self.history.end)
        self.committed = self.next_offset
        if self.tail_octets >= TAIL_OCTETS:
            self.lengthened()
        return (self.tail[0].offset if self.tail else self.next_offset) - self.history.end
