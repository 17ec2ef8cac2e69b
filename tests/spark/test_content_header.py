"""The column content_header: publishing a row restores the encoded properties of its message exactly."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from leveret.client import BlockingChannel, Delivery, Properties
from leveret.client.segments.errors import SegmentsUnavailable
from leveret.spark.rows.columns import QUEUE_SCHEMA, STREAM_SCHEMA
from leveret.spark.rows.content_headers import split_properties
from leveret.spark.rows.deliveries import RAW, decoded, raw_batch
from leveret.spark.rows.frames import FrameEncoder, RowError
from leveret.spark.rows.shape import RowOptions, RowShape
from leveret.spark.sink.columns import check_columns
from leveret.spark.sink.connecting import SinkError
from leveret.spark.sink.merging import merged
from leveret.spark.sink.options import SinkOptions
from leveret.spark.streams.batch import StreamBatchReader
from leveret.spark.streams.options import StreamOptions
from leveret.testing.processes import LeveretProcess
from leveret.wire.properties import PROPERTIES, decode_header
from leveret.wire.table import encode_short, encode_table, join_table, split_table

from .sealed import STREAM
from .support import received
from .test_sink import rows, taken, to, write

HEAD = bytes(12)
FLAGS = {name: 1 << 15 - place for place, (name, _) in enumerate(PROPERTIES)}
SHORT = st.binary(max_size=12).map(lambda raw: bytes([len(raw)]) + raw)


def sized(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def fixed(kind: bytes, size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size).map(lambda raw: kind + raw)


SIMPLE = st.one_of(
    st.just(b"V"),
    *(fixed(kind.encode(), size) for kinds, size in (("tbB", 1), ("suU"[:2], 2), ("Iif", 4), ("lLdT", 8), ("D", 5))
      for kind in kinds),
    *(st.binary(max_size=9).map(lambda raw, kind=kind: kind + sized(raw)) for kind in (b"S", b"x")),  # type: ignore[misc]
)  # fmt: skip
"""A table value of each type letter, encoded."""


def table_of(entries: dict[bytes, bytes]) -> bytes:
    return join_table(list(entries.items()))


VALUES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: b"A" + sized(b"".join(items)))
        | st.dictionaries(st.binary(max_size=4), inner, max_size=3).map(lambda entries: b"F" + table_of(entries))
    ),
    max_leaves=4,
)
TABLE = st.dictionaries(st.binary(max_size=8), VALUES, max_size=4).map(table_of)
KINDS = {
    "shortstr": SHORT, "table": TABLE, "octet": st.binary(min_size=1, max_size=1),
    "longlong": st.binary(min_size=8, max_size=8),
}  # fmt: skip


def joined(values: dict[str, bytes]) -> bytes:
    flags = sum(FLAGS[name] for name in values)
    return struct.pack(">H", flags) + b"".join(values[name] for name, _ in PROPERTIES if name in values)


ENCODED = st.fixed_dictionaries({}, optional={name: KINDS[kind] for name, kind in PROPERTIES}).map(joined)
"""Properties of every kind, with headers of every type, in any encoding that AMQP allows."""


def delivery(encoded: bytes, body: bytes = b"body") -> Delivery:
    return Delivery(body, struct.pack(">HHQ", 60, 0, len(body)) + encoded, "x", "k", 1, False, "consumer")


def shape_of(*names: str, source: StructType = QUEUE_SCHEMA) -> RowShape:
    options = RowOptions(names)
    return options.shape(options.schema(source), source)


def one(encoded: bytes, **columns: Any) -> bytes:
    """Return the content header that is published for a row with this one and these columns."""
    batch = rows(**{name: [value] for name, value in columns.items()}) if columns else None
    arrays = {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))
    found = merged(pa.array([encoded], pa.binary()), arrays).to_pylist()[0]
    assert isinstance(found, bytes)
    return found


@settings(max_examples=60)
@given(st.lists(ENCODED, min_size=1, max_size=4))
def test_the_column_is_the_properties_as_they_came(several: list[bytes]) -> None:
    (batch,) = shape_of("body", "content_header").batches(received([delivery(encoded) for encoded in several]))
    assert batch.column("content_header").to_pylist() == several
    # a spool keeps deliveries as they arrived, too
    raw = raw_batch(received([delivery(encoded) for encoded in several]), RAW)
    spooled = decoded(raw, shape_of("content_header").raw)
    assert spooled.column("content_header").to_pylist() == several


@settings(max_examples=60)
@given(ENCODED)
def test_a_row_is_published_with_all_of_them_but_the_user(encoded: bytes) -> None:
    values = split_properties(encoded)
    values.pop("user_id", None)
    assert one(encoded) == joined(values)


@settings(max_examples=60)
@given(ENCODED, st.text(max_size=9), st.integers(0, 255), st.integers(0, 1 << 40))
def test_columns_take_the_places_of_properties_one_by_one(encoded: bytes, text: str, number: int, time: int) -> None:
    values = split_properties(encoded)
    arrays = {
        "message_id": pa.array([text]), "user_id": pa.array([text]), "priority": pa.array([number], pa.int32()),
        "timestamp": pa.array([time], pa.int64()), "type": pa.array([None], pa.string()),
    }  # fmt: skip
    found = merged(pa.array([encoded]), arrays).to_pylist()[0]
    short = encode_short(text)
    own = {"message_id": short, "user_id": short, "priority": bytes([number]), "timestamp": struct.pack(">Q", time)}
    assert found == joined({**values, **own})


@settings(max_examples=60)
@given(TABLE, st.dictionaries(st.text(max_size=8), st.none() | st.text(max_size=8), min_size=1, max_size=3))
def test_headers_of_a_row_are_merged_over_those_that_were_there(table: bytes, own: dict[str, str | None]) -> None:
    found = split_properties(one(joined({"headers": table}), headers=list(own.items())))
    entries = dict(split_table(found["headers"])) if "headers" in found else {}
    told = {name.encode(): None if text is None else b"S" + sized(text.encode()) for name, text in own.items()}
    wanted = {**dict(split_table(table)), **told}
    assert entries == {name: value for name, value in wanted.items() if value is not None}


MARKS = st.tuples(st.text(max_size=8), st.none() | st.text(max_size=8))


@settings(max_examples=100)
@given(st.lists(st.none() | ENCODED, min_size=1, max_size=4), MARKS, MARKS)
def test_rows_with_the_same_header_are_merged_like_rows_with_others(
    several: list[bytes | None], mark: tuple[str, str | None], other: tuple[str, str | None]
) -> None:
    kind = pa.map_(pa.string(), pa.string())
    column = pa.array(several, pa.binary())
    alike = merged(column, {"headers": pa.array([[mark]] * len(several), kind)}).to_pylist()
    among_others = merged(
        pa.concat_arrays([column, pa.array([b"\0\0"], pa.binary())]),
        {"headers": pa.array([[mark]] * len(several) + [[mark, other]], kind)},
    ).to_pylist()
    assert alike == among_others[:-1]
    for encoded, found in zip(several, alike, strict=True):
        if encoded is None:
            assert found is None
            continue
        before, after = split_properties(encoded), split_properties(found)
        entries = dict(split_table(after["headers"])) if "headers" in after else {}
        text = mark[1]
        assert entries.get(mark[0].encode()) == (None if text is None else b"S" + sized(text.encode()))
        for values in (before, after):
            values.pop("headers", None)
            values.pop("user_id", None)
        assert after == before


@pytest.mark.parametrize(
    "marks",
    [
        [[("a", "x")], [("a", "y")]],
        [[("a", "x")], [("b", "x")]],
        [[("a", "x"), ("b", "x")], []],
        [[("a", "x")], None],
        [[("a", None)], [("a", "x")]],
    ],
)
def test_rows_with_almost_the_same_headers(marks: list[Any]) -> None:
    encoded = joined({"headers": encode_table({"a": 1, "c": 2})})
    column = pa.array([None, *marks, None], pa.map_(pa.string(), pa.string())).slice(1, 2)
    found = merged(pa.array([encoded] * 2, pa.binary()), {"headers": column}).to_pylist()
    assert found == [one(encoded, headers=[("z", None), *(mark or ())]) for mark in marks]


def test_a_merged_header_keeps_its_place_and_no_table_is_left_where_none_is_needed() -> None:
    table = join_table([(b"a", b"s\0\1"), (b"b", b"t\1"), (b"a", b"V")])
    found = split_properties(one(joined({"headers": table}), headers=[("a", "x"), ("c", "y")]))
    assert split_table(found["headers"]) == [(b"a", b"S\0\0\0\1x"), (b"b", b"t\1"), (b"c", b"S\0\0\0\1y")]
    assert one(joined({"headers": encode_table({"a": 1})}), headers=[("a", None)]) == b"\0\0"
    assert one(b"\0\0", headers=[("a", "x")]) == joined({"headers": encode_table({"a": "x"})})


def test_rows_with_and_without_the_column_side_by_side() -> None:
    encoded = joined({"content_type": encode_short("a"), "priority": b"\7"})
    given_rows = pa.array([encoded, None, b"\0\0"], pa.binary())
    body = pa.array([b"1", b"", b"3"])
    columns: dict[str, Any] = {"exchange": "", "routing_key": "q", "delivery_mode": 2}
    frames = FrameEncoder(1, 4096, True).encode(body, columns, given_rows).to_pylist()
    without = FrameEncoder(1, 4096, True).encode(body, columns).to_pylist()
    assert frames[1] == without[1]
    assert frames[0] == FrameEncoder(1, 4096, True).encode_one(b"1", "", "q", encoded)
    assert frames[2] == FrameEncoder(1, 4096, True).encode_one(b"3", "", "q", b"\0\0")


@pytest.mark.parametrize(
    ("encoded", "columns", "reason"),
    [
        (b"\x80\0\5abc", {}, "column 'content_header' is not a valid AMQP content header: .*content_type runs over"),
        (b"", {}, "column 'content_header' is not a valid AMQP content header: .*too short"),
        (b"\0\1", {}, "column 'content_header' is not a valid AMQP content header: .*flags"),
        (b"\0\0", {"headers": [("x" * 256, "")]}, "column 'headers': short string of 256 octets"),
        (b"\0\0", {"type": "x" * 256}, "column 'type' has 256 octets"),
    ],
)
def test_what_cannot_be_published_is_named(encoded: bytes, columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowError, match=reason):
        one(encoded, **columns)


def test_the_column_is_there_for_who_asks() -> None:
    for source in (QUEUE_SCHEMA, STREAM_SCHEMA):
        assert "content_header" not in RowOptions().schema(source).names
        assert RowOptions(("content_header",)).schema(source)["content_header"].dataType == BinaryType()
    # beside bodies whose fields .schema() lists
    asked = StructType([StructField("station", StringType()), StructField("content_header", BinaryType())])
    shape = RowOptions.parse({"parse": "json"}).shape(asked, QUEUE_SCHEMA)
    assert shape.typed == ("station",)
    own = RowOptions.parse({"parse": "json", "bodySchema": "content_header STRING"})
    assert own.schema(QUEUE_SCHEMA)["content_header"].dataType == StringType()
    check_columns(StructType([*QUEUE_SCHEMA.fields, StructField("content_header", BinaryType())]), SinkOptions())
    with pytest.raises(ValueError, match="'content_header' of the sink cannot be string"):
        check_columns(StructType([QUEUE_SCHEMA["body"], StructField("content_header", StringType())]), SinkOptions())


# -- brokers -----------------------------------------------------------------------------------------------------------

ODD = joined(
    {
        "content_type": encode_short("text/plain"),
        "headers": join_table(
            [
                (b"byte", b"b\xff"), (b"short", b"s\xff\xfe"), (b"int", b"I\0\0\0\1"), (b"long", b"l" + bytes(8)),
                (b"float", b"f" + struct.pack(">f", 0.1)), (b"double", b"d" + struct.pack(">d", 0.1)),
                (b"decimal", b"D\2\0\0\0\x7d"), (b"time", b"T" + struct.pack(">Q", 1_700_000_000)), (b"yes", b"t\1"),
                (b"octets", b"x" + sized(b"\xff\0")), (b"none", b"V"), (b"list", b"A" + sized(b"s\0\1I\0\0\0\2")),
                (b"table", b"F" + join_table([(b"deep", b"s\0\3")])), (b"text", b"S" + sized("ä".encode())),
            ]
        ),
        "delivery_mode": b"\2", "priority": b"\4", "correlation_id": encode_short("c"), "reply_to": encode_short("r"),
        "expiration": encode_short("600000"), "message_id": encode_short("m"),
        "timestamp": struct.pack(">Q", (1 << 63) + 5), "type": encode_short("t"), "app_id": encode_short("a"),
        "cluster_id": encode_short("k"),
    }
)  # fmt: skip
"""One of each property, and headers of types that map to the same Python types."""


def publish(channel: BlockingChannel, queue: str, *encoded: bytes) -> None:
    encoder = FrameEncoder(channel.number, channel.frame_max, True)
    for each in encoded:
        channel.publish_frames(encoder.encode_one(b"body", "", queue, each), 1)
    channel.wait_for_confirms(30)


def test_a_message_goes_through_a_row_unchanged(url: str, channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, ODD, b"\0\0")
    (batch,) = shape_of("body", "content_header").batches(received(taken(channel, queue)))
    large = rows(body=[b"x" * 300_000])
    large = large.append_column("content_header", batch.column("content_header").slice(0, 1))
    write(to(url, queue), [batch, large])
    first, second, third = taken(channel, queue)
    assert (first.header[12:], second.header[12:]) == (ODD, b"\0\0")  # neither a delivery mode nor an id is added
    assert (third.header[12:], third.body) == (ODD, b"x" * 300_000)


def test_a_marker_a_delay_and_a_user(url: str, channel: BlockingChannel, queue: str) -> None:
    channel.publish(b"", "", queue, Properties(user_id="guest", headers={"n": 1, "CC": [], "old": 5}))
    channel.wait_for_confirms(30)
    (batch,) = shape_of("body", "content_header").batches(received(taken(channel, queue)))
    marked = batch.append_column(
        "headers", pa.array([[("x-replayed", "r"), ("CC", None)]], pa.map_(pa.string(), pa.string()))
    )
    stranger = pa.array([joined({"user_id": encode_short("somebody-else")})], pa.binary())
    foreign = pa.RecordBatch.from_arrays([pa.array([b"f"]), stranger], names=["body", "content_header"])
    write(to(url, queue), [marked, foreign, marked.append_column("delay", pa.array([0.0]))])
    said = [each.properties for each in taken(channel, queue)]
    assert (said[0].user_id, said[0].headers) == (None, {"n": 1, "old": 5, "x-replayed": "r"})
    assert said[1] == Properties()
    while len(said) < 3:
        said += [each.properties for each in taken(channel, queue)]
    told = said[2].headers or {}
    assert (told["n"], told["old"], told["x-replayed"]) == (1, 5, "r")


def test_rows_of_streams_have_it_without_the_brokers_own_header(
    url: str, channel: BlockingChannel, stream: str, request: pytest.FixtureRequest
) -> None:
    # RabbitMQ stores messages of streams in the encoding of AMQP 1.0, which has fewer types
    is_rabbitmq = "rabbitmq" in request.node.name
    table = join_table([(b"a", b"b\1"), (b"b", b"l" + bytes(8)), (b"c", b"S" + sized(b"text"))])
    given = [joined({"headers": table, "type": encode_short("t")}), b"\0\0", *([] if is_rabbitmq else [ODD])]
    publish(channel, stream, *given)
    shape = shape_of("content_header", "offset", source=STREAM_SCHEMA)
    reader = StreamBatchReader(StreamOptions.parse({"url": url, "stream": stream}), shape)
    found = pa.Table.from_batches([batch for task in reader.partitions() for batch in reader.read(task)])
    assert found.column("content_header").to_pylist() == given


def test_of_two_headers_with_an_offset_the_last_is_the_brokers() -> None:
    table = join_table([(b"x-stream-offset", b"l" + bytes(8)), (b"a", b"V"), (b"x-stream-offset", b"l" + bytes(8))])
    known = {"stream": ["s"], "offset": [0], "arrived": [None]}
    shape = shape_of("content_header", source=STREAM_SCHEMA)
    (batch,) = shape.batches(received([delivery(joined({"headers": table}))]), known)
    left = split_properties(batch.column("content_header").to_pylist()[0])
    assert split_table(left["headers"]) == [(b"x-stream-offset", b"l" + bytes(8)), (b"a", b"V")]
    (batch,) = shape.batches(received([delivery(joined({"type": encode_short("x-stream-offset")}))]), known)
    assert batch.column("content_header").to_pylist() == [joined({"type": encode_short("x-stream-offset")})]


def test_sealed_messages_come_over_amqp(sealed_broker: LeveretProcess) -> None:
    options = {"url": sealed_broker.url, "stream": STREAM, "endingOffsets": "20"}
    shape = shape_of("offset", "content_header", "headers", source=STREAM_SCHEMA)
    reader = StreamBatchReader(StreamOptions.parse(options), shape)
    tasks = reader.partitions()
    assert [task.sealed for task in tasks] == [None]
    found = pa.Table.from_batches([batch for task in tasks for batch in reader.read(task)])
    headers = [decode_header(HEAD + row["content_header"])[0].headers for row in found.to_pylist()]
    assert headers[10] == {"number": 10, "parity": "even"}
    assert headers[1] is None
    refused = StreamBatchReader(StreamOptions.parse({**options, "segments": "path"}), shape)
    with pytest.raises(SegmentsUnavailable, match="sealed files have no content_header: omit the column, or"):
        refused.partitions()


def test_properties_that_fill_more_than_a_frame_are_named(broker: str) -> None:
    encoded = joined({"headers": encode_table({"long": "x" * 200_000})})
    batch = pa.RecordBatch.from_pydict({"body": [b"a", b"b"], "content_header": [b"\0\0", encoded]})
    with pytest.raises(
        SinkError, match=f"row 1: its properties have {len(encoded)} octets, but a frame has room for only"
    ):
        write(to(broker, "nowhere"), [batch])
