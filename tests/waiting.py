"""Waiting for what nobody tells the test: ask again and again until it is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
DEADLINE_S: Final = 120.0
"""Only a test that fails waits so long, so it is enough for a machine that is busy with much else."""
ASK_AGAIN_S: Final = 0.01


def until(probe: Callable[[], T | None], what: Callable[[], str] | str = "it is not so") -> T:
    """Ask until the answer is true, with pauses; gives that answer. what: the complaint, if it never is."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (answer := probe()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {DEADLINE_S} s: {what if isinstance(what, str) else what()}")
        time.sleep(ASK_AGAIN_S)
    return answer
