"""A view: a table of JSON values. Names are those of RabbitMQ's HTTP API (3.10.8, compared)."""

from __future__ import annotations

from typing import Any

import msgspec

View = dict[str, Any]

_encoder = msgspec.json.Encoder()


def encode(view: View) -> msgspec.Raw:
    """Encode a view as JSON."""
    return msgspec.Raw(_encoder.encode(view))
