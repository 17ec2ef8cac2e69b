"""Rows with a content_header: their properties keep their octets, unless columns override them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import repeat
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from leveret.spark.rows.content_headers import CONTENT_HEADER, HEAD
from leveret.spark.rows.frames import FLAGS, RowError, encoded_values
from leveret.wire.errors import ProtocolError
from leveret.wire.properties import HAS_HEADERS, HAS_USER_ID, PROPERTIES, property_spans
from leveret.wire.table import encode_short, encode_value, join_table, split_table

Pairs: TypeAlias = "tuple[tuple[str, str | None], ...]"
"""A row's value of column ``headers``."""

TABLES_MAX: Final = 1024
"""Merged header tables that a process caches; unlike ids, they repeat."""

_EMPTY_TABLE: Final = bytes(4)


def merged(content_headers: pa.BinaryArray, columns: Mapping[str, pa.Array]) -> pa.BinaryArray:
    """Return the encoded properties of each row, null for rows without a content header.

    ``columns`` has the rows' own values by property; a timestamp is in seconds. A value replaces the property; headers
    replace those of the same name, and a null value removes a header. ``user_id`` is left out unless the row sets it,
    since brokers refuse another user's id. Equal rows are merged once. Raises ``RowError``.
    """
    named = [(name, kind) for name, kind in PROPERTIES if name in columns and name != "headers"]
    encoded = [encoded_values(name, kind, columns[name]) for name, kind in named]
    headers: Iterable[Pairs | None] = repeat(None)
    if "headers" in columns:
        headers = _pairs(columns["headers"])
    names = [name for name, _ in named]
    known: dict[tuple[object, ...], bytes] = {}
    found: list[bytes | None] = []
    for row, (octets, own, *values) in enumerate(zip(content_headers.to_pylist(), headers, *encoded, strict=False)):
        if octets is None:
            found.append(None)
            continue
        key = (octets, own, *values)
        one = known.get(key)
        if one is None:
            one = known[key] = _merged(row, octets, dict(zip(names, values, strict=True)), own)
        found.append(one)
    return pa.array(found, pa.binary())


def _pairs(headers: pa.MapArray) -> Iterable[Pairs | None]:
    """Return each row's headers. If all rows have the same one, such as the mark of a replay, it is converted once."""
    places = headers.offsets
    if not headers.null_count and pc.all(pc.equal(pc.subtract(places[1:], places[:-1]), 1)).as_py():
        begin = places[0].as_py()
        names, texts = (each.slice(begin, len(headers)).unique() for each in (headers.keys, headers.items))
        if len(names) == len(texts) == 1:
            return repeat(((names[0].as_py(), texts[0].as_py()),))
    return (None if pairs is None else tuple(pairs) for pairs in headers.to_pylist())


def _merged(row: int, octets: bytes, own: dict[str, bytes], headers: Pairs | None) -> bytes:
    try:
        padded = HEAD + octets
        spans = property_spans(padded)
        flags = octets[0] << 8 | octets[1]
        if headers and not any(own.values()) and flags & (HAS_HEADERS | HAS_USER_ID) == HAS_HEADERS:
            # the usual case: nothing but the table changes, which follows content type and encoding
            _, start, stop = spans[(flags >> 15 & 1) + (flags >> 14 & 1)]
            table = _merged_table(padded[start:stop], headers)
            if table != _EMPTY_TABLE:
                return padded[len(HEAD) : start] + table + padded[stop:]
        values = {name: padded[start:stop] for name, start, stop in spans}
        given = {name: value for name, value in own.items() if value}
        if not given and not headers and "user_id" not in values:
            return octets
        values.pop("user_id", None)
        values.update(given)
        if headers:
            values["headers"] = _merged_table(values.get("headers", _EMPTY_TABLE), headers)
            if values["headers"] == _EMPTY_TABLE:
                del values["headers"]
    except ProtocolError as error:
        raise RowError(row, f"column {CONTENT_HEADER!r} is not a valid AMQP content header: {error}") from None
    except ValueError as error:
        raise RowError(row, f"column 'headers': {error}") from None
    flags = sum(FLAGS[name] for name in values)
    return flags.to_bytes(2, "big") + b"".join(values[name] for name, _ in PROPERTIES if name in values)


@lru_cache(TABLES_MAX)
def _merged_table(table: bytes, headers: Pairs) -> bytes:
    """Return the table with these headers; replaced headers keep their places."""
    own = {encode_short(name)[1:]: None if text is None else encode_value(text) for name, text in headers}
    entries: list[tuple[bytes, bytes]] = []
    for name, value in split_table(table):
        if name not in own:
            entries.append((name, value))
        elif (text := own[name]) is not None:
            entries.append((name, text))
            own[name] = None  # of several headers with one name, only the first is replaced
    entries += [(name, text) for name, text in own.items() if text is not None]
    return join_table(entries)
