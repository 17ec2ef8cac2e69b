"""Message bodies: JSON, as NServiceBus's JSON serializers write and read it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

CONTENT_TYPE: Final = "application/json"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class UndecodableMessage(ValueError):
    """The body is not JSON or does not match the message type. Retries do not help, so the message fails at once."""


def encode(message: object) -> bytes:
    """Encode a dataclass, struct or dict as JSON. Raises ``TypeError`` for a value that JSON cannot represent."""
    return msgspec.json.encode(message)


def decode(body: bytes, content_type: str, kind: type | None) -> Any:
    """Decode a body to an object of ``kind``, or to plain dicts and lists if kind is None.

    Raises ``UndecodableMessage`` for another content type, and for a body that is not JSON or does not match the type.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media and not (media.endswith(("/json", "+json"))):
        raise UndecodableMessage(f"the content type is {content_type}, but this endpoint reads only JSON")
    text = body.removeprefix(_BYTE_ORDER_MARK)  # .NET's writers often begin with one
    try:
        return msgspec.json.decode(text) if kind is None else msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        wanted = "" if kind is None else f" as {kind.__qualname__}"
        raise UndecodableMessage(f"the body can't be read{wanted}: {error}") from error
