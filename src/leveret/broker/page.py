"""A page: messages of one message list, in order, that were moved from memory to a segment on disk.

A journalled message whose page is recorded in the journal epochs there and no longer in its journal file, so the file
can be reused. Others are in a page for memory's sake only, and gone after a restart as they always are.

The bytes of a page are entries back to back, each one message or several alike ones:

    flags u8 (1: delivered before, 2: came back) | id i64 (0: not journalled) | count u32 | size u32 | expires_us i64 |
    length of key u16 | key | how often it came back u32, if it did | `count` contents of `size` octets, with ids that
    follow without a gap
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

from leveret.broker.entry import Entry
from leveret.broker.limits import body_octets
from leveret.broker.pieces import REFERRED_OCTETS_MIN, Pieces
from leveret.broker.returned import Returned, published_content
from leveret.broker.run import Run, Stretch
from leveret.session.output import part

if TYPE_CHECKING:
    from leveret.broker.message_list import MessageList

_HEAD_OCTETS: Final[i64] = 27
# Larger pages are read in pieces on another thread if the caller can wait; see `cut`.
LARGE_PAGE_OCTETS: Final[i64] = 4 << 20
# the octets of a page that `cut` needs
CUT_OCTETS: Final = 27


class Page:
    """One page and what is still alive of it.

    segment, offset, size: where its bytes are, once `is_stored`. first_id, last_id: of its journalled messages (0, -1:
    it has none); no other message of the message list that lives has an id between them. live: journalled messages
    that are not settled; settled: the ids of the others. is_waiting: it stands in its message list in place of its
    messages, of which there are `count`, the first at `position`. start, stop: the items that it is made from, as
    indices of Ready. is_coming: it is being read on another thread; fetched: what came of that.
    """

    def __init__(self, message_list: MessageList, items: list[Entry | Run], start: i64, stop: i64) -> None:
        self.message_list = message_list
        self.items = items
        self.start = start
        self.stop = stop
        self.segment: i64 = 0
        self.offset: i64 = 0
        self.size: i64 = 0
        self.first_id: i64 = 0
        self.last_id: i64 = -1
        self.live: i64 = 0
        self.count: i64 = 0
        self.position: i64 = 0
        self.expires_us: i64 = 0  # the earliest of all: who is first after a restart cannot be told yet
        self.settled: set[int] = set()
        self.delivered: set[int] = set()
        self.withdrawn: set[int] = set()  # which of the items that are not journalled are gone, by their order
        self.returned: dict[int, int] = {}  # came back after they were written here: how often
        self.is_stored = False
        self.is_waiting = False
        self.is_dead = False
        self.is_coming = False
        self.fetched: list[bytes] = []
        # recovered after an unclean stop: any of them may have been delivered
        self.is_redelivered = False
        # what is not journalled in it did not survive
        self.is_recovered = False
        for item in items:
            self._add(item)

    def _add(self, item: Entry | Run) -> None:
        count: i64 = 1
        id = item.id
        position = item.position
        if isinstance(item, Run):
            count = item.stretch.count - item.taken
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
        """The page's bytes, in pieces, from its items."""
        pieces = Pieces()
        out = pieces.writer
        for item in self.items:
            if isinstance(item, Run):
                _encode_run(pieces, item)
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

    def load(self, data: bytes) -> list[Entry | Run]:
        """The messages that are alive, from the page's bytes. ValueError if these are no page."""
        return self.load_pieces([data])

    def load_pieces(self, pieces: list[bytes]) -> list[Entry | Run]:
        """The same from the page's bytes as `cut` has them cut."""
        try:
            return self._load(pieces)
        except IndexError:
            raise ValueError("a page ends inside a message") from None

    def _load(self, pieces: list[bytes]) -> list[Entry | Run]:
        items: list[Entry | Run] = []
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
                run = Run(self.message_list, Stretch(data[body:at], size, size, count, key), id, expires_us, position)
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
        """Size of the bodies of the messages that are alive, from the page's bytes."""
        octets: i64 = 0
        for item in self.load(data):
            if isinstance(item, Run):
                octets += item.stretch.count * body_octets(item.stretch.data)
            else:
                octets += body_octets(item.content)
        return octets

    def _differ(self, first: i64, count: i64) -> bool:
        """Whether some of these ids are settled, were delivered before or came back."""
        if self.returned and not self.returned.keys().isdisjoint(range(int(first), int(first + count))):
            return True
        return self.settled_in(first, count) > 0 or _among(self.delivered, first, count) > 0

    def settled_in(self, first: i64, count: i64) -> i64:
        """How many of these ids are settled."""
        return _among(self.settled, first, count)

    def has(self, id: i64) -> bool:
        """Whether this journalled message is in it, and alive."""
        return self.first_id <= id <= self.last_id and int(id) not in self.settled

    def withdraw(self, transients: list[int]) -> None:
        """Items that are not journalled are gone: these of those that load() still finds."""
        index = found = -1
        last = transients[-1] if transients else -1
        while found < last:
            index += 1
            if index not in self.withdrawn:
                found += 1
                if found in transients:
                    self.withdrawn.add(index)

    def settle(self, id: i64) -> None:
        """A message of the page left its queue for good."""
        self.settled.add(int(id))
        self.live -= 1


def cut(start: bytes) -> list[int]:
    """Where a page that begins so is to be cut, so that its first content is a piece of its own if it is large."""
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


def _encode_run(pieces: Pieces, run: Run) -> None:
    stretch = run.stretch
    taken = run.taken
    id = run.id + taken if run.id != 0 else 0
    flags = 1 if run.redelivered else 0
    _encode_head(pieces.writer, flags, id, stretch.count - taken, stretch.size, run.expires_us, stretch.key)
    pieces.add(stretch.contents_from(taken))


def _encode_head(out: BytesWriter, flags: int, id: i64, count: i64, size: i64, expires_us: i64, key: bytes) -> None:
    out.append(flags)
    write_i64_be(out, id)
    write_i32_be(out, i32(count))
    write_i32_be(out, i32(size))
    write_i64_be(out, expires_us)
    write_i16_be(out, i16(i64(len(key))))
    out.write(key)
