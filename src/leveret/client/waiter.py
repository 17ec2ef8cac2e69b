"""An answer that has not come yet, as the sans-IO core knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Waiter(Generic[T]):
    """Filled once by the core, with a value or an error. The asyncio face sets on_done, the blocking one polls done."""

    __slots__ = ("_value", "done", "error", "on_done")

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None
        self.on_done: Callable[[], None] | None = None
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

    def _finish(self) -> None:
        self.done = True
        if self.on_done is not None:
            self.on_done()
