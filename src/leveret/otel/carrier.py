"""Trace context in the headers of AMQP messages: traceparent, tracestate and baggage, as W3C has them for HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.propagators.textmap import Getter, Setter

from leveret.wire.table import Value

Headers = Mapping[str, Value]


class HeaderGetter(Getter[Headers]):
    """Reads texts of a header table; what is no text is not there."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        text = text_of(carrier.get(key))
        return None if text is None else [text]

    def keys(self, carrier: Headers) -> list[str]:
        return list(carrier)


class HeaderSetter(Setter[dict[str, Value]]):
    """Writes them."""

    def set(self, carrier: dict[str, Value], key: str, value: str) -> None:
        carrier[key] = value


def text_of(value: Any) -> str | None:
    """A header as text: clients send texts as strings, and some as octets."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


GETTER = HeaderGetter()
SETTER = HeaderSetter()
