"""A stream: a queue from which nothing is taken. Every message has an offset, and stays until retention removes it.

Messages come through the journal as those of any durable queue, and are confirmed when its batch is on disk. From then
on they are committed: only then may consumers see them, so an offset never has two meanings. The tail stands in memory
and in the journal, until its owner (net/disk/streams.py) has written it to the stream's files, in chunks; then the
journal lets go of it.

The journal does not say offsets: they follow from the order of its records. It says `next_offset` at the beginning of
each of its files, and the time of arrival where other queues have the end of a message's life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.messages.run import Stretch
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.log import meta_record
from leveret.broker.streams.chunk import Group
from leveret.broker.streams.history import History
from leveret.broker.streams.leases import Leases
from leveret.broker.streams.limits import stream_limits
from leveret.broker.streams.marks import Marks
from leveret.broker.streams.offsets import FIRST, LAST, NEXT, OFFSET, OffsetSpec
from leveret.wire.table import Value

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

MARKS: Final = "stream.marks"
# a tail of this length goes to the files
TAIL_OCTETS: Final[i64] = 1 << 20
# of one chunk: what a reader has in memory
CHUNK_OCTETS: Final[i64] = 128 << 10
# groups that a reader gets of the tail at a time
_LOOK_MAX: Final[i64] = 1024


class StreamIntake(MessageList):
    """Where the routes' messages arrive; nothing stands on it."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, 0)
        self._stream = stream

    def enqueue(
        self, content: bytes, key: bytes, id: i64, expires_us: i64, redelivered: bool = False, returns: i64 = 0
    ) -> None:
        self._stream.append(content, key, len(content), 1, id, expires_us)

    def enqueue_stretch(self, stretch: Stretch, id: i64, expires_us: i64, redelivered: bool = False) -> None:
        data = stretch.contents_from(0)
        self._stream.append(data, stretch.key, stretch.size, stretch.count, id, expires_us)


class Stream(Queue):
    """creation: 16 hex digits, drawn when it was declared: another stream of this name has others. next_offset: that of
    the message that comes next; committed: those below are on disk. history: what is in files; tail: all behind it.

    kept: how much of its past is kept, and in files of which size; leases: what must stay nevertheless, for a while.

    offsets: of named consumers (naming.py), sequences: of publishers (numbers.py).
    """

    def __init__(self, vhost: VHost, name: str, durable: bool, auto_delete: bool, arguments: dict[str, Value]) -> None:
        super().__init__(vhost, name, durable, auto_delete, arguments)
        self.is_stream = True
        self.keeps_all = True
        self.message_list = StreamIntake(self)
        self.message_lists = [self.message_list]
        self.creation = vhost.random_bytes(8).hex()
        self.next_offset: i64 = 0
        self.committed: i64 = 0
        self.history = History()
        self.tail: list[Group] = []
        self.tail_octets: i64 = 0
        self.kept = stream_limits(arguments)
        self.leases = Leases(vhost.log, vhost.name, name, vhost.random_bytes)
        self.is_appended = False  # the log will tell when what arrived is on disk
        self.is_long = False  # its tail waits to be written to the files
        self.offsets = Marks()
        self.sequences = Marks()
        self.is_marked = False  # the journal has to hear of some of these
        self._readers: i64 = 0  # so many there have been
        self._closing: i64 = 0
        self._last_us: i64 = 0

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def expiry(self, now_us: i64, message_ttl_us: i64) -> i64:
        """Messages do not expire here: what the journal has in this place is when they arrived, by the wall clock."""
        self._last_us = max(self._last_us, self.vhost.timeline.wall_us(now_us))
        return self._last_us

    def append(self, data: bytes, key: bytes, size: i64, count: i64, id: i64, time_us: i64) -> None:
        """Take messages that are alike up to their bodies; the journal has them, with these ids."""
        group = Group(self.next_offset, time_us, key, data, size, count, id)
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
        """The tail is so long that it should go to the files."""
        if not self.is_long:
            self.is_long = True
            self.vhost.log.long_streams.append(self)
            self.vhost.log.has_stream_work = True

    def _count(self, octets: i64) -> None:
        self.tail_octets += octets
        self.vhost.log.tail_octets += octets

    def close_batch(self) -> None:
        """What has arrived is in the batch that goes to the disk now."""
        self.is_appended = False
        self._closing = self.next_offset

    def synced(self) -> None:
        """That batch is on disk."""
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

    def chunks(self, octets_max: i64) -> list[list[Group]]:
        """The oldest committed part of the tail, about so much, chunk by chunk; what the journal lost is in none."""
        found: list[list[Group]] = []
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
        """The files have more now, as the history says: the journal need not keep it."""
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
        """It is deleted: so are its files, when the disk knows."""
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
        """The offset where a consumer begins; for a time it is one at or before the first message of that time."""
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
        """The offset of the oldest message that is kept; next_offset if there is none."""
        if self.history.end > self.history.first:
            return self.history.first
        return self.tail[0].offset if self.tail else self.next_offset

    def tail_from(self, offset: i64) -> list[Group]:
        """Groups of the tail from the one with this offset on."""
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
        """Size of all that is kept, frames included."""
        return self.history.octets + self.tail_octets

    def next_reader(self) -> i64:
        """The number of a new one."""
        self._readers += 1
        return self._readers

    # -- the journal ---------------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Value]:
        marks: dict[str, Value] = {"offsets": self.offsets.table(), "sequences": self.sequences.table()}
        return super().record() | {"creation": self.creation, "next_offset": int(self.next_offset)} | marks

    def encoded(self) -> bytes:
        return meta_record(self.record())  # it changes all the time

    def mark(self) -> None:
        """An offset or a sequence has changed: the batch under construction will say so when it is closed."""
        log = self.vhost.log
        log.events += 1
        if not self.is_marked:
            self.is_marked = True
            log.marked.append(self)

    def marks(self) -> dict[str, Value]:
        """The journal's record of what has changed since the last one."""
        self.is_marked = False
        changes: dict[str, Value] = {"offsets": self.offsets.changes(), "sequences": self.sequences.changes()}
        return {"op": MARKS, "vhost": self.vhost.name, "name": self.name} | changes

    def restore_marks(self, record: dict[str, Value]) -> None:
        """What such a record says."""
        self.offsets.restore(record["offsets"])
        self.sequences.restore(record["sequences"])

    def restore(self, record: dict[str, Value]) -> None:
        """What the journal says where a file of it begins."""
        next_offset = record.get("next_offset", 0)
        assert isinstance(next_offset, int)
        self.creation = str(record.get("creation", self.creation))
        self.next_offset = max(self.next_offset, next_offset)
        self.offsets.reset(record.get("offsets"))
        self.sequences.reset(record.get("sequences"))

    def replay(self, stretch: Stretch, id: i64, time_us: i64) -> None:
        """Messages of the journal, in its order; those that are in files are known already."""
        offset = self.next_offset
        self.next_offset += stretch.count
        self._last_us = max(self._last_us, time_us)
        if self.next_offset > self.history.end:
            gone = max(0, self.history.end - offset)
            count = stretch.count - gone
            data = stretch.contents_from(gone)
            group = Group(offset + gone, time_us, stretch.key, data, stretch.size, count, id + gone)
            self.tail.append(group)
            self._count(group.octets())

    def recovered(self) -> i64:
        """The journal has been read; returns how many messages are missing between files and journal."""
        self.next_offset = max(self.next_offset, self.history.end)
        self.committed = self.next_offset
        if self.tail_octets >= TAIL_OCTETS:
            self.lengthened()
        return (self.tail[0].offset if self.tail else self.next_offset) - self.history.end
