"""Request bodies: JSON objects whose fields become those of a command, with RabbitMQ's leniency and error texts.

Unknown fields are ignored, as in RabbitMQ. Numbers and booleans may be strings, as rabbitmqadmin sends them.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request

from leveret.admin.answers import HttpError, bad_request

BODY_OCTETS_MAX: Final = 10_000_000
BODY_S_MAX: Final = 60.0
DEPTH_MAX: Final = 64
# Erlang prints terms up to this width in one line
LINE_COLUMNS: Final = 80

Convert = Callable[[Any], Any]


async def read(request: Request) -> bytes:
    """Return the whole body. Raises HttpError 400 if it is too long, 408 if it does not arrive in time."""
    try:
        async with asyncio.timeout(BODY_S_MAX):
            return await _read(request)
    except TimeoutError:
        raise HttpError(408, headers={"connection": "close"}) from None
    except ClientDisconnect:
        raise HttpError(400) from None  # the client is gone and will not read this answer


async def _read(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_OCTETS_MAX:
            raise bad_request("Exceeded HTTP request body size limit")
        parts.append(part)
    return b"".join(parts)


def decode(body: bytes) -> dict[str, Any]:
    """Decode a JSON object; an empty body, null, true and false count as an empty one. Else raises HttpError 400."""
    if body in (b"", b"undefined"):
        return {}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise bad_request("not_json") from None
    if isinstance(value, dict):
        return shallow(value)
    if value is None or isinstance(value, bool):
        return {}
    if isinstance(value, str):
        raise bad_request(
            "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"
        )
    raise bad_request("not_json")


def shallow(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value. Raises HttpError 400 if it is nested more than DEPTH_MAX levels, too deep for recursion."""
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        level = [item for each in level for item in _inner(each)]
        if not level:
            return value
    raise bad_request("not_json")


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def anything(value: Any) -> Any:
    return value


def boolean(value: Any) -> bool:
    if value is True or value == "true":
        return True
    if value is False or value == "false":
        return False
    raise bad_request(["not_boolean", value])


def integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(value) if isinstance(value, str) else int("")
    except ValueError:
        raise bad_request(["not_integer", value]) from None


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise bad_request(["not_a_string", value])
    return value


def texts(value: Any) -> list[str]:
    """Convert a list of texts."""
    if not isinstance(value, list):
        raise bad_request(["not_a_list", value])
    return [text(each) for each in value]


def integers(value: Any) -> dict[str, int]:
    """Convert a table of numbers."""
    return {name: integer(each) for name, each in table(value).items()}


def base64(value: Any) -> str:
    """Check base64."""
    try:
        b64decode(text(value), validate=True)
    except ValueError:
        raise bad_request(["not_base64", value]) from None
    return str(value)


def payload(value: Any) -> str:
    """Check the payload of a message."""
    if not isinstance(value, str):
        raise bad_request("payload_not_string")
    return value


def encoding(value: Any) -> str:
    """Check the encoding of a payload."""
    if value not in ("string", "base64"):
        raise bad_request(["unsupported_encoding", value])
    return str(value)


def tags(value: Any) -> list[str]:
    """Convert a list of words, or a comma-separated text of them."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise bad_request(["not_tags", value])
    return [word.strip() for word in words if word.strip()]


def table(value: Any) -> dict[str, Any]:
    """Convert an object; an empty array counts as one, as some languages cannot tell them apart."""
    if isinstance(value, dict):
        return value
    if value in ([], "", None):
        return {}
    raise bad_request(["not_a_table", value])


class Body:
    """The fields of a request body.

    `fields` maps names in the body to functions that convert them for the command ("-" becomes "_"); `required` are the
    names that must be present.
    """

    def __init__(self, *required: str, **fields: Convert) -> None:
        self._required = required
        self._fields = fields

    def take(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return the command's fields. Raises HttpError 400 if one is missing or invalid."""
        missing = [f"{{key_missing,{_atom(name)}}}" for name in self._required if sent.get(name) is None]
        if missing:
            line = f"[{','.join(missing)}]"
            raise bad_request(line if len(line) <= LINE_COLUMNS else f"[{f',{chr(10)} '.join(missing)}]")
        found = {name: sent.get(name, sent.get(name.replace("_", "-"))) for name in self._fields}
        return {name: convert(found[name]) for name, convert in self._fields.items() if found[name] is not None}

def _atom(name: str) -> str:
    return name if name.isidentifier() else f"'{name}'"
