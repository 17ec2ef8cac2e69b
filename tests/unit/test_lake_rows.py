"""Messages as rows: every AMQP type, bodies of all shapes, and nothing of the message is lost."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.streams.chunk import encode
from leveret.lake.headers import _read_each, read_headers
from leveret.lake.rows import RowMaker
from leveret.wire.properties import PROPERTIES, Properties, encode_header
from leveret.wire.table import encode_short

from .lake import NOON_US, Message, groups


def rows_of(messages: list[Message], first: int = 0) -> list[dict[str, Any]]:
    batch = RowMaker(None).rows(encode(groups(messages, first)), first)
    batch.validate(full=True)
    return list(batch.to_pylist())


def row_of(message: Message) -> dict[str, Any]:
    [row] = rows_of([message])
    return row


def header_of(row: dict[str, Any]) -> bytes:
    """Rebuild the content header from a row."""
    return struct.pack(">HHQ", 60, 0, len(row["body"])) + bytes(row["raw_properties"])


FULL = Properties(
    content_type="application/json", content_encoding="gzip", headers={"tenant": "a"}, delivery_mode=2, priority=9,
    correlation_id="c", reply_to="r", expiration="60000", message_id="m", timestamp=1_700_000_000, type="t",
    user_id="guest", app_id="app", cluster_id="cluster",
)  # fmt: skip


def test_every_property_has_its_column() -> None:
    row = row_of(Message(b"{}", FULL, exchange="orders", routing_key="eu"))
    properties = {name: getattr(FULL, name) for name, _ in PROPERTIES if name not in ("headers", "message_id")}
    assert row["properties"] == properties | {"timestamp": datetime.fromtimestamp(1_700_000_000, UTC)}
    assert (row["message_id"], row["exchange"], row["routing_key"]) == ("m", "orders", "eu")
    assert row["headers"] == [("tenant", {"type": "longstr", "text": "a", "integer": None, "number": None})]
    assert row["timestamp"] == datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_properties_that_are_not_there_are_null() -> None:
    row = row_of(Message(b"x"))
    assert set(row["properties"].values()) == {None}
    assert (row["message_id"], row["headers"], row["raw_properties"]) == (None, None, b"\0\0")


@pytest.mark.parametrize(
    ("encoded", "kind", "text", "integer", "number"),
    [
        (b"S\0\0\0\x02\xc3\xa4", "longstr", "ä", None, None),
        (b"S\0\0\0\x01\xff", "longstr", "\ufffd", None, None),
        (b"x\0\0\0\x01a", "binary", "a", None, None),
        (b"t\x01", "bool", "true", 1, 1.0),
        (b"b\xff", "byte", "-1", -1, -1.0),
        (b"B\xff", "unsignedbyte", "255", 255, 255.0),
        (b"s\xff\xfe", "short", "-2", -2, -2.0),
        (b"u\xff\xfe", "unsignedshort", "65534", 65534, 65534.0),
        (b"I\xff\xff\xff\xff", "signedint", "-1", -1, -1.0),
        (b"i\xff\xff\xff\xff", "unsignedint", "4294967295", 4294967295, 4294967295.0),
        (b"l" + (1 << 62).to_bytes(8), "long", str(1 << 62), 1 << 62, float(1 << 62)),
        (b"f\x3f\x00\x00\x00", "float", "0.5", None, 0.5),
        (b"d" + struct.pack(">d", -1.25), "double", "-1.25", None, -1.25),
        (b"D\x02\x00\x00\x04\xd2", "decimal", "12.34", None, 12.34),
        (b"T" + (1_700_000_000).to_bytes(8), "timestamp", "2023-11-14T22:13:20+00:00", 1_700_000_000, None),
        (b"T" + b"\xff" * 8, "timestamp", "-1", -1, -1.0),
        (b"V", "void", None, None, None),
        (b"F\0\0\0\x04\x01nt\x01", "table", '{"n":true}', None, None),
        (b"A\0\0\0\x04t\x00b\x07", "array", "[false,7]", None, None),
    ],
)
def test_every_type_of_header(
    encoded: bytes, kind: str, text: str | None, integer: int | None, number: float | None
) -> None:
    table = encode_short("h") + encoded
    header = struct.pack(">HHQH", 60, 0, 1, 1 << 13) + struct.pack(">I", len(table)) + table
    row = row_of(Message(header=header))
    assert row["headers"] == [("h", {"type": kind, "text": text, "integer": integer, "number": number})]
    assert header_of(row) == header


def test_the_last_counts_of_headers_with_one_name() -> None:
    table = b"\x01at\x00" + b"\x01bV" + b"\x01at\x01"
    row = row_of(Message(header=struct.pack(">HHQHI", 60, 0, 1, 1 << 13, len(table)) + table))
    assert [(name, value["text"]) for name, value in row["headers"]] == [("a", "true"), ("b", None)]


def test_headers_that_nobody_can_read_are_null_and_raw() -> None:
    """The broker accepts a table that is malformed inside; it must not affect the rows around it."""
    broken = struct.pack(">HHQHI", 60, 0, 1, 1 << 13, 4) + b"\x01aZ!"
    good = Message(properties=Properties(headers={"a": 1}))
    rows = rows_of([good, Message(header=broken), Message(properties=Properties(headers={})), good])
    assert [None if row["headers"] is None else [name for name, _ in row["headers"]] for row in rows] == [
        ["a"], None, [], ["a"],
    ]  # fmt: skip
    assert header_of(rows[1]) == broken


def test_text_that_is_no_utf8() -> None:
    header = struct.pack(">HHQH", 60, 0, 1, 1 << 15) + b"\x02a\xff"
    row = row_of(Message(header=header, routing_key="\udcfe"))
    assert (row["properties"]["content_type"], row["routing_key"]) == ("a\ufffd", "\ufffd")
    assert header_of(row) == header


def test_a_timestamp_beyond_the_calendar_is_null() -> None:
    seconds = [0, 253_402_300_799, 253_402_300_800, (1 << 64) - 1]
    rows = rows_of([Message(properties=Properties(timestamp=each)) for each in seconds])
    stamps = [row["properties"]["timestamp"] for row in rows]
    assert stamps == [
        datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 200_000])
def test_a_body_is_its_frames_without_their_heads(size: int) -> None:
    """4,088 octets are what fits into a frame of 4,096."""
    body = bytes(index * 7 % 251 for index in range(size))
    between = Message(b"between")
    rows = rows_of([between, Message(body, frame_max=4096), Message(b""), between])
    assert [row["body"] for row in rows] == [b"between", body, b"", b"between"]


def test_messages_alike_are_one_group_and_many_rows() -> None:
    messages = [Message(b"%03d" % number, FULL) for number in range(300)]
    assert len(groups(messages)) == 1
    rows = rows_of(messages, 1000)
    assert [row["body"] for row in rows] == [message.body for message in messages]
    assert [row["offset"] for row in rows] == list(range(1000, 1300))
    assert {row["message_id"] for row in rows} == {"m"}


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | _texts
    | st.binary(max_size=9) | st.just(Decimal("1.50")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_properties = st.builds(
    Properties,
    content_type=st.none() | _texts, headers=st.none() | st.dictionaries(_texts, _values, max_size=4),
    delivery_mode=st.none() | st.integers(0, 255), message_id=st.none() | _texts, reply_to=st.none() | _texts,
    timestamp=st.none() | st.integers(0, (1 << 64) - 1), cluster_id=st.none() | _texts,
)  # fmt: skip
_messages = st.builds(
    Message, st.binary(max_size=30), _properties, exchange=_texts, routing_key=_texts,
    frame_max=st.sampled_from([12, 4096]), time_us=st.integers(NOON_US, NOON_US + 3),
)  # fmt: skip


@given(st.lists(_messages, min_size=1, max_size=12), st.integers(0, 1 << 62))
def test_a_message_can_be_made_again_of_its_row(messages: list[Message], first: int) -> None:
    rows = rows_of(messages, first)
    assert [header_of(row) for row in rows] == [encode_header(each.properties, len(each.body)) for each in messages]
    assert [row["body"] for row in rows] == [each.body for each in messages]
    assert [(row["exchange"], row["routing_key"]) for row in rows] == [(m.exchange, m.routing_key) for m in messages]
    assert [row["message_id"] for row in rows] == [each.properties.message_id for each in messages]
    names = [None if each.properties.headers is None else list(each.properties.headers) for each in messages]
    assert [None if row["headers"] is None else [name for name, _ in row["headers"]] for row in rows] == names
    assert [row["offset"] for row in rows] == list(range(first, first + len(messages)))


_fields = st.tuples(
    st.sampled_from([b"a", b"b", b"\xff", b"\xfe", b""]),
    st.sampled_from(
        [b"t\1", b"I\0\0\0\1", b"S\0\0\0\2xy", b"S\0\0\0\1\xff", b"V", b"x\0\0\0\0", b"F\0\0\0\3\1aV", b"Z"]
    ),
).map(lambda field: bytes([len(field[0])]) + field[0] + field[1])
_tables = st.tuples(st.lists(_fields, max_size=70).map(b"".join), st.integers(0, 3)).map(
    lambda table: len(table[0][: len(table[0]) - table[1]]).to_bytes(4) + table[0][: len(table[0]) - table[1]]
)


@given(st.lists(_tables, min_size=1, max_size=5))
def test_tables_are_read_alike_together_and_alone(tables: list[bytes]) -> None:
    """For any content, cut off anywhere."""
    together = read_headers(pa.array(tables, pa.binary()))
    together.validate(full=True)
    assert together.to_pylist() == [_read_each([table]).to_pylist()[0] for table in tables]


def test_no_column_needs_more_than_readers_of_tables_have() -> None:
    """Iceberg has neither unsigned numbers nor dictionaries."""

    def kinds(kind: pa.DataType) -> list[pa.DataType]:
        return [kind, *(each for index in range(kind.num_fields) for each in kinds(kind.field(index).type))]

    for field in RowMaker(None).schema:
        for kind in kinds(field.type):
            assert not pa.types.is_unsigned_integer(kind)
            assert not pa.types.is_dictionary(kind)
