"""A connection's input from its next message's content on, held back while the broker accepts no messages.

RabbitMQ 3.10.8, measured: while an alarm is on, a connection is served as usual until it publishes. The content header
of its first publish, and everything behind it, acknowledgements included, waits unread until the alarm is over.
"""

from __future__ import annotations

from librt.strings import read_i32_be
from mypy_extensions import i64


class Holdback:
    """The input that waits."""

    def __init__(self) -> None:
        self.data = b""  # in the order in which it came; empty if the connection has not published

    def pass_on(self, data: bytes, start: i64) -> bytes:
        """Take bytes from the peer, whose first frame begins at `start`; returns those that may be handled now."""
        at = _content(data, start)
        if at < 0:
            return data
        self.data = data[at:]
        return data[:at]

    def add(self, data: bytes) -> None:
        """Add bytes behind those that wait."""
        self.data += data

    def release(self) -> bytes:
        """Return and clear what waited."""
        data = self.data
        self.data = b""
        return data


def _content(data: bytes, start: i64) -> i64:
    """Where the first content frame (header or body) begins, or -1."""
    at = start
    end: i64 = len(data)
    while end - at >= 7:
        if data[at] == 2 or data[at] == 3:
            return at
        size: i64 = i64(read_i32_be(data, at + 3))
        if size < 0:
            return -1  # no valid frame: the session reports that
        at += size + 8
    return -1
