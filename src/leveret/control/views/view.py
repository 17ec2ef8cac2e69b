"""A view: a table of what JSON can say. Names are RabbitMQ's, from its HTTP API (3.10.8, compared)."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from leveret.wire.table import Value

View = dict[str, Any]

_encoder = msgspec.json.Encoder()


def encode(view: View) -> msgspec.Raw:
    """A view as JSON. Octets that are no UTF-8 became no names for JSON: they are replaced."""
    try:
        return msgspec.Raw(_encoder.encode(view))
    except UnicodeEncodeError:
        return msgspec.Raw(_encoder.encode(_scrubbed(view)))


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_scrubbed(key): _scrubbed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(item) for item in value]
    return value


def plain(table: dict[str, Value]) -> View:
    """A field table for JSON: times as seconds, decimals as numbers, octets as text."""
    return {name: _plain(value) for name, value in table.items()} if table else {}


def _plain(value: Value) -> Any:
    if isinstance(value, dict):
        return plain(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value
