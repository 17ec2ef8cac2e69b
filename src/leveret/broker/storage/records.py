"""The journal's records, decoded for recovery and `leveret store dump`. log.py writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from leveret.broker.messages.message_batch import BatchBuffer
from leveret.broker.storage.log import (
    CLEAN,
    DELIVERED,
    DROP,
    FORGOTTEN,
    HOP,
    LIFE,
    MESSAGES,
    META,
    MOVED,
    PAGE,
    PAGE_HEAD,
    POSITION,
    PUBLISHED,
    PUBLISHER,
    RETURNED,
    SETTLE,
    START,
)
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import FRAME_HEADER, FRAME_OVERHEAD
from leveret.wire.table import Value, decode_table

_MESSAGES_HEAD = struct.Struct(">qIIIH")
_PAIR = struct.Struct(">qq")
_PASSED = struct.Struct(">qqI")
_MOVED = struct.Struct(">6q")
_HEAD = struct.Struct(">BI")
_POSITION = struct.Struct(">Bqq")

# messages in a DELIVERED record, which a stop writes for consecutive ids; more of them were never in memory
DELIVERED_MAX = 1 << 24


class RecordError(Exception):
    """A sound batch contains a record that this leveret can't read, from a newer one or from no broker at all."""


class JournalRecord:
    """One record; kinds CLEAN and START have no other fields."""

    def __init__(self, kind: int) -> None:
        self.kind = kind


class Arrived(JournalRecord):
    """MESSAGES or HOP: messages that differ in their bodies only arrive in durable queues."""

    def __init__(
        self, first_id: int, buffer: BatchBuffer, queues: list[tuple[int, int]], left: tuple[int, int] | None
    ) -> None:
        self.kind = MESSAGES if left is None else HOP
        self.first_id = first_id  # of the first message; the others follow without gaps
        self.buffer = buffer  # key: exchange and routing key as short strings; contents: header frame and body frames
        self.queues = queues  # (queue number, expires_us) of each queue, which gets all the messages
        self.left = left  # of a HOP, queue number and id of the message that became this one

    @property
    def contents(self) -> list[bytes]:
        """The content of each message, in order."""
        buffer = self.buffer
        starts = range(0, int(buffer.count * buffer.stride), int(buffer.stride))
        return [buffer.data[at : at + buffer.size] for at in starts]


class Moved(JournalRecord):
    """MOVED: an expired message goes to another queue, with a new id."""

    def __init__(self, left: tuple[int, int], arrived: tuple[int, int, int, int], change: bytes) -> None:
        self.kind = MOVED
        self.left = left  # its queue number and id before
        self.id, self.queue, self.expires_us, self.died_us = arrived  # those afterwards, and when it expired
        self.change = change  # of its key, see expiry_route.moved_key


class Passed(JournalRecord):
    """SETTLE, DELIVERED: what happened to `count` messages of the queue numbered `queue`, from `id` on.

    DROP: the page that begins with this id was dropped. RETURNED: one message was requeued `count` times.
    """

    def __init__(self, kind: int, queue: int, id: int, count: int) -> None:
        self.kind = kind
        self.queue = queue
        self.id = id
        self.count = count


class Paged(JournalRecord):
    """PAGE: messages of a queue are in a segment now."""

    def __init__(self, fields: tuple[int, ...], settled: tuple[int, ...]) -> None:
        self.kind = PAGE
        self.queue, self.segment, self.offset, self.size = fields[:4]
        self.first_id, self.last_id, self.expires_us, self.live, redelivered = fields[4:]
        self.is_redelivered = bool(redelivered)
        self.settled = settled  # ids in its range that are not alive


class Declared(JournalRecord):
    """META, PUBLISHER: a declaration, a binding or a deletion: "op" and its fields, decoded and (`table`) encoded."""

    def __init__(self, kind: int, fields: dict[str, Value], table: bytes) -> None:
        self.kind = kind
        self.fields = fields
        self.table = table


class Began(JournalRecord):
    """LIFE: an epoch of the broker began, named by 64 random bits; `first_id` is the id of its first message."""

    def __init__(self, first_id: int, name: int) -> None:
        self.kind = LIFE
        self.first_id = first_id
        self.name = name


class Stood(JournalRecord):
    """POSITION: how far the link with this key had got. what: REACHED, REFUSED, TAKEN or FORGOTTEN, see log.py."""

    def __init__(self, what: int, epoch: int, id: int, key: str) -> None:
        self.kind = POSITION
        self.what = what
        self.epoch = epoch
        self.id = id
        self.key = key


