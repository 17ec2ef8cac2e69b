"""The output of `leveret delay`: tables and progress bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import Final

import click
from rich import progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from leveret.cli.bars import Bars
from leveret.delay import Layout
from leveret.delay.tools import Finding, Progress, State, Summary

STYLES: Final = {
    State.OK: "green", State.MISSING: "bold red", State.DIFFERENT: "bold red", State.WARNING: "yellow",
    State.UNKNOWN: "dim",
}  # fmt: skip
PIPE_WIDTH: Final = 200
"""The width when the output is no terminal, so that nothing is cut off."""


def show_findings(findings: list[Finding]) -> None:
    """Print one row for each finding, and a summary."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    table = Table("what", "state", "detail", box=None, pad_edge=False)
    for finding in findings:
        table.add_row(
            Text(finding.what), Text(finding.state.value, style=STYLES[finding.state]), Text(finding.detail)
        )
    console.print(table)
    failures = sum(finding.state.is_failure for finding in findings)
    console.print(f"{failures} to repair" if failures else "the layout is complete, as far as it was checked")


class LevelBars(Bars):
    """A progress bar for each level that has messages."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn())
        self._layout = layout
        self._tasks: dict[int, progress.TaskID] = {}

    def show(self, news: Progress) -> None:
        """Show the progress of a level."""
        if news.level not in self._tasks:
            self._tasks[news.level] = self._progress.add_task(self._layout.level_name(news.level), total=news.total)
        self._progress.update(self._tasks[news.level], completed=news.done)


def show_summary(summary: Summary, is_dry: bool, poison_queue: str) -> None:
    """Print what was moved, or would be."""
    would = "would be " if is_dry else ""
    click.echo(f"{summary.moved:,} {would}moved, {summary.due:,} of them already due")
    if summary.destinations:
        click.echo(f"for {', '.join(summary.destinations)}")
    if summary.poisoned:
        click.echo(f"{summary.poisoned:,} {would}put into {poison_queue}: they have no due time")
    if summary.unseen:
        click.echo(f"{summary.unseen:,} more were not checked")
    for reason, count in sorted(summary.left.items()):
        click.echo(f"{count:,} {'would be left' if is_dry else 'left'} where they are: {reason}", err=True)
    for name in summary.missing:
        click.echo(f"level {name} does not exist", err=True)
