"""Parses message bodies into the columns of a stream's schema; a body that cannot be read gets a reason instead."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, TypedDict

import msgspec
import pyarrow as pa

from leveret.lake.properties import TIMESTAMP
from leveret.wire.body_schema import AVRO, Column, Schema

PARSE_ERROR: Final = "parse_error"
REASON_OCTETS_MAX: Final = 500

_ARROW: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "bytes": pa.binary(), "timestamp": TIMESTAMP, "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP, "date": pa.date32(),
}  # fmt: skip
_MILLIS: Final = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999, in milliseconds since 1970."""


def _between(first: int, last: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=first, le=last)]


_JSON: Final[dict[str, Any]] = {
    "boolean": bool, "int": _between(-(1 << 31), (1 << 31) - 1), "long": _between(-(1 << 63), (1 << 63) - 1),
    "float": float, "double": float, "string": str, "bytes": bytes, "timestamp": datetime, "date": date,
    "timestamp-millis": _between(*_MILLIS), "timestamp-micros": _between(1000 * _MILLIS[0], 1000 * _MILLIS[1] + 999),
    "decimal": Decimal,
}  # fmt: skip
# logical types that fastavro may convert; values of others stay numbers
_AVRO_LOGICAL: Final = ("timestamp-millis", "timestamp-micros", "date", "decimal")
Row = Sequence[Any]


class TableBodyParser:
    """Parses the bodies of one stream. `fields` are the Arrow fields of the columns that `parse` returns."""

    def __init__(self, schema: Schema) -> None:
        self._columns = schema.columns
        self.fields = [pa.field(each.name, arrow_type(each)) for each in schema.columns]
        self.fields.append(pa.field(PARSE_ERROR, pa.string()))
        self._nothing: Row = (None,) * len(schema.columns)
        try:
            self._decode = (avro_decoder if schema.bodies == AVRO else json_decoder)(schema)
        except Exception as error:  # the library may refuse a schema that the broker accepted: all rows get this reason
            self._decode = _refusing(f"the schema can't be used: {_reason(error)}")

    def parse(self, bodies: pa.BinaryArray) -> list[pa.Array]:
        """Return the columns of the schema, and parse_error: the reason why a row has no values."""
        rows: list[Row] = []
        reasons: list[str | None] = []
        for body in bodies.to_pylist():
            try:
                rows.append(self._decode(body))
                reasons.append(None)
            except Exception as error:  # libraries raise any type of error for bytes from outside; all mean the same
                rows.append(self._nothing)
                reasons.append(_reason(error))
        try:
            columns = self._arrays(rows)
        except Exception:
            self._drop_unfit(rows, reasons)
            columns = self._arrays(rows)
        return [*columns, pa.array(reasons, pa.string())]

    def _drop_unfit(self, rows: list[Row], reasons: list[str | None]) -> None:
        """Replace rows that were read but do not fit a column, such as a decimal with too many digits, by a reason."""
        for index, row in enumerate(rows):
            try:
                self._arrays([row])
            except Exception as error:
                rows[index] = self._nothing
                reasons[index] = _reason(error)

    def _arrays(self, rows: list[Row]) -> list[pa.Array]:
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        return [_array(list(values), column) for values, column in zip(columns, self._columns, strict=True)]


def _refusing(reason: str) -> Callable[[bytes], Row]:
    def decode(body: bytes) -> Row:
        raise ValueError(reason)

    return decode


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.encode("utf-8", "replace")[:REASON_OCTETS_MAX].decode("utf-8", "ignore")


def _array(values: list[Any], column: Column) -> pa.Array:
    if column.kind == "timestamp-millis" and any(isinstance(value, int) for value in values):
        return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
    return pa.array(values, arrow_type(column))


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a table's column."""
    if column.kind == "decimal":
        return pa.decimal128(column.precision, column.scale)
    if column.kind == "struct":
        return pa.struct([(part.name, arrow_type(part)) for part in column.parts])
    if column.kind == "list":
        return pa.list_(arrow_type(column.parts[0]))
    if column.kind == "map":
        return pa.map_(pa.string(), arrow_type(column.parts[0]))
    return _ARROW[column.kind]


def json_decoder(schema: Schema) -> Callable[[bytes], Row]:
    """Return a decoder of JSON objects. Fields that are not in the schema are ignored; missing ones are null."""
    names = {f"column{index}": column.field for index, column in enumerate(schema.columns)}
    fields = [(name, _json_type(column) | None, None) for name, column in zip(names, schema.columns, strict=True)]
    kind = msgspec.defstruct("Body", fields, rename=names, gc=False)
    decode, row = msgspec.json.Decoder(kind).decode, msgspec.structs.astuple
    return lambda body: row(decode(body))


def _json_type(column: Column) -> Any:
    if column.kind == "struct":
        make: Any = TypedDict
        return make(column.name, {part.name: _json_type(part) | None for part in column.parts}, total=False)
    if column.kind == "list":
        item: Any = _json_type(column.parts[0]) | None
        return list[item]
    if column.kind == "map":
        value: Any = _json_type(column.parts[0]) | None
        return dict[str, value]
    return _JSON[column.kind]


def avro_decoder(schema: Schema) -> Callable[[bytes], Row]:
    """Return a decoder of one Avro datum, with or without the header of Avro's single-object encoding."""
    import fastavro
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    given = json.loads(schema.text)
    parsed = fastavro.parse_schema(_known_logical(given))
    head = b"\xc3\x01" + bytes.fromhex(fingerprint(to_parsing_canonical_form(given), "CRC-64-AVRO"))
    names = [column.field for column in schema.columns]

    def decode(body: bytes) -> Row:
        file = _Body(body[len(head) :] if body.startswith(head) else body)
        record: Any = fastavro.schemaless_reader(file, parsed, None)
        if left := len(file.getbuffer()) - file.tell():
            raise ValueError(f"{left} octets follow the datum")
        return [record[name] for name in names]

    return decode


class _Body(io.BytesIO):
    """Raises EOFError at the end; otherwise an array that claims very many items would be read forever."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if size is not None and len(data) < size:
            raise EOFError("the body ends inside the datum")
        return data


def _known_logical(given: Any) -> Any:
    if isinstance(given, list):
        return [_known_logical(each) for each in given]
    if not isinstance(given, dict):
        return given
    return {
        key: _known_logical(value) for key, value in given.items() if key != "logicalType" or value in _AVRO_LOGICAL
    }
