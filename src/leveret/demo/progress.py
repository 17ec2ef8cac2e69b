"""What a person sees while the demo runs: one bar per stage."""

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
"""The stages of a federated run: what each airport's broker has confirmed, and what the links brought to hq."""


class Display:
    """Bars for the stages, as a context manager. Off a terminal only the phases are printed, one line each.

    Args:
        console: where to show them.
        flights: how many flights there are to do.
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
        """Says what begins now, and how many seconds after the start."""
        self._progress.console.print(f"[dim]{time.monotonic() - self._began_s:5.1f} s[/]  {text}", highlight=False)

    def total(self, stage: str, count: int) -> None:
        """Sets how many a stage has to do, once that is known."""
        self._progress.update(self._bars[stage], total=count)

    def show(self, stage: str, count: int, title: str | None = None) -> None:
        """Shows how many a stage has done. title: what its bar is called from now on, None = as before."""
        self._progress.update(self._bars[stage], completed=count, description=title)

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
