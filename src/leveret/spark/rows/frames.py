"""Rows as frames, one column at a time: equal values are encoded once, the rest is joined by Arrow.

Python objects per row are made only for headers that differ from row to row.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from leveret.wire import grammar
from leveret.wire.frames import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD, content_frames
from leveret.wire.properties import PROPERTIES

Piece: TypeAlias = "bytes | pa.Array"
"""Octets that all rows share, or an array with each row's own."""

# from buffers, as pa.array of a list imports pandas: half a second in each Python process that Spark starts
_OCTETS: Final = pa.Array.from_buffers(
    pa.binary(), 256, [None, pa.py_buffer(array("i", range(257))), pa.py_buffer(bytes(range(256)))]
)
_SHORT_MAX: Final = 255
FLAGS: Final = {name: 1 << 15 - index for index, (name, _) in enumerate(PROPERTIES)}
_HEADER_FIXED: Final = 12
"""Octets of class, weight and body size."""
_FRAME_END: Final = b"\xce"


class FrameEncoder:
    """Encodes basic.publish frames for one channel; ``frame_max`` is the connection's, 0 without limit."""

    def __init__(self, channel: int, frame_max: int, mandatory: bool) -> None:
        self._channel = channel
        self._frame_max = frame_max
        self._mandatory = mandatory
        self.body_max = frame_max - FRAME_OVERHEAD if frame_max else (1 << 31) - 1
        """Largest body in octets for :meth:`encode`, which makes one body frame per row."""
        self.properties_max = self.body_max - _HEADER_FIXED
        """Largest encoded properties in octets that fit into a frame."""

    def encode(
        self, body: pa.BinaryArray, columns: Mapping[str, pa.Array | str | int], given: pa.BinaryArray | None = None
    ) -> pa.BinaryArray:
        """Return the frames of each row.

        ``columns`` has exchange, routing_key and properties, each an array or a value for all rows; null leaves a
        property out, and timestamp is in seconds. ``given`` has encoded properties, which replace those of ``columns``
        unless null. Raises ``ValueError`` for a short string over 255 octets and a number out of range; the text names
        column and row.
        """
        properties: list[Piece] = [given] if given is not None else _properties(columns)
        if given is not None and given.null_count:
            properties = [pc.coalesce(given, _joined(_properties(columns), len(body)))]
        pieces = [*self._method(columns["exchange"], columns["routing_key"]), *self._header(body, properties)]
        sizes = pc.binary_length(body)
        pieces += [_packed(sizes, self._body_head), body, _FRAME_END]
        return _joined(pieces, len(body))

    def encode_one(self, body: bytes, exchange: str, routing_key: str, properties: bytes) -> bytes:
        """Return the frames of a message with a body of any size and encoded properties. Raises the errors of
        :meth:`encode`."""
        method = b"".join(piece for piece in self._method(exchange, routing_key) if isinstance(piece, bytes))
        header = struct.pack(">HHQ", 60, 0, len(body)) + properties
        return method + content_frames(self._channel, header, body, self._frame_max)

    def _method(self, exchange: pa.Array | str | int, routing_key: pa.Array | str | int) -> list[Piece]:
        exchange_piece, key_piece = _short("exchange", exchange), _short("routing_key", routing_key)
        sizes = _sizes([exchange_piece, key_piece])
        key = grammar.BASIC_PUBLISH.key.to_bytes(4, "big")

        def head(size: int) -> bytes:
            return struct.pack(">BHI", FRAME_METHOD, self._channel, size + 7) + key + b"\0\0"

        return [_packed(sizes, head), exchange_piece, key_piece, bytes([self._mandatory]), _FRAME_END]

    def _header(self, body: pa.BinaryArray, properties: list[Piece]) -> list[Piece]:
        def frame_head(size: int) -> bytes:
            return struct.pack(">BHIHH", FRAME_HEADER, self._channel, size + _HEADER_FIXED, 60, 0)

        return [
            _packed(_sizes(properties), frame_head),
            _packed(pc.binary_length(body), struct.Struct(">Q").pack),
            *properties,
        ]

    def _body_head(self, size: int) -> bytes:
        """Return the end of the header frame and the head of the body frame; an empty body has no frame."""
        return _FRAME_END + struct.pack(">BHI", FRAME_BODY, self._channel, size) if size else b""


class PublishFrames:
    """The frames of rows, one after the other, to be published in slices. ``rows`` has those of each row."""

    def __init__(self, rows: pa.BinaryArray) -> None:
        self.ends: memoryview = memoryview(rows.buffers()[1]).cast("B").cast("i")[rows.offset :]
        """Where each row begins, and at last the end."""
        self._data = rows.buffers()[2]

    def octets(self, first: int, end: int) -> bytes:
        """Return the frames of the rows from ``first`` on and below ``end``."""
        start: int = self.ends[first]
        return bytes(self._data.slice(start, self.ends[end] - start))


def _properties(columns: Mapping[str, pa.Array | str | int]) -> list[Piece]:
    """Return the property flags and the values of the properties that are set."""
    values: list[Piece] = []
    flags: int | pa.Array = 0
    for name, kind in PROPERTIES:
        value = columns.get(name)
        if value is None or (isinstance(value, pa.Array) and value.null_count == len(value)):
            continue
        bit = FLAGS[name]
        if isinstance(value, pa.Array) and value.null_count:
            flags = pc.add(flags, pc.if_else(value.is_valid(), bit, 0))
        else:
            flags = pc.add(flags, bit) if isinstance(flags, pa.Array) else flags + bit
        values.append(_ENCODE[kind](name, value))
    return [_packed(flags, struct.Struct(">H").pack), *values]


