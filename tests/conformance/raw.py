"""A very small AMQP 0-9-1 client that shows every frame, to check exact codes, texts and ids.

It deliberately shares no code with leveret: a mistake in leveret's codec must not hide behind the same mistake here.
It uses one blocking socket; nothing is retried, reordered or interpreted. Written from the protocol's grammar.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
DEADLINE_S = 60.0

# name -> (class id, method id, fields). A field is name:kind; kinds: o octet, h short, l long, L long long,
# s short string, S long string, T table, b bit (neighbouring bits share octets).
METHODS: dict[str, tuple[int, int, str]] = {
    "connection.start": (10, 10, "major:o minor:o server_properties:T mechanisms:S locales:S"),
    "connection.start-ok": (10, 11, "client_properties:T mechanism:s response:S locale:s"),
    "connection.tune": (10, 30, "channel_max:h frame_max:l heartbeat:h"),
    "connection.tune-ok": (10, 31, "channel_max:h frame_max:l heartbeat:h"),
    "connection.open": (10, 40, "virtual_host:s reserved_1:s reserved_2:b"),
    "connection.open-ok": (10, 41, "reserved_1:s"),
    "connection.close": (10, 50, "reply_code:h reply_text:s class_id:h method_id:h"),
    "connection.close-ok": (10, 51, ""),
    "connection.blocked": (10, 60, "reason:s"),
    "connection.unblocked": (10, 61, ""),
    "connection.update-secret": (10, 70, "new_secret:S reason:s"),
    "connection.update-secret-ok": (10, 71, ""),
    "channel.open": (20, 10, "reserved_1:s"),
    "channel.open-ok": (20, 11, "reserved_1:S"),
    "channel.flow": (20, 20, "active:b"),
    "channel.flow-ok": (20, 21, "active:b"),
    "channel.close": (20, 40, "reply_code:h reply_text:s class_id:h method_id:h"),
    "channel.close-ok": (20, 41, ""),
    "exchange.declare": (
        40, 10, "ticket:h exchange:s type:s passive:b durable:b auto_delete:b internal:b no_wait:b arguments:T"),
    "exchange.declare-ok": (40, 11, ""),
    "exchange.delete": (40, 20, "ticket:h exchange:s if_unused:b no_wait:b"),
    "exchange.delete-ok": (40, 21, ""),
    "exchange.bind": (40, 30, "ticket:h destination:s source:s routing_key:s no_wait:b arguments:T"),
    "exchange.bind-ok": (40, 31, ""),
    "exchange.unbind": (40, 40, "ticket:h destination:s source:s routing_key:s no_wait:b arguments:T"),
    "exchange.unbind-ok": (40, 51, ""),
    "queue.declare": (
        50, 10, "ticket:h queue:s passive:b durable:b exclusive:b auto_delete:b no_wait:b arguments:T"),
    "queue.declare-ok": (50, 11, "queue:s message_count:l consumer_count:l"),
    "queue.bind": (50, 20, "ticket:h queue:s exchange:s routing_key:s no_wait:b arguments:T"),
    "queue.bind-ok": (50, 21, ""),
    "queue.purge": (50, 30, "ticket:h queue:s no_wait:b"),
    "queue.purge-ok": (50, 31, "message_count:l"),
    "queue.delete": (50, 40, "ticket:h queue:s if_unused:b if_empty:b no_wait:b"),
    "queue.delete-ok": (50, 41, "message_count:l"),
    "queue.unbind": (50, 50, "ticket:h queue:s exchange:s routing_key:s arguments:T"),
    "queue.unbind-ok": (50, 51, ""),
    "basic.qos": (60, 10, "prefetch_size:l prefetch_count:h global:b"),
    "basic.qos-ok": (60, 11, ""),
    "basic.consume": (
        60, 20, "ticket:h queue:s consumer_tag:s no_local:b no_ack:b exclusive:b no_wait:b arguments:T"),
    "basic.consume-ok": (60, 21, "consumer_tag:s"),
    "basic.cancel": (60, 30, "consumer_tag:s no_wait:b"),
    "basic.cancel-ok": (60, 31, "consumer_tag:s"),
    "basic.publish": (60, 40, "ticket:h exchange:s routing_key:s mandatory:b immediate:b"),
    "basic.return": (60, 50, "reply_code:h reply_text:s exchange:s routing_key:s"),
    "basic.deliver": (60, 60, "consumer_tag:s delivery_tag:L redelivered:b exchange:s routing_key:s"),
    "basic.get": (60, 70, "ticket:h queue:s no_ack:b"),
    "basic.get-ok": (60, 71, "delivery_tag:L redelivered:b exchange:s routing_key:s message_count:l"),
    "basic.get-empty": (60, 72, "reserved_1:s"),
    "basic.ack": (60, 80, "delivery_tag:L multiple:b"),
    "basic.reject": (60, 90, "delivery_tag:L requeue:b"),
    "basic.recover-async": (60, 100, "requeue:b"),
    "basic.recover": (60, 110, "requeue:b"),
    "basic.recover-ok": (60, 111, ""),
    "basic.nack": (60, 120, "delivery_tag:L multiple:b requeue:b"),
    "confirm.select": (85, 10, "no_wait:b"),
    "confirm.select-ok": (85, 11, ""),
    "tx.select": (90, 10, ""),
    "tx.select-ok": (90, 11, ""),
    "tx.commit": (90, 20, ""),
    "tx.commit-ok": (90, 21, ""),
    "tx.rollback": (90, 30, ""),
    "tx.rollback-ok": (90, 31, ""),
}
BY_ID = {(c, m): (name, spec) for name, (c, m, spec) in METHODS.items()}
WITH_CONTENT = {"basic.return", "basic.deliver", "basic.get-ok"}
PROPERTIES = [
    ("content_type", "s", 15), ("content_encoding", "s", 14), ("headers", "T", 13), ("delivery_mode", "o", 12),
    ("priority", "o", 11), ("correlation_id", "s", 10), ("reply_to", "s", 9), ("expiration", "s", 8),
    ("message_id", "s", 7), ("timestamp", "L", 6), ("type", "s", 5), ("user_id", "s", 4), ("app_id", "s", 3),
    ("cluster_id", "s", 2),
]
NUMBERS = {"o": ">B", "h": ">H", "l": ">I", "L": ">Q"}
TABLE_NUMBERS = {"b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q", "T": ">Q",
                 "f": ">f", "d": ">d"}


class Eof(Exception):
    """The broker closed the socket."""


@dataclass(slots=True)
class Frame:
    """One frame as it was received: name and arguments of a method, with properties and body of its content."""

    kind: int
    channel: int
    name: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def __getitem__(self, key: str) -> Any:
        return self.args[key]

    @property
    def error(self) -> tuple[int, str, int, int]:
        """Code, text, class id and method id of a close method."""
        return (self["reply_code"], self["reply_text"], self["class_id"], self["method_id"])


@dataclass(frozen=True, slots=True)
class Typed:
    """A table value with its wire type letter, for types that a Python type does not determine."""

    kind: str
    value: Any


def short(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">B", len(data)) + data


def long(data: str | bytes) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return struct.pack(">I", len(raw)) + raw


def value(item: Any) -> bytes:
    if isinstance(item, Typed):
        if item.kind in TABLE_NUMBERS:
            return item.kind.encode() + struct.pack(TABLE_NUMBERS[item.kind], item.value)
        return item.kind.encode() + (long(item.value) if item.kind in "Sx" else item.value)
    if item is None:
        return b"V"
    if isinstance(item, bool):
        return b"t" + bytes([item])
    if isinstance(item, int):
        return (b"I" + struct.pack(">i", item)) if -(2**31) <= item < 2**31 else (b"l" + struct.pack(">q", item))
    if isinstance(item, float):
        return b"d" + struct.pack(">d", item)
    if isinstance(item, dict):
        return b"F" + table(item)
    if isinstance(item, list):
        return b"A" + long(b"".join(value(each) for each in item))
    return b"S" + long(item)


def table(items: dict[str, Any]) -> bytes:
    return long(b"".join(short(key) + value(item) for key, item in items.items()))


class Reader:
    """Reads fields from the front of a payload."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.data), "the frame ends inside a field"
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def read(self, kind: str) -> Any:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == "s":
            return self.take(self.number(">B")).decode(errors="surrogateescape")
        if kind == "S":
            return self.take(self.number(">I")).decode()
        return self.table()

    def table(self) -> dict[str, Any]:
        inner = type(self)(self.take(self.number(">I")))
        found: dict[str, Any] = {}
        while inner.at < len(inner.data):
            key = inner.read("s")
            found[key] = inner.value()
        return found

    def value(self) -> Any:
        kind = chr(self.number(">B"))
        if kind in TABLE_NUMBERS:
            return self.number(TABLE_NUMBERS[kind])
        if kind == "S":
            return self.read("S")
        if kind == "x":
            return self.take(self.number(">I"))
        if kind == "t":
            return self.number(">B") != 0
        if kind == "F":
            return self.table()
        if kind == "V":
            return None
        if kind == "D":
            return Typed("D", self.take(5))
        assert kind == "A", f"unknown table value type {kind!r}"
        inner = type(self)(self.take(self.number(">I")))
        items = []
        while inner.at < len(inner.data):
            items.append(inner.value())
        return items


