"""Bodies as typed columns, without Spark; tables of streams (leveret.lake) are the oracle for what is an error."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.schema import fingerprint as fastavro_fingerprint
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from leveret.client import Delivery, Properties
from leveret.lake.bodies import TableBodyParser as TableParser
from leveret.spark.rows import json_bodies
from leveret.spark.rows.avro_bodies import fingerprint
from leveret.spark.rows.bodies import BodyParser
from leveret.spark.rows.columns import QUEUE_SCHEMA, STREAM_SCHEMA
from leveret.spark.rows.shape import RowOptions, RowShape
from leveret.spark.rows.typed import arrow_type, of_ddl, spark_type
from leveret.wire.body_schema import JSON, Schema, parse_schema
from leveret.wire.properties import encode_header

from .support import received

FIELDS = [
    {"name": "flag", "type": "boolean"},
    {"name": "small", "type": "int"},
    {"name": "large", "type": "long"},
    {"name": "half", "type": "float"},
    {"name": "number", "type": "double"},
    {"name": "text", "type": "string"},
    {"name": "octets", "type": "bytes"},
    {"name": "instant", "type": "timestamp"},
    {"name": "day", "type": "date"},
    {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
    {"name": "nested", "type": {"type": "record", "name": "N", "fields": [{"name": "x", "type": "int"}]}},
    {"name": "several", "type": {"type": "array", "items": "string"}},
    {"name": "by_name", "type": {"type": "map", "values": "double"}},
]
SCHEMA = json.dumps(FIELDS)
GOOD = {
    "flag": True, "small": -1, "large": 1 << 62, "half": 0.5, "number": 3, "text": "ü", "octets": "YQ==",
    "instant": "2013-01-01T05:30:00.1234567+05:30", "day": "2013-01-01", "millis": 1_000, "micros": 1_000_001,
    "price": "1.50", "nested": {"x": 1, "more": 2}, "several": ["a", None], "by_name": {"k": 1.5, "n": None},
}  # fmt: skip


def rows_of(arrays: list[pa.Array], names: list[str]) -> list[dict[str, Any]]:
    return list(pa.RecordBatch.from_arrays(arrays, names=names).to_pylist())


def both(text: str, bodies: list[bytes]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the source's rows and those of a stream's table, with parse_error as whether there is one."""
    schema = parse_schema(text)
    names = [*(column.name for column in schema.columns), "parse_error"]
    found = []
    for parser in (BodyParser(schema), TableParser(schema)):
        rows = rows_of(parser.parse(pa.array(bodies, pa.binary())), names)
        found.append([{**row, "parse_error": row["parse_error"] is not None} for row in rows])
    return found[0], found[1]


def bodies_with(field: str, *texts: str) -> list[bytes]:
    return [f'{{"{field}": {text}}}'.encode() for text in texts]


