"""The columns of parsed bodies: read from Spark's DDL or types, and converted to types of Spark and Arrow."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from pyspark.sql import types as spark

from leveret.wire.body_schema import Column

_WORDS: Final = {
    "boolean": "boolean", "bool": "boolean", "tinyint": "byte", "byte": "byte", "smallint": "short", "short": "short",
    "int": "int", "integer": "int", "bigint": "long", "long": "long", "float": "float", "real": "float",
    "double": "double", "string": "string", "varchar": "string", "char": "string", "binary": "bytes",
    "timestamp": "timestamp", "timestamp_ltz": "timestamp", "date": "date", "decimal": "decimal", "dec": "decimal",
    "numeric": "decimal",
}  # fmt: skip
_SPARK: Final[dict[str, spark.DataType]] = {
    "boolean": spark.BooleanType(), "byte": spark.ByteType(), "short": spark.ShortType(), "int": spark.IntegerType(),
    "long": spark.LongType(), "float": spark.FloatType(), "double": spark.DoubleType(), "string": spark.StringType(),
    "bytes": spark.BinaryType(), "timestamp": spark.TimestampType(), "timestamp-millis": spark.TimestampType(),
    "timestamp-micros": spark.TimestampType(), "date": spark.DateType(),
}  # fmt: skip
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_ARROW: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "int": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "bytes": pa.binary(), "timestamp": _INSTANT,
    "timestamp-millis": _INSTANT, "timestamp-micros": _INSTANT, "date": pa.date32(),
}  # fmt: skip
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:]))")


def spark_type(column: Column) -> spark.DataType:
    """Return the Spark type of a column; everything is nullable."""
    if column.kind == "decimal":
        return spark.DecimalType(column.precision, column.scale)
    if column.kind == "struct":
        return spark.StructType([spark.StructField(part.name, spark_type(part)) for part in column.parts])
    if column.kind == "list":
        return spark.ArrayType(spark_type(column.parts[0]))
    if column.kind == "map":
        return spark.MapType(spark.StringType(), spark_type(column.parts[0]))
    return _SPARK[column.kind]


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type that Spark expects, including the names of its parts."""
    if column.kind == "decimal":
        return pa.decimal128(column.precision, column.scale)
    if column.kind == "struct":
        return pa.struct([pa.field(part.name, arrow_type(part)) for part in column.parts])
    if column.kind == "list":
        return pa.list_(pa.field("element", arrow_type(column.parts[0])))
    if column.kind == "map":
        return pa.map_(pa.string(), arrow_type(column.parts[0]))
    return _ARROW[column.kind]


def of_ddl(text: str) -> list[Column]:
    """Parse a text like ``station STRING, delay_min INT`` into columns; ``ValueError`` tells what is wrong with it."""
    return _Ddl(text).columns()


class _Ddl:
    """Parses the part of Spark's DDL that defines columns. Spark's own parser is in the JVM, and data sources run in
    processes without one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[bool, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._wrong(f"{text[at:].strip()[:20]!r} is not allowed there")
            quoted = found[1]
            self._tokens.append((quoted is not None, found[2] if quoted is None else quoted.replace("``", "`")))
            at = found.end()
        self._at = 0

    def columns(self) -> list[Column]:
        found = self._fields()
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at][1]!r} is not allowed there")
        return found

    def _fields(self) -> list[Column]:
        found: list[Column] = []
        while True:
            name = self._next("a column's name")
            self._skip(":")
            column = self._type(name)
            if self._skip("not"):
                raise self._wrong(f"column {name!r}: a body may lack this field, so omit NOT NULL")
            if self._skip("comment"):
                self._next("a comment")
            if any(other.name.lower() == name.lower() for other in found):
                raise self._wrong(f"column {name!r} occurs twice")
            found.append(column)
            if not self._skip(","):
                return found

    def _type(self, name: str) -> Column:
        word = self._next(f"the type of {name!r}").lower()
        if word == "struct":
            self._expect("<")
            column = Column(name, "struct", self._fields())
            self._expect(">")
            return column
        if word == "array":
            self._expect("<")
            column = Column(name, "list", [self._type("element")])
            self._expect(">")
            return column
        if word == "map":
            self._expect("<")
            if self._type("key").kind != "string":
                raise self._wrong(f"column {name!r}: the keys of a map must be strings")
            self._expect(",")
            column = Column(name, "map", [self._type("value")])
            self._expect(">")
            return column
        kind = _WORDS.get(word)
        if kind is None:
            raise self._wrong(f"column {name!r} has a type that bodies cannot have: {word}")
        return self._numbers(Column(name, kind))

    def _numbers(self, column: Column) -> Column:
        numbers: list[int] = []
        if self._skip("("):
            numbers.append(self._number(column))
            if self._skip(","):
                numbers.append(self._number(column))
            self._expect(")")
        if column.kind == "decimal":
            column.precision, column.scale = (numbers + [10, 0][len(numbers) :])[:2]
            if not 0 < column.precision <= 38 or column.scale > column.precision:
                raise self._wrong(
                    f"column {column.name!r}: a decimal has at most 38 digits, and its scale must not exceed them"
                )
        return column

    def _number(self, column: Column) -> int:
        text = self._next("a number")
        if not text.isdecimal():
            raise self._wrong(f"column {column.name!r}: {text!r} is not a number of digits")
        return int(text)

    def _next(self, wanted: str) -> str:
        if self._at >= len(self._tokens) or (not self._tokens[self._at][0] and self._tokens[self._at][1] in "<>(),:"):
            raise self._wrong(f"{wanted} is missing")
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _skip(self, word: str) -> bool:
        if self._at < len(self._tokens):
            quoted, token = self._tokens[self._at]
            if not quoted and token.lower() == word:
                self._at += 1
                return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            raise self._wrong(f"{sign!r} is missing")

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"{what} (in the columns {self._text[:200]!r})")
