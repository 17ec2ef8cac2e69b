"""Rewrites a message's header for a link: extends x-received-from, removes position and, unless trusted, user id.

Everything else passes unchanged: the header payload is spliced, not decoded. Entry and rules are those of RabbitMQ's
links, as measured; x-received-from comes before all other headers, since their order has no meaning.
"""

from __future__ import annotations

import struct
from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i32_be
from mypy_extensions import i32, i64

from leveret.broker.messages.carbon_copies import SIZES
from leveret.wire.properties import HAS_HEADERS, HAS_USER_ID
from leveret.wire.scan import HeaderScan
from leveret.wire.table import Value, decode_value, encode_table, join_table, malformed, split_table

RECEIVED_FROM: Final = b"x-received-from"
INVALID: Final = b"x-invalid-headers"
# name, type and length of the position's value; 16 bytes follow: an epoch, and an id
POSITION_HEAD: Final = b"\x12x-leveret-positionx\x00\x00\x00\x10"
POSITION_OCTETS: Final[i64] = 40


class LinkOrigin:
    """What a link writes on each message.

    Attributes:
        uri: Without credentials.
        exchange, cluster, vhost: Of the upstream; cluster is "" if it has no name.
    """

    def __init__(self, uri: str, exchange: str, cluster: str, vhost: str) -> None:
        self.uri = uri
        self.exchange = exchange
        self.cluster = cluster
        self.vhost = vhost

    def entry(self, redelivered: bool) -> bytes:
        """The newest entry of x-received-from, encoded as a field value."""
        table: dict[str, Value] = {"uri": self.uri, "exchange": self.exchange, "redelivered": redelivered}
        if self.cluster:
            table["cluster-name"] = self.cluster
        table["vhost"] = self.vhost
        return b"F" + encode_table(table)


