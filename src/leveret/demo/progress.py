"""The display of a running demo: a bar per stage with its rate and its lag, or a line about them now and then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn

from leveret.demo.plan import AIRPORTS

PIPELINE = ("looked up", "written", "notices sent", "delivered")
STAGES = ("confirmed", *PIPELINE)

FEDERATED = (*AIRPORTS, "at hq", *PIPELINE)
"""The stages of a federated run: flights confirmed at each airport's broker, and messages that links brought to hq."""

LINE_S = 5.0
"""Seconds between two lines about the stages, without a terminal."""


class Display:
    """Progress bars for the stages, as a context manager. Without a terminal, it prints lines about phases and stages.

    The lag of a stage is the number of messages by which it is behind the stage before it; of the first and the last
    stages it is the number of messages that have yet to come.

    Args:
        console: the output.
        flights: the number of flights.
        stages: one bar for each.
    """

    def __init__(self, console: Console, flights: int, stages: Sequence[str] = STAGES) -> None:
        self._began_s = self._told_s = time.monotonic()
        self._stages = tuple(stages)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<14}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._bars = {
            stage: self._progress.add_task(stage, total=None if stage == "delivered" else flights, state="")
            for stage in stages
        }

    def phase(self, text: str) -> None:
        """Print the phase that begins now, with the seconds since the start."""
        line = f"[dim]{time.monotonic() - self._began_s:5.1f} s[/]  {text}"
        self._progress.console.print(line, highlight=False, soft_wrap=True)

    def total(self, stage: str, count: int) -> None:
        """Set the total of a stage, once it is known."""
        self._progress.update(self._bars[stage], total=count)

    def show(self, stage: str, count: int, title: str | None = None) -> None:
        """Show a stage's count, rate and lag. `title` replaces the bar's label; None keeps it."""
        bar = self._bars[stage]
        self._progress.update(bar, completed=count, description=title)
        self._progress.update(bar, state=self._state(stage))
        if self._progress.disable and time.monotonic() >= self._told_s + LINE_S:
            self._told_s = time.monotonic()
            moving = [task for task in map(self._task, self._stages) if task.completed and not task.finished]
            if moving:
                told = (f"{task.description} {task.completed:,.0f} ({task.fields['state']})" for task in moving)
                self.phase("; ".join(told))

    def _state(self, stage: str) -> str:
        task = self._task(stage)
        if stage in PIPELINE[:-1]:
            before = self._task(self._stages[self._stages.index(stage) - 1])
            lag = f"{max(0, before.completed - task.completed):,.0f} behind"
        else:
            lag = f"{task.remaining:,.0f} to come" if task.remaining is not None else ""
        return f"{task.finished_speed or task.speed or 0:,.0f}/s, {lag}"

    def _task(self, stage: str) -> Task:
        return self._progress.tasks[self._bars[stage]]

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
