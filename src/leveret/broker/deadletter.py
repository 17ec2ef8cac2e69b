"""Dead letters: the x-death history, and whether a message goes in a circle (RabbitMQ's dead letter exchange page)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from leveret.wire.properties import Properties, decode_header, property_spans, replace_property
from leveret.wire.table import Value, encode_table, encode_value, join_table, split_table

HEADER_AT = 7


def header_of(content: bytes) -> bytes:
    """The header payload of stored content frames."""
    size: int = struct.unpack_from(">I", content, 3)[0]
    return content[HEADER_AT : HEADER_AT + size]


def with_header(content: bytes, header: bytes) -> bytes:
    """The content frames with another header payload."""
    size: int = struct.unpack_from(">I", content, 3)[0]
    return content[:3] + struct.pack(">I", len(header)) + header + content[HEADER_AT + size :]


def body_of(content: bytes) -> bytes:
    """The body of stored content frames."""
    size: int = struct.unpack_from(">I", content, 3)[0]
    at = size + 8
    parts: list[bytes] = []
    while at < len(content):
        size = struct.unpack_from(">I", content, at + 3)[0]
        parts.append(content[at + 7 : at + 7 + size])
        at += size + 8
    return b"".join(parts)


def deaths_of(properties: Properties) -> list[dict[str, Value]]:
    """The x-death entries of a message, newest first."""
    deaths = (properties.headers or {}).get("x-death")
    if not isinstance(deaths, list):
        return []
    return [death for death in deaths if isinstance(death, dict)]


def buried(content: bytes, queue: str, reason: str, exchange: str, keys: list[str], now_us: int) -> bytes:
    """The content with this death on top of its x-death header, and without its expiration.

    keys: the routing key and the CC keys. A second death in the same queue for the same reason raises the count of the
    first and moves it to the top.
    """
    header = header_of(content)
    properties, _ = decode_header(header)
    deaths = deaths_of(properties)
    same = [d for d in deaths if d.get("queue") == queue and d.get("reason") == reason]
    others = [d for d in deaths if not (d.get("queue") == queue and d.get("reason") == reason)]
    count = same[0].get("count") if same else 0
    death: dict[str, Value] = same[0] if same else {
        "count": 0,
        "reason": reason,
        "queue": queue,
        "time": datetime.fromtimestamp(now_us // 1_000_000, UTC),
        "exchange": exchange,
        "routing-keys": list(keys),
    }  # fmt: skip
    death["count"] = (count if isinstance(count, int) else 0) + 1
    if properties.expiration is not None:
        death.setdefault("original-expiration", properties.expiration)
        header = replace_property(header, "expiration", None)
    entries = [entry for entry in raw_headers(header) if entry[0] != b"x-death"]
    names = {entry[0] for entry in entries}
    if b"x-first-death-reason" not in names:
        for name, value in (("exchange", exchange), ("queue", queue), ("reason", reason)):
            entries.append((f"x-first-death-{name}".encode(), encode_value(value)))
    entries.append((b"x-death", _encode_deaths([death, *others])))
    return with_header(content, replace_property(header, "headers", join_table(entries)))


def raw_headers(header: bytes) -> list[tuple[bytes, bytes]]:
    """The encoded headers in a content header's payload, name by name."""
    for name, start, stop in property_spans(header):
        if name == "headers":
            return split_table(header[start:stop])
    return []


def _encode_deaths(deaths: list[dict[str, Value]]) -> bytes:
    # count is a 64-bit integer in RabbitMQ's tables, whatever its size
    parts: list[bytes] = []
    for death in deaths:
        entries = split_table(encode_table(death))
        count = death.get("count")
        number = count if isinstance(count, int) else 1
        fixed = [(key, b"l" + struct.pack(">q", number) if key == b"count" else value) for key, value in entries]
        parts.append(b"F" + join_table(fixed))
    body = b"".join(parts)
    return b"A" + struct.pack(">I", len(body)) + body


def is_cycle(deaths: list[dict[str, Value]], queue: str) -> bool:
    """Whether the message was in this queue before and no rejection lies on the way since: such a circle never ends."""
    for index, death in enumerate(deaths):
        if death.get("queue") == queue:
            return all(d.get("reason") != "rejected" for d in deaths[: index + 1])
    return False
