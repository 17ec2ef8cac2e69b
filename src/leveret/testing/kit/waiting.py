"""Waits until something has become true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")
# only a test that fails waits so long, and the machine may be busy with much else
TIMEOUT_S: Final = 30.0
PAUSE_S_MIN: Final = 0.001
PAUSE_S_MAX: Final = 0.02


def eventually(condition: Callable[[], T], timeout_s: float = TIMEOUT_S) -> T:
    """Ask until the answer is a true one, and return it. An AssertionError is a no.

    AssertionError after `timeout_s`, with the last one's words. RuntimeError in a coroutine, whose loop would stand
    still meanwhile: there it is `await eventually_async(...)`.
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
    """The same in a coroutine; the condition may be one, too."""
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
        """It is not true now. AssertionError if it is too late."""
        if time.monotonic() >= self._until_s:
            name = getattr(condition, "__qualname__", repr(condition))
            text = str(failure) if failure is not None else f"{name} was never true"
            raise AssertionError(f"after {self._timeout_s:g} s: {text}") from failure
        self.pause_s = min(2 * self.pause_s, PAUSE_S_MAX)
