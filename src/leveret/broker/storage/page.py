"""A page: messages of one message list, in order, that were moved from memory to a segment on disk.

A journalled message whose page is recorded in the journal lives in the page and no longer in its journal file, so the
file can be reused. Other messages are in a page to save memory only, and are lost at a restart as they always are.

The bytes of a page are entries back to back, each one message, or several that differ in their bodies only:

    flags u8 (1: delivered before, 2: has a delivery count) | id i64 (0: not journalled) | count u32 | size u32 |
    expires_us i64 | length of key u16 | key | delivery count u32, if it has one | `count` contents of `size` octets,
    with ids that follow without a gap
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import BatchBuffer, MessageBatch
from leveret.broker.messages.returned import Returned, published_content
from leveret.broker.queues.limits import body_octets
from leveret.broker.storage.pieces import REFERRED_OCTETS_MIN, Pieces
from leveret.session.output import part

if TYPE_CHECKING:
    from leveret.broker.queues.message_list import MessageList

_HEAD_OCTETS: Final[i64] = 27
# Larger pages are read in pieces on another thread if the caller can wait; see `cut`.
LARGE_PAGE_OCTETS: Final[i64] = 4 << 20
# octets at the beginning of a page that `cut` needs
CUT_OCTETS: Final = 27


class Page:
    """A page, and which of its messages are alive."""

    def __init__(self, message_list: MessageList, items: list[Entry | MessageBatch], start: i64, stop: i64) -> None:
        self.message_list = message_list
        self.items = items  # the items that it is made from, until it is stored
        self.start = start  # indices of its items in Ready, to `stop`; both 0 = requeued or unacknowledged messages
        self.stop = stop
        self.segment: i64 = 0  # segment, offset and size: where its bytes are, once is_stored
        self.offset: i64 = 0
        self.size: i64 = 0
        # to last_id: ids of its journalled messages (0, -1 = none), between which no other live message of its list is
        self.first_id: i64 = 0
        self.last_id: i64 = -1
        self.live: i64 = 0  # journalled messages that are not settled
        self.count: i64 = 0  # messages that it stands for
        self.position: i64 = 0  # of the first message
        self.expires_us: i64 = 0  # the earliest of all: which message is first after a restart is not known yet
        self.settled: set[int] = set()  # ids of settled messages
        self.delivered: set[int] = set()
        self.withdrawn: set[int] = set()  # removed items that are not journalled, by their order
        self.returned: dict[int, int] = {}  # delivery counts that are newer than those in its bytes
        self.is_stored = False
        self.is_waiting = False  # it stands in its message list in place of its messages
        self.is_dead = False
        self.is_coming = False  # it is being read on another thread
        self.fetched: list[bytes] = []  # what was read there
        # recovered after an unclean stop: any of them may have been delivered
        self.is_redelivered = False
        # its messages that are not journalled did not survive
        self.is_recovered = False
        for item in items:
            self._add(item)

    def _add(self, item: Entry | MessageBatch) -> None:
        count: i64 = 1
        id = item.id
        position = item.position
        if isinstance(item, MessageBatch):
            count = item.buffer.count - item.taken
            id += item.taken if id != 0 else 0
            position += item.taken
        if self.count == 0:
            self.position = position
        self.count += count
        if item.expires_us != 0 and (self.expires_us == 0 or item.expires_us < self.expires_us):
            self.expires_us = item.expires_us
        if id != 0:
            if self.live == 0:
                self.first_id = id
            self.last_id = id + count - 1
            self.live += count

    def encode(self) -> list[bytes]:
        """Return the page's bytes, in pieces, from its items."""
        pieces = Pieces()
        out = pieces.writer
        for item in self.items:
            if isinstance(item, MessageBatch):
                _encode_batch(pieces, item)
            else:
                flags = 1 if item.redelivered else 0
                returns: i64 = 0
                if isinstance(item, Returned):
                    returns = item.returns
                    flags = 3
                content = published_content(item)
                size: i64 = len(content)
                _encode_head(out, flags, item.id, 1, size, item.expires_us, item.key)
                if returns != 0:
                    write_i32_be(out, i32(returns))
                pieces.add(content)
        return pieces.take()

    def load(self, data: bytes) -> list[Entry | MessageBatch]:
        """Return the live messages from the page's bytes. Raises ValueError if these are no page."""
        return self.load_pieces([data])

    def load_pieces(self, pieces: list[bytes]) -> list[Entry | MessageBatch]:
        """Return the live messages from the page's bytes in pieces, as divided by `cut`."""
        try:
            return self._load(pieces)
        except IndexError:
            raise ValueError("a page ends inside a message") from None

    def _load(self, pieces: list[bytes]) -> list[Entry | MessageBatch]:
        items: list[Entry | MessageBatch] = []
        position = self.position
        transient = -1
        data = pieces[0]
        last: i64 = len(pieces) - 1
        index: i64 = 0
        at: i64 = 0
        end: i64 = len(data)
        while at < end or index < last:
            if at == end:
                index += 1
                data = pieces[index]
                at = 0
                end = len(data)
            flags = data[at]
            redelivered = self.is_redelivered or flags & 1 != 0
            id = read_i64_be(data, at + 1)
            count: i64 = i64(read_i32_be(data, at + 9))
            size: i64 = i64(read_i32_be(data, at + 13))
            expires_us = read_i64_be(data, at + 17)
            start = at + _HEAD_OCTETS
            body = start + (i64(read_i16_be(data, at + 25)) & 0xFFFF)
            key = data[start:body]
            returns: i64 = 0
            if flags & 2:
                returns = i64(read_i32_be(data, body))
                body += 4
            if count < 1 or size < 1:
                raise ValueError("a page contains messages without a size")
            if body == end:
                index += 1
                data = pieces[index]
                body = 0
                end = len(data)
            at = body + count * size
            if at > end:
                raise ValueError("a page ends inside a message")
            if id == 0:
                transient += 1
                if self.is_recovered or transient in self.withdrawn:
                    continue
            if count > 1 and (id == 0 or not self._differ(id, count)):
                run = MessageBatch(
                    self.message_list, BatchBuffer(data[body:at], size, size, count, key), id, expires_us, position
                )
                run.redelivered = redelivered
                items.append(run)
                position += count
                continue
            while body < at:
                if id == 0 or int(id) not in self.settled:
                    entry = Entry(self.message_list, part(data, body, body + size), key, id, expires_us, position)
                    entry.redelivered = redelivered or int(id) in self.delivered
                    times: i64 = self.returned.get(int(id), int(returns))
                    items.append(entry if times == 0 else Returned(entry, entry.content, times))
                    position += 1
                body += size
                id += 1 if id != 0 else 0
        return items

    def body_octets(self, data: bytes) -> i64:
        """Return the size of the live messages' bodies, from the page's bytes."""
        octets: i64 = 0
        for item in self.load(data):
            if isinstance(item, MessageBatch):
                octets += item.buffer.count * body_octets(item.buffer.data)
            else:
                octets += body_octets(item.content)
        return octets

    def _differ(self, first: i64, count: i64) -> bool:
        """Whether some of these ids are settled, were delivered before or have a delivery count."""
        if self.returned and not self.returned.keys().isdisjoint(range(int(first), int(first + count))):
            return True
        return self.settled_in(first, count) > 0 or _among(self.delivered, first, count) > 0

    def settled_in(self, first: i64, count: i64) -> i64:
        """Return how many of these ids are settled."""
        return _among(self.settled, first, count)

    def has(self, id: i64) -> bool:
        """Whether this journalled message is in the page, and alive."""
        return self.first_id <= id <= self.last_id and int(id) not in self.settled

    def withdraw(self, transients: list[int]) -> None:
        """Remove items that are not journalled, given as indices among those that load() still finds."""
        index = found = -1
        last = transients[-1] if transients else -1
        while found < last:
            index += 1
            if index not in self.withdrawn:
                found += 1
                if found in transients:
                    self.withdrawn.add(index)

    def settle(self, id: i64) -> None:
        """Remove a message that left its queue."""
        self.settled.add(int(id))
        self.live -= 1


