"""Arbitrary bytes: equal events whole and byte by byte, or a protocol error; no other exception, no leak."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.each import check_each

from leveret.broker.names import generated
from leveret.session.connection import PROTOCOL_HEADERS
from leveret.wire import grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import PROTOCOL_HEADER, Frame, FrameReader, content_frames, frame
from leveret.wire.method import decode_method, encode_method, method_frame
from leveret.wire.properties import Properties, decode_header, encode_header, property_spans
from leveret.wire.scan import HeaderScan
from leveret.wire.table import Value, decode_table, encode_table, join_table, split_table

from .support import Bench

FRAME_MAX = 4096
names = st.text(max_size=20)
scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=30)
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4))
tables = st.dictionaries(names, values, max_size=6)
specs = st.sampled_from(list(grammar.METHODS.values()))


def frames_of(data: bytes, size: int) -> tuple[list[tuple[int, int, bytes]], int | None]:
    """Return (frames, error code) when the bytes arrive in pieces of this size."""
    reader = FrameReader(FRAME_MAX)
    found: list[tuple[int, int, bytes]] = []
    try:
        for start in range(0, len(data), size):
            reader.feed(data[start : start + size])
            while (each := reader.next()) is not None:
                assert isinstance(each, Frame)
                found.append((each.kind, each.channel, each.payload))
    except ProtocolError as error:
        return found, error.code
    return found, None


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Generate frames, some of them valid, with damage between them."""
    parts: list[bytes] = []
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.integers(0, 5))
        if kind == 0:
            parts.append(draw(st.binary(max_size=40)))
        elif kind == 1:
            payload = draw(st.binary(max_size=60))
            parts.append(frame(draw(st.sampled_from([1, 2, 3, 8])), draw(st.integers(0, 3)), payload))
        elif kind == 2:
            spec = draw(specs)
            parts.append(
                frame(
                    1,
                    draw(st.integers(0, 2)),
                    struct.pack(">HH", spec.class_id, spec.method_id) + draw(st.binary(max_size=30)),
                )
            )
        elif kind == 3:
            parts.append(method_frame(draw(st.integers(0, 2)), draw(specs)))
        else:
            body = draw(st.binary(max_size=30))
            key = draw(st.sampled_from(["q", "none"]))
            publish = method_frame(1, grammar.BASIC_PUBLISH, routing_key=key, mandatory=draw(st.booleans()))
            properties = Properties(headers=draw(tables), delivery_mode=draw(st.sampled_from([None, 1, 2])))
            parts.append(publish + content_frames(1, encode_header(properties, len(body)), body, 0))
    return b"".join(parts)


@given(data=streams(), size=st.integers(1, 50))
def test_frames_are_the_same_whole_and_in_pieces(data: bytes, size: int) -> None:
    assert frames_of(data, size) == frames_of(data, len(data) or 1)


@given(data=st.binary(max_size=200))
def test_decoders_raise_nothing_but_protocol_errors(data: bytes) -> None:
    for decode in (decode_method, decode_header, property_spans, split_table, lambda raw: decode_table(raw, 0)):
        try:
            decode(data)
        except ProtocolError:
            continue


@settings(max_examples=200)
@given(data=streams(), size=st.integers(1, 50))
def test_broker_answers_the_same_whole_and_in_pieces(data: bytes, size: int) -> None:
    answers: list[bytes] = []
    for step in (size, len(data) or 1):
        bench = Bench()
        client = bench.connect()
        client.queue("q")
        for start in range(0, len(data), step):
            client.raw(data[start : start + step])
        bench.sync()
        answers.append(b"".join(client.peer.take(bench.broker.log.synced)))
        assert bench.broker.vhosts["/"].touched == []
        client.peer.lost(bench.now_us)
        assert bench.broker.vhosts["/"].replies == {}
    close = method_frame(0, grammar.CONNECTION_CLOSE)[7:11]
    if close in answers[0]:
        # if the turn ends the connection, deliveries of the end of the turn are not sent
        answers = [answer[answer.index(close) :] for answer in answers]
    # confirms may be combined differently, nothing else may differ; no stream here turns confirms on and off again
    assert answers[0] == answers[1] or b"\x00\x55\x00\x0b" in answers[0]


@given(data=st.binary(max_size=100))
@example(PROTOCOL_HEADERS[1][:5])
def test_broker_survives_any_first_bytes(data: bytes) -> None:
    bench = Bench()
    client = bench.connect()
    client.peer.lost(bench.now_us)
    fresh = bench.connect().peer.__class__(bench.broker, "test:2", True)
    fresh.turn(data, bench.now_us)
    if not any(header.startswith(data[:8]) for header in PROTOCOL_HEADERS):
        assert fresh.take(0) == [PROTOCOL_HEADER]


@given(table=tables)
def test_tables_come_back(table: dict[str, Value]) -> None:
    encoded = encode_table(table)
    assert decode_table(encoded, 0) == (table, len(encoded))
    assert join_table(split_table(encoded)) == encoded


@given(st.data())
def test_methods_come_back(data: st.DataObject) -> None:
    spec = data.draw(specs)
    kinds: dict[str, st.SearchStrategy[object]] = {
        "octet": st.integers(0, 255),
        "short": st.integers(0, 65535),
        "long": st.integers(0, 2**32 - 1),
        "longlong": st.integers(0, 2**64 - 1),
        "bit": st.booleans(),
        "shortstr": names,
        "longstr": st.binary(max_size=50),
        "table": tables,
    }
    fields = {name: data.draw(kinds[kind]) for name, kind in spec.fields}
    assert decode_method(encode_method(spec, **fields)).values == fields


def test_fields_that_are_not_given_say_nothing() -> None:
    nothing: dict[str, object] = {"bit": False, "shortstr": "", "longstr": b"", "table": {}}

    def check(spec: grammar.MethodSpec) -> None:
        assert decode_method(encode_method(spec)).values == {name: nothing.get(kind, 0) for name, kind in spec.fields}

    check_each(grammar.METHODS.values(), check, lambda spec: spec.name)


def test_an_error_shows_a_name_that_is_not_utf_8() -> None:
    name = b"a\xff".decode("utf-8", "surrogateescape")
    assert ProtocolError(404, f"no queue '{name}'").reply_text == f"NOT_FOUND - no queue '{name}'"
    long = ProtocolError(404, name * 200).reply_text.encode("utf-8", "surrogateescape")
    assert len(long) == 255
    assert long.endswith(b"a\xff...")


def test_a_field_that_a_method_has_not_is_a_mistake() -> None:
    with pytest.raises(TypeError, match=r"basic\.cancel has no field \['queue'\]"):
        encode_method(grammar.BASIC_CANCEL, queue="q", consumer_tag="c")


def test_names_that_the_broker_makes_are_128_bits_for_urls() -> None:
    assert generated("amq.gen-", lambda count: bytes(range(256 - count, 256))) == "amq.gen-8PHy8_T19vf4-fr7_P3-_w"


@given(
    headers=st.none() | tables,
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    expiration=st.none() | st.text("0123456789", max_size=9),
    reply_to=st.none() | names,
    message_id=st.none() | names,
    timestamp=st.none() | st.integers(0, 2**40),
)
def test_header_scan_agrees_with_the_codec(**given_values: object) -> None:
    properties = Properties(**given_values)  # type: ignore[arg-type]
    payload = encode_header(properties, 7)
    assert decode_header(payload) == (properties, 7)
    scan = HeaderScan()
    assert scan.scan(payload, 0, len(payload))
    assert scan.delivery_mode == (-1 if properties.delivery_mode is None else properties.delivery_mode)
    for at, value in ((scan.reply_to_at, properties.reply_to), (scan.expiration_at, properties.expiration)):
        assert (at != 0) == (value is not None)
        if value is not None:
            assert payload[at + 1 : at + 1 + payload[at]].decode() == value
