"""The display of a running demo: one progress bar per stage."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from leveret.demo.plan import AIRPORTS

PIPELINE = ("looked up", "written", "notices sent", "delivered")
STAGES = ("confirmed", *PIPELINE)

FEDERATED = (*AIRPORTS, "at hq", *PIPELINE)
"""The stages of a federated run: flights confirmed at each airport's broker, and messages that links brought to hq."""


class Display:
    """Progress bars for the stages, as a context manager. Without a terminal, only phases are printed, one line each.

    Args:
        console: the output.
        flights: the number of flights.
        stages: one bar for each.
    """

    def __init__(self, console: Console, flights: int, stages: Sequence[str] = STAGES) -> None:
        self._began_s = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<14}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._bars = {
            stage: self._progress.add_task(stage, total=None if stage == "delivered" else flights) for stage in stages
        }

    def phase(self, text: str) -> None:
        """Print the phase that begins now, with the seconds since the start."""
        self._progress.console.print(f"[dim]{time.monotonic() - self._began_s:5.1f} s[/]  {text}", highlight=False)

    def total(self, stage: str, count: int) -> None:
        """Set the total of a stage, once it is known."""
        self._progress.update(self._bars[stage], total=count)

    def show(self, stage: str, count: int, title: str | None = None) -> None:
        """Show a stage's count. `title` replaces the bar's label; None keeps it."""
        self._progress.update(self._bars[stage], completed=count, description=title)

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