def encode_method(name: str, **args: Any) -> bytes:
    """Return the payload of a method frame; fields that are not given are zero, empty or false."""
    class_id, method_id, spec = METHODS[name]
    out, bits, shift = struct.pack(">HH", class_id, method_id), 0, 0
    for part in [*spec.split(), "end:end"]:
        key, kind = part.split(":")
        if kind == "b":
            bits |= bool(args.pop(key, False)) << shift
            shift += 1
            continue
        if shift:
            out, bits, shift = out + bytes([bits]), 0, 0
        if kind in NUMBERS:
            out += struct.pack(NUMBERS[kind], args.pop(key, 0))
        elif kind == "s":
            out += short(args.pop(key, ""))
        elif kind == "S":
            out += long(args.pop(key, ""))
        elif kind == "T":
            out += table(args.pop(key, {}))
    assert not args, f"{name} has no field {sorted(args)}"
    return out


def decode_method(payload: bytes, kind_of_reader: type[Reader] = Reader) -> tuple[str, dict[str, Any]]:
    reader = kind_of_reader(payload)
    name, spec = BY_ID[reader.number(">H"), reader.number(">H")]
    args: dict[str, Any] = {}
    bits, shift = 0, 0
    for part in spec.split():
        key, kind = part.split(":")
        if kind == "b":
            if shift == 0:
                bits = reader.number(">B")
            args[key] = bool(bits >> shift & 1)
            shift += 1
        else:
            shift = 0
            args[key] = reader.read(kind)
    assert reader.at == len(payload), f"{name} is longer than its fields"
    return name, args


