"""Filters of names: part of a name, or a regular expression, in small letters or capitals (as RabbitMQ's HTTP API)."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from leveret.control.refusal import bad_request

# processor time: there are patterns that a name of fifty letters keeps busy for years
MATCH_S_MAX: Final = 0.05


def name_filter(text: str, use_regex: bool) -> Callable[[str], bool]:
    """Whether a name is wanted. Refused for what is no regular expression, now, or takes too long, then."""
    if not use_regex:
        part = text.lower()
        return lambda name: part in name.lower()
    try:
        pattern = re.compile(text, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise bad_request(f"invalid regular expression {text!r}: {error}") from None
    return lambda name: _matches(pattern, name)


def _matches(pattern: re.Pattern[str], name: str) -> bool:
    """Python's matcher looks for signals while it is at work; nothing else would end it."""
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
