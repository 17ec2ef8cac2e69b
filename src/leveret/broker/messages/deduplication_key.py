"""The header x-deduplication-header: messages with the same value are duplicates.

As in the plugin (rabbitmq-message-deduplication), integers of all widths are equal, and so are strings and octets; 1
equals neither "1" nor 1.0, and a void value is a key. Arrays and tables, which the plugin cannot handle, are none. Long
values are represented by their hash, so that a key takes little memory whatever clients send.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from mypy_extensions import i64

from leveret.broker.messages.contents import header_of, raw_headers
from leveret.wire.errors import ProtocolError
from leveret.wire.table import decode_value

HEADER: Final = b"x-deduplication-header"
TTL_HEADER: Final = b"x-cache-ttl"
# longer keys are replaced by hashes of this size, with which two different values are never equal in practice
KEY_OCTETS_MAX: Final = 33
# memory of one key in a cache, with the longest key: key, dictionary entry, and what is kept with it
KEPT_OCTETS: Final[i64] = 300
_INTEGERS: Final = b"bBsuIilL"
_FLOATS: Final = b"fd"


def key_of(content: bytes) -> bytes:
    """Return the deduplication key of a message, from its content frames; b"" if it has none.

    Malformed headers, which nothing checks when a message is published, have none.
    """
    value = value_of(content, HEADER)
    if not value:
        return b""
    kind = value[:1]
    key = value
    if kind == b"S" or kind == b"x":
        key = b"S" + value[5:]
    elif kind in _INTEGERS:
        key = b"l" + str(decode_value(value, 0, len(value), 0)[0]).encode()
    elif kind in _FLOATS:
        key = b"d" + struct.pack(">d", decode_value(value, 0, len(value), 0)[0])
    elif kind == b"t":
        key = b"t\1" if value[1] != 0 else b"t\0"
    elif kind == b"A" or kind == b"F":
        return b""
    if len(key) <= KEY_OCTETS_MAX:
        return key
    return b"#" + hashlib.blake2b(key, digest_size=KEY_OCTETS_MAX - 1).digest()


def value_of(content: bytes, name: bytes) -> bytes:
    """Return the encoded value of a header, b"" if it is missing or the headers are malformed."""
    header = header_of(content)
    if header.find(name) < 0:
        return b""
    try:
        for found, value in raw_headers(header):
            if found == name:
                return value
    except ProtocolError:
        pass
    return b""


def cache_ttl_ms(content: bytes, default: int) -> int:
    """Return the message's own x-cache-ttl in milliseconds, else the default; a negative one is 0."""
    value = value_of(content, TTL_HEADER)
    if not value or value[:1] not in _INTEGERS:
        return default
    own = decode_value(value, 0, len(value), 0)[0]
    assert isinstance(own, int)
    return max(own, 0)
