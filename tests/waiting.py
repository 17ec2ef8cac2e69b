"""Waiting for a condition that the test is not notified of: poll until it is true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
DEADLINE_S: Final = 120.0
"""Only a failing test waits this long, so it is long enough for a busy machine."""
ASK_AGAIN_S: Final = 0.01


def until(probe: Callable[[], T | None], what: Callable[[], str] | str = "it is not so") -> T:
    """Poll until `probe` returns a true value, and return it. `what` is the error text if that takes too long."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (answer := probe()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {DEADLINE_S} s: {what if isinstance(what, str) else what()}")
        time.sleep(ASK_AGAIN_S)
    return answer
