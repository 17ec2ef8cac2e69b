"""x-leveret-schema: describes a stream's bodies, so that its table gets columns for their fields.

The argument's text is JSON, in terms of an Avro schema (Avro 1.12, "Schema Declaration"):

    [{"name": "station", "type": "string"}, {"name": "delay_min", "type": "int"}]          bodies are JSON objects
    {"type": "record", "name": "Flight", "fields": [{"name": "station", "type": "string"}]}     bodies are Avro data

Both have fields with a name and a type; a "column" in one of the outermost fields gives the table's column another
name. JSON bodies support "timestamp" (text of RFC 3339) and "date" besides Avro's types. A union is one type and
"null": all columns may be null anyway.
"""

from __future__ import annotations

import json
import re
from typing import Final

SCHEMA: Final = "x-leveret-schema"
JSON: Final = "json"
AVRO: Final = "avro"
OCTETS_MAX: Final = 65_536
COLUMNS_MAX: Final = 1_000
DEPTH_MAX: Final = 16
DECIMAL_DIGITS_MAX: Final = 38
OWN_COLUMNS: Final = (
    "offset", "timestamp", "exchange", "routing_key", "message_id", "properties", "headers", "raw_properties", "body",
    "parse_error", "date",
)  # fmt: skip
"""Columns that each table has; date is the partition's."""

_PRIMITIVE: Final = ("boolean", "int", "long", "float", "double", "string", "bytes")
_OF_JSON: Final = ("timestamp", "date")
# (logical type, type beneath) -> kind; others have no meaning, as in Avro
_LOGICAL: Final[dict[tuple[str, str], str]] = {
    ("timestamp-millis", "long"): "timestamp-millis",
    ("timestamp-micros", "long"): "timestamp-micros",
    ("date", "int"): "date",
    ("uuid", "string"): "string",
    ("decimal", "bytes"): "decimal",
    ("decimal", "fixed"): "decimal",
}
# what Avro writes as numbers and people write as text has no common form in JSON
_LOGICAL_OF_JSON: Final = ("timestamp-millis", "timestamp-micros", "decimal", "string")
_COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


class SchemaRefused(Exception):
    """A schema that cannot be used; str() says what is wrong with it."""


class Column:
    """A column, or a part of one."""

    def __init__(self, name: str, kind: str, parts: list[Column] | None = None) -> None:
        self.name = name
        self.field = name  # its name in the body
        # boolean, int, long, float, double, string, bytes, timestamp, timestamp-millis, timestamp-micros, date,
        # decimal, list, map or struct
        self.kind = kind
        # the columns of a struct, the items of a list, the values of a map
        self.parts = parts if parts is not None else []
        self.precision = 0  # precision and scale of a decimal, in digits
        self.scale = 0

    def __repr__(self) -> str:
        return f"<{self.name}: {self.kind} {self.parts or ''}>"


class Schema:
    """A parsed schema."""

    def __init__(self, bodies: str, columns: list[Column], text: str) -> None:
        self.bodies = bodies  # JSON or AVRO
        self.columns = columns
        self.text = text  # as it was given


def parse_schema(text: str) -> Schema:
    """Parse a schema. SchemaRefused if it is invalid."""
    if len(text.encode("utf-8", "surrogateescape")) > OCTETS_MAX:
        raise SchemaRefused(f"a schema has at most {OCTETS_MAX} octets")
    try:
        given: object = json.loads(text)
    except ValueError as error:
        raise SchemaRefused(f"it is not JSON: {error}") from None
    except RecursionError:
        raise SchemaRefused("it is nested too deeply") from None
    reader = _Reader(JSON if isinstance(given, list) else AVRO)
    if isinstance(given, list):
        columns = reader.fields(given, "it", 0)
    elif isinstance(given, dict) and given.get("type") == "record":
        columns = reader.column("it", given, "it", 0).parts
    else:
        raise SchemaRefused("it is neither a list of fields, for JSON bodies, nor an Avro record")
    for column in columns:
        if column.name.lower() in OWN_COLUMNS:
            raise SchemaRefused(f'every table already has a column "{column.name}"; rename the field with "column"')
    return Schema(reader.bodies, columns, text)


def refused_schema(text: str) -> str:
    """What is wrong with a schema, "" if nothing is."""
    try:
        parse_schema(text)
    except SchemaRefused as refused:
        return str(refused)
    return ""


