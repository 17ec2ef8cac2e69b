"""Answers to frames that are malformed or arrive at the wrong time: code, text, class id and method id.

`SAME` has answers that equal RabbitMQ 3.10.8's, `CLEARER` those where RabbitMQ answers 541 INTERNAL_ERROR or nothing.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .raw import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    Eof,
    RawClient,
    Typed,
    encode_header,
    encode_method,
    frame,
    long,
    short,
    table,
)

Sent = list[tuple[Any, ...]]
Error = tuple[int, str, int, int]

PUBLISH = encode_method("basic.publish", routing_key="frames")
DECLARE = encode_method("queue.declare")
QOS = encode_method("basic.qos")
UNKNOWN = "FRAME_ERROR - type {}, {}: unknown_frame"
CANNOT = "FRAME_ERROR - cannot decode {}"
WRONG_END = "FRAME_ERROR - type {}, {}: {{invalid_frame_end_marker,{}}}"
UNEXPECTED = "UNEXPECTED_FRAME - type {}, {}"
WANTED_METHOD = "UNEXPECTED_FRAME - expected method frame, got non method frame instead"
WANTED_HEADER = "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"
WANTED_CLASS = "UNEXPECTED_FRAME - expected content header for class 60, got one for class {} instead"
WANTED_BODY = "UNEXPECTED_FRAME - expected content body, got non content body frame instead"
NOT_OPEN = "CHANNEL_ERROR - expected 'channel.open'"
RUNNING = "CHANNEL_ERROR - unexpected method in connection state running"
UNIMPLEMENTED = "COMMAND_INVALID - unimplemented method"
NOT_UTF8 = "FRAME_ERROR - Malformed UTF-8 in shortstr"


def declare(table_octets: bytes) -> bytes:
    """Return a queue.declare with these octets as arguments."""
    return DECLARE[:-4] + long(table_octets)


def method(class_id: int, method_id: int, fields: bytes = b"") -> bytes:
    return struct.pack(">HH", class_id, method_id) + fields


def properties(flags: int, octets: bytes = b"") -> bytes:
    """Return a content header for an empty body."""
    return struct.pack(">HHQH", 60, 0, 0, flags) + octets


SAME: dict[str, tuple[Sent, Error]] = {
    # malformed frames
    "method without octets": ([(METHOD, 1, b"")], (501, UNKNOWN.format(1, "all octets = <<>>"), 0, 0)),
    "method of three octets": ([(METHOD, 0, b"\0\x3c\0")], (501, UNKNOWN.format(1, "all octets = <<0,60,0>>"), 0, 0)),
    "type 0": ([(0, 1, b"a")], (501, UNKNOWN.format(0, 'all octets = <<"a">>'), 0, 0)),
    "type 4": ([(4, 1, b'\t"\\')], (501, UNKNOWN.format(4, r'all octets = <<"\t\"\\">>'), 0, 0)),
    "type 5 on the connection": ([(5, 0, b"")], (501, UNKNOWN.format(5, "all octets = <<>>"), 0, 0)),
    "type 7, long": ([(7, 9, b"a" * 20)], (501, UNKNOWN.format(7, f'first 16 octets = <<"{"a" * 16}">>'), 0, 0)),
    "header of no octets": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, b"")], (501, UNKNOWN.format(2, "all octets = <<>>"), 0, 0)),
    "heartbeat with octets": ([(HEARTBEAT, 0, b"abc")], (501, UNKNOWN.format(8, 'all octets = <<"abc">>'), 0, 0)),
    "heartbeat with octets on a channel": (
        [(HEARTBEAT, 1, b"abc")], (501, UNKNOWN.format(8, 'all octets = <<"abc">>'), 0, 0)),
    "wrong end": (
        [(METHOD, 1, QOS, 0)], (501, WRONG_END.format(1, "all octets = <<0,60,0,10,0,0,0,0,0,0,0>>", 0), 0, 0)),
    "wrong end, type 7": ([(7, 1, b"a", 1)], (501, WRONG_END.format(7, 'all octets = <<"a">>', 1), 0, 0)),
    "wrong end of a body": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, encode_header(9, {})), (BODY, 1, b"b" * 9, 207)],
        (501, WRONG_END.format(3, 'all octets = <<"bbbbbbbbb">>', 207), 0, 0)),
    # frames in the wrong place
    "heartbeat on a channel": ([(HEARTBEAT, 1, b"")], (505, UNEXPECTED.format(8, "all octets = <<>>"), 0, 0)),
    "header on the connection": ([(HEADER, 0, encode_header(0, {}))], (
        505, UNEXPECTED.format(2, "all octets = <<0,60,0,0,0,0,0,0,0,0,0,0,0,0>>"), 0, 0)),
    "body on the connection": ([(BODY, 0, b"a")], (505, UNEXPECTED.format(3, 'all octets = <<"a">>'), 0, 0)),
    "header without a publish": ([(HEADER, 1, encode_header(0, {}))], (505, WANTED_METHOD, 0, 0)),
    "body without a publish": ([(BODY, 1, b"a")], (505, WANTED_METHOD, 0, 0)),
    "empty body without a publish": ([(BODY, 1, b"")], (505, WANTED_METHOD, 0, 0)),
    "header on a channel that is not open": ([(HEADER, 9, encode_header(0, {}))], (505, WANTED_METHOD, 0, 0)),
    "body on a channel that is not open": ([(BODY, 9, b"a")], (505, WANTED_METHOD, 0, 0)),
    # methods in the wrong place
    "method on a channel that is not open": ([(METHOD, 9, DECLARE)], (504, NOT_OPEN, 50, 10)),
    "publish on a channel that is not open": (
        [(METHOD, 9, PUBLISH), (HEADER, 9, encode_header(0, {}))], (504, NOT_OPEN, 60, 40)),
    "close of a channel that is not open": ([(METHOD, 9, encode_method("channel.close"))], (504, NOT_OPEN, 20, 40)),
    "close-ok of no channel": ([(METHOD, 9, encode_method("channel.close-ok"))], (504, NOT_OPEN, 20, 41)),
    "channel 65535": ([(METHOD, 65535, QOS)], (504, NOT_OPEN, 60, 10)),
    "publish on the connection": ([(METHOD, 0, PUBLISH)], (504, RUNNING, 60, 40)),
    "channel.close on the connection": ([(METHOD, 0, encode_method("channel.close"))], (504, RUNNING, 20, 40)),
    "open once more": ([(METHOD, 0, encode_method("connection.open"))], (504, RUNNING, 10, 40)),
    "start-ok once more": ([(METHOD, 0, encode_method("connection.start-ok"))], (504, RUNNING, 10, 11)),
    "tune-ok once more": ([(METHOD, 0, encode_method("connection.tune-ok"))], (504, RUNNING, 10, 31)),
    "close-ok that was not asked for": ([(METHOD, 0, encode_method("connection.close-ok"))], (504, RUNNING, 10, 51)),
    "connection.start of a client": ([(METHOD, 0, encode_method("connection.start"))], (504, RUNNING, 10, 10)),
    "connection.blocked of a client": ([(METHOD, 0, encode_method("connection.blocked"))], (504, RUNNING, 10, 60)),
    "secure-ok": ([(METHOD, 0, method(10, 21, long("x")))], (504, RUNNING, 10, 21)),
    "connection.close on a channel": ([(METHOD, 1, encode_method("connection.close"))], (503, UNIMPLEMENTED, 10, 50)),
    "update-secret on a channel": ([(METHOD, 1, method(10, 70, long("x") + short("y")))], (503, UNIMPLEMENTED, 10, 70)),
    "open-ok of a client": ([(METHOD, 1, encode_method("channel.open-ok"))], (503, UNIMPLEMENTED, 20, 11)),
    "flow-ok that was not asked for": ([(METHOD, 1, encode_method("channel.flow-ok"))], (503, UNIMPLEMENTED, 20, 21)),
    "deliver of a client": (
        [(METHOD, 1, encode_method("basic.deliver")), (HEADER, 1, encode_header(0, {}))], (503, UNIMPLEMENTED, 60, 60)),
    "immediate": (
        [(METHOD, 1, encode_method("basic.publish", immediate=True)), (HEADER, 1, encode_header(0, {}))],
        (540, "NOT_IMPLEMENTED - immediate=true", 60, 40)),
    # arguments
    "ack with too much": (
        [(METHOD, 1, encode_method("basic.ack") + b"abc")],
        (501, CANNOT.format("<<0,0,0,0,0,0,0,0,0,97,98,99>>"), 60, 80)),
    "ack with too little": (
        [(METHOD, 1, encode_method("basic.ack")[:-1])], (501, CANNOT.format("<<0,0,0,0,0,0,0,0>>"), 60, 80)),
    "publish with too much": (
        [(METHOD, 1, encode_method("basic.publish", routing_key="ab") + b"c"), (HEADER, 1, encode_header(0, {}))],
        (501, CANNOT.format("<<0,0,0,2,97,98,0,99>>"), 60, 40)),
    "publish with too little": (
        [(METHOD, 1, PUBLISH[:-4]), (HEADER, 1, encode_header(0, {}))],
        (501, CANNOT.format("<<0,0,0,6,102,114,97>>"), 60, 40)),
    "publish of nothing": (
        [(METHOD, 1, PUBLISH[:4]), (HEADER, 1, encode_header(0, {}))], (501, CANNOT.format("<<>>"), 60, 40)),
    "open with too much": (
        [(METHOD, 3, encode_method("channel.open") + b"a")], (501, CANNOT.format("<<0,97>>"), 20, 10)),
    "open with too little": ([(METHOD, 3, encode_method("channel.open")[:-1])], (501, CANNOT.format("<<>>"), 20, 10)),
    "short string over the frame": ([(METHOD, 1, method(50, 10, b"\0\0\x05ab"))],
                                    (501, CANNOT.format("<<0,0,5,97,98>>"), 50, 10)),
    "table over the frame": ([(METHOD, 1, DECLARE[:-4] + b"\xff\xff\xff\xff")],
                             (501, CANNOT.format("<<0,0,0,0,255,255,255,255>>"), 50, 10)),
    "a long dump": ([(METHOD, 1, DECLARE + bytes(200))],
                    (501, (CANNOT.format("<<") + "0," * 200)[:252] + "...", 50, 10)),
    "queue name that is not UTF-8": (
        [(METHOD, 1, method(50, 10, b"\0\0" + short(b"a\xff") + b"\0" + table({})))], (501, NOT_UTF8, 0, 0)),
    "consumer tag that is not UTF-8": (
        [(METHOD, 1, method(60, 30, short(b"\xc3") + b"\0"))], (501, NOT_UTF8, 0, 0)),
    # content
    "two publishes": ([(METHOD, 1, PUBLISH), (METHOD, 1, PUBLISH)], (505, WANTED_HEADER, 60, 40)),
    "publish and another method": ([(METHOD, 1, PUBLISH), (METHOD, 1, QOS)], (505, WANTED_HEADER, 60, 40)),
    "publish and close": (
        [(METHOD, 1, PUBLISH), (METHOD, 1, encode_method("channel.close"))], (505, WANTED_HEADER, 60, 40)),
    "publish and body": ([(METHOD, 1, PUBLISH), (BODY, 1, b"a")], (505, WANTED_HEADER, 60, 40)),
    "publish and empty body": ([(METHOD, 1, PUBLISH), (BODY, 1, b"")], (505, WANTED_HEADER, 60, 40)),
    "header and publish": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, encode_header(1, {})), (METHOD, 1, PUBLISH)], (505, WANTED_BODY, 60, 40)),
    "header and close": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, encode_header(1, {})), (METHOD, 1, encode_method("channel.close"))],
        (505, WANTED_BODY, 60, 40)),
    "two headers": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, encode_header(1, {})), (HEADER, 1, encode_header(1, {}))],
        (505, WANTED_BODY, 60, 40)),
    "weight": ([(METHOD, 1, PUBLISH), (HEADER, 1, encode_header(0, {}, weight=1))], (505, WANTED_HEADER, 60, 40)),
    "header of class 50": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, encode_header(1, {}, class_id=50))], (505, WANTED_CLASS.format(50), 60, 40)),
    "header of class 0": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, encode_header(0, {}, class_id=0))], (505, WANTED_CLASS.format(0), 60, 40)),
}

SYNTAX = "SYNTAX_ERROR - malformed content header"
CLEARER: dict[str, tuple[Sent, Error]] = {
    "unknown method": ([(METHOD, 1, method(50, 99))], (503, "COMMAND_INVALID - unknown method 50.99", 50, 99)),
    "unknown class": ([(METHOD, 0, method(99, 10))], (503, "COMMAND_INVALID - unknown method 99.10", 99, 10)),
    "close with too much": (
        [(METHOD, 0, encode_method("connection.close") + b"a")], (501, CANNOT.format("<<0,0,0,0,0,0,0,97>>"), 10, 50)),
    "name over its table": (
        [(METHOD, 1, declare(b"\x09ab"))],
        (501, CANNOT.format("queue.declare: field name extends beyond its table"), 50, 10)),
    "name without a value": (
        [(METHOD, 1, declare(b"\x01a"))], (501, CANNOT.format("queue.declare: field value is missing"), 50, 10)),
    "unknown type in a table": (
        [(METHOD, 1, declare(b"\x01aZ123"))], (501, CANNOT.format("queue.declare: unknown field type 'Z'"), 50, 10)),
    "value over its table": (
        [(METHOD, 1, declare(b"\x01aI12"))],
        (501, CANNOT.format("queue.declare: field value extends beyond its table"), 50, 10)),
    "array over its table": (
        [(METHOD, 1, declare(b"\x01aA\0\0\0\x03I12"))],
        (501, CANNOT.format("queue.declare: field value extends beyond its table"), 50, 10)),
    "header of 13 octets": ([(METHOD, 1, PUBLISH), (HEADER, 1, properties(0)[:13])], (502, SYNTAX, 60, 40)),
    "properties missing": ([(METHOD, 1, PUBLISH), (HEADER, 1, properties(0x8000))], (502, SYNTAX, 60, 40)),
    "properties cut": ([(METHOD, 1, PUBLISH), (HEADER, 1, properties(0x8000, b"\x05ab"))], (502, SYNTAX, 60, 40)),
    "properties and more": ([(METHOD, 1, PUBLISH), (HEADER, 1, properties(0, b"abc"))], (502, SYNTAX, 60, 40)),
    "headers cut": ([(METHOD, 1, PUBLISH), (HEADER, 1, properties(0x2000, b"\0\0\0\x09a"))], (502, SYNTAX, 60, 40)),
    "unknown type in headers": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, properties(0x2000, long(b"\x01aZ1")))],
        (502, "SYNTAX_ERROR - unknown field type 'Z'", 60, 40)),
    "unknown type in a table in headers": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, properties(0x2000, table({"a": [1, {"b": Typed("Z", b"1")}]})))],
        (502, "SYNTAX_ERROR - unknown field type 'Z'", 60, 40)),
    "table over its table in headers": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, properties(0x2000, long(b"\x01aF\0\0\0\x05\x01bI\0\0")))],
        (502, "SYNTAX_ERROR - field value extends beyond its table", 60, 40)),
    "timestamp cut": ([(METHOD, 1, PUBLISH), (HEADER, 1, properties(0x40, b"1234"))], (502, SYNTAX, 60, 40)),
    "flags of another class": (
        [(METHOD, 1, PUBLISH), (HEADER, 1, properties(1, b"\0\0"))], (502, SYNTAX, 60, 40)),
}


@pytest.fixture
def fresh(url: str) -> Iterator[RawClient]:
    """A connected socket on which nothing has been sent yet."""
    with RawClient(url) as client:
        yield client


def say(client: RawClient, frames: Sent) -> None:
    """Send all frames in one segment, so that no answer can come between them."""
    client.socket.sendall(b"".join(frame(*each) for each in frames))


def last_words(client: RawClient) -> Error | None:
    """Return the error of the close, or None if the broker closes the socket without one."""
    try:
        return client.read("connection.close").error
    except Eof:
        return None


@pytest.mark.parametrize("name", SAME)
def test_violations(raw: RawClient, name: str) -> None:
    frames, error = SAME[name]
    say(raw, frames)
    got = raw.read("connection.close")
    raw.send("connection.close-ok", 0)
    assert got.error == error


@pytest.mark.parametrize("name", CLEARER)
def test_violations_that_are_named(raw: RawClient, on_rabbitmq: bool, name: str) -> None:
    """RabbitMQ: 541 with class and method 0, or the socket is just closed."""
    frames, error = CLEARER[name]
    say(raw, frames)
    got = last_words(raw)
    assert got in (None, (541, "INTERNAL_ERROR", 0, 0)) if on_rabbitmq else got == error


def test_a_violation_is_nobody_elses_business(raw: RawClient, other: RawClient, unique: str) -> None:
    """Another connection keeps its queue, its consumer and its unfinished publish."""
    other.call("queue.declare", queue=unique, exclusive=True)
    other.call("basic.consume", queue=unique, no_ack=True)
    other.send("basic.publish", routing_key=unique)
    other.send_frame(HEADER, 1, encode_header(4, {}))
    say(raw, [(METHOD, 1, PUBLISH), (METHOD, 1, QOS)])
    raw.closed()
    other.send_frame(BODY, 1, b"kept")
    assert other.read("basic.deliver").body == b"kept"


@pytest.mark.parametrize("size", [131073, 1 << 31, (1 << 32) - 1])
@pytest.mark.parametrize("kind", [METHOD, BODY, 7])
def test_a_frame_that_announces_too_much_is_not_waited_for(raw: RawClient, kind: int, size: int) -> None:
    """Seven octets are enough to refuse the frame."""
    raw.socket.sendall(struct.pack(">BHI", kind, 1, size))
    text = f"FRAME_ERROR - type {kind}, all octets = <<>>: {{frame_too_large,{size},131064}}"
    assert raw.read("connection.close").error == (501, text, 0, 0)


def test_a_frame_beyond_a_smaller_limit(url: str) -> None:
    with RawClient.open(url, frame_max=8192) as client:
        client.send_frame(METHOD, 1, b"a" * 20000)
        text = "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,20000,8184}"
        assert client.read("connection.close").error == (501, text, 0, 0)


@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_a_client_that_does_not_count_the_frames_own_octets(url: str, frame_max: int, unique: str) -> None:
    """Frames 8 octets longer than agreed are accepted, but none longer than agreed are sent."""
    body = bytes(range(256)) * (frame_max // 256)
    with RawClient.open(url, frame_max=frame_max) as client:
        client.call("queue.declare", queue=unique, exclusive=True)
        for _ in range(2):
            client.send("basic.publish", routing_key=unique)
            client.send_frame(HEADER, 1, encode_header(len(body), {}))
            client.send_frame(BODY, 1, body)
        client.call("basic.consume", queue=unique, no_ack=True)
        assert [each.body for each in client.deliveries(2)] == [body, body]
        assert client.largest_frame <= frame_max


def test_a_channel_waits_for_its_close_ok(raw: RawClient, unique: str) -> None:
    """Methods sent before the client knew are dropped, but a close is answered, and a second open is not."""
    missing = encode_method("queue.declare", queue=unique, passive=True)
    content = [(METHOD, 1, PUBLISH), (HEADER, 1, encode_header(1, {})), (BODY, 1, b"a")]
    say(raw, [(METHOD, 1, missing), (METHOD, 1, QOS), *content, (METHOD, 1, encode_method("channel.close"))])
    assert raw.read("channel.close")["reply_code"] == 404
    raw.read("channel.close-ok")
    raw.send("channel.close-ok")
    raw.call("channel.open")
    raw.quiet()
    say(raw, [(METHOD, 1, missing), (METHOD, 1, encode_method("channel.open"))])
    raw.read("channel.close")
    assert raw.closed() == (504, "CHANNEL_ERROR - second 'channel.open' seen", 20, 10)


@pytest.mark.parametrize(("frames", "error"), [
    ([(METHOD, 1, DECLARE[:-6])], (501, CANNOT.format("<<0,0>>"), 50, 10)),
    ([(METHOD, 1, b"\0")], (501, UNKNOWN.format(1, "all octets = <<0>>"), 0, 0)),
    ([(HEARTBEAT, 1, b"")], (505, UNEXPECTED.format(8, "all octets = <<>>"), 0, 0)),
    ([(METHOD, 0, DECLARE)], (504, RUNNING, 50, 10)),
], ids=["arguments", "short", "heartbeat", "connection"])  # fmt: skip
def test_a_channel_that_is_closing_must_be_sent_frames_all_the_same(
    raw: RawClient, unique: str, frames: Sent, error: Error
) -> None:
    say(raw, [(METHOD, 1, encode_method("queue.declare", queue=unique, passive=True)), *frames])
    raw.read("channel.close")
    assert raw.closed() == error


def test_the_numbers_of_channels_may_be_large_but_not_their_number(url: str) -> None:
    with RawClient.open(url, channel_max=3, channels=2) as client:
        client.call("channel.open", 65535)
        text = "NOT_ALLOWED - number of channels opened (3) has reached the negotiated channel_max (3)"
        assert client.fail("channel.open", 4) == (530, text, 0, 0)


def test_long_texts_end_in_dots(raw: RawClient) -> None:
    for name, shown in (("q" * 255, 230), ("é" * 127, 115)):
        text = raw.fail("queue.declare", queue=name, passive=True)[1]
        assert text == f"NOT_FOUND - no queue '{name[:shown]}..."


def test_access_request_is_of_no_use_but_answered(raw: RawClient) -> None:
    raw.send_frame(METHOD, 1, method(30, 10, short("/data") + b"\x1f"))
    answer = frame(METHOD, 1, method(30, 11, b"\0\1"))
    assert raw.peek(len(answer), time.monotonic() + 60) == answer
    raw.buffer = raw.buffer[len(answer) :]
    raw.quiet()


# Before the connection is open


def test_clients_of_0_9_are_served(fresh: RawClient) -> None:
    fresh.socket.sendall(b"AMQP\x01\x01\x00\x09")
    assert fresh.read("connection.start")["minor"] == 9


START_OK = encode_method("connection.start-ok", mechanism="PLAIN", response="\0guest\0guest", locale="en_US")
TUNE_OK = encode_method("connection.tune-ok", channel_max=2047, frame_max=131072)
STATE = "CHANNEL_ERROR - unexpected method in connection state {}"
OPENING: dict[str, tuple[Sent, Error]] = {
    "tune-ok once more": ([(METHOD, 0, TUNE_OK)], (504, STATE.format("opening"), 10, 31)),
    "declare": ([(METHOD, 0, DECLARE)], (504, STATE.format("opening"), 50, 10)),
    "a channel": (
        [(METHOD, 1, encode_method("channel.open"))],
        (505, UNEXPECTED.format(1, "all octets = <<0,20,0,10,0>>"), 0, 0)),
    "a body": ([(BODY, 1, b"a")], (505, UNEXPECTED.format(3, 'all octets = <<"a">>'), 0, 0)),
    "heartbeat on a channel": ([(HEARTBEAT, 1, b"")], (505, UNEXPECTED.format(8, "all octets = <<>>"), 0, 0)),
    "no vhost": (
        [(METHOD, 0, encode_method("connection.open", virtual_host="nope"))],
        (530, "NOT_ALLOWED - vhost nope not found", 10, 40)),
}  # fmt: skip
EARLIER: dict[str, tuple[Sent, Error]] = {
    "open at once": ([(METHOD, 0, encode_method("connection.open"))], (504, STATE.format("starting"), 10, 40)),
    "close-ok at once": ([(METHOD, 0, encode_method("connection.close-ok"))], (504, STATE.format("starting"), 10, 51)),
    "a channel at once": (
        [(METHOD, 1, encode_method("channel.open"))],
        (505, UNEXPECTED.format(1, "all octets = <<0,20,0,10,0>>"), 0, 0)),
    "start-ok of more than 4096 octets": (
        [(METHOD, 0, encode_method("connection.start-ok", client_properties={"x": "y" * 4096}, mechanism="PLAIN"))],
        (501, "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,4122,4088}", 0, 0)),
    "start-ok cut": ([(METHOD, 0, START_OK[:5])], (501, CANNOT.format("<<0>>"), 10, 11)),
    "wrong end": ([(METHOD, 0, START_OK[:4], 0)], (501, WRONG_END.format(1, "all octets = <<0,10,0,11>>", 0), 0, 0)),
    "open before tune-ok": (
        [(METHOD, 0, START_OK), (METHOD, 0, encode_method("connection.open"))], (504, STATE.format("tuning"), 10, 40)),
    "channel_max 0": (
        [(METHOD, 0, START_OK), (METHOD, 0, encode_method("connection.tune-ok", frame_max=131072))],
        (530, "NOT_ALLOWED - negotiated channel_max = 0 is higher than the maximum allowed value (2047)", 10, 31)),
    "frame_max 4095": (
        [(METHOD, 0, START_OK), (METHOD, 0, encode_method("connection.tune-ok", channel_max=1, frame_max=4095))],
        (530, "NOT_ALLOWED - negotiated frame_max = 4095 is lower than the minimum allowed value (4096)", 10, 31)),
}


def handshake(client: RawClient, *frames: tuple[Any, ...]) -> None:
    client.socket.sendall(PROTOCOL_HEADER)
    say(client, list(frames))
    client.read("connection.start")


@pytest.mark.parametrize("name", OPENING)
def test_violations_while_the_connection_opens(fresh: RawClient, name: str) -> None:
    frames, error = OPENING[name]
    handshake(fresh, (METHOD, 0, START_OK), (METHOD, 0, TUNE_OK), *frames)
    fresh.read("connection.tune")
    assert fresh.closed() == error


@pytest.mark.parametrize("name", EARLIER)
def test_violations_before_the_limits_are_agreed_on(fresh: RawClient, on_rabbitmq: bool, name: str) -> None:
    """RabbitMQ closes the socket without an answer, after 3 s, because the client is not logged in."""
    frames, error = EARLIER[name]
    handshake(fresh, *frames)
    if (METHOD, 0, START_OK) in frames:
        fresh.read("connection.tune")
    if on_rabbitmq and name.startswith(("channel_max", "frame_max")):
        fresh.send("connection.open", 0, virtual_host="/")  # RabbitMQ checks the limits only then
    assert last_words(fresh) == (None if on_rabbitmq else error)


def test_who_does_not_open_is_dropped_after_ten_seconds(url: str) -> None:
    tune_ok, half = frame(METHOD, 0, TUNE_OK), frame(METHOD, 0, b"cut")[:9]
    steps = [b"AMQ", PROTOCOL_HEADER[3:], frame(METHOD, 0, START_OK), tune_ok, half]
    started = time.monotonic()
    clients = [RawClient(url) for _ in range(len(steps) + 1)]
    for said, client in enumerate(clients):
        client.socket.sendall(b"".join(steps[:said]))
    for said, client in enumerate(clients):
        with client:
            for name in ("connection.start", "connection.tune")[: max(0, said - 1)]:
                client.read(name)
            with pytest.raises(Eof):
                client.read()
            assert time.monotonic() - started > 9.5
