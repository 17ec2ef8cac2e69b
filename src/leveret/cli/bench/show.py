"""The output of `leveret bench`: a table of medians, and notes on what may have limited them."""

from __future__ import annotations

from statistics import median
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from leveret.cli.bench.load import BUSY, Figures
from leveret.cli.bench.scenarios import Scenario

# figure -> label
LABELS: Final = {
    "published_per_s": "published/s", "delivered_per_s": "delivered/s", "round_trips_per_s": "round trips/s",
    "latency_us": "latency", "confirm_us": "confirm latency", "round_trip_us": "round trip", "late_us": "late",
    "early": "too early", "early_us_max": "too early, max, µs", "missing": "not delivered",
    "refused": "refused (nack)",
    "broker_cpu_us_per_message": "broker's CPU, µs per message",
}  # fmt: skip
QUIET_ZEROS: Final = frozenset({"missing", "refused", "early_us_max"})


def medians(rounds: list[Figures]) -> Figures:
    """Return the median of each figure over all rounds."""
    return {name: _median([one[name] for one in rounds if name in one]) for name in rounds[-1]}


def _median(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _median([value[name] for value in values if name in value]) for name in values[0]}
    return median(values)


def at(figures: Figures, path: str) -> float:
    """Return the figure at a dotted path, or 0.0."""
    name, _, rest = path.partition(".")
    found = figures.get(name, 0.0)
    if rest and isinstance(found, dict):
        found = found.get(rest, 0.0)
    return float(found) if isinstance(found, int | float) else 0.0


def flat(figures: Figures) -> dict[str, str]:
    """Return the dotted path of each figure by its label, in the order of LABELS."""
    rows: dict[str, str] = {}
    for name, label in LABELS.items():
        value = figures.get(name)
        if isinstance(value, dict):
            rows |= {f"{label}, {part}, µs": f"{name}.{part}" for part in value}
        elif value is not None and not (value == 0 and name in QUIET_ZEROS):
            rows[label] = name
    return rows


def show(name: str, scenario: Scenario, brokers: dict[str, list[Figures]], machine: str, settings: str) -> None:
    """Print the figures. `brokers` has all rounds by broker name; the ratio is the first broker to the second."""
    console = Console(highlight=False, width=None if Console().is_terminal else 160)
    table = Table("", *brokers, *(["ratio"] if len(brokers) > 1 else []), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    middle = {broker: medians(rounds) for broker, rounds in brokers.items()}
    rows: dict[str, str] = {}
    for figures in middle.values():
        rows |= flat(figures)
    for label, path in rows.items():
        values = [at(figures, path) for figures in middle.values()]
        ratio = [f"{values[0] / values[1]:,.2f}"] if len(values) > 1 and values[1] else [""] * (len(values) - 1)
        style = "bold" if path == scenario.figure else None
        table.add_row(label, *(_number(value) for value in values), *ratio, style=style)
    console.print(f"{name}: {scenario.help} ({settings})\n{machine}\n", soft_wrap=True)
    console.print(table)
    for note in notes(middle):
        click.echo(f"\n{note}")


def notes(middle: dict[str, Figures]) -> list[str]:
    """Describe what may have distorted the figures: a busy load generator, missing messages."""
    found = []
    for broker, figures in middle.items():
        busy = {role: share for role, share in figures["generator_cpu"].items() if share >= BUSY}
        for role, share in busy.items():
            found.append(
                f"Note: a {role} used {share:.0%} of a processor against {broker}: the load generator was the "
                "bottleneck, not the broker. Use more processes (--publishers, --consumers), or bench/amqpload.c"
            )
        if missing := figures.get("missing"):
            found.append(f"Note: {missing:,.0f} messages did not arrive from {broker} in time.")
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.1f}"
