"""x-leveret-schema: allowed schemas, error texts, and the conversion of bodies."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from leveret.lake.bodies import TableBodyParser
from leveret.lake.rows import COLUMNS
from leveret.wire.body_schema import COLUMNS_MAX, OWN_COLUMNS, SchemaRefused, parse_schema


def parsed(schema: object, *bodies: bytes) -> list[dict[str, Any]]:
    parser = TableBodyParser(parse_schema(json.dumps(schema)))
    columns = parser.parse(pa.array(bodies, pa.binary()))
    batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(parser.fields))
    batch.validate(full=True)
    return list(batch.to_pylist())


def fields(*given: object) -> list[dict[str, object]]:
    """Return fields of these types, named a, b, c."""
    return [{"name": name, "type": kind} for name, kind in zip("abcdefgh", given, strict=False)]


def refusal(schema: object) -> str:
    with pytest.raises(SchemaRefused) as refused:
        parse_schema(schema if isinstance(schema, str) else json.dumps(schema))
    return str(refused.value)


def test_the_table_s_own_columns_are_known() -> None:
    """OWN_COLUMNS is a copy: the broker checks schemas without pyarrow."""
    assert {*OWN_COLUMNS} == {field.name for field in COLUMNS} | {"parse_error", "date"}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "it is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[" * 100_000, "a schema has at most 65536 octets"),
        ("[" * 50_000, "it is nested too deeply"),
        ("null", "it is neither a list of fields, for JSON bodies, nor an Avro record"),
        ({"type": "string"}, "it is neither a list of fields, for JSON bodies, nor an Avro record"),
        ([], "it has no fields"),
        ([1], 'it has a field without a "name" and a "type": 1'),
        ([{"name": "a"}], 'it has a field without a "name" and a "type": {"name": "a"}'),
        (fields("text"), 'field "a" has an unknown type "text"'),
        (fields("null"), 'field "a" has an unknown type "null"'),
        (fields(["int", "string"]), 'field "a" is a union of several types; a column can have one type and null'),
        (fields({"type": "array"}), 'field "a" has no type: null'),
        (fields({"type": "record"}), 'field "a" has no fields'),
        (fields({"type": "enum"}), 'field "a": JSON bodies have no type enum; use string'),
        (
            fields({"type": "int", "logicalType": "date"}),
            'field "a": dates in JSON bodies are text; use the type "date"',
        ),
        (fields({"type": "bytes", "logicalType": "decimal"}), 'field "a" is a decimal without "precision" and "scale"'),
        (
            fields({"type": "bytes", "logicalType": "decimal", "precision": 39}),
            'field "a": a decimal has at most 38 digits, and its scale must not exceed them',
        ),
        ([{"name": "a b", "type": "int"}], '"a b" can\'t be a column\'s name; "column" renames it'),
        ([*fields("int"), {"name": "A", "type": "int"}], 'it has the column "A" twice'),
        (
            [{"name": "Offset", "type": "long"}],
            'every table already has a column "Offset"; rename the field with "column"',
        ),
        ({"type": "record", "fields": fields("int")}, 'it is of type record and has no "name"'),
        ({"type": "record", "name": "R", "fields": fields("timestamp")}, 'field "a" has an unknown type "timestamp"'),
        ({"type": "record", "name": "R", "fields": fields("R")}, 'field "a" contains itself: R'),
        (
            {"type": "record", "name": "R", "fields": fields({"type": "fixed", "name": "F"})},
            'field "a" is of type fixed and has no "size"',
        ),
    ],
)
def test_what_is_refused_and_why(schema: object, text: str) -> None:
    assert refusal(schema) == text


def test_limits_of_a_schema() -> None:
    assert "too many columns" in refusal([{"name": f"c{n}", "type": "int"} for n in range(COLUMNS_MAX + 1)])
    deep: object = "int"
    for _ in range(20):
        deep = {"type": "array", "items": deep}
    assert "nested too deeply" in refusal(fields(deep))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["int", "record", "array", "map", "name", "fixed", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "logicalType", "precision", "size"]), inner
        )
    ),
    max_leaves=12,
)


@given(_json)
def test_whatever_is_given_is_understood_or_refused(given: object) -> None:
    try:
        schema = parse_schema(json.dumps(given))
    except SchemaRefused:
        return
    TableBodyParser(schema).parse(pa.array([b"{}", b"\0"], pa.binary()))


JSON_TYPES = [
    ("boolean", b"true", True, b"1"),
    ("int", b"-2147483648", -(1 << 31), b"2147483648"),
    ("long", b"9223372036854775807", (1 << 63) - 1, b"9223372036854775808"),
    ("double", b"1", 1.0, b'"1"'),
    ("float", b"0.5", 0.5, b"[]"),
    ("string", b'"\\u00e4\\n"', "ä\n", b"1"),
    ("bytes", b'"AQI="', b"\x01\x02", b'"*"'),
    ("timestamp", b'"2013-01-01T05:15:00+01:00"', datetime(2013, 1, 1, 4, 15, tzinfo=UTC), b'"yesterday"'),
    ("timestamp", b'"2013-01-01T05:15:00.5"', datetime(2013, 1, 1, 5, 15, 0, 500_000, tzinfo=UTC), b"1"),
    ("date", b'"2013-01-01"', date(2013, 1, 1), b'"2013-13-01"'),
    ({"type": "long", "logicalType": "timestamp-millis"}, b"1500", datetime.fromtimestamp(1.5, UTC), b"9e18"),
    ({"type": "long", "logicalType": "timestamp-micros"}, b"5", datetime(1970, 1, 1, 0, 0, 0, 5, UTC), b'"5"'),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        b"12.34", Decimal("12.34"), b"123.456",
    ),
    ({"type": "array", "items": "int"}, b"[1,null]", [1, None], b'["a"]'),
    ({"type": "map", "values": "int"}, b'{"x":1}', [("x", 1)], b'{"x":"y"}'),
    (
        {"type": "record", "fields": fields("int", ["null", "string"])},
        b'{"a":1,"z":2}', {"a": 1, "b": None}, b'{"a":"x"}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value", "strange"), JSON_TYPES)
def test_json_types(kind: object, text: bytes, value: object, strange: bytes) -> None:
    good, none, missing, bad = parsed(fields(kind), b'{"a":%s}' % text, b'{"a":null}', b"{}", b'{"a":%s}' % strange)
    assert good == {"a": value, "parse_error": None}
    assert none == missing == {"a": None, "parse_error": None}
    assert bad["a"] is None
    assert bad["parse_error"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"[]", b"1", b"{", b'{"a":1}{"a":2}', b'{"a":1},', b"\xff", b'{"a":"\xff"}', b"[" * 100_000, b"\0",
        b'{"a":NaN}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_json_object_spoils_no_other(body: bytes) -> None:
    rows = parsed(fields("string", "int"), b'{"a":"x"}', body, b' {"a":"y",\n"b":2}\r\n')
    assert [row["a"] for row in rows] == ["x", None, "y"]
    assert [row["parse_error"] is None for row in rows] == [True, False, True]


def test_a_column_of_another_name() -> None:
    schema = [
        {"name": "timestamp", "type": "long", "column": "sent"},
        {"name": "a b/c", "type": "int", "column": "abc"},
    ]
    assert parsed(schema, b'{"timestamp":5,"a b/c":1}') == [{"sent": 5, "abc": 1, "parse_error": None}]


AVRO = {
    "type": "record", "name": "Flight", "namespace": "air", "doc": "one",
    "fields": [
        {"name": "station", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
        {"name": "departed", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["DEPARTURE", "ARRIVAL"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "other", "type": "air.Kind"},
        {"name": "legs", "type": {"type": "array", "items": {
            "type": "record", "name": "Leg", "fields": [{"name": "to", "type": "string"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "body", "type": "boolean", "column": "is_widebody"},
    ],
}  # fmt: skip
FLIGHT: dict[str, Any] = {
    "station": "JFK", "delay": None, "departed": datetime(2013, 1, 1, 5, 15, tzinfo=UTC), "day": date(2013, 1, 1),
    "fare": Decimal("129.50"), "id": "7c3c5f2e-8a3f-4a53-9d6b-6a0e4d8f3a11", "at": 18_900_000, "kind": "ARRIVAL",
    "hash": b"\1\2\3\4", "other": "DEPARTURE", "legs": [{"to": "LHR"}], "tags": {"x": 0.5}, "body": True,
}  # fmt: skip


def avro(record: dict[str, Any]) -> bytes:
    plain = json.loads(json.dumps(AVRO))
    plain["fields"][5]["type"] = "string"
    plain["fields"][6]["type"] = "int"
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(plain), record)
    return file.getvalue()


def test_avro_types() -> None:
    [row] = parsed(AVRO, avro(FLIGHT))
    expected = FLIGHT | {"tags": [("x", 0.5)], "is_widebody": True, "parse_error": None}
    del expected["body"]
    assert row == expected


def test_avro_bodies_that_cannot_be_read_spoil_no_other() -> None:
    whole = avro(FLIGHT)
    bodies = [whole, whole[:-1], whole + b"\0", b"", b"{}", whole]
    rows = parsed(AVRO, *bodies)
    assert [row["station"] for row in rows] == ["JFK", None, None, None, None, "JFK"]
    assert [row["parse_error"] for row in rows[1:3]][1] == "1 octets follow the datum"
    assert all(row["parse_error"] for row in rows[1:5])


def test_an_avro_datum_behind_its_fingerprint() -> None:
    head = b"\xc3\x01" + bytes.fromhex(fingerprint(to_parsing_canonical_form(AVRO), "CRC-64-AVRO"))
    [row, other] = parsed(AVRO, head + avro(FLIGHT), b"\xc3\x01" + bytes(8) + avro(FLIGHT))
    assert row["station"] == "JFK"
    assert other["parse_error"]


def test_the_fingerprint_is_avro_s() -> None:
    """Apache Avro's Java computes the same for "int" (0x7275d51a3f395c8f), here in little-endian order."""
    assert fingerprint(to_parsing_canonical_form("int"), "CRC-64-AVRO") == "8f5c393f1ad57572"


