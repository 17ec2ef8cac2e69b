"""A future of the sans-IO core: an answer that has not arrived yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Waiter(Generic[T]):
    """Filled once by the core, with a value or an error. The asyncio API listens, the blocking API polls `done`."""

    __slots__ = ("_listeners", "_value", "done", "error")

    def __init__(self) -> None:
        self.done: bool = False
        self.error: Exception | None = None
        self._listeners: list[Callable[[], None]] = []
        self._value: list[T] = []

    def succeed(self, value: T) -> None:
        """Fill the waiter with a value; no effect if it is done."""
        if not self.done:
            self._value.append(value)
            self._finish()

    def fail(self, error: Exception) -> None:
        """Fill the waiter with an error; no effect if it is done."""
        if not self.done:
            self.error = error
            self._finish()

    def result(self) -> T:
        """Return the value, or raise the error. AssertionError if the waiter is not done."""
        assert self.done
        if self.error is not None:
            raise self.error
        return self._value[0]

    def when_done(self, listener: Callable[[], None]) -> None:
        """Call the listener when the waiter is done, at once if it is. Listeners run in the order of their addition."""
        if self.done:
            listener()
        else:
            self._listeners.append(listener)

    def when_succeeded(self, use: Callable[[T], None]) -> None:
        """Call `use` with the value, before anything that follows it on the wire is handled. An error is ignored."""
        self.when_done(lambda: use(self._value[0]) if self.error is None else None)

    def when_succeeded_instead(self, use: Callable[[T], None]) -> None:
        """Like when_succeeded, and remove all listeners added before, whose caller was cancelled."""
        self._listeners.clear()
        self.when_succeeded(use)

    def _finish(self) -> None:
        self.done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()
