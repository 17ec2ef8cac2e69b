"""The errors of commands."""

from __future__ import annotations

from typing import Final

BAD_REQUEST: Final = "bad_request"
NOT_FOUND: Final = "not_found"
CONFLICT: Final = "conflict"
NOT_AUTHORISED: Final = "not_authorised"
ACCESS_REFUSED: Final = "access_refused"
NOT_RUNNING: Final = "not_running"
INTERNAL: Final = "internal_error"
ANSWER_TOO_LONG: Final = "answer_too_long"
BUSY: Final = "busy"


class Refused(Exception):
    """A command was not carried out.

    `kind` is one of the words above, `reason` a text for people: what is wrong and what to do about it.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


def bad_request(reason: str) -> Refused:
    return Refused(BAD_REQUEST, reason)


def not_found(reason: str) -> Refused:
    return Refused(NOT_FOUND, reason)
