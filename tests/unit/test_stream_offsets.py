"""The meaning of a consumer's x-stream-offset and of a stream's limits."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest

from leveret.broker.streams.age import TIME_US_MAX, age_us
from leveret.broker.streams.limits import stream_limits
from leveret.broker.streams.offsets import FIRST, LAST, NEXT, OFFSET, TIMESTAMP, offset_spec, refused_offset
from leveret.wire.table import encode_value

NOW_US = 1_900_000_000_000_000
DAY_US = 86_400_000_000


@pytest.mark.parametrize(("text", "us"), [
    ("1s", 1_000_000),
    ("5m", 300_000_000),
    ("36h", 129_600_000_000),
    ("2D", 2 * DAY_US),
    ("1M", 30 * DAY_US),
    ("1Y", 365 * DAY_US),
    ("007s", 7_000_000),
    ("7s\nand more", 7_000_000),
    ("9" * 30 + "s", TIME_US_MAX),
    ("0" * 5000 + "3s", 3_000_000),
    ("999999999999999999Y", TIME_US_MAX),
])
def test_ages(text: str, us: int) -> None:
    assert age_us(text) == us


@pytest.mark.parametrize("text", [
    "", "s", "5", "0s", "00D", "-1h", "+1h", "1 h", " 1h", "1H", "1d", "1.5h", "1hh", "1h2m", "\n1h", "٣h", "one",
])
def test_no_ages(text: str) -> None:
    assert age_us(text) == -1


def typed(letter: str, form: str, value: float) -> bytes:
    return letter.encode() + struct.pack(form, value)


@pytest.mark.parametrize(("given", "kind", "value"), [
    (None, NEXT, 0),
    (encode_value("first"), FIRST, 0),
    (encode_value("last"), LAST, 0),
    (encode_value("next"), NEXT, 0),
    (encode_value(b"first"), FIRST, 0),
    (typed("b", ">b", 7), OFFSET, 7),
    (typed("B", ">B", 200), OFFSET, 200),
    (typed("s", ">h", 7), OFFSET, 7),
    (typed("u", ">H", 50_000), OFFSET, 50_000),
    (encode_value(7), OFFSET, 7),
    (typed("i", ">I", 1 << 31), OFFSET, 1 << 31),
    (encode_value(1 << 40), OFFSET, 1 << 40),
    (typed("L", ">q", (1 << 63) - 1), OFFSET, (1 << 63) - 1),
    (encode_value(-1), OFFSET, 0),
    (encode_value(datetime(2026, 1, 1, tzinfo=UTC)), TIMESTAMP, 1_767_225_600_000_000),
    (typed("T", ">Q", 0), TIMESTAMP, 0),
    (typed("T", ">Q", NOW_US // 1_000_000), TIMESTAMP, NOW_US),
    (typed("T", ">Q", NOW_US // 1_000_000 + 1), NEXT, 0),
    (typed("T", ">Q", (1 << 64) - 1), NEXT, 0),
    (encode_value("1h"), TIMESTAMP, NOW_US - 3_600_000_000),
    (encode_value("1Y"), TIMESTAMP, NOW_US - 365 * DAY_US),
    (encode_value("999Y"), TIMESTAMP, 0),
])
def test_offsets(given: bytes | None, kind: int, value: int) -> None:
    spec = offset_spec(given, NOW_US)
    assert spec is not None
    assert (spec.kind, spec.value) == (kind, value)
    assert refused_offset(given) == ""


@pytest.mark.parametrize(("value", "shown"), [
    ("First", '{longstr,<<"First">>}'),
    ("", "{longstr,<<>>}"),
    ("0h", '{longstr,<<"0h">>}'),
    ("12", '{longstr,<<"12">>}'),
    (b"5m", '{binary,<<"5m">>}'),
    (True, "{bool,true}"),
    (1.5, "{double,1.5}"),
    (None, "{void,undefined}"),
    ([1], "{array,[{signedint,1}]}"),
    ({"a": 1}, '{table,[{<<"a">>,signedint,1}]}'),
])
def test_no_offsets(value: object, shown: str) -> None:
    given = encode_value(value)  # type: ignore[arg-type]
    assert offset_spec(given, NOW_US) is None
    assert refused_offset(given) == f"{{invalid_stream_offset_arg,{shown}}}"


def test_limits_of_a_stream() -> None:
    limits = stream_limits({"x-max-length-bytes": 10, "x-max-age": "2h", "x-stream-max-segment-size-bytes": 7})
    assert (limits.max_octets, limits.max_age_us, limits.segment_octets) == (10, 7_200_000_000, 7)


def test_a_stream_without_limits() -> None:
    limits = stream_limits({})
    assert (limits.max_octets, limits.max_age_us, limits.segment_octets) == (-1, -1, 500_000_000)
    # a policy cannot set segments larger than the tested maximum
    assert stream_limits({"x-stream-max-segment-size-bytes": 1 << 40}).segment_octets == 3_000_000_000
