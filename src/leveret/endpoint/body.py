"""Message bodies: JSON, as NServiceBus's JSON serializers write and read it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

CONTENT_TYPE: Final = "application/json"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class UndecodableMessage(ValueError):
    """The body is not what its type says. Retrying does not help, so such a message fails at once."""


def encode(message: object) -> bytes:
    """A dataclass, struct or dict as JSON. ``TypeError`` for what JSON has no form for."""
    return msgspec.json.encode(message)


def decode(body: bytes, content_type: str, kind: type | None) -> Any:
    """The message in a body: an object of ``kind``, or plain dicts and lists for None.

    ``UndecodableMessage`` for another content type, and for a body that is no JSON or does not fit the type.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media and not (media.endswith(("/json", "+json"))):
        raise UndecodableMessage(f"the content type is {content_type}, but this endpoint reads only JSON")
    text = body.removeprefix(_BYTE_ORDER_MARK)  # .NET's writers like to begin with one
    try:
        return msgspec.json.decode(text) if kind is None else msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        wanted = "" if kind is None else f" as {kind.__qualname__}"
        raise UndecodableMessage(f"the body can't be read{wanted}: {error}") from error
