"""Progress bars of commands."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich import progress
from rich.console import Console


class Bars:
    """Progress bars on standard error, shown on a terminal only, while the block runs. `columns` are rich's columns."""

    def __init__(self, *columns: progress.ProgressColumn) -> None:
        console = Console(stderr=True)
        self._progress = progress.Progress(*columns, console=console, disable=not console.is_terminal)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
