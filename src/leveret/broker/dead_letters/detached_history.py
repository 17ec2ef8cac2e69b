"""The death history of a dead letter that passes through queues where it only waits, beside its content.

Nobody reads such a message until it arrives, so its headers are written once, when they are needed, and its content
stays the same object however often it dies. The result equals that of DeathHistory (death_history.py), to the octet. A
message that needs a closer look (CC, an expiration, x-death headers in another order than the broker's own) has no
detached history, and is left to DeathHistory.
"""

from __future__ import annotations

import struct
from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from leveret.broker.messages.carbon_copies import SIZES, is_claimed, is_sound, split_key
from leveret.broker.messages.contents import HEADER_AT, behind
from leveret.broker.messages.entry import Entry
from leveret.broker.queues.message_list import MessageList
from leveret.wire.scan import HeaderScan
from leveret.wire.table import Value, encode_short, encode_value

EXPIRED: Final = "expired"

_NAMES: Final = [
    encode_short(f"x-{which}-death-{what}") for which in ("first", "last") for what in ("exchange", "queue", "reason")
]
_X_DEATH: Final = encode_short("x-death") + b"A"
# encoded names of all headers that a broker reads or writes in a death history
_SPECIAL: Final = (b"\x02CC", b"\x03BCC", encode_short("x-death"), *_NAMES)
_HEADERS: Final[i64] = 0x2000  # the flag of `headers` in a content header
_NEEDS_CARE: Final[i64] = -1


class Cause:
    """The part of the death history that all messages with one key that expire in one queue have in common."""

    def __init__(self, queue: str, key: bytes) -> None:
        exchange, routing_key = split_key(key)
        entries: list[tuple[str, Value]] = [("reason", EXPIRED), ("queue", queue)]
        # an entry of x-death before and after its time
        self.head = encode_short("count") + b"l" + struct.pack(">q", 1) + _joined(entries) + encode_short("time") + b"T"
        self.tail = _joined([("exchange", exchange), ("routing-keys", [routing_key])])
        values = [encode_value(value) for value in (exchange, queue, EXPIRED)]
        self.firsts = b"".join([name + value for name, value in zip(_NAMES[:3], values, strict=True)])
        self.lasts = b"".join([name + value for name, value in zip(_NAMES[3:], values, strict=True)])


def _joined(entries: list[tuple[str, Value]]) -> bytes:
    return b"".join([encode_short(name) + encode_value(value) for name, value in entries])


def mark_of(queue: str) -> bytes:
    """Return the octets that a history contains if it has a death in this queue."""
    return _joined([("queue", queue)])


