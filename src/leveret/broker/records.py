"""The journal's records, read back: recovery and `leveret store dump` both stand on this. log.py writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from leveret.broker.log import (
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
    RETURNED,
    SETTLE,
    START,
)
from leveret.broker.run import Stretch
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import FRAME_HEADER, FRAME_OVERHEAD
from leveret.wire.table import Value, decode_table

_MESSAGES_HEAD = struct.Struct(">qIIIH")
_PAIR = struct.Struct(">qq")
_PASSED = struct.Struct(">qqI")
_MOVED = struct.Struct(">6q")
_HEAD = struct.Struct(">BI")
_POSITION = struct.Struct(">Bqq")

# a record that a stop writes of messages with consecutive ids; more of them were never in memory
DELIVERED_MAX = 1 << 24


class RecordError(Exception):
    """A sound batch holds what this leveret can't read: a newer one wrote it, or something that is no broker."""


class Record:
    """One record; of kind CLEAN or START there is nothing more to say."""

    def __init__(self, kind: int) -> None:
        self.kind = kind


class Arrived(Record):
    """MESSAGES or HOP: alike messages, numbered from `first_id`, in durable queues.

    stretch: their key (exchange and routing key as short strings) and contents (header frame and body frames); queues:
    (queue number, expires_us) of each queue that got them all; left: of a HOP, the queue number and the id of the
    message that became this one.
    """

    def __init__(
        self, first_id: int, stretch: Stretch, queues: list[tuple[int, int]], left: tuple[int, int] | None
    ) -> None:
        self.kind = MESSAGES if left is None else HOP
        self.first_id = first_id
        self.stretch = stretch
        self.queues = queues
        self.left = left

    @property
    def contents(self) -> list[bytes]:
        """Of each message, in order."""
        stretch = self.stretch
        starts = range(0, int(stretch.count * stretch.stride), int(stretch.stride))
        return [stretch.data[at : at + stretch.size] for at in starts]


class Moved(Record):
    """MOVED: the message `left` (queue number and id) has expired; it is `id` in queue number `queue` from then on.

    died_us: when it expired, as its history tells it; change: of its key, see expiry_route.moved_key.
    """

    def __init__(self, left: tuple[int, int], arrived: tuple[int, int, int, int], change: bytes) -> None:
        self.kind = MOVED
        self.left = left
        self.id, self.queue, self.expires_us, self.died_us = arrived
        self.change = change


class Passed(Record):
    """SETTLE, DELIVERED: what happened to `count` messages from `id` on of the queue numbered `queue`.

    DROP: what happened to the page that begins with this id. RETURNED: one message came back `count` times.
    """

    def __init__(self, kind: int, queue: int, id: int, count: int) -> None:
        self.kind = kind
        self.queue = queue
        self.id = id
        self.count = count


class Paged(Record):
    """PAGE: messages of a queue are in a segment now. settled: ids in the range that are not alive."""

    def __init__(self, fields: tuple[int, ...], settled: tuple[int, ...]) -> None:
        self.kind = PAGE
        self.queue, self.segment, self.offset, self.size = fields[:4]
        self.first_id, self.last_id, self.expires_us, self.live, redelivered = fields[4:]
        self.is_redelivered = bool(redelivered)
        self.settled = settled


class Declared(Record):
    """META: a declaration, a binding or a deletion, with "op" and its fields; table: the same, encoded."""

    def __init__(self, fields: dict[str, Value], table: bytes) -> None:
        self.kind = META
        self.fields = fields
        self.table = table


class Began(Record):
    """LIFE: an epoch of the broker began; its first message has this id. name: of the epoch, 64 random bits."""

    def __init__(self, first_id: int, name: int) -> None:
        self.kind = LIFE
        self.first_id = first_id
        self.name = name


class Stood(Record):
    """POSITION: how far the link with this key had got. what: REACHED, REFUSED, TAKEN or FORGOTTEN, see log.py."""

    def __init__(self, what: int, epoch: int, id: int, key: str) -> None:
        self.kind = POSITION
        self.what = what
        self.epoch = epoch
        self.id = id
        self.key = key


def records(batch: bytes) -> Iterator[Record]:
    """The records of one batch, in order. RecordError for one that is unknown or malformed."""
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


def _record(batch: bytes, kind: int, start: int, stop: int) -> Record:
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
    if kind == META:
        return Declared(decode_table(batch, start)[0], batch[start:stop])
    if kind == LIFE:
        return Began(*_PAIR.unpack_from(batch, start))
    if kind == POSITION:
        what, epoch, id = _POSITION.unpack_from(batch, start)
        if what > FORGOTTEN:
            raise ValueError(f"{what} is not a kind of position")
        return Stood(what, epoch, id, batch[start + _POSITION.size : stop].decode("utf-8", "surrogateescape"))
    if kind in (CLEAN, START):
        return Record(kind)
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
    # each begins with the frame of its content header
    if not is_sized or size < FRAME_OVERHEAD + 14 or batch[first] != FRAME_HEADER or key_size < 2:
        raise RecordError(f"a record of {count} messages holds {stop - first} octets")
    return Arrived(first_id, Stretch(batch[first:stop], stride, size, count, key), queues, left)
