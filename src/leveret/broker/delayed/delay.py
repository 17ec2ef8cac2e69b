"""The header x-delay: how long a delayed exchange holds a message, in milliseconds.

Valid are the values that RabbitMQ's plugin accepts (rabbitmq_delayed_message_exchange): an integer, a string of digits,
or a number with a fraction, which is cut off. Without a delay, or with one below 1, a message is not held. The plugin
routes a message with a delay above 2^32 - 1 ms at once, and fails over a string that is no number; this broker answers
with an error, and its limit is that of a message's time to live.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError
from leveret.wire.table import Value, decode_key, decode_value

DELAYED: Final = "x-delayed-message"
DELAYED_TYPE: Final = "x-delayed-type"
DELAY_MS_MAX: Final = 315_360_000_000
_NAME: Final = b"\x07x-delay"
# type letters of integers, and of all values that may be a number: also strings and numbers with a fraction
_INTEGERS: Final = b"bBsuIilL"
_NUMBERS: Final = b"bBsuIilLSfdD"
_TABLE_AT: Final[i64] = 21  # where the properties of stored content begin: after frame head, sizes and flags


def delay_us_of(content: bytes) -> i64:
    """Return how long a message with these content frames is held, in microseconds; 0 = not at all.

    Raises ProtocolError 406 for a string that is no number and for more than ten years, 502 for malformed headers.
    """
    at = _value_at(content)
    if at == 0:
        return 0
    delay_ms = _number(content, at)
    if delay_ms > DELAY_MS_MAX:
        raise _refused(str(delay_ms), f"{{value_too_large,{delay_ms}}}")
    return delay_ms * 1000 if delay_ms > 0 else 0


def released(content: bytes) -> bytes:
    """Return the content with its delay negated, so that no exchange holds it again and consumers see that one did."""
    at = _value_at(content)
    if at == 0:
        return content
    delay_ms = _number(content, at)
    if content[at] == 0x49:  # I, 32 bits: most clients' integers
        return content[: at + 1] + struct.pack(">i", -delay_ms) + content[at + 5 :]
    short = -(1 << 31) <= delay_ms <= 1 << 31
    value = b"I" + struct.pack(">i", -delay_ms) if short else b"l" + struct.pack(">q", -delay_ms)
    _, stop = decode_value(content, int(at), len(content), 0)
    table_at = _table_at(content)
    more = len(value) - (stop - int(at))
    header_size = int(read_i32_be(content, 3)) + more
    table_size = int(read_i32_be(content, table_at)) + more
    head = content[:3] + struct.pack(">I", header_size) + content[7:table_at] + struct.pack(">I", table_size)
    return head + content[table_at + 4 : at] + value + content[stop:]


def _table_at(content: bytes) -> i64:
    """Return the offset of the headers in stored content frames; 0 = no headers."""
    flags: i64 = i64(read_i16_be(content, 19)) & 0xFFFF
    if flags & 0x2000 == 0:
        return 0
    at = _TABLE_AT
    if flags & 0x8000 != 0:
        at += 1 + i64(content[at])
    if flags & 0x4000 != 0:
        at += 1 + i64(content[at])
    return at


def _value_at(content: bytes) -> i64:
    """Return the offset of the value of x-delay if its type may be a number; 0 = not found."""
    table_at = _table_at(content)
    if table_at == 0:
        return 0
    end = int(table_at + 4 + i64(read_i32_be(content, table_at)))
    # quick check: most messages without x-delay have these octets nowhere
    if content.find(_NAME, table_at + 4, end) < 0:
        return 0
    offset = int(table_at + 4)
    while offset < end:
        name_at = offset
        _, offset = decode_key(content, offset, end)
        if content[name_at:offset] == _NAME:
            if offset >= end or content[offset] not in _NUMBERS:
                return 0
            return offset
        _, offset = decode_value(content, offset, end, 0)
    return 0


def _number(content: bytes, at: i64) -> int:
    value, _ = decode_value(content, int(at), len(content), 0)
    if content[at] in _INTEGERS and isinstance(value, int):
        return value
    if content[at] == 0x53:  # S
        return _integer(value)
    assert isinstance(value, (float, Decimal))
    try:
        return int(value)
    except (ValueError, OverflowError):
        raise _refused(str(value), "no_integer") from None


def _integer(value: Value) -> int:
    text = value if isinstance(value, str) else ""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit():
        raise _refused(text, "no_integer")
    if len(digits) > 20:
        raise _refused(text, f"{{value_too_large,{text}}}")
    return int(text)


def _refused(text: str, reason: str) -> ProtocolError:
    return ProtocolError(PRECONDITION_FAILED, f"invalid x-delay '{text}': {reason}", 60, 40)
