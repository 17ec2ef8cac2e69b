"""Declares with a raw client; checks what exists, how the broker refuses, and where a publish arrives."""

from __future__ import annotations

from typing import Any

from .collect import content
from .raw import RawClient

Error = tuple[int, str, int, int]
DECLARE, BIND, EXCHANGE_BIND = (40, 10), (50, 20), (40, 30)
NOT_FOR_GOOD: list[tuple[dict[str, bool], str]] = [
    ({"durable": False}, "non-durable"),
    ({"exclusive": True}, "exclusive-owner"),
    ({"auto_delete": True}, "auto-delete"),
    ({"durable": False, "exclusive": True}, "exclusive-owner"),
    ({"durable": False, "auto_delete": True}, "auto-delete"),
    ({"exclusive": True, "auto_delete": True}, "auto-delete"),
]
"""The properties of a queue that is not permanent, and the property named when a permanent type refuses them."""


def declare(raw: RawClient, name: str, kind: str = "direct", **more: Any) -> str:
    raw.call("exchange.declare", exchange=name, type=kind, **more)
    return name


def exists(raw: RawClient, name: str) -> bool:
    raw.send("exchange.declare", exchange=name, passive=True)
    got = raw.read("exchange.declare-ok", "channel.close")
    if got.name == "exchange.declare-ok":
        return True
    assert got.error == (404, f"NOT_FOUND - no exchange '{name}' in vhost '/'", *DECLARE)
    raw.send("channel.close-ok")
    raw.call("channel.open")
    return False


def refused(text: str, ids: tuple[int, int], code: str = "406 PRECONDITION_FAILED") -> Error:
    number, name = code.split()
    return int(number), f"{name} - {text}", *ids


def delivered(raw: RawClient, exchange: str, key: str, queue: str, **properties: Any) -> list[bytes]:
    """Publish with a confirm on channel 2, and return the bodies that the queue has after that."""
    raw.call("confirm.select", 2)
    raw.publish(b"x", exchange, key, channel=2, **properties)
    raw.read("basic.ack")
    return content(raw, queue)
