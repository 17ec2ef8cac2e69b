"""Exit codes: those of sysexits.h, used as rabbitmqctl uses them (3.10.8, measured)."""

from __future__ import annotations

from typing import Final

from leveret.control.refusal import BAD_REQUEST, CONFLICT, INTERNAL, NOT_AUTHORISED, NOT_FOUND, NOT_RUNNING

USAGE: Final = 64
DATA: Final = 65
NO_USER: Final = 67
UNAVAILABLE: Final = 69
SOFTWARE: Final = 70
TIMED_OUT: Final = 75
NO_PERMISSION: Final = 77

OF_KIND: Final = {
    BAD_REQUEST: UNAVAILABLE,
    NOT_FOUND: UNAVAILABLE,
    CONFLICT: SOFTWARE,
    NOT_AUTHORISED: DATA,
    NOT_RUNNING: USAGE,
    INTERNAL: SOFTWARE,
}


class Failed(Exception):
    """An error that ends the command with this text on standard error and this exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
