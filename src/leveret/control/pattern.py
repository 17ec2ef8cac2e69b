"""Name filters: a substring or a regular expression, case-insensitive (as in RabbitMQ's HTTP API)."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from leveret.control.refusal import bad_request

# processor time: some patterns take years for a name of fifty letters
MATCH_S_MAX: Final = 0.05


def name_filter(text: str, use_regex: bool) -> Callable[[str], bool]:
    """Return a predicate for names.

    Raises Refused for an invalid regular expression; the predicate raises it if matching takes too long.
    """
    if not use_regex:
        part = text.lower()
        return lambda name: part in name.lower()
    try:
        pattern = re.compile(text, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise bad_request(f"invalid regular expression {text!r}: {error}") from None
    return lambda name: _matches(pattern, name)


def _matches(pattern: re.Pattern[str], name: str) -> bool:
    """Match with a time limit: only signals can interrupt Python's matcher."""
    if threading.current_thread() is not threading.main_thread():
        return pattern.search(name) is not None
    before = signal.signal(signal.SIGVTALRM, _too_long)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, MATCH_S_MAX)
        try:
            return pattern.search(name) is not None
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except TimeoutError:
        raise bad_request(f"the regular expression {pattern.pattern!r} takes too long") from None
    finally:
        signal.signal(signal.SIGVTALRM, before)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError
