"""Every decoder of the wire returns a value or raises a protocol error; two decoders of the same octets agree.

Encoding a decoded value and decoding it again gives the same value. What is only split and joined stays the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from leveret.broker.messages import carbon_copies
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.errors import ConnectionClosed
from leveret.client.protocol.model import Delivery
from leveret.client.protocol.url import parse_url
from leveret.federation.rewriting import RECEIVED_FROM, LinkOrigin, Rewriter, names_received_from
from leveret.wire import body_schema, grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import PROTOCOL_HEADER, FrameReader, frame
from leveret.wire.header_text import header_text
from leveret.wire.method import decode_method, encode_method, method_frame
from leveret.wire.properties import (
    decode_header,
    encode_header,
    property_spans,
    replace_property,
    text_property,
)
from leveret.wire.scan import HeaderScan, priority_of
from leveret.wire.table import decode_table, encode_table, join_table, split_table

from .octets import Octets

SPECS: Final = list(grammar.METHODS.values())
FRAME_MAX: Final = 8192


def one_input(data: bytes) -> None:
    octets = Octets(data)
    octets.choice(PARTS)(octets)


# -- tables -----------------------------------------------------------------------------------------------------------


def a_table(octets: Octets) -> None:
    body = octets.rest()
    raw = body if body[:1] == b"\xff" else struct.pack(">I", len(body)) + body
    _look_at_table(raw)


def _look_at_table(raw: bytes) -> None:
    try:
        table, end = decode_table(raw, 0)
    except ProtocolError:
        table, end = None, 0
    try:
        entries = split_table(raw)
    except ProtocolError:
        assert table is None, "decoded, but not to be cut apart"
        return
    if table is None:
        return  # only the decoder checks what is inside a value
    assert join_table(entries) == raw[:end]
    assert {name.decode("utf-8", "surrogateescape") for name, _ in entries} == set(table)
    if len(raw) == end:
        assert carbon_copies.is_sound(raw, 4, end, True, 0), "decoded, but the broker finds it unsound"
    again = encode_table(table)
    # a NaN is not equal to itself, so compare its encoding
    assert encode_table(decode_table(again, 0)[0]) == again
    for value in table.values():
        text = header_text(value)
        assert text is None or isinstance(text, str)
    names = names_received_from(raw[4:end])
    assert names or RECEIVED_FROM.decode() not in table
    carbon_copies.may_have(raw[:end], 0)


# -- methods ----------------------------------------------------------------------------------------------------------


def any_method(octets: Octets) -> None:
    _look_at_method(octets.rest())


def known_method(octets: Octets) -> None:
    """An existing method with any arguments."""
    spec = octets.choice(SPECS)
    _look_at_method(struct.pack(">HH", spec.class_id, spec.method_id) + octets.rest())


def _look_at_method(payload: bytes) -> None:
    strict: Any = None
    try:
        method = decode_method(payload)
    except ProtocolError:
        method = None
    try:
        strict = decode_method(payload, True)
    except ProtocolError:
        strict = None
    if method is None:
        assert strict is None, "strict takes more than lenient"
        return
    values: dict[str, object] = dict(method.values)
    again = encode_method(method.spec, **{**values, **method.tables})
    known = decode_method(again)
    assert encode_method(method.spec, **{**known.values, **known.tables}) == again
    assert repr(known) == repr(method)
    if not any(kind == "bit" for _, kind in method.spec.fields):
        assert again == payload  # an octet of bits has some without a meaning
    if strict is not None:
        assert repr(strict) == repr(method)


# -- content headers --------------------------------------------------------------------------------------------------


def a_header(octets: Octets) -> None:
    _look_at_header(octets.rest())


def near_header(octets: Octets) -> None:
    """Flags and properties after a valid start of the header."""
    _look_at_header(b"\0\x3c\0\0" + octets.rest())


def _look_at_header(payload: bytes) -> None:
    try:
        spans = property_spans(payload)
    except ProtocolError:
        spans = None
    if len(payload) >= 14:
        # in the middle of other octets, as in a read buffer
        scan = HeaderScan()
        is_found = scan.scan(b"\xff" * 7 + payload + b"\xce", 7, 7 + len(payload))
        # flags that class basic does not have, in bit 1, are checked by the decoder only
        assert is_found == (spans is not None and not payload[13] & 2), (is_found, spans)
        if is_found and spans is not None:
            found = {name: start + 7 for name, start, _ in spans}
            for name, at in (
                ("headers", scan.headers_at), ("reply_to", scan.reply_to_at),
                ("expiration", scan.expiration_at), ("user_id", scan.user_id_at),
            ):  # fmt: skip
                assert found.get(name, 0) == at, (name, at)
    if spans is None:
        try:
            decode_header(payload)
        except ProtocolError:
            return
        raise AssertionError("decoded, but without spans")
    try:
        properties, size = decode_header(payload)
    except ProtocolError:
        properties = None
    for name, _, _ in spans:
        if name not in {"headers", "delivery_mode", "priority", "timestamp"}:
            assert properties is None or text_property(payload, name) == getattr(properties, name)
        taken_out = replace_property(payload, name, None)
        start, stop = next((start, stop) for each, start, stop in spans if each == name)
        assert replace_property(taken_out, name, payload[start:stop]) == payload
    _rewrite(payload)
    if properties is None:
        return
    if payload[0] << 8 | payload[1] == 60 and not payload[13] & 2:
        content = frame(2, 1, payload)
        assert priority_of(content) == (properties.priority or 0)
    again = encode_header(properties, size)
    known, known_size = decode_header(again)
    assert (encode_header(known, known_size), known_size) == (again, size)


def _rewrite(payload: bytes) -> None:
    """A federation link's version of the header is valid and has one more hop."""
    rewriter = Rewriter(LinkOrigin("amqp://up", "x", "up", "/"), "here", "/", 3, False, True)
    try:
        written = rewriter.rewrite(payload, False)
    except ProtocolError:
        return
    if not written:
        return
    assert len(written) == rewriter.size
    names = [name for name, _, _ in property_spans(written)]
    assert "headers" in names
    assert "user_id" not in names
    try:
        before = decode_header(payload)[0].headers or {}
    except ProtocolError:
        return
    after = decode_header(written)[0].headers or {}
    hops, known = after["x-received-from"], before.get("x-received-from")
    assert isinstance(hops, list)
    assert len(hops) == 1 + (len(known) if isinstance(known, list) else 0)