class DetachedHistory:
    """A message's content and its death history, encoded but not yet inserted into the headers."""

    def __init__(self, content: bytes, persistent: bool, firsts: bytes, lasts: bytes, deaths: bytes) -> None:
        self.content = content  # without what the history adds to its headers
        self.persistent = persistent  # whether its delivery mode is 2
        self.firsts = firsts  # the headers x-first-death-* and x-last-death-*
        self.lasts = lasts
        self.deaths = deaths  # the entries of x-death, newest first

    def died(self, cause: Cause, died_us: i64) -> DetachedHistory:
        """Return the history with one more death, in a queue where the message has not died before."""
        out = BytesWriter()
        out.append(0x46)
        write_i32_be(out, i32(len(cause.head) + 8 + len(cause.tail)))
        out.write(cause.head)
        write_i64_be(out, died_us // 1_000_000)
        out.write(cause.tail)
        out.write(self.deaths)
        return DetachedHistory(self.content, self.persistent, self.firsts or cause.firsts, cause.lasts, out.getvalue())

    def octets(self) -> i64:
        """Return the approximate memory use without the content."""
        return 80 + len(self.deaths)

    def composed(self) -> bytes:
        """Return the content frames with the history in their headers."""
        content = self.content
        size = i64(read_i32_be(content, 3))
        flags = i64(read_i16_be(content, 19)) & 0xFFFF
        at = _headers_at(content, flags)
        end = at
        table: i64 = 0
        if flags & _HEADERS:
            table = i64(read_i32_be(content, at))
            end = at + 4 + table
        added: i64 = len(self.firsts) + len(self.lasts) + len(_X_DEATH) + 4 + len(self.deaths)
        out = BytesWriter()
        out.write(content[:3])
        write_i32_be(out, i32(size + (at + 4 + table - end) + added))
        out.write(content[HEADER_AT:19])
        out.append(int((flags | _HEADERS) >> 8))
        out.append(int(flags & 0xFF))
        out.write(content[21:at])
        write_i32_be(out, i32(table + added))
        out.write(content[end - table : end])
        out.write(self.firsts)
        out.write(self.lasts)
        out.write(_X_DEATH)
        write_i32_be(out, i32(len(self.deaths)))
        out.write(self.deaths)
        return behind(out.getvalue(), content, int(end))


class DeadEntry(Entry):
    """A message with a detached history; its content is that of the history."""

    def __init__(
        self, message_list: MessageList, history: DetachedHistory, key: bytes, id: i64, expires_us: i64
    ) -> None:
        super().__init__(message_list, history.content, key, id, expires_us, 0)
        self.history = history

    def shown(self) -> bytes:
        return self.history.composed()

    def octets(self) -> i64:
        return len(self.content) + self.history.octets()


def history_of(entry: Entry) -> DetachedHistory | None:
    """Return the detached history of a message, or None if it needs a closer look."""
    return entry.history if isinstance(entry, DeadEntry) else history_in(entry.content, entry.key)


def history_in(content: bytes, key: bytes) -> DetachedHistory | None:
    """Return the detached history of a message with these content frames, from its headers.

    key: of its entry. Returns None if the message needs a closer look.
    """
    end = HEADER_AT + i64(read_i32_be(content, 3))
    scan = HeaderScan()
    if not scan.scan(content, HEADER_AT, end) or scan.expiration_at != 0 or is_claimed(key):
        return None
    persistent = scan.delivery_mode == 2
    if scan.headers_at == 0:
        return DetachedHistory(content, persistent, b"", b"", b"")
    at = _history_at(content, scan.headers_at)
    if at == _NEEDS_CARE:
        return None
    end = scan.headers_at + 4 + i64(read_i32_be(content, scan.headers_at))
    if at == end:
        return DetachedHistory(content, persistent, b"", b"", b"")
    return _read(content, persistent, scan.headers_at, at, end)


def _read(content: bytes, persistent: bool, headers_at: i64, start: i64, end: i64) -> DetachedHistory | None:
    """Return the history in content[start:end], or None if it is not as composed() writes it."""
    places: list[i64] = []
    at = start
    for name in _NAMES:
        places.append(at)
        value = at + len(name)
        if value + 5 > end or content[at:value] != name or content[value] != 0x53:
            return None
        at = value + 5 + i64(read_i32_be(content, value + 1))
    deaths = at + len(_X_DEATH) + 4
    if deaths > end or content[at : deaths - 4] != _X_DEATH or deaths + i64(read_i32_be(content, deaths - 4)) != end:
        return None
    out = BytesWriter()
    out.write(content[:3])
    write_i32_be(out, i32(i64(read_i32_be(content, 3)) - (end - start)))
    out.write(content[HEADER_AT:headers_at])
    write_i32_be(out, i32(start - headers_at - 4))
    out.write(content[headers_at + 4 : start])
    bare = behind(out.getvalue(), content, int(end))
    return DetachedHistory(bare, persistent, content[start : places[3]], content[places[3] : at], content[deaths:end])


def _headers_at(content: bytes, flags: i64) -> i64:
    """Return the offset at which stored content frames have their headers, or would have them."""
    at: i64 = 21
    if flags & 0x8000:
        at += 1 + i64(content[at])
    if flags & 0x4000:
        at += 1 + i64(content[at])
    return at


def _history_at(content: bytes, at: i64) -> i64:
    """Return where the death history begins in the headers at this offset: their end if they have none.

    Returns _NEEDS_CARE for headers that need a closer look.
    """
    end = at + 4 + i64(read_i32_be(content, at))
    at += 4
    while at < end:
        value = at + 1 + i64(content[at])
        if value >= end:
            return _NEEDS_CARE
        first = content[at + 1]
        if first == 0x78 or first == 0x43 or first == 0x42:  # x-, CC, BCC
            name = content[at:value]
            if name == _NAMES[0]:
                return at
            if name in _SPECIAL:
                return _NEEDS_CARE
        size = SIZES[content[value]]
        at = value + 1 + size
        if size < 0:
            if size != -1 or value + 5 > end:
                return _NEEDS_CARE
            kind = i64(content[value])
            at = value + 5 + i64(read_i32_be(content, value + 1))
            if at < value + 5 or at > end:
                return _NEEDS_CARE
            if (kind == 0x46 or kind == 0x41) and not is_sound(content, value + 5, at, kind == 0x46, 1):
                return _NEEDS_CARE
    return end if at == end else _NEEDS_CARE