def test_an_array_that_claims_to_be_long_is_not_read_for_ever() -> None:
    items = {"type": "fixed", "name": "F", "size": 4}
    schema = {"type": "record", "name": "R", "fields": fields({"type": "array", "items": items})}
    [row] = parsed(schema, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    assert row == {"a": None, "parse_error": "the body ends inside the datum"}


@given(st.binary(max_size=60))
def test_any_octets_are_a_row_or_an_error(body: bytes) -> None:
    [row] = parsed(AVRO, body)
    assert (row["parse_error"] is None) == (row["station"] is not None)


def test_a_fixed_that_is_cut_off_is_no_shorter_one() -> None:
    schema = {"type": "record", "name": "R", "fields": fields({"type": "fixed", "name": "F", "size": 4})}
    [whole, cut] = parsed(schema, b"abcd", b"ab")
    assert whole == {"a": b"abcd", "parse_error": None}
    assert cut == {"a": None, "parse_error": "the body ends inside the datum"}


def test_a_schema_that_only_the_library_refuses_costs_no_row() -> None:
    symbols = {"type": "enum", "name": "E", "symbols": ["a", "a"]}
    rows = parsed({"type": "record", "name": "R", "fields": fields(symbols)}, b"\0", b"")
    assert [row["a"] for row in rows] == [None, None]
    assert all(row["parse_error"].startswith("the schema can't be used: ") for row in rows)
