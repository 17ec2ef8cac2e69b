"""The output of a pipeline: phases, progress bars, and tables at the end."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Final, Self

import rich.table
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from leveret.pipelines.reporter import Reporter
from leveret.pipelines.summary import Summary, Table, Value

EVERY_S: Final = 10.0
"""The interval of a stage's progress lines if standard error is no terminal."""


class Teller(Reporter):
    """The reporter for people: progress on standard error (bars on a terminal, else lines), and the summary.

    Within the `with` block, the first Ctrl-C or SIGTERM asks the pipeline to end, and the second one ends it at once.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._console = Console(stderr=True)
        self._began_s = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), console=self._console, disable=not self._console.is_terminal,
        )  # fmt: skip
        self._bars: dict[str, TaskID] = {}
        self._said_s: dict[str, float] = {}
        self._end = threading.Event()
        self._handlers: dict[int, object] = {}

    @property
    def is_ended(self) -> bool:
        return self._end.is_set()

    def phase(self, text: str) -> None:
        seconds = time.monotonic() - self._began_s
        self._console.print(f"[dim]{seconds:5.1f} s[/]  {text}", highlight=False, soft_wrap=True)

    def show(self, stage: str, done: int, total: int | None = None) -> None:
        if stage not in self._bars:
            self._bars[stage] = self._progress.add_task(stage, total=total)
            self._said_s[stage] = time.monotonic()
        self._progress.update(self._bars[stage], completed=done, total=total)
        now_s = time.monotonic()
        if not self._console.is_terminal and now_s >= self._said_s[stage] + EVERY_S:
            self._said_s[stage] = now_s
            self.phase(f"{stage}: {done:,}" + (f" of {total:,}" if total is not None else ""))

    def tell(self, summary: Summary) -> None:
        """Print the summary."""
        console = Console(highlight=False)
        for table in (figures(summary), *summary.tables):
            console.print(drawn(table))
        for note in summary.notes:
            console.print(note, soft_wrap=True, markup=False)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._ask_to_end)
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from signal.signal

    def _ask_to_end(self, number: int, _frame: FrameType | None) -> None:
        if self._end.is_set():
            raise SystemExit(128 + number)
        self._end.set()
        self.phase(f"{self._job} stops after the current step; press Ctrl-C again to stop immediately")


def figures(summary: Summary) -> Table:
    """Return the figures of a summary as a table."""
    heading = f"{summary.job}: dry run, this would be done" if summary.is_dry else summary.job
    return Table(heading, ("", ""), tuple((name.replace("_", " "), value) for name, value in summary.figures.items()))


def drawn(table: Table) -> rich.table.Table:
    """Return a table in rich's form."""
    drawn = rich.table.Table(title=table.title, title_justify="left", show_header=any(table.columns))
    for place, column in enumerate(table.columns):
        is_number = all(isinstance(row[place], (int, float, type(None))) for row in table.rows)
        drawn.add_column(column, justify="right" if is_number and place else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_text(value) for value in row))
    return drawn


def _text(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else value
