"""Trace context (W3C's traceparent, tracestate and baggage) in the headers of AMQP messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.propagators.textmap import Getter, Setter

from leveret.wire.table import Value

Headers = Mapping[str, Value]


class HeaderGetter(Getter[Headers]):
    """A reader of text values in a header table; values of other types count as missing."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        text = text_of(carrier.get(key))
        return None if text is None else [text]

    def keys(self, carrier: Headers) -> list[str]:
        return list(carrier)


class HeaderSetter(Setter[dict[str, Value]]):
    """A writer of text values into a header table."""

    def set(self, carrier: dict[str, Value], key: str, value: str) -> None:
        carrier[key] = value


def text_of(value: Any) -> str | None:
    """Return a header's value as text (some clients send texts as byte arrays), or None if it is no text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


GETTER = HeaderGetter()
SETTER = HeaderSetter()