ODD = [
    json.dumps(GOOD).encode(),
    b"{}",
    b' \n{"small": 1}\t\r\n',
    b'{"small": 1} {"small": 2}',
    b'{"small": 1, "small": 2}',
    b'{"flag": null, "nested": null, "several": null, "by_name": null}',
    b'{"unknown": [1, {"a": null}], "small": 5}',
    b"", b"oops", b"null", b"[]", b"1", b'"text"', b"{", b'{"small": 1', b'{"small":}', b'{"a":1,}',
    b'\xef\xbb\xbf{"small": 1}', b"\x0c{}", b"{\x00\x22\x00", b'{"text": "\xff"}', b'{"text": "a\nb"}',
    b'{"z": NaN}', b'{"z": Infinity}', b'{"z": 01}', b'{"z": 1e999}', b'{"text": "\\ud83d\\ude00"}',
    b"{}null{}", b'{"nested": {"x": 1}', b'}{"small": 2}',
    *bodies_with("flag", "true", "1", '"true"'),
    *bodies_with("small", "1.0", "1e2", "-0", '"1"', "true", "2147483647", "2147483648", "-2147483649", "9" * 30),
    *bodies_with("large", "9223372036854775807", "9223372036854775808", "1.5"),
    *bodies_with("half", "1", "0.1", "true", "1e999"),
    *bodies_with("number", "1", "1.5", '"1"', "1e999", "12345678901234567890123", "-0.0", "false", "null"),
    *bodies_with("text", "1", '""', '"\\u0000"', "[]", '"\\x"'),
    *bodies_with("octets", '"YQ"', '"Y Q=="', '""', '"_-8="', "1", '"YQ==\\n"', '"\\u00fc"'),
    *bodies_with(
        "instant", '"2013-01-01T00:00:00Z"', '"2013-01-01T00:00:00"', '"2013-01-01 00:00:00z"', '"2013-01-01"',
        '"2013-01-01T00:00Z"', '"2013-01-01T00:00:00.9999999Z"', '"2013-01-01T00:00:00+0530"', '"2013-02-30T00:00:00Z"',
        '"2013-01-01T00:00:00+05"', '"2013-01-01T00:00:60Z"', '"2013-01-01T24:00:00Z"', '"2013-01-01T00:00:00,5Z"', "1",
    ),
    *bodies_with("day", '"2013-01-01"', '"20130101"', '"2013-W01-1"', '"2013-02-30"', "1"),
    *bodies_with("millis", "-62135596800000", "-62135596800001", "253402300799999", "253402300800000", "1.5", '"1"'),
    *bodies_with("micros", "253402300799999999", "253402300800000000", "-62135596800000000", "true"),
    *bodies_with("price", "1.5", "1", "1.10", '"1.555"', '"NaN"', '"x"', '"1000"', "1e1", "true", '"1e99"', "0.30"),
    *bodies_with("nested", '{"x": null}', '{"x": "1"}', "[]", "{}", '{"x": 1, "y": 2}'),
    *bodies_with("several", '["a", null]', "[]", "[1]", '"a"', "{}"),
    *bodies_with("by_name", '{"a": 1}', "{}", '{"a": "1"}', "[]", '{"a": null}'),
]  # fmt: skip


def test_each_json_body_reads_as_in_the_table_of_a_stream() -> None:
    read = {body: both(SCHEMA, [body]) for body in ODD}
    assert {body: (ours, theirs) for body, (ours, theirs) in read.items() if ours != theirs} == {}


def test_json_bodies_read_together_as_they_read_alone() -> None:
    ours, theirs = both(SCHEMA, ODD)
    assert ours == theirs
    assert ours[0] == {
        "flag": True, "small": -1, "large": 1 << 62, "half": 0.5, "number": 3.0, "text": "ü", "octets": b"a",
        "instant": datetime(2013, 1, 1, 0, 0, 0, 123457, UTC), "day": date(2013, 1, 1),
        "millis": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "micros": datetime(1970, 1, 1, 0, 0, 1, 1, UTC),
        "price": Decimal("1.50"), "nested": {"x": 1}, "several": ["a", None], "by_name": [("k", 1.5), ("n", None)],
        "parse_error": False,
    }  # fmt: skip


_NESTED = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 65), 1 << 65) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4) | st.sampled_from([GOOD[name] for name in GOOD]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["x", "k"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(list(GOOD)), _NESTED, max_size=3), max_size=4))
def test_any_json_objects_read_as_in_the_table_of_a_stream(objects: list[dict[str, Any]]) -> None:
    ours, theirs = both(SCHEMA, [json.dumps(each).encode() for each in objects])
    assert ours == theirs


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"oops", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"small": "much"}', "Expected `int | null`, got `str` - at `$.small`"),
        (b'{"nested": {"x": true}}', "Expected `int | null`, got `bool` - at `$.nested.x`"),
        (b'{"several": [1]}', "Expected `string | null`, got `int` - at `$.several[...]`"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"{} {}", "JSON is malformed: trailing characters (character 2)"),
    ],
)
def test_the_reason_says_what_is_wrong_and_where(body: bytes, reason: str) -> None:
    arrays = BodyParser(parse_schema(SCHEMA)).parse(pa.array([b"{}", body, b"{}"], pa.binary()))
    assert arrays[-1].to_pylist() == [None, reason, None]


