"""The column content_header: the properties of a message in AMQP's own encoding, so that no type of theirs is lost.

It is the content header from its property flags on. Class, weight and body size, which stand before them on the wire,
say nothing of the message.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from leveret.spark.rows.properties import HEAD_SIZE, OFFSET_HEADER
from leveret.wire.properties import HAS_HEADERS, property_spans
from leveret.wire.table import join_table, split_table

CONTENT_HEADER: Final = "content_header"

_HEAD: Final = bytes(HEAD_SIZE)
_LONG: Final = b"l"


def split_properties(properties: bytes) -> dict[str, bytes]:
    """The encoded value of each property that is there, in their order. ``ProtocolError`` (502) if malformed."""
    padded = _HEAD + properties
    return {name: padded[start:stop] for name, start, stop in property_spans(padded)}


def without_offsets(properties: pa.Array) -> pa.Array:
    """Encoded properties without the header that brokers add to what they deliver from a stream.

    ``ProtocolError`` (502) for malformed ones.
    """
    distinct = properties.dictionary_encode()
    mended = pa.array([_without_offset(each) for each in distinct.dictionary.to_pylist()], pa.binary())
    return mended.take(distinct.indices)


def _without_offset(properties: bytes) -> bytes:
    if OFFSET_HEADER not in properties:
        return properties
    values = split_properties(properties)
    entries = split_table(values.get("headers", bytes(4)))
    # a publisher's own header of that name stands before the broker's
    places = [place for place, (name, value) in enumerate(entries) if name == OFFSET_HEADER and value[:1] == _LONG]
    if not places:
        return properties
    del entries[places[-1]]
    flags = int.from_bytes(properties[:2], "big")
    if entries:
        values["headers"] = join_table(entries)
    else:  # nobody can tell whether there was an empty table
        del values["headers"]
        flags &= ~HAS_HEADERS
    return flags.to_bytes(2, "big") + b"".join(values.values())
