"""A message as JSON, as it is printed, and as `leveret publish --json-lines` reads it."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple

from leveret.client.protocol.model import Delivery
from leveret.control.tables import plain_table, plain_value
from leveret.wire.properties import Properties
from leveret.wire.table import Value

PROPERTIES: Final = tuple(field.name for field in fields(Properties) if field.name != "headers")
_KEYS: Final = {"exchange", "routing_key", "properties", "headers", "body", "body_base64"}
# what a printed message has, and a published one need not have
_IGNORED: Final = {"offset", "redelivered"}


class OutgoingMessage(NamedTuple):
    """A message to be published; exchange and routing_key are None where the line names none."""

    body: bytes
    properties: Properties
    exchange: str | None = None
    routing_key: str | None = None


def as_object(delivery: Delivery, headers: Mapping[str, Value] | None = None) -> dict[str, object]:
    """Return a message as JSON values. A body that is not UTF-8 becomes body_base64; missing values are omitted.

    headers: those to show, None = the message's.
    """
    if headers is None:
        headers = delivery.properties.headers or {}
    told: dict[str, object] = {"exchange": delivery.exchange, "routing_key": delivery.routing_key}
    told |= {"properties": shown_properties(delivery), "headers": plain_table(headers)}
    try:
        return told | {"body": delivery.body.decode()}
    except UnicodeDecodeError:
        return told | {"body_base64": b64encode(delivery.body).decode()}


def shown_properties(delivery: Delivery) -> dict[str, Any]:
    """Return the properties that a message has, but its headers."""
    return {name: plain_value(value) for name, value in present(delivery.properties).items()}


def present(properties: Properties) -> dict[str, Any]:
    """Return the properties that are set, but the headers."""
    values = {name: getattr(properties, name) for name in PROPERTIES}
    return {name: value for name, value in values.items() if value is not None}


def as_line(told: dict[str, object]) -> str:
    """Return JSON on one line."""
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def from_line(line: str) -> OutgoingMessage:
    """Parse a line of JSON. Raises ValueError with what is wrong in it."""
    try:
        told = json.loads(line)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(told, dict):
        raise ValueError("it is not an object")
    unknown = set(told) - _KEYS - _IGNORED
    if unknown:
        raise ValueError(f"it has unknown keys: {', '.join(sorted(unknown))}; known are {', '.join(sorted(_KEYS))}")
    given, headers = told.get("properties", {}), told.get("headers", {})
    if not isinstance(given, dict) or not isinstance(headers, dict):
        raise ValueError("properties and headers are objects")
    unknown = set(given) - set(PROPERTIES)
    if unknown:
        raise ValueError(f"there are no properties {', '.join(sorted(unknown))}; there are {', '.join(PROPERTIES)}")
    return OutgoingMessage(
        _body(told), Properties(**given, headers=headers or None), _text(told, "exchange"), _text(told, "routing_key")
    )


def _body(told: dict[str, Any]) -> bytes:
    if "body_base64" in told:
        try:
            return b64decode(told["body_base64"], validate=True)
        except (ValueError, TypeError):
            raise ValueError("body_base64 is not base64") from None
    body = told.get("body", "")
    return body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()


def _text(told: dict[str, Any], name: str) -> str | None:
    value = told.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is a text")
    return value
