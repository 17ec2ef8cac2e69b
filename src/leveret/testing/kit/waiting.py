"""Waiting until a condition is true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")
# only failing tests wait this long; generous, as the machine may be busy
TIMEOUT_S: Final = 30.0
PAUSE_S_MIN: Final = 0.001
PAUSE_S_MAX: Final = 0.02


def eventually(condition: Callable[[], T], timeout_s: float = TIMEOUT_S) -> T:
    """Call `condition` until it returns a true value, and return that. An AssertionError counts as false.

    Raises:
        AssertionError: it was not true within `timeout_s`; with the message of its last AssertionError.
        RuntimeError: called in a coroutine, where it would block the event loop; use `eventually_async` there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("eventually() would stop this event loop; use `await eventually_async(...)`")
    watch = _Watch(timeout_s)
    while True:
        failure = None
        try:
            if answer := condition():
                return answer
        except AssertionError as error:
            failure = error
        watch.check(condition, failure)
        time.sleep(watch.pause_s)


async def eventually_async(condition: Callable[[], T | Awaitable[T]], timeout_s: float = TIMEOUT_S) -> T:
    """Like `eventually`, in a coroutine. The condition may be a coroutine function."""
    watch = _Watch(timeout_s)
    while True:
        failure = None
        try:
            answer = condition()
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer:
                return answer
        except AssertionError as error:
            failure = error
        watch.check(condition, failure)
        await asyncio.sleep(watch.pause_s)


class _Watch:
    def __init__(self, timeout_s: float) -> None:
        self.pause_s = PAUSE_S_MIN
        self._timeout_s = timeout_s
        self._until_s = time.monotonic() + timeout_s

    def check(self, condition: Callable[[], object], failure: AssertionError | None) -> None:
        """Note that the condition is not true yet. Raises AssertionError after the timeout."""
        if time.monotonic() >= self._until_s:
            name = getattr(condition, "__qualname__", repr(condition))
            text = str(failure) if failure is not None else f"{name} was never true"
            raise AssertionError(f"after {self._timeout_s:g} s: {text}") from failure
        self.pause_s = min(2 * self.pause_s, PAUSE_S_MAX)
