"""Cuts keys, encoded properties and bodies of a chunk's messages out of their frames, as columns.

Consecutive messages of a group differ in their bodies only, so keys and properties are cut once per group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from leveret.broker.streams.chunk import group_starts
from leveret.lake.octets import Numbers, Octets, cut, number, view
from leveret.wire.frames import FRAME_OVERHEAD

_FRAME_HEAD: Final = 7
_GROUP_HEAD: Final = 18
# offset of the property flags in a content header, after class, weight and body size
_FLAGS_AT: Final = 12


@dataclass(frozen=True, slots=True)
class Contents:
    """Messages as columns: offset, time_us, group and bodies have one row per message, the others one per group.

    Attributes:
        offset: Offset of the message.
        time_us: Time of arrival in microseconds since 1970.
        group: Index of the message's group.
        bodies: Content of the message, joined from all its body frames.
        keys: Exchange and routing key as AMQP short strings.
        properties: Flags and values of the content header, encoded.
    """

    offset: Numbers
    time_us: Numbers
    group: Numbers
    bodies: pa.BinaryArray
    keys: pa.BinaryArray
    properties: pa.BinaryArray


def read_contents(payload: bytes, first_offset: int) -> Contents:
    """Read one or several consecutive chunks, not empty and less than 2 GiB, whose first message has this offset."""
    octets = view(payload)
    at = np.array(group_starts(payload), np.int64)
    counts, sizes, key_octets = number(octets, at + 8, 4), number(octets, at + 12, 4), number(octets, at + 16, 2)
    first = at + _GROUP_HEAD + key_octets
    header = number(octets, first + 3, 4)
    rows = int(counts.sum())
    group = np.repeat(np.arange(len(at)), counts)
    index = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    stops = first[group] + (index + 1) * sizes[group]
    body_frames = stops - sizes[group] + header[group] + FRAME_OVERHEAD
    return Contents(
        np.arange(first_offset, first_offset + rows),
        number(octets, at, 8)[group],
        group,
        _bodies(payload, octets, body_frames, stops),
        cut(payload, at + _GROUP_HEAD, first),
        cut(payload, first + _FRAME_HEAD + _FLAGS_AT, first + _FRAME_HEAD + header),
    )


def _bodies(payload: bytes, octets: Octets, starts: Numbers, stops: Numbers) -> pa.BinaryArray:
    """Return the bodies in the frames between these positions."""
    is_empty = starts == stops
    heads = np.where(is_empty, 0, starts)
    is_single = number(octets, heads + 3, 4) == stops - starts - FRAME_OVERHEAD
    is_cut = ~(is_empty | is_single)
    bare = is_empty | is_cut
    bodies = cut(payload, np.where(bare, stops, starts + _FRAME_HEAD), np.where(bare, stops, stops - 1))
    if not is_cut.any():
        return bodies
    joined = [_join(payload, start, stop) for start, stop in zip(starts[is_cut], stops[is_cut], strict=True)]
    rows = np.arange(len(starts))
    rows[is_cut] = len(rows) + np.arange(len(joined))
    return pa.concat_arrays([bodies, pa.array(joined, pa.binary())]).take(pa.array(rows))


def _join(payload: bytes, at: int, stop: int) -> bytes:
    parts = []
    while at < stop:
        size = int.from_bytes(payload[at + 3 : at + 7])
        parts.append(payload[at + _FRAME_HEAD : at + _FRAME_HEAD + size])
        at += size + FRAME_OVERHEAD
    return b"".join(parts)
