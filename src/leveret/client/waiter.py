"""An answer that has not come yet, as the sans-IO core knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Waiter(Generic[T]):
    """Filled once by the core, with a value or an error. The asyncio face listens, the blocking one polls done."""

    __slots__ = ("_listeners", "_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None
        self._listeners: list[Callable[[], None]] = []
        self._value: list[T] = []

    def succeed(self, value: T) -> None:
        """Fill it with a value; without effect if it is done."""
        if not self.done:
            self._value.append(value)
            self._finish()

    def fail(self, error: Exception) -> None:
        """Fill it with an error; without effect if it is done."""
        if not self.done:
            self.error = error
            self._finish()

    def result(self) -> T:
        """The value; raises the error if that is what came. AssertionError if nothing came yet."""
        assert self.done
        if self.error is not None:
            raise self.error
        return self._value[0]

    def when_done(self, listener: Callable[[], None]) -> None:
        """Have listener called when it is filled; at once if it is. Listeners are called in the order they came."""
        if self.done:
            listener()
        else:
            self._listeners.append(listener)

    def when_succeeded(self, use: Callable[[T], None]) -> None:
        """Have use called with the value, before anything that follows it on the wire is looked at; an error is
        dropped."""
        self.when_done(lambda: use(self._value[0]) if self.error is None else None)

    def when_succeeded_instead(self, use: Callable[[T], None]) -> None:
        """The same in place of all that was to be called: who asked for it is gone."""
        self._listeners.clear()
        self.when_succeeded(use)

    def _finish(self) -> None:
        self.done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()
