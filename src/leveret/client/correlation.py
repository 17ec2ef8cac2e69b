"""Shared by the asyncio and the blocking RPC: correlation ids, and the properties of a request."""

from __future__ import annotations

import itertools
import secrets
from operator import attrgetter

from leveret.wire.properties import PROPERTIES, Properties

_values = attrgetter(*(name for name, _ in PROPERTIES))


class Correlation:
    """Generates unique correlation ids: 64 random bits per RPC client, and a counter."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(8)
        self._numbers = itertools.count(1)

    def next_id(self) -> str:
        """Return an id that no other request has."""
        return f"{self._prefix}-{next(self._numbers)}"


def request_properties(properties: Properties | None, correlation_id: str, reply_to: str) -> Properties:
    """Return a copy of properties with this correlation_id and reply_to."""
    if properties is None:
        return Properties(correlation_id=correlation_id, reply_to=reply_to)
    request = Properties(*_values(properties))
    request.correlation_id = correlation_id
    request.reply_to = reply_to
    return request
