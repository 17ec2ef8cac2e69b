"""CC and BCC: more routing keys in a message's headers (RabbitMQ's "Sender-selected Distribution").

BCC is taken out before anybody sees the message. Its keys stand behind exchange and routing key in the key that is kept
with the message, because dead-lettering without a key of its own goes to them again.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.deadletter import header_of, raw_headers, with_header
from leveret.broker.terms import type_of
from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError
from leveret.wire.properties import replace_property
from leveret.wire.table import decode_value, encode_short, join_table

_B: Final[i64] = 0x42
_C: Final[i64] = 0x43
_UNKNOWN: Final[i64] = -2
_COUNTED: Final[i64] = -1  # four octets of length, then the value


def _sizes() -> list[i64]:
    sizes: list[i64] = [_UNKNOWN] * 256
    for size, kinds in ((_COUNTED, b"SxAF"), (0, b"V"), (1, b"bBt"), (2, b"su"), (4, b"Iif"), (5, b"D"), (8, b"lLdT")):
        for kind in kinds:
            sizes[kind] = size
    return sizes


_SIZES: Final = _sizes()
# BCC keys beyond this get their copy, but dead letters forget them: a key's length has 15 bits in the journal
BLIND_OCTETS_MAX: Final = 30_000


def may_have(data: bytes, at: i64) -> bool:
    """Whether the encoded headers at this offset name CC or BCC; True also for what must be looked at with more care.

    Most messages end here, so names are stepped over and nothing is decoded.
    """
    end = at + 4 + i64(read_i32_be(data, at))
    at += 4
    while at < end:
        size = i64(data[at])
        value = at + 1 + size
        if value >= end:
            return True
        if size == 2 and data[at + 1] == _C and data[at + 2] == _C:
            return True
        if size == 3 and data[at + 1] == _B and data[at + 2] == _C and data[at + 3] == _C:
            return True
        size = _SIZES[data[value]]
        at = value + 1 + size
        if size < 0:
            if size == _UNKNOWN or value + 5 > end:
                return True
            size = i64(read_i32_be(data, value + 1))
            if size < 0:
                return True
            at = value + 5 + size
    return at != end


def blind_keys(key: bytes) -> list[str]:
    """The BCC keys that stand behind exchange and routing key."""
    keys: list[str] = []
    at = 1 + key[0]
    at += 1 + key[at]
    while at < len(key):
        end = at + 1 + key[at]
        keys.append(key[at + 1 : end].decode("utf-8", "surrogateescape"))
        at = end
    return keys


class Copies:
    """cc, bcc: the keys, as they stand there; content: the message without BCC. ProtocolError 406 for what is no array.

    has_any: whether one of the headers is there at all.
    """

    def __init__(self, content: bytes) -> None:
        header = header_of(content)
        entries = raw_headers(header)
        values = dict(entries)
        self.has_any = b"CC" in values or b"BCC" in values
        self.cc = _keys("CC", values.get(b"CC"))
        self.bcc = _keys("BCC", values.get(b"BCC"))
        self.content = content
        if b"BCC" in values:
            self.content = _without(b"BCC", content, header, entries)

    def blind_key(self, key: bytes) -> bytes:
        """The message's key with the BCC keys behind it."""
        parts = [key]
        size = len(key)
        for blind in self.bcc:
            size += len(blind.encode("utf-8", "surrogateescape")) + 1
            if size > BLIND_OCTETS_MAX:
                break
            parts.append(encode_short(blind))
        return b"".join(parts)


def without_cc(content: bytes) -> bytes:
    """The content without its CC header."""
    header = header_of(content)
    return _without(b"CC", content, header, raw_headers(header))


def _without(name: bytes, content: bytes, header: bytes, entries: list[tuple[bytes, bytes]]) -> bytes:
    left = [entry for entry in entries if entry[0] != name]
    return with_header(content, replace_property(header, "headers", join_table(left)))


def _keys(name: str, value: bytes | None) -> list[str]:
    if value is None:
        return []
    if value[:1] != b"A":
        text = f'invalid message: {{unacceptable_type_in_header,"{name}",{type_of(value)}}}'
        raise ProtocolError(PRECONDITION_FAILED, text, 60, 40)
    items, _ = decode_value(value, 0, len(value), 0)
    assert isinstance(items, list)
    # no routing key has more than 255 octets, so a longer one reaches nothing
    return [item for item in items if isinstance(item, str) and len(item.encode("utf-8", "surrogateescape")) < 256]