def encoded(name: str, kind: str, values: pa.Array) -> Piece:
    """Return each row's encoded value of a property, b"" for null. Raises ``RowError`` like
    :meth:`FrameEncoder.encode`."""
    return _ENCODE[kind](name, values)


def encoded_values(name: str, kind: str, values: pa.Array) -> list[bytes]:
    """Return the values of :func:`encoded` as a list."""
    found = encoded(name, kind, values)
    return [found] * len(values) if isinstance(found, bytes) else found.to_pylist()


def _joined(pieces: Sequence[Piece], rows: int) -> pa.BinaryArray:
    """Join the pieces of each row in order."""
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += piece
        else:
            merged.append(piece)
    scalars = [pa.scalar(piece, pa.binary()) if isinstance(piece, bytes) else piece for piece in merged]
    if all(isinstance(piece, bytes) for piece in merged):
        scalars.append(pa.array([b""] * rows, pa.binary()))
    return pc.binary_join_element_wise(*scalars, pa.scalar(b"", pa.binary()))


def _packed(values: int | pa.Array, pack: Callable[[int], bytes]) -> Piece:
    """Return numbers as octets; each distinct number is packed once."""
    if isinstance(values, int):
        return pack(values)
    coded = values.dictionary_encode()
    packed = [pack(value) for value in coded.dictionary.to_pylist()]
    if len(packed) == 1 and not coded.null_count:
        return packed[0]
    found = pa.array(packed, pa.binary()).take(coded.indices)
    return found.fill_null(b"") if found.null_count else found


def _sizes(pieces: Sequence[Piece]) -> int | pa.Array:
    """Return the octets of each row's pieces."""
    size = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    total: int | pa.Array = size
    for piece in pieces:
        if not isinstance(piece, bytes):
            total = pc.add(pc.cast(pc.binary_length(piece), pa.int64()), total)
    return total


def _short(name: str, value: pa.Array | str | int) -> Piece:
    """Encode short strings: an octet of length and the text; nothing for null."""
    if not isinstance(value, pa.Array):
        return _one_short(name, str(value))
    octets = value.cast(pa.binary())
    sizes = pc.binary_length(octets)
    longest = pc.max(sizes).as_py() or 0
    if longest > _SHORT_MAX:
        row = pc.index(pc.greater(sizes, _SHORT_MAX).fill_null(False), True).as_py()
        raise RowError(row, f"column {name!r} has {sizes[row].as_py()} octets, but AMQP allows only {_SHORT_MAX}")
    joined = pc.binary_join_element_wise(_OCTETS.take(sizes), octets, pa.scalar(b"", pa.binary()))
    return joined.fill_null(b"") if joined.null_count else joined


def _one_short(name: str, text: str) -> bytes:
    octets = text.encode()
    if len(octets) > _SHORT_MAX:
        raise ValueError(f"option for {name} has {len(octets)} octets, but AMQP allows only {_SHORT_MAX}")
    return bytes([len(octets)]) + octets


def _octet(name: str, value: pa.Array | str | int) -> Piece:
    if not isinstance(value, pa.Array):
        return bytes([int(value)])
    bad = pc.or_(pc.less(value, 0), pc.greater(value, 255)).fill_null(False)
    row = pc.index(bad, True).as_py()
    if row >= 0:
        raise RowError(row, f"column {name!r} is {value[row].as_py()}, but AMQP allows only 0 to 255")
    return _packed(value, lambda number: bytes([number]))


def _long(name: str, value: pa.Array | str | int) -> Piece:
    if isinstance(value, pa.Array):
        row = pc.index(pc.less(value, 0).fill_null(False), True).as_py()
        if row >= 0:
            raise RowError(row, f"column {name!r} is before 1970, which AMQP cannot represent")
    return _packed(value if isinstance(value, pa.Array) else int(value), struct.Struct(">Q").pack)


def _table(name: str, value: pa.Array | str | int) -> Piece:
    assert isinstance(value, pa.Array)
    if pa.types.is_binary(value.type):  # already encoded
        return value
    begin, end = value.offsets[0].as_py(), value.offsets[-1].as_py()
    names, texts = value.keys.slice(begin, end - begin), value.items.slice(begin, end - begin)
    offsets = pc.subtract(value.offsets, pa.scalar(begin, pa.int32()))
    try:
        short_names = _short(name, names)
    except RowError as error:
        row = bisect_right(offsets.to_pylist(), error.row) - 1
        text = names[error.row].as_py()
        reason = f"short string of {len(text.encode())} octets; AMQP allows {_SHORT_MAX}: {text[:40]!r}..."
        raise RowError(row, f"column {name!r}: {reason}") from None
    kinds = _packed(pc.binary_length(texts), lambda size: b"S" + struct.pack(">I", size))
    fields = _joined([short_names, kinds, texts.cast(pa.binary()).fill_null(b"V")], len(names))
    tables = pc.binary_join(pa.ListArray.from_arrays(offsets, fields), b"")
    encoded = _joined([_packed(_sizes([tables]), struct.Struct(">I").pack), tables], len(value))
    return pc.if_else(value.is_valid(), encoded, b"") if value.null_count else encoded


_ENCODE: Final[dict[str, Callable[[str, pa.Array | str | int], Piece]]] = {
    "shortstr": _short,
    "octet": _octet,
    "longlong": _long,
    "table": _table,
}


class RowError(ValueError):
    """A row that cannot be a message: its index in the batch, and the reason."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason

    def __str__(self) -> str:
        return f"row {self.row}: {self.reason}"