def encode_header(size: int, properties: dict[str, Any], class_id: int = 60, weight: int = 0) -> bytes:
    flags, out = 0, b""
    for key, kind, bit in PROPERTIES:
        if key in properties:
            flags |= 1 << bit
            given = properties[key]
            out += table(given) if kind == "T" else short(given) if kind == "s" else struct.pack(NUMBERS[kind], given)
    return struct.pack(">HHQH", class_id, weight, size, flags) + out


def decode_header(payload: bytes, kind_of_reader: type[Reader] = Reader) -> tuple[int, dict[str, Any]]:
    reader = kind_of_reader(payload)
    assert reader.number(">H") == 60
    assert reader.number(">H") == 0
    size, flags = reader.number(">Q"), reader.number(">H")
    found = {key: reader.read(kind) for key, kind, bit in PROPERTIES if flags >> bit & 1}
    assert reader.at == len(payload), "the content header is longer than its flags say"
    return size, found


def frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


class RawClient:
    """One connection. `open` does the handshake; the constructor only connects the socket."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        self.user, self.password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        self.vhost = unquote(parts.path[1:]) if len(parts.path) > 1 else "/"
        self.socket = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 5672), DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.buffer = b""
        self.frame_max = 4096
        self.heartbeats = 0
        self.largest_frame = 0
        self.server_properties: dict[str, Any] = {}
        self.mechanisms: list[str] = []
        self.tune: dict[str, Any] = {}

    @classmethod
    def open(cls, url: str, *, channels: int = 1, channel_max: int | None = None, frame_max: int | None = None,
             heartbeat: int = 0, properties: dict[str, Any] | None = None, mechanism: str = "PLAIN",
             context: ssl.SSLContext | None = None) -> RawClient:
        """Connect, log in, open the virtual host and channels 1..`channels`; None accepts the broker's offer.

        With a `context` the connection uses TLS and verifies the name localhost.
        """
        client = cls(url, context)
        client.start(mechanism=mechanism, properties=properties)
        tune = client.read("connection.tune")
        client.tune = tune.args
        client.frame_max = tune["frame_max"] if frame_max is None else frame_max
        client.send("connection.tune-ok", 0, heartbeat=heartbeat, frame_max=client.frame_max,
                    channel_max=tune["channel_max"] if channel_max is None else channel_max)
        client.call("connection.open", 0, virtual_host=client.vhost)
        for number in range(1, channels + 1):
            client.call("channel.open", number)
        return client

    def start(self, *, mechanism: str = "PLAIN", response: str | bytes | None = None,
              properties: dict[str, Any] | None = None) -> None:
        """Send the protocol header and answer connection.start, without reading the next frame."""
        self.socket.sendall(PROTOCOL_HEADER)
        start = self.read("connection.start")
        self.server_properties, self.mechanisms = start["server_properties"], start["mechanisms"].split()
        if properties is None:
            properties = {"capabilities": {"authentication_failure_close": True, "consumer_cancel_notify": True}}
        if response is None:
            response = f"\0{self.user}\0{self.password}"
        self.send("connection.start-ok", 0, client_properties=properties, mechanism=mechanism,
                  response=response, locale="en_US")

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, name: str, channel: int = 1, /, **args: Any) -> None:
        self.socket.sendall(frame(METHOD, channel, encode_method(name, **args)))

    def send_frame(self, kind: int, channel: int, payload: bytes, end: int = 0xCE) -> None:
        self.socket.sendall(frame(kind, channel, payload, end))

    def publish(self, body: bytes = b"", exchange: str = "", routing_key: str = "", *, channel: int = 1,
                mandatory: bool = False, immediate: bool = False, **properties: Any) -> None:
        method = encode_method("basic.publish", exchange=exchange, routing_key=routing_key, mandatory=mandatory,
                               immediate=immediate)
        self.socket.sendall(self.content(channel, method, body, properties))

    def content(self, channel: int, method: bytes, body: bytes, properties: dict[str, Any]) -> bytes:
        """Return the frames of a method with content, the body split to the negotiated frame size."""
        step = self.frame_max - 8
        out = frame(METHOD, channel, method) + frame(HEADER, channel, encode_header(len(body), properties))
        return out + b"".join(frame(BODY, channel, body[at : at + step]) for at in range(0, len(body), step))

    def call(self, name: str, channel: int = 1, /, **args: Any) -> Frame:
        """Send a method; the next frame of that channel must be its -ok (for basic.get also get-empty)."""
        self.send(name, channel, **args)
        return self.read(f"{name}-ok", *(["basic.get-empty"] if name == "basic.get" else []))

    def fail(self, name: str, channel: int = 1, /, **args: Any) -> tuple[int, str, int, int]:
        """Send a method that must close the channel or connection; return code, text, class id and method id."""
        self.send(name, channel, **args)
        return self.closed(channel)

    def closed(self, channel: int = 1) -> tuple[int, str, int, int]:
        """Read a close, which must come next, and answer it. Open a closed channel again, for the next check."""
        got = self.read("channel.close", "connection.close")
        if got.name == "channel.close":
            assert got.channel == channel
            self.send("channel.close-ok", channel)
            self.call("channel.open", channel)
        else:
            self.send("connection.close-ok", 0)
            self.expect_eof()
        return got.error

    def read(self, *names: str, timeout_s: float = DEADLINE_S) -> Frame:
        """Return the next method, with its content; heartbeats are counted and skipped.

        Raises Eof at the end of the stream, TimeoutError after `timeout_s`, and AssertionError if `names` are given and
        the method is none of them.
        """
        deadline = time.monotonic() + timeout_s
        got = self.read_frame(deadline)
        while got.kind == HEARTBEAT:
            self.heartbeats += 1
            got = self.read_frame(deadline)
        assert got.kind == METHOD, f"frame kind {got.kind} without a method"
        if got.name in WITH_CONTENT:
            header = self.read_frame(deadline)
            assert header.kind == HEADER
            assert header.channel == got.channel
            size, got.properties = decode_header(header.body)
            while len(got.body) < size:
                part = self.read_frame(deadline)
                assert part.kind == BODY
                assert part.channel == got.channel
                got.body += part.body
            assert len(got.body) == size
        assert not names or got.name in names, f"expected {' or '.join(names)}, got {got}"
        return got

    def read_frame(self, deadline: float) -> Frame:
        kind, channel, size = struct.unpack(">BHI", self.peek(7, deadline))
        self.largest_frame = max(self.largest_frame, size + 8)
        data = self.peek(size + 8, deadline)
        self.buffer = self.buffer[size + 8 :]
        assert data[-1] == 0xCE, "the frame does not end in 0xCE"
        payload = data[7:-1]
        if kind != METHOD:
            return Frame(kind, channel, body=payload)
        name, args = decode_method(payload)
        return Frame(kind, channel, name, args)

    def peek(self, count: int, deadline: float) -> bytes:
        while len(self.buffer) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no frame in time")
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Eof
            self.buffer += data
        return self.buffer[:count]

    def expect_eof(self, timeout_s: float = DEADLINE_S) -> None:
        """Check that the broker closes the socket without sending anything more."""
        try:
            got = self.peek(1, time.monotonic() + timeout_s)
        except Eof:
            return
        raise AssertionError(f"expected the end of the connection, got {got + self.buffer!r}")

    def deliveries(self, count: int) -> list[Frame]:
        return [self.read("basic.deliver") for _ in range(count)]

    def quiet(self, channel: int = 1) -> None:
        """Check that nothing but the answer to a harmless request arrives on this connection."""
        self.call("basic.qos", channel)