def cut(start: bytes) -> list[int]:
    """Return where to divide a page that begins so, if its first content is large enough to be a piece of its own."""
    if len(start) < _HEAD_OCTETS or i64(read_i32_be(start, 9)) != 1:
        return []
    size: i64 = i64(read_i32_be(start, 13))
    if size < REFERRED_OCTETS_MIN:
        return []
    body = _HEAD_OCTETS + (i64(read_i16_be(start, 25)) & 0xFFFF)
    if start[0] & 2:
        body += 4
    return [int(body), int(body + size)]


def _among(ids: set[int], first: i64, count: i64) -> i64:
    found: i64 = 0
    if ids:
        id = first
        while id < first + count:
            if int(id) in ids:
                found += 1
            id += 1
    return found


def _encode_batch(pieces: Pieces, run: MessageBatch) -> None:
    buffer = run.buffer
    taken = run.taken
    id = run.id + taken if run.id != 0 else 0
    flags = 1 if run.redelivered else 0
    _encode_head(pieces.writer, flags, id, buffer.count - taken, buffer.size, run.expires_us, buffer.key)
    pieces.add(buffer.contents_from(taken))


def _encode_head(out: BytesWriter, flags: int, id: i64, count: i64, size: i64, expires_us: i64, key: bytes) -> None:
    out.append(flags)
    write_i64_be(out, id)
    write_i32_be(out, i32(count))
    write_i32_be(out, i32(size))
    write_i64_be(out, expires_us)
    write_i16_be(out, i16(i64(len(key))))
    out.write(key)