# -- frames -----------------------------------------------------------------------------------------------------------


def frames(octets: Octets) -> None:
    """Frames are the same whether they arrive whole or in pieces."""
    step = 1 + octets.octet() % 50
    data = octets.rest()
    assert _frames_of(data, step) == _frames_of(data, len(data) or 1)


def _frames_of(data: bytes, step: int) -> tuple[list[tuple[int, int, bytes]], int | None]:
    reader = FrameReader(FRAME_MAX)
    found: list[tuple[int, int, bytes]] = []
    try:
        for start in range(0, len(data), step):
            reader.feed(data[start : start + step])
            while (each := reader.next()) is not None:
                found.append((each.kind, each.channel, each.payload))
    except ProtocolError as error:
        return found, error.code
    assert b"".join(frame(*each) for each in found) == data[: sum(len(each[2]) + 8 for each in found)]
    return found, None


# -- the client -------------------------------------------------------------------------------------------------------


class NoReader:
    """Leaves all deliveries to the general path."""

    def read(self, _channels: object, _data: bytes, start: int) -> int:
        return start


class Sink:
    """A consumer that records what it gets."""

    def __init__(self, got: list[tuple[object, ...]]) -> None:
        self.tag = "c"
        self.got = got

    def deliver(self, delivery: Delivery) -> None:
        self.got.append((
            delivery.body, delivery.header, delivery.exchange, delivery.routing_key, delivery.delivery_tag,
            delivery.redelivered,
        ))  # fmt: skip

    def ended(self, error: object) -> None:
        self.got.append((type(error).__name__,))


