"""The deadlines of RPC calls share one timer: each call fails at its own time, and calls that ended cost no memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from leveret.client.protocol.errors import RpcTimeout
from leveret.client.rpc import ENDED_MAX, Deadlines, PendingCall


class Timer:
    def __init__(self, due_s: float, handler: Callable[[], None]) -> None:
        self.due_s, self.handler = due_s, handler
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """The part of an event loop that deadlines use; a test decides what time it is."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, due_s: float, handler: Callable[[], None]) -> Timer:
        self.timers.append(Timer(due_s, handler))
        return self.timers[-1]

    @property
    def due(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.is_cancelled]

    def run_until(self, now_s: float) -> None:
        while ready := [timer for timer in self.due if timer.due_s <= now_s]:
            first = min(ready, key=lambda timer: timer.due_s)
            self.timers.remove(first)
            self.now_s = first.due_s
            first.handler()
        self.now_s = now_s


class Future:
    """The part of a future that calls use; a real one needs a running loop."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def done(self) -> bool:
        return self.error is not None

    def set_exception(self, error: BaseException) -> None:
        self.error = error


class Calls:
    def __init__(self) -> None:
        self.loop = Loop()
        self.pending: dict[str, PendingCall] = {}
        self.deadlines = Deadlines(self.pending, cast(asyncio.AbstractEventLoop, self.loop))
        self.futures: dict[str, Future] = {}

    def begin(self, name: str, timeout_s: float) -> None:
        future = self.futures[name] = Future()
        self.pending[name] = PendingCall(cast("asyncio.Future[object]", future), False, lambda: None)  # type: ignore[arg-type]
        self.deadlines.add(name, timeout_s)

    def end(self, name: str) -> None:
        del self.pending[name]

    @property
    def failed(self) -> list[str]:
        """The calls that have failed, which end then."""
        found = [name for name, future in self.futures.items() if future.error is not None and name in self.pending]
        for name in found:
            self.end(name)
        return found


@pytest.fixture
def calls() -> Calls:
    return Calls()


def test_each_call_fails_at_its_time(calls: Calls) -> None:
    for name, timeout_s in (("b", 20), ("a", 10), ("c", 30), ("d", 30)):
        calls.begin(name, timeout_s)
    assert len(calls.loop.due) == 1
    calls.loop.run_until(109.9)
    assert calls.failed == []
    calls.loop.run_until(110)
    assert calls.failed == ["a"]
    calls.loop.run_until(129.9)
    assert calls.failed == ["b"]
    error = calls.futures["b"].error
    assert isinstance(error, RpcTimeout)
    assert "20 s" in str(error)
    calls.loop.run_until(130)
    assert calls.failed == ["c", "d"]
    assert calls.loop.due == []


def test_a_call_that_ended_does_not_fail_and_leaves_the_timer_to_the_next(calls: Calls) -> None:
    calls.begin("a", 10)
    calls.begin("b", 20)
    calls.end("a")
    calls.loop.run_until(115)
    assert calls.futures["a"].error is None
    assert [timer.due_s for timer in calls.loop.due] == [120]
    calls.end("b")
    calls.loop.run_until(200)
    assert calls.loop.due == []


def test_a_shorter_timeout_moves_the_timer(calls: Calls) -> None:
    calls.begin("a", 1000)
    calls.begin("b", 5)
    assert [timer.due_s for timer in calls.loop.due] == [105]
    calls.loop.run_until(105)
    assert calls.failed == ["b"]
    assert [timer.due_s for timer in calls.loop.due] == [1100]


def test_calls_that_ended_take_bounded_memory(calls: Calls) -> None:
    calls.begin("slow", 5000)
    for number in range(10_000):
        calls.begin(str(number), 30)
        calls.end(str(number))
        assert len(calls.deadlines) < ENDED_MAX + 8  # two for each pending call, and the new one
    calls.loop.run_until(5099)
    assert calls.failed == []
    calls.loop.run_until(5100)
    assert calls.failed == ["slow"]


def test_closing_forgets_all(calls: Calls) -> None:
    calls.begin("a", 10)
    calls.deadlines.close()
    assert (len(calls.deadlines), calls.loop.due) == (0, [])
