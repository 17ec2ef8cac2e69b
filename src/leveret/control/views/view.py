"""A view: a table of what JSON can say. Names are RabbitMQ's, from its HTTP API (3.10.8, compared)."""

from __future__ import annotations

from typing import Any

import msgspec

View = dict[str, Any]

_encoder = msgspec.json.Encoder()


def encode(view: View) -> msgspec.Raw:
    """A view as JSON."""
    return msgspec.Raw(_encoder.encode(view))
