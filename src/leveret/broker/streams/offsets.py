"""Where in a stream a consumer begins: its x-stream-offset (RabbitMQ, Streams: Consuming; as 3.10.8 reads it)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.streams.age import age_us
from leveret.broker.terms import shown, text_of, type_of
from leveret.wire.table import decode_value

FIRST: Final[i64] = 0
LAST: Final[i64] = 1
NEXT: Final[i64] = 2
OFFSET: Final[i64] = 3
TIMESTAMP: Final[i64] = 4

_WORDS: Final[dict[bytes, int]] = {b"first": int(FIRST), b"last": int(LAST), b"next": int(NEXT)}
_INTEGERS: Final = (b"b", b"B", b"s", b"u", b"I", b"i", b"l", b"L")


class OffsetSpec:
    """A decoded x-stream-offset.

    FIRST is the oldest message, LAST the last chunk, NEXT what is appended from now on, OFFSET the message with this
    offset, TIMESTAMP the first message that arrived at this time or later. If retention has deleted the offset, it
    means the oldest message; if it does not exist yet, messages with smaller offsets are not delivered. A time in the
    future is NEXT.
    """

    def __init__(self, kind: i64, value: i64) -> None:
        self.kind = kind
        self.value = value  # the offset, or the time in µs since 1970; never negative, 0 for other kinds


def offset_spec(given: bytes | None, now_us: i64) -> OffsetSpec | None:
    """Decode an encoded x-stream-offset; NEXT if it is missing, None if it is invalid.

    Words may be text or octets; an integer of any width is an offset, a negative one the first; a timestamp is a time;
    text may also be an age ("5m"): that long before now_us, the wall clock's µs since 1970. RabbitMQ refuses anything
    else, or its channel crashes: see `refused_offset`.
    """
    if given is None:
        return OffsetSpec(NEXT, 0)
    octets = text_of(given)
    if octets is not None:
        word = _WORDS.get(octets)
        if word is not None:
            return OffsetSpec(word, 0)
        return _ago(octets, now_us) if given[:1] == b"S" else None
    kind = given[:1]
    if kind == b"T":
        time_us = int.from_bytes(given[1:9], "big") * 1_000_000
        return OffsetSpec(NEXT, 0) if time_us > int(now_us) else OffsetSpec(TIMESTAMP, time_us)
    if kind not in _INTEGERS:
        return None
    value, _ = decode_value(given, 0, len(given), 0)
    assert isinstance(value, int)
    return OffsetSpec(OFFSET, min(max(value, 0), (1 << 63) - 1))


def refused_offset(given: bytes | None) -> str:
    """Return RabbitMQ's reason for refusing an x-stream-offset, "" if it is valid."""
    if given is None or offset_spec(given, 0) is not None:
        return ""
    return f"{{invalid_stream_offset_arg,{{{type_of(given)},{shown(given)}}}}}"


def _ago(octets: bytes, now_us: i64) -> OffsetSpec | None:
    age = age_us(octets.decode("latin-1"))
    return OffsetSpec(TIMESTAMP, max(now_us - age, 0)) if age > 0 else None
