"""Frames encoded by whole columns, compared with those of the encoder for single messages."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.client.protocol.publishing import PublishEncoder
from leveret.spark.rows.columns import PROPERTIES
from leveret.spark.rows.frames import FrameEncoder, RowError, encoded_values
from leveret.wire.properties import Properties
from leveret.wire.table import encode_table

CHANNEL = 3
FRAME_MAX = 4096


def one_by_one(rows: list[dict[str, Any]], mandatory: bool) -> list[bytes]:
    encoder = PublishEncoder(CHANNEL, FRAME_MAX)
    frames = []
    for row in rows:
        properties = {name: value for name, value in row.items() if name in PROPERTIES}
        frames.append(
            encoder.encode(row["body"], row["exchange"], row["routing_key"], Properties(**properties), mandatory)
        )
    return frames


def together(rows: list[dict[str, Any]], mandatory: bool, shared: dict[str, Any] | None = None) -> list[bytes]:
    columns: dict[str, Any] = dict(shared or {})
    for name in [name for name in rows[0] if name not in columns and name != "body"]:
        kind = PROPERTIES[name][1] if name in PROPERTIES and name != "timestamp" else None
        kind = pa.int64() if name == "timestamp" else kind or pa.string()
        values = [list(row[name].items()) if isinstance(row[name], dict) else row[name] for row in rows]
        columns[name] = pa.array(values, kind)
    body = pa.array([row["body"] for row in rows], pa.binary())
    return list(FrameEncoder(CHANNEL, FRAME_MAX, mandatory).encode(body, columns).to_pylist())


SHORT = st.text(max_size=20)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "headers": st.none() | st.dictionaries(SHORT, st.none() | SHORT, max_size=3),
    "delivery_mode": st.none() | st.integers(0, 255),
    "priority": st.none() | st.integers(0, 255),
    "timestamp": st.none() | st.integers(0, 1 << 40),
    **{name: st.none() | SHORT for name in ("content_type", "correlation_id", "message_id", "expiration", "app_id")},
}
ROWS = st.lists(
    st.fixed_dictionaries({"body": st.binary(max_size=60), "exchange": SHORT, "routing_key": SHORT, **VALUES}),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40)
@given(ROWS, st.booleans())
def test_columns_become_the_same_octets_as_messages(rows: list[dict[str, Any]], mandatory: bool) -> None:
    assert together(rows, mandatory) == one_by_one(rows, mandatory)


@settings(max_examples=40)
@given(ROWS)
def test_what_all_rows_share_is_said_once(rows: list[dict[str, Any]]) -> None:
    shared = {"exchange": "x", "routing_key": "ü", "delivery_mode": 2, "content_type": "a", "timestamp": 7}
    told = [{**row, **shared} for row in rows]
    assert together(told, True, shared) == one_by_one(told, True)


def test_bodies_alone_differ() -> None:
    rows = [{"body": bytes(size), "exchange": "", "routing_key": "q"} for size in (1, 1, 2, 0, 4000)]
    shared = {"exchange": "", "routing_key": "q"}
    assert together(rows, False, shared) == one_by_one(rows, False)
    assert together(rows[:2], False, shared) == one_by_one(rows[:2], False)


def test_a_slice_is_as_good_as_a_whole() -> None:
    body = pa.array([b"no", b"a", b"bc", b"no"], pa.binary()).slice(1, 2)
    keys = pa.array(["no", "k", None, "no"], pa.string()).slice(1, 2).fill_null("d")
    frames = FrameEncoder(CHANNEL, FRAME_MAX, True).encode(body, {"exchange": "", "routing_key": keys})
    rows = [{"body": b"a", "exchange": "", "routing_key": "k"}, {"body": b"bc", "exchange": "", "routing_key": "d"}]
    assert frames.to_pylist() == one_by_one(rows, True)


@settings(max_examples=40)
@given(st.lists(VALUES["headers"], max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_a_slice_of_headers_is_as_good_as_a_whole(rows: list[Any], first: int, count: int) -> None:
    maps = pa.array([row and list(row.items()) for row in rows], PROPERTIES["headers"][1]).slice(first, count)
    expected = [b"" if row is None else encode_table(row) for row in rows[first : first + count]]
    assert encoded_values("headers", "table", maps) == expected


def test_the_largest_body_that_fits_into_one_frame() -> None:
    encoder = FrameEncoder(CHANNEL, FRAME_MAX, True)
    frames = encoder.encode(pa.array([bytes(encoder.body_max)]), {"exchange": "", "routing_key": "q"})[0].as_py()
    assert frames == one_by_one([{"body": bytes(encoder.body_max), "exchange": "", "routing_key": "q"}], True)[0]
    assert struct.pack(">BHI", 3, CHANNEL, FRAME_MAX - 8) in frames
    assert FrameEncoder(CHANNEL, 0, True).body_max == (1 << 31) - 1


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("routing_key", ["k", "ü" * 128], "column 'routing_key' has 256 octets, but AMQP allows only 255"),
        ("message_id", [None, "x" * 256], "column 'message_id' has 256 octets"),
        ("priority", [1, 256], "column 'priority' is 256, but AMQP allows only 0 to 255"),
        ("priority", [None, -1], "column 'priority' is -1"),
        ("timestamp", [0, -1], "column 'timestamp' is before 1970"),
        ("headers", [[("a", "b")], [("c", None), ("x" * 256, "y")]], "column 'headers': short string of 256 octets"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(name: str, values: list[Any], reason: str) -> None:
    kind = pa.int64() if name == "timestamp" else PROPERTIES[name][1] if name in PROPERTIES else pa.string()
    columns = {"exchange": "", "routing_key": "q", name: pa.array(values, kind)}
    with pytest.raises(RowError, match=reason) as caught:
        FrameEncoder(CHANNEL, FRAME_MAX, True).encode(pa.array([b"a", b"b"]), columns)
    assert caught.value.row == 1
