"""CC and BCC: more routing keys in a message's headers (RabbitMQ's "Sender-selected Distribution"); and x-death.

BCC is removed from the message. Its keys are stored behind exchange and routing key in the message's key, because dead
letters go to them again if the queue sets no routing key. A last octet behind them says that the publisher wrote an
x-death header, which the broker does not trust.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.messages.contents import header_of, raw_headers, with_header
from leveret.broker.terms import type_of
from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError
from leveret.wire.properties import replace_property
from leveret.wire.table import DEPTH_MAX, decode_value, encode_short, join_table

_B: Final[i64] = 0x42
_C: Final[i64] = 0x43
_TABLE: Final[i64] = 0x46
_ARRAY: Final[i64] = 0x41
_X_DEATH: Final = b"x-death"
# at the end of the key: x-death is the publisher's. It is no BCC key, as these 255 octets would have to follow.
CLAIM: Final = b"\xff"
_UNKNOWN: Final[i64] = -2
COUNTED: Final[i64] = -1  # the value has four octets of length in front


def _sizes() -> list[i64]:
    sizes: list[i64] = [_UNKNOWN] * 256
    for size, kinds in ((COUNTED, b"SxAF"), (0, b"V"), (1, b"bBt"), (2, b"su"), (4, b"Iif"), (5, b"D"), (8, b"lLdT")):
        for kind in kinds:
            sizes[kind] = size
    return sizes


# length of a value behind its type letter, by that letter
SIZES: Final = _sizes()
# BCC keys beyond this get their copy, but dead letters do not: a key's length has 15 bits in the journal
BLIND_OCTETS_MAX: Final = 30_000


def may_have(data: bytes, at: i64) -> bool:
    """Return whether the encoded headers at this offset have CC, BCC or x-death, or need a closer look.

    For most messages this is all, so names are skipped and nothing is decoded. Malformed headers need a closer look:
    they must not reach consumers, whose clients would fail, and RabbitMQ refuses them, too.
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
        if size == 7 and data[at + 1 : value] == _X_DEATH:
            return True
        size = SIZES[data[value]]
        at = value + 1 + size
        if size < 0:
            if size == _UNKNOWN or value + 5 > end:
                return True
            size = i64(read_i32_be(data, value + 1))
            if size < 0:
                return True
            at = value + 5 + size
            kind = i64(data[value])
            if at > end or (kind in (_TABLE, _ARRAY) and not is_sound(data, value + 5, at, kind == _TABLE, 1)):
                return True
    return at != end


def is_sound(data: bytes, at: i64, end: i64, has_names: bool, depth: i64) -> bool:
    """Return whether data[at:end] is a well-formed table (has_names) or array, including all nested ones."""
    if depth > DEPTH_MAX:
        return False
    while at < end:
        if has_names:
            at += 1 + i64(data[at])
        if at >= end:
            return False
        kind = i64(data[at])
        size = SIZES[kind]
        at += 1
        if size == _UNKNOWN:
            return False
        if size == COUNTED:
            if at + 4 > end:
                return False
            size = i64(read_i32_be(data, at))
            at += 4
            if size < 0 or size > end - at:
                return False
            if kind in (_TABLE, _ARRAY) and not is_sound(data, at, at + size, kind == _TABLE, depth + 1):
                return False
        at += size
    return at == end


def split_key(key: bytes) -> tuple[str, str]:
    """Return (exchange, routing key) of an entry's key."""
    middle = 1 + key[0]
    end = middle + 1 + key[middle]
    return key[1:middle].decode("utf-8", "surrogateescape"), key[middle + 1 : end].decode("utf-8", "surrogateescape")


def blind_keys(key: bytes) -> list[str]:
    """Return the BCC keys in an entry's key."""
    keys: list[str] = []
    at = 1 + key[0]
    at += 1 + key[at]
    while at < len(key):
        end = at + 1 + key[at]
        if end > len(key):
            break  # the claim of x-death
        keys.append(key[at + 1 : end].decode("utf-8", "surrogateescape"))
        at = end
    return keys


def is_claimed(key: bytes) -> bool:
    """Return whether the x-death header of a message with this key is its publisher's."""
    at = 1 + key[0]
    at += 1 + key[at]
    while at < len(key):
        at += 1 + key[at]
    return at > len(key)


class CarbonCopies:
    """The CC, BCC and x-death headers of a message. Raises ProtocolError 406 if CC or BCC is no array."""

    def __init__(self, content: bytes) -> None:
        header = header_of(content)
        entries = raw_headers(header)
        values = dict(entries)
        self.claims = _X_DEATH in values  # the publisher wrote an x-death header
        # at least one of the three headers is present
        self.has_any = self.claims or b"CC" in values or b"BCC" in values
        self.cc = keys_in("CC", values.get(b"CC"))
        self.bcc = keys_in("BCC", values.get(b"BCC"))
        self.content = content  # the message without BCC
        if b"BCC" in values:
            left = [entry for entry in entries if entry[0] != b"BCC"]
            self.content = with_header(content, replace_property(header, "headers", join_table(left)))

    def kept_key(self, key: bytes) -> bytes:
        """Return the key to store: the message's key, the BCC keys, and the claim of x-death."""
        parts = [key]
        size = len(key)
        for blind in self.bcc:
            size += len(blind.encode("utf-8", "surrogateescape")) + 1
            if size > BLIND_OCTETS_MAX:
                break
            parts.append(encode_short(blind))
        return b"".join(parts) + (CLAIM if self.claims else b"")


def keys_in(name: str, value: bytes | None) -> list[str]:
    """Return the routing keys in a CC or BCC header. Raises ProtocolError 406 if it is no array."""
    if value is None:
        return []
    if value[:1] != b"A":
        text = f'invalid message: {{unacceptable_type_in_header,"{name}",{type_of(value)}}}'
        raise ProtocolError(PRECONDITION_FAILED, text, 60, 40)
    items, _ = decode_value(value, 0, len(value), 0)
    assert isinstance(items, list)
    # routing keys have at most 255 octets, so a longer one reaches nothing
    return [item for item in items if isinstance(item, str) and len(item.encode("utf-8", "surrogateescape")) < 256]
