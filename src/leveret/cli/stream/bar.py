"""The progress bar of an export, on standard error, if that is a terminal."""

from __future__ import annotations

from rich import progress

from leveret.cli.bars import Bars


class Bar(Bars):
    """The bar of one export; `end` is the offset after the last message to export."""

    def __init__(self, end: int) -> None:
        super().__init__(
            progress.TextColumn("offset"),
            progress.MofNCompleteColumn(),
            progress.BarColumn(),
            progress.TimeRemainingColumn(),
        )
        self._end = end
        self._task: progress.TaskID | None = None

    def show(self, offset: int) -> None:
        """Show that the message at this offset has been handled."""
        if self._task is None:
            self._task = self._progress.add_task("", total=self._end, completed=offset)
        elif offset % 1024 == 0 or offset == self._end - 1:
            self._progress.update(self._task, completed=offset + 1)