class Rewriter:
    """Rewrites headers.

    cluster, vhost: of the downstream. has_positions: the upstream puts a position before all headers.
    """

    def __init__(
        self, origin: LinkOrigin, cluster: str, vhost: str, max_hops: i64, trusts_user_id: bool, has_positions: bool
    ) -> None:
        self.size: i64 = 0  # set by `look`: the size of the payload to be written, in bytes
        self.position_at: i64 = 0  # set by `look`: where the 16 bytes of the position are in the data, 0 = absent
        self.epoch: i64 = 0  # set by `look`, as id: the position; id is 0 if absent
        self.id: i64 = 0
        self._cluster = cluster
        self._vhost = vhost
        self._max_hops = max_hops
        self._trusts_user_id = trusts_user_id
        self._has_positions = has_positions
        self._entries = (origin.entry(False), origin.entry(True))
        self._fields = (
            _field(RECEIVED_FROM, _array(self._entries[0])),
            _field(RECEIVED_FROM, _array(self._entries[1])),
        )
        self._scan = HeaderScan()
        # the last x-received-from that was the first of the headers, and its replacement; b"" = the message stops here
        self._known = b""
        self._known_redelivered = False
        self._known_front = b""
        # what is written: data[start:start + 12], the flags, data[start + 14:at], a table of the two parts, and
        # data[after:end] except what is between cut_from and cut_to
        self._flags: i64 = 0
        self._start: i64 = 0
        self._at: i64 = 0
        self._front = b""
        self._others = b""
        self._after: i64 = 0
        self._cut_from: i64 = 0
        self._cut_to: i64 = 0
        self._end: i64 = 0

    def rewrite(self, header: bytes, redelivered: bool) -> bytes:
        """The payload of a content header, rewritten; b"" if the message goes no further."""
        if not self.look(header, 0, len(header), redelivered):
            return b""
        out = BytesWriter()
        self.write(out, header)
        return out.getvalue()

    def look(self, data: bytes, start: i64, end: i64, redelivered: bool) -> bool:
        """Determine how the header payload data[start:end] is rewritten.

        False if the message has been here, or has gone far enough. ProtocolError 502 if it is malformed.
        """
        scan = self._scan
        self.position_at = 0
        self.id = 0
        if end - start < 14 or not scan.scan(data, start, end):
            raise malformed("malformed content header")
        flags: i64 = i64(read_i16_be(data, start + 12)) & 0xFFFF
        self._front = self._fields[1] if redelivered else self._fields[0]
        at = scan.headers_at
        if at == 0:
            at = _headers_place(data, start, flags)
            self._after = at
            self._others = b""
        else:
            self._after = at + 4 + i64(read_i32_be(data, at))
            self._others = data[self._behind_position(data, at + 4, self._after) : self._after]
            if names_received_from(self._others) and not self._join(redelivered):
                return False
        self._cut_from = self._cut_to = end
        if scan.user_id_at != 0 and not self._trusts_user_id:
            self._cut_from = scan.user_id_at
            self._cut_to = scan.user_id_at + 1 + i64(data[scan.user_id_at])
            flags &= ~HAS_USER_ID
        self._flags = flags | HAS_HEADERS
        self._start = start
        self._at = at
        self._end = end
        kept = at - start + self._cut_from - self._after + end - self._cut_to
        self.size = kept + 4 + len(self._front) + len(self._others)
        return True

    def write(self, out: BytesWriter, data: bytes) -> None:
        """Write the payload that the last `look` determined, from the same data."""
        start = self._start
        out.write(data[start : start + 12])
        out.append(int(self._flags >> 8))
        out.append(int(self._flags & 0xFF))
        if self._at > start + 14:
            out.write(data[start + 14 : self._at])
        write_i32_be(out, i32(len(self._front) + len(self._others)))
        out.write(self._front)
        out.write(self._others)
        out.write(data[self._after : self._cut_from])
        if self._cut_to < self._end:
            out.write(data[self._cut_to : self._end])

    def _behind_position(self, data: bytes, start: i64, end: i64) -> i64:
        """Where the headers begin after the position that the upstream has put before them, if any."""
        if not self._has_positions or end - start < POSITION_OCTETS:
            return start
        value = start + POSITION_OCTETS - 16
        if data[start:value] != POSITION_HEAD:
            return start
        self.position_at = value
        self.epoch = read_i64_be(data, value)
        self.id = read_i64_be(data, value + 8)
        return start + POSITION_OCTETS

    def _join(self, redelivered: bool) -> bool:
        """Add this hop to x-received-from, if that is present; False if the message goes no further."""
        fields = self._others
        size: i64 = len(self._known)
        if size > 0 and fields[:size] == self._known and redelivered == self._known_redelivered:
            self._front = self._known_front
            self._others = fields[size:]
            return len(self._known_front) > 0
        entries = split_table(len(fields).to_bytes(4, "big") + fields)
        found = next((entry for entry in entries if entry[0] == RECEIVED_FROM), None)
        if found is None:
            return True
        entries.remove(found)
        value = found[1]
        if value[:1] != b"A":
            self._others = join_table(_with_invalid(entries, value))[4:]
            return True
        hops = decode_value(value, 0, len(value), 0)[0]
        assert isinstance(hops, list)
        self._front = b""
        if len(hops) < self._max_hops and not any(self._is_here(hop) for hop in hops):
            self._front = _field(RECEIVED_FROM, _array(self._entries[redelivered] + value[5:]))
        self._others = join_table(entries)[4:]
        field = _field(RECEIVED_FROM, value)
        if fields.startswith(field):
            self._known = field
            self._known_redelivered = redelivered
            self._known_front = self._front
        return len(self._front) > 0

    def _is_here(self, hop: Value) -> bool:
        """Whether this hop was this cluster and virtual host."""
        return isinstance(hop, dict) and hop.get("cluster-name") == self._cluster and hop.get("vhost") == self._vhost


def names_received_from(fields: bytes) -> bool:
    """Whether x-received-from may be among these headers; True also if that needs a closer look.

    The names are stepped over, and nothing is decoded, since most messages have never been over a link.
    """
    at: i64 = 0
    end: i64 = len(fields)
    while at < end:
        size = i64(fields[at])
        value = at + 1 + size
        if value >= end:
            return True
        if size == 15 and fields[at + 1 : value] == RECEIVED_FROM:
            return True
        step = SIZES[fields[value]]
        at = value + 1 + step
        if step < 0:
            if step != -1 or value + 5 > end:
                return True
            step = i64(read_i32_be(fields, value + 1))
            if step < 0:
                return True
            at = value + 5 + step
    return at != end


def _headers_place(data: bytes, start: i64, flags: i64) -> i64:
    """Where the headers belong: behind content type and content encoding."""
    at = start + 14
    if flags & 0x8000 != 0:
        at += 1 + i64(data[at])
    if flags & 0x4000 != 0:
        at += 1 + i64(data[at])
    return at


def _field(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


def _array(items: bytes) -> bytes:
    return b"A" + struct.pack(">I", len(items)) + items


def _with_invalid(entries: list[tuple[bytes, bytes]], value: bytes) -> list[tuple[bytes, bytes]]:
    """Keep a value that is no array in a header of its own, as RabbitMQ does."""
    kept = [entry for entry in entries if entry[0] != INVALID]
    return [*kept, (INVALID, b"F" + join_table([(RECEIVED_FROM, _array(value))]))]
