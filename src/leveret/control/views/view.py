"""A view: a table of what JSON can say. Names are RabbitMQ's, from its HTTP API (3.10.8, compared)."""

from __future__ import annotations

from typing import Any

import msgspec

from leveret.control.tables import sayable

View = dict[str, Any]

_encoder = msgspec.json.Encoder()


def encode(view: View) -> msgspec.Raw:
    """A view as JSON. Names that are no UTF-8 are rare: they are looked for when JSON can't have them."""
    try:
        return msgspec.Raw(_encoder.encode(view))
    except UnicodeEncodeError:
        return msgspec.Raw(_encoder.encode(_sayable(view)))


def _sayable(value: Any) -> Any:
    if isinstance(value, str):
        return sayable(value)
    if isinstance(value, dict):
        return {_sayable(key): _sayable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_sayable(item) for item in value]
    return value
