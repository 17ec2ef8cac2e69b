"""Properties as columns have the values that the client decodes from each delivery, for any encoding by publishers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leveret.client import Delivery, Properties
from leveret.spark.rows import properties as properties_module
from leveret.spark.rows.columns import QUEUE_SCHEMA, STREAM_SCHEMA, arrow_schema
from leveret.spark.rows.deliveries import OCTETS_PER_BATCH, ROWS_PER_BATCH, to_batches
from leveret.spark.rows.properties import TIMESTAMP_S_MAX
from leveret.wire.errors import ProtocolError
from leveret.wire.header_text import header_text
from leveret.wire.properties import encode_header

from .support import received

SCHEMA = arrow_schema(QUEUE_SCHEMA)
TEXTS = ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "app_id")

octets = st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | octets
    | st.binary(max_size=8)
    | st.just(Decimal("1.25"))
    | st.just(datetime(2026, 1, 2, tzinfo=UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
properties = st.builds(
    Properties,
    headers=st.none() | st.dictionaries(octets, values, max_size=4),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    timestamp=st.none() | st.sampled_from([0, 1_700_000_000, TIMESTAMP_S_MAX, TIMESTAMP_S_MAX + 1, (1 << 64) - 1]),
    cluster_id=st.none() | octets,
    **{name: st.none() | octets for name in TEXTS},
)


def delivery(given: Properties, tag: int = 1, body: bytes = b"body") -> Delivery:
    return Delivery(body, encode_header(given, len(body)), "x", "k", tag, False, "consumer")


def mended(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def expected(one: Delivery) -> dict[str, object]:
    found = one.properties
    row: dict[str, object] = {name: mended(getattr(found, name)) for name in TEXTS}
    row["headers"] = None
    if found.headers is not None:
        # invalid octets are replaced, which may make names equal; Arrow keeps both
        row["headers"] = [(mended(name), mended(header_text(value))) for name, value in found.headers.items()]
    row["delivery_mode"], row["priority"] = found.delivery_mode, found.priority
    is_known = found.timestamp is not None and found.timestamp <= TIMESTAMP_S_MAX
    row["timestamp"] = datetime.fromtimestamp(found.timestamp or 0, UTC) if is_known else None
    return row


@settings(max_examples=40)
@given(st.lists(properties, min_size=1, max_size=5), st.integers(1, 3))
def test_columns_are_what_the_client_decodes(several: list[Properties], times: int) -> None:
    deliveries = [delivery(one) for one in several * times]
    (batch,) = to_batches(received(deliveries), SCHEMA)
    batch.validate(full=True)
    for row, one in zip(batch.to_pylist(), deliveries, strict=True):
        assert {name: row[name] for name in expected(one)} == expected(one)


@settings(max_examples=40)
@given(st.lists(properties, min_size=1, max_size=3), st.lists(st.integers(0, 10**6), min_size=2, max_size=30))
@example([Properties(content_type="x" * size, app_id="x" * (9 - size)) for size in range(3)], [1, 2])
def test_headers_of_one_size_are_cut_together(layouts: list[Properties], numbers: list[int]) -> None:
    """Ids differ from row to row, headers and others repeat: alone in their size, or mixed with other layouts."""
    several = [replace(one, message_id=f"id-{number}") for number in numbers for one in layouts]
    deliveries = [delivery(one) for one in several]
    with mock.patch.object(properties_module, "ALIKE_MIN", 2):
        (batch,) = to_batches(received(deliveries), SCHEMA)
    batch.validate(full=True)
    for row, one in zip(batch.to_pylist(), deliveries, strict=True):
        assert {name: row[name] for name in expected(one)} == expected(one)


def test_the_header_of_a_streams_offset_is_hidden_and_what_is_left_stays() -> None:
    schema = arrow_schema(STREAM_SCHEMA, STREAM_SCHEMA)
    several = [
        delivery(Properties(headers={"a": "1", "x-stream-offset": 7})),
        delivery(Properties(headers={"x-stream-offset": 8, "b": 2})),
        delivery(Properties(headers={"x-stream-offset": 9})),
        delivery(Properties(headers={})),
        delivery(Properties()),
    ]
    known = {"stream": ["s"] * 5, "offset": [7, 8, 9, 10, 11], "arrived": [None] * 5}
    (batch,) = to_batches(received(several), schema, known)
    assert batch.column("headers").to_pylist() == [[("a", "1")], [("b", "2")], None, [], None]
    assert batch.column("offset").to_pylist() == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("alike_min", [1, 2])
@pytest.mark.parametrize(
    "damaged",
    [
        lambda header: header[:-1],
        lambda header: header + b"\0",
        lambda header: header[:13] + bytes([header[13] | 1]) + header[14:],
        lambda header: header[:14] + b"\xff" + header[15:],
    ],
)
def test_a_malformed_header_is_the_clients_error(damaged: object, alike_min: int) -> None:
    header = encode_header(Properties(content_type="text/plain", headers={"a": "b"}), 4)
    broken = Delivery(b"body", damaged(header), "x", "k", 1, False, "c")  # type: ignore[operator]
    with pytest.raises(ProtocolError) as of_client:
        _ = broken.properties
    with mock.patch.object(properties_module, "ALIKE_MIN", alike_min), pytest.raises(ProtocolError) as of_columns:
        to_batches(received([broken]), SCHEMA)
    assert of_columns.value.code == of_client.value.code == 502


def test_what_is_not_asked_for_is_not_decoded() -> None:
    broken = Delivery(b"body", b"", "x", "k", 1, False, "c")
    (batch,) = to_batches(received([broken]), pa.schema([SCHEMA.field("body"), SCHEMA.field("delivery_tag")]))
    assert batch.to_pylist() == [{"body": b"body", "delivery_tag": 1}]


def test_batches_are_cut_by_rows_and_by_octets() -> None:
    schema = pa.schema([SCHEMA.field("body")])
    many = [delivery(Properties())] * (ROWS_PER_BATCH + 1)
    assert [batch.num_rows for batch in to_batches(received(many), schema)] == [ROWS_PER_BATCH, 1]
    half = delivery(Properties(), body=bytes(OCTETS_PER_BATCH // 2))
    assert [batch.num_rows for batch in to_batches(received([half] * 5), schema)] == [2, 2, 1]