RECORD: dict[str, Any] = {
    "type": "record", "name": "Flight", "namespace": "a.b",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": ["null", "int"], "default": None},
        {"name": "large", "type": "long", "column": "big"},
        {"name": "half", "type": "float"},
        {"name": "number", "type": "double"},
        {"name": "text", "type": "string"},
        {"name": "octets", "type": "bytes"},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "cost", "type": {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 6,
                                  "scale": 1}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Four", "size": 4, "namespace": "c"}},
        {"name": "again", "type": "c.Four"},
        {"name": "several", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "by_name", "type": {"type": "map", "values": "double"}},
        {"name": "nested", "type": {"type": "record", "name": "N", "fields": [{"name": "x", "type": "Kind"}]}},
    ],
}  # fmt: skip
DATUM = {
    "flag": True, "small": None, "large": -(1 << 62), "half": 0.5, "number": 2.5, "text": "ü", "octets": b"\xff",
    "millis": datetime(2013, 1, 1, tzinfo=UTC), "micros": datetime(2013, 1, 1, 0, 0, 0, 1, UTC),
    "day": date(1969, 12, 31), "price": Decimal("-1.50"), "cost": Decimal("12345.6"), "kind": "B", "raw": b"abcd",
    "again": b"efgh", "several": ["a", None, "b"], "by_name": {"k": 1.5, "l": -2.5}, "nested": {"x": "A"},
}  # fmt: skip


def avro(datum: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(RECORD), datum)
    return file.getvalue()


def test_our_fingerprint_is_that_of_avro() -> None:
    for given_schema in (RECORD, {"type": "record", "name": "ä", "fields": [{"name": "a", "type": {"type": "int"}}]}):
        expected = bytes.fromhex(fastavro_fingerprint(to_parsing_canonical_form(given_schema), "CRC-64-AVRO"))
        assert fingerprint(given_schema).to_bytes(8, "little") == expected


def test_avro_bodies_read_as_in_the_table_of_a_stream_however_they_are_cut() -> None:
    body = avro(DATUM)
    head = b"\xc3\x01" + fingerprint(RECORD).to_bytes(8, "little")
    other = avro({**DATUM, "small": 7, "several": [], "by_name": {}})
    cases = [body, head + body, other, body + b"\x00", head, b"", *(body[:end] for end in range(len(body)))]
    # 0x01 (-1) is left out: fastavro takes it for the last symbol of an enum, or the last branch of a union
    cases += [body[:at] + bytes([octet]) + body[at + 1 :] for at in range(len(body)) for octet in (0x02, 0x7F, 0xFF)]
    ours, theirs = both(json.dumps(RECORD), cases)
    assert repr(ours) == repr(theirs)  # some have NaN
    assert ours[0] == ours[1]
    assert ours[0]["parse_error"] is False
    assert ours[0]["by_name"] == [("k", 1.5), ("l", -2.5)]
    assert ours[2]["small"] == 7


@pytest.mark.parametrize("body", [b"\x01\x00", b"\x00\x01"], ids=["enum", "union"])
def test_a_number_below_zero_names_no_symbol_and_no_branch(body: bytes) -> None:
    kind = {"type": "enum", "name": "K", "symbols": ["A", "B"]}
    fields = [{"name": "kind", "type": kind}, {"name": "maybe", "type": ["null", "int"]}]
    schema = parse_schema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert "number -1" in BodyParser(schema).parse(pa.array([body], pa.binary()))[-1].to_pylist()[0]


def test_a_count_of_items_that_are_not_there_does_not_fill_the_memory() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}
    body = b"\xfe\xff\xff\xff\xff\x7f\x00"
    reasons = BodyParser(parse_schema(json.dumps(schema))).parse(pa.array([body], pa.binary()))
    assert reasons[-1].to_pylist() == ["the body ends inside the datum"]


@pytest.mark.parametrize("text", [SCHEMA, json.dumps(RECORD)], ids=["json", "avro"])
def test_the_arrow_types_are_those_that_spark_checks_for(text: str) -> None:
    columns = parse_schema(text).columns
    spark = StructType([StructField(column.name, spark_type(column)) for column in columns])
    ours = pa.schema([pa.field(column.name, arrow_type(column)) for column in columns])
    assert ours.equals(to_arrow_schema(spark, timezone="UTC"))


