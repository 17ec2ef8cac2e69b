"""JSON bodies as columns: flat objects by pyarrow, all others with the standard library only.

pyarrow is several times faster, but what is no object can end the process (pyarrow 26), and a body that is not one JSON
value would shift all rows after it. So it gets only bodies that match a regular expression for objects without nested
ones, and only types that it reads as the standard library does.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from leveret.wire.body_schema import Column

_NULL: Final = type(None)
_PYTHON: Final[dict[str, frozenset[type]]] = {
    "boolean": frozenset({bool}), "byte": frozenset({int}), "short": frozenset({int}), "int": frozenset({int}),
    "long": frozenset({int}), "float": frozenset({int, float, Decimal}), "double": frozenset({int, float, Decimal}),
    "string": frozenset({str}), "bytes": frozenset({str}), "timestamp": frozenset({str}), "date": frozenset({str}),
    "timestamp-millis": frozenset({int}), "timestamp-micros": frozenset({int}),
    "decimal": frozenset({str, int, float, Decimal}), "struct": frozenset({dict}), "list": frozenset({list}),
    "map": frozenset({dict}),
}  # fmt: skip
_NAMES: Final = {
    dict: "object", list: "array", str: "str", int: "int", float: "float", Decimal: "float", bool: "bool",
    _NULL: "null",
}  # fmt: skip
_MILLIS: Final = (-62_135_596_800_000, 253_402_300_799_999)
"""Milliseconds of the years 1 to 9999."""
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):?(\d\d))?", re.ASCII
)
_ALIKE: Final = frozenset({"boolean", "byte", "short", "int", "long", "double", "string"})
"""The kinds of columns that pyarrow reads as :func:`_array` does."""
_TEXT: Final = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_FIELD: Final = rf"[ \t]*{_TEXT}[ \t]*:[ \t]*(?:{_TEXT}|{_NUMBER}|true|false|null)[ \t]*"
FLAT: Final = rf"^\{{(?:{_FIELD}(?:,{_FIELD})*|[ \t]*)\}}$"
"""An object without arrays and objects, on one line, in the syntax of RE2."""
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_BLANK: Final = " \t\n\r"
Values = Sequence[Any]


class JsonBodies:
    """Parses bodies that are JSON objects; fields outside the schema are ignored, missing ones are null."""

    def __init__(self, columns: list[Column], types: list[pa.DataType]) -> None:
        self._columns = list(zip(columns, types, strict=True))
        exact = any(_has_decimals(column) for column in columns)
        # a float would differ from the number in the text; only schemas with decimals pay for exact parsing
        self._scan = json.JSONDecoder(parse_constant=_no_number, parse_float=Decimal if exact else None).raw_decode

    def decode(self, body: bytes) -> dict[str, Any]:
        """Parse a body into an object; ``ValueError`` if it is malformed or no object."""
        text = body.decode()
        if not text.startswith("{"):
            text = text.lstrip(_BLANK)
        value, end = self._scan(text)
        if end != len(text) and text[end:].strip(_BLANK):
            raise ValueError(f"JSON is malformed: trailing characters (character {end})")
        if type(value) is not dict:
            raise ValueError(f"Expected `object`, got `{_NAMES[type(value)]}`")
        return value

    def flat_arrays(self, bodies: pa.BinaryArray, is_strict: bool) -> list[pa.Array] | None:
        """Return the columns of these bodies without looking at each; None if one of them or a column needs a look.

        is_strict: None, too, if a body has a field outside the schema.
        """
        fields = {column.field: kind for column, kind in self._columns if column.kind in _ALIKE}
        if not len(bodies) or not fields or len(fields) < len(self._columns) or bodies.null_count:
            return None
        try:
            texts = bodies.cast(pa.string())
            if not pc.all(pc.match_substring_regex(texts, FLAT)).as_py():
                return None
            lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")
            reading = arrow_json.ReadOptions(use_threads=False, block_size=len(lines[0].as_buffer()) + 1)
            unknown = "error" if is_strict else "ignore"
            parsing = arrow_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior=unknown)
            table = arrow_json.read_json(pa.BufferReader(lines[0].as_buffer()), reading, parsing).combine_chunks()
        except pa.ArrowException:  # not UTF-8, of another type, out of range, a field twice, …
            return None
        found = [table.column(column.field).combine_chunks() for column, _ in self._columns]
        return found if table.num_rows == len(bodies) else None

    def arrays(self, rows: list[Any]) -> list[pa.Array]:
        """Return the columns of these objects; ``ValueError`` if a value does not fit its column."""
        return [
            _array([row.get(column.field) for row in rows], column, kind, f"$.{column.field}")
            for column, kind in self._columns
        ]


def _array(values: Values, column: Column, kind: pa.DataType, path: str) -> pa.Array:
    wanted = _PYTHON[column.kind]
    found = set(map(type, values)) - {_NULL}
    if not found <= wanted:
        raise ValueError(f"Expected `{column.kind} | null`, got `{_NAMES[(found - wanted).pop()]}` - at `{path}`")
    try:
        return _MAKE.get(column.kind, _plain)(values, column, kind, path)
    except (OverflowError, InvalidOperation, UnicodeEncodeError, pa.ArrowException) as error:
        raise ValueError(f"{error or type(error).__name__} - at `{path}`") from None


def _plain(values: Values, _column: Column, kind: pa.DataType, _path: str) -> pa.Array:
    return pa.array(values, kind)


def _floats(values: Values, _column: Column, kind: pa.DataType, path: str) -> pa.Array:
    array = pa.array([None if value is None else float(value) for value in values], pa.float64())
    if pc.any(pc.is_inf(array)).as_py():
        raise ValueError(f"Number out of range - at `{path}`")
    return array if kind == pa.float64() else array.cast(kind, safe=False)


def _octets(values: Values, _column: Column, kind: pa.DataType, path: str) -> pa.Array:
    try:
        return pa.array([None if value is None else b64decode(value, validate=True) for value in values], kind)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"Invalid base64 encoded string: {error} - at `{path}`") from None


def _instants(values: Values, _column: Column, kind: pa.DataType, path: str) -> pa.Array:
    return pa.array([None if value is None else _instant(value, path) for value in values], kind)


def _instant(text: str, path: str) -> datetime:
    """Parse a time in RFC 3339, rounded to microseconds; without a zone it is UTC, as in streams as tables."""
    found = _RFC3339.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        instant = datetime.fromisoformat(f"{found[1]}T{found[2]}").replace(tzinfo=UTC)
        if found[3]:
            instant += timedelta(microseconds=(int(found[3][:7].ljust(7, "0")) + 5) // 10)
        if found[4]:
            offset = timedelta(hours=int(found[5]), minutes=int(found[6]))
            instant = instant.replace(tzinfo=timezone(-offset if found[4] == "-" else offset)).astimezone(UTC)
        return instant
    except (ValueError, OverflowError):
        raise ValueError(f"Invalid RFC3339 encoded datetime - at `{path}`") from None


def _dates(values: Values, _column: Column, kind: pa.DataType, path: str) -> pa.Array:
    return pa.array([None if value is None else _date(value, path) for value in values], kind)


def _date(text: str, path: str) -> date:
    try:
        if _DATE.fullmatch(text) is None:
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"Invalid RFC3339 encoded date - at `{path}`") from None


def _since_1970(values: Values, column: Column, kind: pa.DataType, path: str) -> pa.Array:
    scale = 1 if column.kind == "timestamp-millis" else 1000
    first, last = _MILLIS[0] * scale, _MILLIS[1] * scale + scale - 1
    if any(value is not None and not first <= value <= last for value in values):
        raise ValueError(f"Expected a time in the years 1 to 9999 - at `{path}`")
    unit = "ms" if column.kind == "timestamp-millis" else "us"
    return pa.array(values, pa.timestamp(unit, tz="UTC")).cast(kind)


def _decimals(values: Values, _column: Column, kind: pa.DataType, _path: str) -> pa.Array:
    return pa.array([None if value is None else Decimal(value) for value in values], kind)


def _structs(values: Values, column: Column, kind: pa.DataType, path: str) -> pa.Array:
    parts = [
        _array(
            [None if value is None else value.get(part.field) for value in values],
            part,
            kind.field(index).type,
            f"{path}.{part.field}",
        )
        for index, part in enumerate(column.parts)
    ]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=absent)


def _lists(values: Values, column: Column, kind: pa.DataType, path: str) -> pa.Array:
    items = _array(
        [item for value in values if value is not None for item in value],
        column.parts[0],
        kind.value_type,
        f"{path}[...]",
    )
    return pa.ListArray.from_arrays(_bounds(values), items, type=kind)


def _maps(values: Values, column: Column, kind: pa.DataType, path: str) -> pa.Array:
    given = [value for value in values if value is not None]
    keys = pa.array([key for value in given for key in value], pa.string())
    items_given = [item for value in given for item in value.values()]
    items = _array(items_given, column.parts[0], kind.item_type, f"{path}[...]")
    return pa.MapArray.from_arrays(_bounds(values), keys, items, type=kind)


def _bounds(values: Values) -> pa.Array:
    """Return the offsets of lists or maps into their items; null marks a null list, as Arrow requires."""
    starts = [0, *accumulate(0 if value is None else len(value) for value in values)]
    marked = [None if value is None else start for value, start in zip(values, starts, strict=False)]
    return pa.array([*marked, starts[-1]], pa.int32())


_MAKE: Final[dict[str, Callable[[Values, Column, pa.DataType, str], pa.Array]]] = {
    "float": _floats, "double": _floats, "bytes": _octets, "timestamp": _instants, "date": _dates,
    "timestamp-millis": _since_1970, "timestamp-micros": _since_1970, "decimal": _decimals, "struct": _structs,
    "list": _lists, "map": _maps,
}  # fmt: skip


def _has_decimals(column: Column) -> bool:
    return column.kind == "decimal" or any(_has_decimals(part) for part in column.parts)


def _no_number(name: str) -> object:
    raise ValueError(f"JSON is malformed: {name} is not a JSON number")