def client(octets: Octets) -> None:
    """The client behaves the same for any input with and without the fast reader, whole and in pieces."""
    step = 1 + octets.octet()
    data = b"".join(_said(octets))
    whole = _client(data, len(data) or 1, True)
    assert _client(data, len(data) or 1, False) == whole
    assert _client(data, step, True) == whole


def client_from_the_start(octets: Octets) -> None:
    core = ConnectionCore(parse_url("amqp://u:p@h/v"), 60, "fuzz")
    core.receive(octets.rest())
    _only_frames(core.take()[len(PROTOCOL_HEADER) :])


def _said(octets: Octets) -> list[bytes]:
    parts: list[bytes] = []
    while octets.left and len(parts) < 50:
        kind = octets.octet() % 6
        if kind == 0:
            parts.append(octets.chunk())
        elif kind == 1:
            parts.append(frame(octets.choice((1, 2, 3, 8)), octets.octet() % 3, octets.chunk()))
        elif kind == 2:
            spec = octets.choice(SPECS)
            head = struct.pack(">HH", spec.class_id, spec.method_id)
            parts.append(frame(1, octets.octet() % 3, head + octets.chunk()))
        elif kind == 3:
            parts.append(method_frame(octets.octet() % 3, octets.choice(SPECS)))
        else:
            tag = octets.choice(("c", "other", ""))
            deliver = method_frame(
                1,
                grammar.BASIC_DELIVER,
                consumer_tag=tag,
                delivery_tag=octets.octet(),
                routing_key="k" * octets.octet(),
            )
            header, body = octets.chunk(), octets.chunk()
            size = len(body) if kind == 4 else octets.octet()
            parts.append(deliver + frame(2, 1, struct.pack(">HHQ", 60, 0, size) + (header or b"\0\0")))
            parts.append(frame(3, 1, body) if body else b"")
    return parts


def _client(data: bytes, step: int, is_fast: bool) -> tuple[object, ...]:
    core = ConnectionCore(parse_url("amqp://u:p@h/v"), 60, "fuzz")
    core.receive(method_frame(0, grammar.CONNECTION_START, version_minor=9, mechanisms=b"PLAIN", locales=b"en_US"))
    core.receive(method_frame(0, grammar.CONNECTION_TUNE, channel_max=5, frame_max=FRAME_MAX, heartbeat=60))
    core.receive(method_frame(0, grammar.CONNECTION_OPEN_OK))
    settled: list[tuple[object, ...]] = []
    channel: Any = core.open_channel(lambda token, error: settled.append((token, repr(error))), lambda _error: None)
    got: list[tuple[object, ...]] = []
    sink: Any = Sink(got)
    channel.sinks[b"\x01c"] = sink
    core.take()
    if not is_fast:
        core.deliveries = NoReader()
    for start in range(0, len(data), step):
        core.receive(data[start : start + step])
    _only_frames(core.take())
    assert core.error is None or isinstance(core.error, ConnectionClosed)
    return got, settled, core.error is None, core.blocked


def _only_frames(data: bytes) -> None:
    reader = FrameReader(0)
    reader.feed(data)
    size = 0
    while (got := reader.next()) is not None:
        size += len(got.payload) + 8
        if got.kind == 1:
            decode_method(got.payload)
    assert size == len(data), "the client sends what is no frame"


# -- schemas and addresses --------------------------------------------------------------------------------------------


def a_schema(octets: Octets) -> None:
    text = octets.rest().decode("utf-8", "surrogateescape")
    refused = body_schema.refused_schema(text)
    assert isinstance(refused, str)


def a_url(octets: Octets) -> None:
    try:
        address = parse_url("amqp://" + octets.rest().decode("utf-8", "replace"))
    except ValueError:
        return
    assert 0 < address.port < 65536


PARTS: Final[tuple[Callable[[Octets], None], ...]] = (
    a_table, any_method, known_method, a_header, near_header, frames, client, client_from_the_start, a_schema, a_url,
)  # fmt: skip
