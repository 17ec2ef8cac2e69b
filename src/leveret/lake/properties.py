"""Converts encoded properties to columns: message_id, the other properties, and the headers with their types.

Equal values are decoded once: encoded properties, and the header tables in them, are dictionary-encoded first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from leveret.lake.headers import HEADERS_TYPE, read_headers
from leveret.lake.octets import Flags, Numbers, Octets, bounds, cut, number, text, view
from leveret.wire.properties import PROPERTIES

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_S_MAX: Final = 253_402_300_799
"""The last second of the year 9999, the maximum timestamp of most readers."""

_KINDS: Final = {"shortstr": pa.string(), "octet": pa.int32(), "longlong": TIMESTAMP}
_STRUCT: Final = [(name, kind) for name, kind in PROPERTIES if name not in ("headers", "message_id")]
PROPERTIES_TYPE: Final = pa.struct([(name, _KINDS[kind]) for name, kind in _STRUCT])


@dataclass(frozen=True, slots=True)
class PropertyColumns:
    """The columns, with one row per message."""

    message_id: pa.StringArray
    properties: pa.StructArray
    headers: pa.MapArray

    def take(self, rows: pa.Array) -> PropertyColumns:
        """Return the columns with these rows only."""
        return PropertyColumns(self.message_id.take(rows), self.properties.take(rows), self.headers.take(rows))


def read_properties(raw: pa.BinaryArray) -> PropertyColumns:
    """Decode properties (flags and values of content headers) to columns."""
    coded = raw.dictionary_encode()
    if 2 * len(coded.dictionary) > len(raw):
        return _read(raw)
    return _read(coded.dictionary).take(coded.indices)


def _read(raw: pa.BinaryArray) -> PropertyColumns:
    data = raw.buffers()[2]
    octets = view(data)
    at, _ = bounds(raw)
    flags = number(octets, at, 2)
    at += 2
    columns: dict[str, pa.Array] = {}
    for index, (name, kind) in enumerate(PROPERTIES):
        is_there = flags >> (15 - index) & 1 == 1
        columns[name], size = _READ[kind](data, octets, at, is_there)
        at += size
    properties = pa.StructArray.from_arrays([columns[name] for name, _ in _STRUCT], fields=list(PROPERTIES_TYPE))
    return PropertyColumns(columns["message_id"], properties, columns["headers"])


def _read_text(data: pa.Buffer, octets: Octets, at: Numbers, is_there: Flags) -> tuple[pa.Array, Numbers]:
    if not is_there.any():
        return pa.nulls(len(at), pa.string()), np.zeros(len(at), np.int64)
    size = np.where(is_there, octets[np.where(is_there, at, 0)].astype(np.int64) + 1, 0)
    return text(cut(data, at + is_there, at + size, is_there)), size


def _read_octet(data: pa.Buffer, octets: Octets, at: Numbers, is_there: Flags) -> tuple[pa.Array, Numbers]:
    values = octets[np.where(is_there, at, 0)].astype(np.int32)
    return pa.array(values, mask=~is_there), is_there.astype(np.int64)


def _read_time(data: pa.Buffer, octets: Octets, at: Numbers, is_there: Flags) -> tuple[pa.Array, Numbers]:
    if not is_there.any():
        return pa.nulls(len(at), TIMESTAMP), np.zeros(len(at), np.int64)
    seconds = number(octets, np.where(is_there, at, 0), 8)
    is_known = is_there & (seconds >= 0) & (seconds <= TIMESTAMP_S_MAX)
    return pa.array(np.where(is_known, seconds, 0) * 1_000_000, mask=~is_known).cast(TIMESTAMP), is_there * np.int64(8)


def _read_table(data: pa.Buffer, octets: Octets, at: Numbers, is_there: Flags) -> tuple[pa.Array, Numbers]:
    if not is_there.any():
        return pa.nulls(len(at), HEADERS_TYPE), np.zeros(len(at), np.int64)
    size = np.where(is_there, number(octets, np.where(is_there, at, 0), 4) + 4, 0)
    tables = cut(data, at, at + size, is_there).dictionary_encode()
    return read_headers(tables.dictionary).take(tables.indices), size


_Reader = Callable[[pa.Buffer, Octets, Numbers, Flags], tuple[pa.Array, Numbers]]
_READ: Final[dict[str, _Reader]] = {
    "shortstr": _read_text, "octet": _read_octet, "longlong": _read_time, "table": _read_table,
}  # fmt: skip
