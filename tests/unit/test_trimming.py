"""Freed memory is returned to the system when no messages have been moved for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, cast

from leveret.net.disk.trimming import REST_S, Trimming


class Timer:
    """The handle that call_later returns."""

    def __init__(self, delay_s: float, call: Callable[[], Any]) -> None:
        self.delay_s = delay_s
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """An event loop whose timers fire on request."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, delay_s: float, call: Callable[..., Any], *args: Any) -> Timer:
        self.timers.append(Timer(delay_s, lambda: call(*args)))
        return self.timers[-1]

    def ring(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            if not timer.is_cancelled:
                timer.call()


class Thread(Executor):
    """An executor that runs each call at once."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **values: Any) -> Any:
        call(*args, **values)


def trimming() -> tuple[Trimming, Loop, list[str]]:
    loop, done = Loop(), list[str]()
    return Trimming(cast(asyncio.AbstractEventLoop, loop), Thread(), lambda: done.append("given back")), loop, done


def test_memory_is_given_back_when_nothing_has_been_moved_for_a_while() -> None:
    trimming_, loop, done = trimming()
    trimming_.later()
    assert [timer.delay_s for timer in loop.timers] == [REST_S]
    assert done == []
    loop.ring()
    loop.ring()
    assert done == ["given back"]


def test_what_is_moved_meanwhile_puts_it_off() -> None:
    trimming_, loop, done = trimming()
    for _ in range(3):
        trimming_.later()
    loop.ring()
    assert done == ["given back"], "the last timer counts, and no other"


def test_nothing_is_given_back_after_the_end() -> None:
    trimming_, loop, done = trimming()
    trimming_.stop()
    trimming_.later()
    trimming_.stop()
    loop.ring()
    assert done == []
