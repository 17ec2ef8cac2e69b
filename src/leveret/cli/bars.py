"""Progress bars of commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

from rich import progress
from rich.console import Console

T = TypeVar("T")


class Bars:
    """Progress bars on standard error, shown on a terminal only, while the block runs. `columns` are rich's columns."""

    def __init__(self, *columns: progress.ProgressColumn) -> None:
        console = Console(stderr=True)
        self._progress = progress.Progress(*columns, console=console, disable=not console.is_terminal)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def track(self, items: Iterable[T], total: int) -> Iterator[T]:
        """Return the items one by one, and count them."""
        task = self._progress.add_task("", total=total)
        for item in items:
            yield item
            self._progress.advance(task)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
