"""Deliveries as Arrow batches, and batches as values to publish; without a Spark session."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from leveret.client import Delivery, Properties
from leveret.spark.rows.columns import QUEUE_SCHEMA, STREAM_SCHEMA, arrow_schema, column_values
from leveret.spark.rows.deliveries import ROWS_PER_BATCH, to_batches
from leveret.spark.rows.shape import RowOptions
from leveret.wire.header_text import header_text
from leveret.wire.properties import encode_header

from .support import received


def delivery(tag: int = 1, properties: Properties | None = None, key: str = "k") -> Delivery:
    header = encode_header(properties or Properties(), 4)
    return Delivery(b"body", header, "x", key, tag, False, "consumer")


def schema_of(*names: str) -> StructType:
    return StructType([QUEUE_SCHEMA[name] for name in names])


@pytest.mark.parametrize("source", [QUEUE_SCHEMA, STREAM_SCHEMA])
def test_our_arrow_schema_is_the_one_that_spark_checks_for(source: StructType) -> None:
    assert arrow_schema(source, source).equals(to_arrow_schema(source, timezone="UTC"))


def test_queues_and_streams_have_one_row_shape() -> None:
    assert QUEUE_SCHEMA.names[:-2] == STREAM_SCHEMA.names[:-3]
    assert QUEUE_SCHEMA.names[-2:] == ["redelivered", "delivery_tag"]
    assert STREAM_SCHEMA.names[-3:] == ["stream", "offset", "arrived"]


def test_rows_of_streams_have_what_a_delivery_has_not_and_no_header_of_the_broker() -> None:
    properties = Properties(headers={"x-stream-offset": 7, "n": 1})
    alone = Properties(headers={"x-stream-offset": 8})
    shape = RowOptions(("headers", "stream", "offset")).shape(
        StructType([STREAM_SCHEMA[name] for name in ("headers", "stream", "offset")]), STREAM_SCHEMA
    )
    known = {"stream": ["s"] * 2, "offset": [7, 8], "arrived": [None, None]}
    batches = shape.batches(received([delivery(properties=properties), delivery(properties=alone)]), known)
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"headers": [("n", "1")], "stream": "s", "offset": 7},
        {"headers": None, "stream": "s", "offset": 8},
    ]


def test_option_columns_names_the_columns_of_the_source_in_their_order() -> None:
    asked = RowOptions.parse({"columns": "offset, body"})
    assert asked.schema(STREAM_SCHEMA).names == ["offset", "body"]
    assert RowOptions.parse({}).schema(STREAM_SCHEMA) == STREAM_SCHEMA
    with pytest.raises(ValueError, match="option columns: there is no column 'offset'; the columns are body, exchange"):
        asked.schema(QUEUE_SCHEMA)


@pytest.mark.parametrize("text", ["", "body,", "body,body"])
def test_wrong_lists_of_columns(text: str) -> None:
    with pytest.raises(ValueError, match="option columns must be a list like"):
        RowOptions.parse({"columns": text})


def test_columns_that_nobody_asked_for_are_not_decoded() -> None:
    shape = RowOptions(("body",)).shape(schema_of("body"), QUEUE_SCHEMA)
    malformed = Delivery(b"b", b"not decoded", "", "", 1, False, "")
    assert shape.batches(received([malformed]))[0].to_pylist() == [{"body": b"b"}]


def test_a_delivery_becomes_a_row_with_its_properties() -> None:
    properties = Properties(
        content_type="text/plain", headers={"n": 1, "t": True}, delivery_mode=2, timestamp=1700000000, message_id="m"
    )
    row = to_batches(received([delivery(7, properties)]), arrow_schema(QUEUE_SCHEMA))[0].to_pylist()[0]
    given = {name: value for name, value in row.items() if value is not None}
    assert given == {
        "body": b"body",
        "exchange": "x",
        "routing_key": "k",
        "headers": [("n", "1"), ("t", "true")],
        "content_type": "text/plain",
        "delivery_mode": 2,
        "message_id": "m",
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "redelivered": False,
        "delivery_tag": 7,
    }


def test_a_query_may_ask_for_fewer_columns_in_its_own_order() -> None:
    batch = to_batches(received([delivery()]), arrow_schema(schema_of("routing_key", "body")))[0]
    assert batch.to_pylist() == [{"routing_key": "k", "body": b"body"}]


def test_unknown_columns_and_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="no column 'key'; it has body, exchange"):
        arrow_schema(StructType([StructField("key", StringType())]))
    with pytest.raises(ValueError, match="column 'body' of the source is binary, not int"):
        arrow_schema(StructType([StructField("body", IntegerType())]))


def test_many_rows_are_cut_into_batches() -> None:
    many = [delivery(tag) for tag in range(1, ROWS_PER_BATCH + 2)]
    batches = to_batches(received(many), arrow_schema(schema_of("delivery_tag")))
    assert [batch.num_rows for batch in batches] == [ROWS_PER_BATCH, 1]
    assert to_batches(received([]), arrow_schema(QUEUE_SCHEMA)) == []


def test_text_that_is_not_utf8_is_mended_and_timestamps_beyond_spark_are_null() -> None:
    odd = delivery(properties=Properties(timestamp=1_700_000_000_000, headers={"h\udcff": "v\udcff"}), key="k\udcff")
    row = to_batches(received([odd]), arrow_schema(schema_of("routing_key", "timestamp", "headers")))[0].to_pylist()[0]
    assert row == {"routing_key": "k\ufffd", "timestamp": None, "headers": [("h\ufffd", "v\ufffd")]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("text", "text"),
        (False, "false"),
        (42, "42"),
        (1.5, "1.5"),
        (b"bytes", "bytes"),
        (Decimal("1.20"), "1.20"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        ([{"queue": "q", "count": 1, "raw": b"r"}], '[{"queue":"q","count":1,"raw":"r"}]'),
    ],
)
def test_header_values_as_text(value: object, text: str | None) -> None:
    assert header_text(value) == text


def test_values_to_publish_have_timestamps_in_whole_seconds() -> None:
    micros = pa.array([1_700_000_000_999_999, None], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch([pa.array(["a", "b"]), micros], names=["body", "timestamp"])
    assert column_values(batch, ("body", "exchange", "timestamp")) == {
        "body": ["a", "b"],
        "timestamp": [1_700_000_000, None],
    }
