"""The column content_header: the properties of a message in AMQP's own encoding, so that no type is lost.

It holds the content header from its property flags on, without class, weight and body size.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from leveret.spark.rows.properties import HEAD_SIZE, OFFSET_HEADER
from leveret.wire.properties import HAS_HEADERS, property_spans
from leveret.wire.table import join_table, split_table

CONTENT_HEADER: Final = "content_header"

HEAD: Final = bytes(HEAD_SIZE)
"""Precedes the column's octets in a content header; what stands in it does not matter here."""
_LONG: Final = b"l"


def split_properties(properties: bytes) -> dict[str, bytes]:
    """Return the encoded value of each property, in order; ``ProtocolError`` (502) if malformed."""
    padded = HEAD + properties
    return {name: padded[start:stop] for name, start, stop in property_spans(padded)}


def without_offsets(properties: pa.Array) -> pa.Array:
    """Return encoded properties without the header x-stream-offset, which brokers add to deliveries from a stream.

    Raises ``ProtocolError`` (502) for malformed properties.
    """
    distinct = properties.dictionary_encode()
    mended = pa.array([_without_offset(each) for each in distinct.dictionary.to_pylist()], pa.binary())
    return mended.take(distinct.indices)


def _without_offset(properties: bytes) -> bytes:
    if OFFSET_HEADER not in properties:
        return properties
    values = split_properties(properties)
    entries = split_table(values.get("headers", bytes(4)))
    # the broker's header comes after a publisher's own header of that name
    places = [place for place, (name, value) in enumerate(entries) if name == OFFSET_HEADER and value[:1] == _LONG]
    if not places:
        return properties
    del entries[places[-1]]
    flags = int.from_bytes(properties[:2], "big")
    if entries:
        values["headers"] = join_table(entries)
    else:  # the publisher may have sent an empty table; the delivery does not show that
        del values["headers"]
        flags &= ~HAS_HEADERS
    return flags.to_bytes(2, "big") + b"".join(values.values())
