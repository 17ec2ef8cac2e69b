"""AMQP's errors: reply codes, and the one exception that carries them (AMQP 0-9-1, section 1.2)."""

from __future__ import annotations

from typing import Final

REPLY_SUCCESS: Final = 200
CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
CONNECTION_FORCED: Final = 320
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

NAMES: Final[dict[int, str]] = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}
# codes that close only the channel; all others close the connection
SOFT: Final = frozenset({311, 403, 404, 405, 406})

TEXT_OCTETS_MAX: Final = 255


class ProtocolError(Exception):
    """A violation that AMQP answers with channel.close or connection.close.

    Attributes:
        code: The reply code.
        text: The part of reply_text after the code's name.
        class_id, method_id: The method that caused it, or 0 and 0.
        is_hard: The connection is closed, not only the channel. The argument `hard` is for soft codes that are used for
            the connection, too (403 at login).
    """

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0, hard: bool = False) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id
        self.is_hard = hard or code not in SOFT

    @property
    def reply_text(self) -> str:
        """The reply_text field in RabbitMQ's form: the code's name, a dash, the text; at most 255 bytes.

        Bytes of a client's names that are not UTF-8 are returned unchanged (as surrogates, here).
        """
        whole = f"{NAMES.get(self.code, 'ERROR')} - {self.text}".encode("utf-8", "surrogateescape")
        if len(whole) > TEXT_OCTETS_MAX:
            whole = whole[: TEXT_OCTETS_MAX - 3] + b"..."
        return whole.decode("utf-8", "surrogateescape")

    def __str__(self) -> str:
        return f"{self.code} {self.reply_text.encode('utf-8', 'surrogateescape').decode('utf-8', 'replace')}"


# how many characters of a name are shown in a text for people: all of a usual one
NAME_CHARS_MAX: Final = 128


def quoted(name: str) -> str:
    """A name that somebody chose, for a log line or an error: in quotes, which it cannot end, on one line, and cut."""
    shown = name[:NAME_CHARS_MAX]
    if shown.isprintable():
        shown = shown.replace("\\", "\\\\")
    else:
        shown = shown.encode("unicode_escape").decode("ascii")
    shown = shown.replace("'", "\\'")
    return f"'{shown}'" if len(name) <= NAME_CHARS_MAX else f"'{shown}…' ({len(name)} characters)"