class PublishedIds(JournalRecord):
    """PUBLISHED: a publisher reference has reached this id; bit k of `refused` is set if id - k was refused."""

    def __init__(self, number: int, id: int, refused: int) -> None:
        self.kind = PUBLISHED
        self.number = number
        self.id = id
        self.refused = refused


def records(batch: bytes) -> Iterator[JournalRecord]:
    """Yield the records of one batch in order. Raises RecordError if one is unknown or malformed."""
    at = 0
    while at < len(batch):
        start = at + _HEAD.size
        kind, size = _HEAD.unpack_from(batch, at) if start <= len(batch) else (batch[at], len(batch))
        at = start + size
        if at > len(batch):
            raise RecordError(f"a record of kind {kind} is longer than its batch")
        try:
            yield _record(batch, kind, start, at)
        except (struct.error, ValueError, IndexError, ProtocolError) as error:
            raise RecordError(f"a record of kind {kind} is malformed: {error}") from error


def _record(batch: bytes, kind: int, start: int, stop: int) -> JournalRecord:
    if kind == MESSAGES:
        return _arrived(batch, start, stop, None)
    if kind == HOP:
        number, id = _PAIR.unpack_from(batch, start)
        return _arrived(batch, start + _PAIR.size, stop, (number, id))
    if kind == MOVED:
        number, id, *arrived = _MOVED.unpack_from(batch, start)
        change = batch[start + _MOVED.size : stop]
        ends = {1 + change[0], 2 + change[0] + change[1 + change[0]] if len(change) > 1 + change[0] else 0}
        if len(change) not in ends:
            raise ValueError("it does not end with short strings")
        return Moved((number, id), (arrived[0], arrived[1], arrived[2], arrived[3]), change)
    if kind == PAGE:
        ids = start + PAGE_HEAD.size
        fields = PAGE_HEAD.unpack_from(batch, start)
        if fields[5] < fields[4] or not 0 <= fields[7] <= fields[3]:
            raise ValueError("it contains more messages than octets")
        return Paged(fields, struct.unpack(f">{(stop - ids) // 8}q", batch[ids:stop]))
    if kind in (SETTLE, DELIVERED, RETURNED):
        number, id, count = _PASSED.unpack_from(batch, start)
        if kind == DELIVERED and count > DELIVERED_MAX:
            raise ValueError(f"{count} messages in one delivery")
        return Passed(kind, number, id, count)
    if kind == DROP:
        number, id = _PAIR.unpack_from(batch, start)
        return Passed(kind, number, id, 1)
    if kind in (META, PUBLISHER):
        return Declared(kind, decode_table(batch, start)[0], batch[start:stop])
    if kind == LIFE:
        return Began(*_PAIR.unpack_from(batch, start))
    if kind == POSITION:
        what, epoch, id = _POSITION.unpack_from(batch, start)
        if what > FORGOTTEN:
            raise ValueError(f"{what} is not a kind of position")
        return Stood(what, epoch, id, batch[start + _POSITION.size : stop].decode("utf-8", "surrogateescape"))
    if kind == PUBLISHED:
        number, id = _PAIR.unpack_from(batch, start)
        return PublishedIds(number, id, int.from_bytes(batch[start + _PAIR.size : stop], "big"))
    if kind in (CLEAN, START):
        return JournalRecord(kind)
    raise RecordError(
        f"found a record of kind {kind}, which this version of leveret does not know: a newer version wrote it"
    )


def _arrived(batch: bytes, start: int, stop: int, left: tuple[int, int] | None) -> Arrived:
    first_id, count, stride, size, key_size = _MESSAGES_HEAD.unpack_from(batch, start)
    start += _MESSAGES_HEAD.size
    key = batch[start : start + key_size]
    start += key_size
    number_of_queues: int = struct.unpack_from(">H", batch, start)[0]
    start += 2
    first = start + _PAIR.size * number_of_queues
    queues = [_PAIR.unpack_from(batch, at) for at in range(start, first, _PAIR.size)]
    is_sized = count > 0 and stop - first == (count - 1) * stride + size and stride >= size
    # each content begins with the frame of its header
    if not is_sized or size < FRAME_OVERHEAD + 14 or batch[first] != FRAME_HEADER or key_size < 2:
        raise RecordError(f"a record of {count} messages holds {stop - first} octets")
    return Arrived(first_id, BatchBuffer(batch[first:stop], stride, size, count, key), queues, left)
