"""The x-death history of a message, and cycle detection (RabbitMQ's page on dead letter exchanges)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from leveret.broker.messages.contents import header_of, raw_headers, with_header
from leveret.wire.properties import replace_property, text_property
from leveret.wire.table import Value, decode_value, encode_table, encode_value, join_table, split_table


class DeathHistory:
    """A message that died and its deaths, newest first. Raises ProtocolError 502 if its headers are malformed.

    Only the broker writes the history, as from RabbitMQ 4.0 on: an x-death header of the publisher (is_claimed) is an
    ordinary header until the message dies, and is then replaced.
    """

    def __init__(self, content: bytes, is_claimed: bool) -> None:
        self._content = content
        self._header = header_of(content)
        self._entries = raw_headers(self._header)
        values = dict(reversed(self._entries))  # if a name occurs twice, the first counts
        self.cc = values.get(b"CC")  # the encoded CC header, or None
        self.deaths = [] if is_claimed else _decode_deaths(values.get(b"x-death", b""))

    def die(self, queue: str, reason: str, exchange: str, keys: list[str], wall_us: int) -> None:
        """Add a death. keys: the routing key and the CC keys; wall_us: the time of death in the header.

        A second death in the same queue for the same reason raises the count of the first and moves it to the front.
        The expiration is removed, or it would apply in the next queue, too.
        """
        expiration = text_property(self._header, "expiration")
        same = [d for d in self.deaths if d.get("queue") == queue and d.get("reason") == reason]
        others = [d for d in self.deaths if not (d.get("queue") == queue and d.get("reason") == reason)]
        if same:
            death = same[0]
            count = death.get("count")
            death["count"] = (count if isinstance(count, int) else 0) + 1
        else:
            time = datetime.fromtimestamp(wall_us // 1_000_000, UTC)
            death = {"count": 1, "reason": reason, "queue": queue, "time": time, "exchange": exchange}
            death["routing-keys"] = list(keys)
            if expiration is not None:
                death["original-expiration"] = expiration
        if expiration is not None:
            self._header = replace_property(self._header, "expiration", None)
        for which in ("last",) if self.deaths else ("first", "last"):
            for name, value in (("exchange", exchange), ("queue", queue), ("reason", reason)):
                self._set(f"x-{which}-death-{name}".encode(), encode_value(value))
        self.deaths = [death, *others]
        self._set(b"x-death", _encode_deaths(self.deaths))

    def is_in_circle(self, queue: str) -> bool:
        """Return whether the message was in this queue before, without a rejection since: such a cycle never ends."""
        for index, death in enumerate(self.deaths):
            if death.get("queue") == queue:
                return all(each.get("reason") != "rejected" for each in self.deaths[: index + 1])
        return False

    def without_cc(self) -> None:
        """Remove the CC header."""
        self._entries = [entry for entry in self._entries if entry[0] != b"CC"]

    def content(self) -> bytes:
        """Return the content frames for the next queue."""
        return with_header(self._content, replace_property(self._header, "headers", join_table(self._entries)))

    def _set(self, name: bytes, value: bytes) -> None:
        self._entries = [entry for entry in self._entries if entry[0] != name]
        self._entries.append((name, value))


def _decode_deaths(value: bytes) -> list[dict[str, Value]]:
    deaths = decode_value(value, 0, len(value), 0)[0] if value else None
    return [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []


def _encode_deaths(deaths: list[dict[str, Value]]) -> bytes:
    # RabbitMQ always encodes count as a 64-bit integer
    parts: list[bytes] = []
    for death in deaths:
        entries = split_table(encode_table(death))
        count = death.get("count")
        number = count if isinstance(count, int) else 1
        fixed = [(key, b"l" + struct.pack(">q", number) if key == b"count" else value) for key, value in entries]
        parts.append(b"F" + join_table(fixed))
    body = b"".join(parts)
    return b"A" + struct.pack(">I", len(body)) + body