class _Reader:
    """Makes columns from parsed JSON; remembers the named types that it has seen."""

    def __init__(self, bodies: str) -> None:
        self.bodies = bodies
        self._count = 0
        self._named: dict[str, Column] = {}
        self._open: list[str] = []
        self._space = ""

    def fields(self, given: object, where: str, depth: int) -> list[Column]:
        if not isinstance(given, list) or not given:
            raise SchemaRefused(f"{where} has no fields")
        columns: list[Column] = []
        taken: set[str] = set()
        for each in given:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str) or "type" not in each:
                raise SchemaRefused(f'{where} has a field without a "name" and a "type": {_short(each)}')
            field = str(each["name"])
            name = each.get("column", field) if depth == 0 else field
            if not isinstance(name, str) or not _COLUMN.fullmatch(name):
                hint = '; "column" renames it' if name == field and depth == 0 else ""
                raise SchemaRefused(f"{_short(name)} can't be a column's name{hint}")
            if name.lower() in taken:  # queries ignore case
                raise SchemaRefused(f'{where} has the column "{name}" twice')
            taken.add(name.lower())
            column = self.column(name, each["type"], f'field "{field}"', depth + 1)
            column.field = field
            columns.append(column)
        return columns

    def column(self, name: str, given: object, where: str, depth: int) -> Column:
        self._count += 1
        if depth > DEPTH_MAX or self._count > COLUMNS_MAX:
            raise SchemaRefused(f"{where} is nested too deeply" if depth > DEPTH_MAX else "it has too many columns")
        if isinstance(given, list):
            return self._union(name, given, where, depth)
        if isinstance(given, str):
            return self._by_name(name, given, where)
        if not isinstance(given, dict):
            raise SchemaRefused(f"{where} has no type: {_short(given)}")
        kind = given.get("type")
        if kind == "record":
            return self._record(name, given, where, depth)
        if kind == "array":
            return Column(name, "list", [self.column("item", given.get("items"), where, depth + 1)])
        if kind == "map":
            return Column(name, "map", [self.column("value", given.get("values"), where, depth + 1)])
        if kind == "enum" or kind == "fixed":
            return self._enum_or_fixed(name, given, where)
        if not isinstance(kind, str):
            return self.column(name, kind, where, depth + 1)
        return self._logical(name, given, kind, where) or self._by_name(name, kind, where)

    def _by_name(self, name: str, given: str, where: str) -> Column:
        if given in _PRIMITIVE or (self.bodies == JSON and given in _OF_JSON):
            return Column(name, given)
        if given in self._open:
            raise SchemaRefused(f"{where} contains itself: {given}")
        known = self._named.get(given)
        if known is None:
            raise SchemaRefused(f"{where} has an unknown type {_short(given)}")
        column = Column(name, known.kind, known.parts)
        column.precision = known.precision
        column.scale = known.scale
        return column

    def _union(self, name: str, given: list[object], where: str, depth: int) -> Column:
        others = [each for each in given if each != "null"]
        if len(others) != 1:
            raise SchemaRefused(f"{where} is a union of several types; a column can have one type and null")
        return self.column(name, others[0], where, depth + 1)

    def _record(self, name: str, given: dict[str, object], where: str, depth: int) -> Column:
        own = self._own_names(given, where)
        around = self._space
        self._space = own[-1].rpartition(".")[0] if own else ""  # the namespace of the names inside
        self._open += own
        column = Column(name, "struct", self.fields(given.get("fields"), where, depth))
        del self._open[len(self._open) - len(own) :]
        self._space = around
        for each in own:
            self._named[each] = column
        return column

    def _enum_or_fixed(self, name: str, given: dict[str, object], where: str) -> Column:
        if self.bodies == JSON:
            raise SchemaRefused(f"{where}: JSON bodies have no type {given['type']}; use string")
        kind, wanted = ("string", "symbols") if given["type"] == "enum" else ("bytes", "size")
        if wanted not in given:
            raise SchemaRefused(f'{where} is of type {given["type"]} and has no "{wanted}"')
        column = self._logical(name, given, "fixed", where) if kind == "bytes" else None
        column = column or Column(name, kind)
        for each in self._own_names(given, where):
            self._named[each] = column
        return column

    def _logical(self, name: str, given: dict[str, object], beneath: str, where: str) -> Column | None:
        kind = _LOGICAL.get((str(given.get("logicalType")), beneath))
        if kind is None:
            return None
        if self.bodies == JSON and kind not in _LOGICAL_OF_JSON:
            raise SchemaRefused(f'{where}: dates in JSON bodies are text; use the type "date"')
        column = Column(name, kind)
        if kind == "decimal":
            precision, scale = given.get("precision"), given.get("scale", 0)
            if type(precision) is not int or type(scale) is not int:
                raise SchemaRefused(f'{where} is a decimal without "precision" and "scale"')
            if not 0 < precision <= DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
                raise SchemaRefused(
                    f"{where}: a decimal has at most {DECIMAL_DIGITS_MAX} digits, and its scale must not exceed them"
                )
            column.precision = precision
            column.scale = scale
        return column

    def _own_names(self, given: dict[str, object], where: str) -> list[str]:
        """The names under which a named type is known from here on, the full one last; in JSON bodies it needs none."""
        name, space = given.get("name"), given.get("namespace", self._space)
        if name is None and self.bodies == JSON:
            return []
        if not isinstance(name, str) or not name:
            raise SchemaRefused(f'{where} is of type {given.get("type")} and has no "name"')
        if "." in name:
            return [name.rpartition(".")[2], name]
        return [name, f"{space}.{name}"] if isinstance(space, str) and space else [name]


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
