"""Tables in Markdown from the JSON of runs: medians, ratios, processor time, faults."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scenarios import CPU, DETAILS, FAULTS, SCENARIOS, Scenario

Row = dict[str, Any]


def lookup(row: Row, dotted: str) -> float | None:
    """Return the number at a path such as ``latency_us.p50``, or None."""
    found: Any = row
    for key in dotted.split("."):
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return float(found)


def figures(rows: Iterable[Row], dotted: str) -> list[float]:
    return [value for row in rows if (value := lookup(row, dotted)) is not None]


def median(rows: Iterable[Row], dotted: str) -> float | None:
    values = figures(rows, dotted)
    return statistics.median(values) if values else None


def text(value: float | None) -> str:
    """Format a number with about three digits."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


class Results:
    """All runs so far."""

    def __init__(self, brokers: Sequence[str], known: Mapping[str, Scenario] = SCENARIOS) -> None:
        """The first broker is the base of all ratios."""
        self.brokers = list(brokers)
        self.known = known
        self.rows: list[Row] = []

    def of(self, scenario: str, broker: str, *, failed: bool = False) -> list[Row]:
        return [
            row
            for row in self.rows
            if row["scenario"] == scenario and row["broker"] == broker and ("error" in row) == failed
        ]

    def scenarios(self) -> list[str]:
        return [name for name in self.known if any(row["scenario"] == name for row in self.rows)]

    def main_table(self) -> str:
        """Return a line per scenario: medians, ratios to the first broker, and the brokers' processor time."""
        base, *others = self.brokers
        head = ["scenario", *self.brokers, *(f"{name} / {base}" for name in others)]
        head += [f"{name} CPU µs" for name in self.brokers]
        lines = [line(head), line(["---"] + ["---:"] * (len(head) - 1))]
        for name in self.scenarios():
            scenario = self.known[name]
            value = {broker: median(self.of(name, broker), scenario.figure) for broker in self.brokers}
            ratios = [ratio(value[broker], value[base]) for broker in others]
            cpu = [text(self.processor_us(name, broker)) for broker in self.brokers]
            title = name + (" (lower is better)" if scenario.lower_is_better else "")
            lines.append(line([title, *(text(value[broker]) for broker in self.brokers), *ratios, *cpu]))
        return "\n".join(lines)

    def processor_us(self, scenario: str, broker: str) -> float | None:
        rows = self.of(scenario, broker)
        return next((value for key in CPU if (value := median(rows, key)) is not None), None)

    def details(self) -> str:
        """Return the spread of each figure, latencies, and failures."""
        lines = [line(["scenario", "broker", "median (lowest - highest)", "more"]), line(["---"] * 4)]
        for name in self.scenarios():
            for broker in self.brokers:
                good, bad = self.of(name, broker), self.of(name, broker, failed=True)
                if not good and not bad:
                    continue
                values = figures(good, self.known[name].figure)
                spread = f"({text(min(values))} - {text(max(values))})" if values else ""
                more = [f"{key} {text(value)}" for key in DETAILS if (value := median(good, key)) is not None]
                more += self.faults(name, broker)
                if bad:
                    more.append(f"**{len(bad)} of {len(bad) + len(good)} runs failed: {bad[-1]['error']}**")
                middle = text(median(good, self.known[name].figure))
                lines.append(line([name, broker, f"{middle} {spread}", "; ".join(more)]))
        return "\n".join(lines)

    def faults(self, scenario: str, broker: str) -> list[str]:
        """Return the faults that the load generator found: lost, early, out of order …"""
        rows = self.of(scenario, broker)
        worst = {key: max(figures(rows, key), default=0) for key in FAULTS}
        return [f"**{key} {text(value)}**" for key, value in worst.items() if value]

    def legend(self) -> str:
        return "\n".join(f"- `{name}`: {self.known[name].meaning}" for name in self.scenarios())


def ratio(value: float | None, base: float | None) -> str:
    return f"{value / base:.2f}" if value and base else "-"