def test_ddl_says_what_a_body_holds() -> None:
    ddl = """station STRING COMMENT 'where, (exactly)', `delay min`: int, a array<struct<x:decimal(5,2),y:MAP<string,
    tinyint>>>, t timestamp, d DATE, n varchar(20), `t``k` binary, f real, p dec, s smallint, b bool, l long"""
    told = [f"{column.name} {spark_type(column).simpleString()}" for column in of_ddl(ddl)]
    assert told == [
        "station string", "delay min int", "a array<struct<x:decimal(5,2),y:map<string,tinyint>>>", "t timestamp",
        "d date", "n string", "t`k binary", "f float", "p decimal(10,0)", "s smallint", "b boolean", "l bigint",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("", "a column's name is missing"),
        ("station", "the type of 'station' is missing"),
        ("station text", "column 'station' has a type that bodies cannot have: text"),
        ("a int,", "a column's name is missing"),
        ("a int b int", "'b' is not allowed there"),
        ("a int, A int", "column 'A' occurs twice"),
        ("a int not null", "column 'a': a body may lack this field, so omit NOT NULL"),
        ("a map<int,int>", "the keys of a map must be strings"),
        ("a decimal(39,0)", "a decimal has at most 38 digits"),
        ("a decimal(x)", "'x' is not a number of digits"),
        ("a array<int", "'>' is missing"),
        ("a int ; b", "'; b' is not allowed there"),
    ],
)
def test_ddl_that_cannot_be_used(ddl: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of_ddl(ddl)


def delivery(body: bytes) -> Delivery:
    return Delivery(body, encode_header(Properties(message_id="m", type="event"), len(body)), "x", "k", 1, False, "c")


JSON_OPTIONS = {"parse": "json", "bodySchema": "station string, delay_min int"}


def test_typed_columns_stand_behind_those_of_messages_with_the_reason_of_those_that_have_none() -> None:
    schema = RowOptions.parse(JSON_OPTIONS).schema(QUEUE_SCHEMA)
    assert schema.names == [*QUEUE_SCHEMA.names, "station", "delay_min", "parse_error"]
    shape = RowOptions.parse(JSON_OPTIONS).shape(schema, QUEUE_SCHEMA)
    batch = shape.batches(received([delivery(b'{"station": "JFK", "delay_min": 3}'), delivery(b"oops")]))[0]
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    good, bad = batch.to_pylist()
    assert (good["station"], good["delay_min"], good["parse_error"], good["message_id"]) == ("JFK", 3, None, "m")
    assert (bad["station"], bad["delay_min"], bad["body"], bad["message_id"]) == (None, None, b"oops", "m")
    assert bad["parse_error"].startswith("Expecting value")


def test_pruned_rows_need_the_body_alone_and_the_whole_schema_still_counts() -> None:
    options = RowOptions.parse({**JSON_OPTIONS, "columns": "delay_min"})
    shape = options.shape(options.schema(STREAM_SCHEMA), STREAM_SCHEMA)
    assert shape.raw.names == ["body"]
    bodies = [b'{"delay_min": 3}', b'{"station": 1, "delay_min": 3}']
    batch = shape.batches(received([Delivery(body, b"not decoded", "", "", 1, False, "") for body in bodies]))[0]
    assert batch.to_pylist() == [{"delay_min": 3}, {"delay_min": None}]


def test_rows_without_typed_columns_parse_nothing() -> None:
    options = RowOptions.parse({**JSON_OPTIONS, "columns": "message_id"})
    shape = options.shape(options.schema(QUEUE_SCHEMA), QUEUE_SCHEMA)
    assert shape.raw.names == ["message_id"]
    assert shape.batches(received([delivery(b"oops")]))[0].to_pylist() == [{"message_id": "m"}]


def test_the_schema_of_the_query_says_it_where_the_option_does_not() -> None:
    asked = StructType([StructField(each.name, spark_type(each)) for each in of_ddl("n int, parse_error string")])
    shape = RowOptions.parse({"parse": "json"}).shape(asked, QUEUE_SCHEMA)
    assert shape.batches(received([delivery(b'{"n": 1}')]))[0].to_pylist() == [{"n": 1, "parse_error": None}]


def test_a_field_that_is_called_as_a_property_takes_its_place() -> None:
    options = RowOptions.parse({"parse": "json", "bodySchema": "type int", "columns": "type,message_id"})
    shape = options.shape(options.schema(QUEUE_SCHEMA), QUEUE_SCHEMA)
    assert shape.raw.names == ["message_id", "body"]
    assert shape.batches(received([delivery(b'{"type": 1}')]))[0].to_pylist() == [{"type": 1, "message_id": "m"}]


def test_a_shape_is_pickled_without_what_it_has_worked_out() -> None:
    options = RowOptions.parse(JSON_OPTIONS)
    shape = options.shape(options.schema(QUEUE_SCHEMA), QUEUE_SCHEMA)
    shape.batches(received([delivery(b"{}")]))
    pickled = pickle.dumps(shape)
    assert b"body_schema\nSchema" not in pickled
    assert b"leveret.wire" not in pickled
    copy: RowShape = pickle.loads(pickled)
    assert copy.batches(received([delivery(b'{"delay_min": 3}')]))[0].to_pylist()[0]["delay_min"] == 3


def test_the_schema_of_a_stream_is_used_where_it_is_asked_for() -> None:
    text = json.dumps([{"name": "station", "type": "string"}, {"name": "n", "type": "int", "column": "delay_min"}])
    options = RowOptions.parse({"parse": "stream", "columns": "delay_min,parse_error"}).of_stream(text)
    shape = options.shape(options.schema(STREAM_SCHEMA), STREAM_SCHEMA)
    assert shape.batches(received([delivery(b'{"n": 3}')]))[0].to_pylist() == [{"delay_min": 3, "parse_error": None}]
    assert shape.agrees(text)
    assert shape.typed == ("delay_min", "parse_error")
    with pytest.raises(ValueError, match="parse=stream: the stream has no x-leveret-schema"):
        RowOptions.parse({"parse": "stream"}).of_stream(None)


@pytest.mark.parametrize(
    ("schema", "agrees"),
    [
        ([{"name": "station", "type": "string"}, {"name": "delay_min", "type": ["null", "int"]}], True),
        ([{"name": "station", "type": "string"}], False),
        ([{"name": "station", "type": "string"}, {"name": "delay_min", "type": "long"}], False),
        ([{"name": "delay_min", "type": "int"}, {"name": "station", "type": "string"}], False),
        ([{"name": "s", "column": "station", "type": "string"}, {"name": "delay_min", "type": "int"}], False),
    ],
)
def test_columns_of_sealed_tables_are_used_where_the_schemas_agree(schema: list[Any], agrees: bool) -> None:
    options = RowOptions.parse(JSON_OPTIONS)
    shape = options.shape(options.schema(STREAM_SCHEMA), STREAM_SCHEMA)
    assert shape.agrees(json.dumps(schema)) is agrees
    assert not shape.agrees(None)


def test_avro_schemas_agree_where_their_data_are_the_same() -> None:
    plain = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    nullable = {**plain, "fields": [{"name": "a", "type": ["null", "int"]}]}
    options = RowOptions.parse({"parse": "avro", "avroSchema": json.dumps(plain)})
    shape = options.shape(options.schema(STREAM_SCHEMA), STREAM_SCHEMA)
    assert shape.agrees(json.dumps({**plain, "doc": "more"}))
    assert not shape.agrees(json.dumps(nullable))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parse": "xml"}, "option parse is json, avro or stream, not 'xml'"),
        ({"parse": "json"}, "option bodySchema is missing"),
        ({"parse": "avro"}, "option avroSchema is missing"),
        ({"bodySchema": "a int"}, "option bodySchema needs option parse=json"),
        ({"parse": "json", "avroSchema": "{}"}, "option avroSchema needs option parse=avro"),
        ({"parse": "json", "bodySchema": "a text"}, "option bodySchema: column 'a' has a type that bodies cannot have"),
        ({"parse": "avro", "avroSchema": "{"}, "option avroSchema: it is not JSON"),
        ({"parse": "avro", "avroSchema": '[{"name": "a", "type": "int"}]'}, "avroSchema describes json bodies"),
        ({"parse": "json", "bodySchema": "body string"}, "bodies have a field 'body', but every row already has"),
        ({"parse": "json", "bodySchema": "parse_error string"}, "bodies have a field 'parse_error'"),
        (
            {**JSON_OPTIONS, "columns": "late"},
            "option columns: there is no column 'late'; the columns are body, .*station",
        ),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RowOptions.parse(options).schema(QUEUE_SCHEMA)


def test_json_bodies_as_spark_names_their_types() -> None:
    parser = BodyParser(Schema(JSON, of_ddl("a tinyint, b smallint"), ""))
    bodies = [b'{"a": 127, "b": -32768}', b'{"a": 128}', b'{"b": 32768}']
    rows = rows_of(parser.parse(pa.array(bodies, pa.binary())), ["a", "b", "parse_error"])
    assert [(row["a"], row["b"], row["parse_error"] is None) for row in rows] == [
        (127, -32768, True), (None, None, False), (None, None, False),
    ]  # fmt: skip


# -- flat objects ------------------------------------------------------------------------------------------------------

FLAT_SCHEMA = json.dumps(FIELDS[:3] + FIELDS[4:6])
NUMBERS = ("0", "-0", "1", "01", "-", "1.0", "1e2", "1E-2", "1.", ".5", "1e999", "NaN", "Infinity", "0.1", "5e-324")
LARGE = ("2147483648", "9223372036854775808", "-9223372036854775808", "123456789012345678901234567890", "1e-400")
TEXTS = ('""', '"a"', r'"\u00e9\ud83d\ude00"', r'"\ud800"', r'"\/\n\\\""', r'"\x"', r'"\u12"', '"\t"', '"\0"', '"ü😀"')
OTHERS = ("true", "false", "null", "nul", "", "[]", "{}", "[1]", '{"x":1}', '"')
TOKENS = st.sampled_from([*NUMBERS, *LARGE, *TEXTS, *OTHERS])
NAMES_OF_FIELDS = st.sampled_from(["flag", "small", "large", "number", "text", "other", r"te\u0078t", ""])
FLAT_BODIES = st.builds(
    lambda fields, blank, end: "{" + ",".join(f'{blank}"{name}"{blank}:{token}{blank}' for name, token in fields) + end,
    st.lists(st.tuples(NAMES_OF_FIELDS, TOKENS), max_size=4),
    st.sampled_from(["", " ", "\t", "\n"]),
    st.sampled_from(["}", "} ", "}\n", "}{}", "}null{}", "", "}}"]),
)
PLAIN = [b'{"flag":true,"small":1,"large":-2,"number":0.5,"text":"\xc3\xbc"}', b'{ "text" : null }', b"{}"]


FLAT_COLUMNS = parse_schema(FLAT_SCHEMA)


def parsed(bodies: list[bytes], check: Any, is_flat: bool) -> list[dict[str, Any]]:
    """Return the rows of these bodies; without is_flat, by the standard library only."""
    parser = BodyParser(FLAT_COLUMNS, check)
    if not is_flat:
        parser._json = None
    found = parser.parse(pa.array(bodies, pa.binary()))
    return rows_of(found, ["flag", "small", "large", "number", "text", "parse_error"])


def refused(row: dict[str, Any]) -> str | None:
    return "other" if "other" in row or "" in row else None


@given(st.lists(st.one_of(FLAT_BODIES.map(str.encode), st.sampled_from(PLAIN), st.binary(max_size=3)), max_size=3))
def test_flat_objects_are_read_by_pyarrow_as_by_the_standard_library(bodies: list[bytes]) -> None:
    for check in (None, refused):
        assert parsed(bodies, check, True) == parsed(bodies, check, False)


def test_each_value_of_each_field_is_read_alike() -> None:
    values = [*NUMBERS, *LARGE, *TEXTS, *OTHERS]
    for name in ("flag", "small", "large", "number", "text", "other"):
        for body in bodies_with(name, *values):
            for check in (None, refused):
                assert parsed([body], check, True) == parsed([body], check, False), body


def test_plain_objects_are_read_by_pyarrow() -> None:
    columns = FLAT_COLUMNS.columns
    parser = json_bodies.JsonBodies(columns, list(map(arrow_type, columns)))
    found = parser.flat_arrays(pa.array(PLAIN, pa.binary()), is_strict=True)
    assert found is not None
    assert [each[0].as_py() for each in found] == [True, 1, -2, 0.5, "ü"]
    assert all(each[1:].null_count == 2 for each in found)
