#!/usr/bin/env python3
"""Writes the measured parts of docs/internals/performance.md, docs/internals/comparison.md and the README, and the
picture, from the last run of bench/suite.py; measures nothing. So all of them show the same run.

    bench/report.py
    bench/report.py --log build/bench/suite.jsonl --print

Each figure is the median over the rounds, each ratio that of two medians. The tables replace the text between two marks
in each document; the text around them is written by hand. The picture shows ratios, inverted where less is better.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from goals import LAVINMQ, SECTIONS, Figure, Goal
from picture import draw
from run import TOP
from scenarios import CPU, FAULTS, SCENARIOS, SKIPPED
from streams import SCENARIOS as STREAMS
from suite import LOG, last_run
from tables import Row, figures, line, median, text

DOCUMENT = TOP / "docs" / "internals" / "performance.md"
COMPARISON = TOP / "docs" / "internals" / "comparison.md"
README = TOP / "README.md"
PICTURE = TOP / "docs" / "assets" / "performance.svg"
BEGIN, END = "<!-- measured: begin (bench/report.py) -->", "<!-- measured: end -->"
BASE = "rabbitmq"
LOAD_MAX = 1.0
"""If the load average before a run is higher, the report mentions other load."""
NAMES = {
    "rabbitmq": "RabbitMQ",
    "rabbitmq-v2": "RabbitMQ, v2 queue",
    "rabbitmq-quorum": "RabbitMQ, quorum",
    "garagemq": "GarageMQ",
    "leveret": "leveret",
    "leveret-interpreted": "interpreted",
    "relay": "relay",
    "disk, append": "disk, append",
    "disk, overwrite": "disk, overwrite",
}
RATIOS = (
    ("leveret", BASE),
    ("leveret-interpreted", BASE),
    ("garagemq", BASE),
    ("leveret", "rabbitmq-v2"),
    ("leveret", "rabbitmq-quorum"),
)
MEANINGS = {
    "start": "from the command until it is ready, on an empty directory, byte-compiled; memory two seconds later",
    "federation": "one link between two brokers of a kind, 100 bytes, persistent, confirmed on both sides; CPU of both",
    **{title: scenario.meaning for title, scenario in (SCENARIOS | STREAMS).items()},
}


# what the README and the comparison say of a scenario's first figure, and in the README of its unit
HEADLINES = {
    "mixed": ("no two messages alike, 50 B to 5 KiB, transient", "messages/s"),
    "mixed-c1000": ("the same, persistent, synced and confirmed, 1,000 in flight", "messages/s"),
    "t16": ("16 bytes, transient, alike messages that arrive together are handled as one", "messages/s"),
    "rpc-50": ("RPC by direct reply-to, 50 outstanding", "requests/s"),
    "confirm-1": ("one persistent message at a time, median until its confirm", "µs, less is better"),
    "t64k": ("64 KiB, transient (close to what the sockets can carry)", "messages/s"),
}
COMPARED = {
    "t16": "16 bytes, transient, auto-ack",
    "t1024": "1 KiB, the same",
    "t64k": "64 KiB, the same",
    "t16-ack": "ack of each message, prefetch 200",
    "fanout10": "fanout to ten queues",
    "topic10": "topic exchange, 100 bindings",
    "p16-c1000": "persistent, synced, 1,000 in flight",
    "p1024-c1000": "1 KiB, the same",
    "rpc-50": "RPC by direct reply-to, 50 outstanding",
    "confirm-1": "one persistent message at a time: median until its confirm, less is better",
}


class Run:
    """All measurements of a run, by scenario and broker."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.cells: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            self.cells.setdefault((row["scenario"], row["broker"]), []).append(row)

    def good(self, scenario: str, broker: str) -> list[Row]:
        return [row for row in self.cells.get((scenario, broker), []) if "error" not in row]

    def value(self, scenario: str, broker: str, path: str) -> float | None:
        """Return the median, or None if there is no measurement."""
        return median(self.good(scenario, broker), path)

    def ratio(self, figure: Figure, broker: str, base: str = BASE) -> float | None:
        """Return the figure as a multiple of the base's."""
        value, other = (self.value(figure.scenario, name, figure.path) for name in (broker, base))
        return value / other if value is not None and other else None

    def cell(self, figure: Figure, broker: str) -> str:
        """Return the text of a broker's cell: its figure, its failure, or that it was left out."""
        value = self.value(figure.scenario, broker, figure.path)
        if value is not None:
            return text(value)
        if (figure.scenario, broker) in SKIPPED:
            return "left out"
        return "failed" if self.cells.get((figure.scenario, broker)) else ""

    def brokers(self, section: Sequence[Figure]) -> list[str]:
        """Return the brokers measured in any of these scenarios, in the order of NAMES."""
        return [name for name in NAMES if any((figure.scenario, name) in self.cells for figure in section)]


# -- goals ------------------------------------------------------------------------------------------------------------


def goal_text(figure: Figure, goal: Goal) -> str:
    sign = "≤" if figure.is_less_better else "≥"
    who = "" if goal.broker == "leveret" else f"{NAMES[goal.broker]} "
    bound = f"{goal.bound:,g}"
    if goal.is_added:
        return f"{who}{sign} {NAMES[goal.of]} + {bound}"
    if not goal.of:
        return f"{who}{sign} {bound}"
    return f"{who}{sign} {bound} ×" + ("" if goal.of == BASE else f" {NAMES[goal.of]}")


def verdict(run: Run, figure: Figure, goal: Goal) -> str:
    """Return whether the goal is met, and the distance from the bound in per cent."""
    value = run.value(figure.scenario, goal.broker, figure.path)
    bound: float | None = goal.bound
    if goal.of:
        other = run.value(figure.scenario, goal.of, figure.path)
        bound = None if other is None else other + goal.bound if goal.is_added else other * goal.bound
    if value is None or bound is None:
        return "not measured"
    return judged(value, bound, figure.is_less_better)


def judged(value: float, bound: float, is_less_better: bool) -> str:
    """Return "met" or "missed", and the distance from the bound."""
    is_met = value <= bound if is_less_better else value >= bound
    if not bound:
        return "met" if is_met else f"**missed: {text(value)}**"
    if value >= 2 * bound:
        share = f": {text(value / bound)} × the bound"
    else:
        share = f" by {abs(value / bound - 1):.0%}"
    return f"met{share}" if is_met else f"**missed{share}**"


# -- the document -----------------------------------------------------------------------------------------------------


def section_table(run: Run, section: Sequence[Figure]) -> str:
    """Return a table of all brokers' figures, ratios to RabbitMQ, and goals."""
    names = run.brokers(section)
    ratios = [pair for pair in RATIOS if pair[0] in names and pair[1] in names]
    lavinmq = any((figure.scenario, figure.path) in LAVINMQ for figure in section)
    head = [
        "scenario",
        "",
        *(NAMES[name] for name in names),
        *(f"{NAMES[name]} ÷ {NAMES[base]}" for name, base in ratios),
    ]
    head += (["LavinMQ ÷ RabbitMQ, another run"] if lavinmq else []) + ["goal", ""]
    lines = [line(head), line(["---", "---"] + ["---:"] * (len(head) - 4) + ["---", "---"])]
    for figure in section:
        if not any((figure.scenario, name) in run.cells for name in names):
            continue
        cells = [f"`{figure.scenario}`", figure.unit + (" (less is better)" if figure.is_less_better else "")]
        cells += [run.cell(figure, name) for name in names]
        cells += [times(run.ratio(figure, name, base)) for name, base in ratios]
        cells += [times(LAVINMQ.get((figure.scenario, figure.path)))] if lavinmq else []
        cells.append("<br>".join(goal_text(figure, goal) for goal in figure.goals))
        cells.append("<br>".join(verdict(run, figure, goal) for goal in figure.goals))
        lines.append(line(cells))
    return "\n".join(lines)


def times(ratio: float | None) -> str:
    """Format a ratio with two or three digits."""
    return "" if ratio is None else f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def processor_table(run: Run, titles: Sequence[str]) -> str:
    """Return a table of each broker's processor time per message."""
    names = [name for name in NAMES if any(processor_us(run, title, name) is not None for title in titles)]
    lines = [line(["scenario", *(NAMES[name] for name in names)]), line(["---"] + ["---:"] * len(names))]
    for title in titles:
        cells = [processor_us(run, title, name) for name in names]
        if any(cell is not None for cell in cells):
            lines.append(line([f"`{title}`", *("" if cell is None else text(cell) for cell in cells)]))
    return "\n".join(lines)


def processor_us(run: Run, title: str, name: str) -> float | None:
    return next((value for path in CPU if (value := run.value(title, name, path)) is not None), None)


def spread(run: Run) -> str:
    """Return the spread of the rounds: lowest and highest main figure of each scenario, as a part of the median."""
    lines = [
        line(["scenario", "", "rounds", *(NAMES[name] for name in NAMES)]),
        line(["---"] * 2 + ["---:"] * (1 + len(NAMES))),
    ]
    for section in SECTIONS.values():
        first: dict[str, Figure] = {}
        for figure in section:
            first.setdefault(figure.scenario, figure)
        for figure in first.values():
            cells, rounds = [], 0
            for name in NAMES:
                values = figures(run.good(figure.scenario, name), figure.path)
                rounds = max(rounds, len(values))
                middle = statistics.median(values) if values else 0
                cells.append(f"{min(values) / middle - 1:+.0%} … {max(values) / middle - 1:+.0%}" if middle else "")
            if any(cells):
                lines.append(line([f"`{figure.scenario}`", figure.unit, str(rounds), *cells]))
    return "\n".join(lines)


def failures(run: Run) -> list[str]:
    """Return a line for each failure and each measurement that was left out."""
    found = []
    for (title, name), rows in run.cells.items():
        bad = [row["error"] for row in rows if "error" in row]
        if bad:
            found.append(f"`{title}`, {NAMES[name]}: {len(bad)} of {len(rows)} rounds failed: {bad[-1]}")
        if wrong := faults(rows):
            found.append(f"`{title}`, {NAMES[name]}: {', '.join(wrong)}")
    found += [
        f"`{title}`, {NAMES[name]}: left out; {reason}"
        for (title, name), reason in SKIPPED.items()
        if is_there(run, title)
    ]
    return found


def faults(rows: Sequence[Row]) -> list[str]:
    """Return the worst of each fault that the load generator found: lost, early, out of order …"""
    worst = {key: max(figures(rows, key), default=0) for key in FAULTS}
    return [f"{key.replace('_', ' ')}: {text(value)}" for key, value in worst.items() if value]


def is_there(run: Run, title: str) -> bool:
    return any(scenario == title for scenario, _ in run.cells)


def measured(head: Row, rows: Sequence[Row]) -> str:
    """Return the text between the marks."""
    run = Run(rows)
    options = head["options"]
    out = [
        f"Begun on {head['run']}: medians of {options['rounds']} round(s) in turns, {options['seconds']:g} s each.",
        "",
    ]
    if float(head["about"]["load before"]) > LOAD_MAX:
        out += ["**The machine was busy with something else: these figures are disturbed.**", ""]
    out += [f"- {name}: {value}" for name, value in head["about"].items() if value]
    out += ["", "![How many times RabbitMQ, by scenario](../assets/performance.svg)"]
    titles: list[str] = []
    for title, section in SECTIONS.items():
        there = list(dict.fromkeys(figure.scenario for figure in section if is_there(run, figure.scenario)))
        if there:
            titles += there
            out += ["", f"### {title}", "", section_table(run, section), ""]
            out += [f"- `{name}`: {MEANINGS[name]}" for name in there]
    out += [
        "",
        "### Processor time",
        "",
        "CPU µs of the broker per message (per connection, in `connections`), all its threads and processes.",
        "",
    ]
    out += [processor_table(run, titles), "", "### Spread", ""]
    out += ["Lowest and highest round of the first figure of each scenario, from the median.", "", spread(run)]
    wrong = failures(run)
    out += ["", "### Failed and left out", "", *(f"- {item}" for item in wrong or ["nothing"])]
    return "\n".join(out)


def first_figure(scenario: str) -> Figure:
    return next(figure for section in SECTIONS.values() for figure in section if figure.scenario == scenario)


def headlines(run: Run) -> str:
    """Return the README's table."""
    lines = [line(["", "", "RabbitMQ", "leveret", "ratio"]), line(["---", "---"] + ["---:"] * 3)]
    for scenario, (what, unit) in HEADLINES.items():
        figure = first_figure(scenario)
        cells = [run.cell(figure, BASE), run.cell(figure, "leveret"), times(run.ratio(figure, "leveret"))]
        lines.append(line([what, unit, *cells]))
    return "\n".join(lines)


def compared(run: Run) -> str:
    """Return the table of ratios to RabbitMQ."""
    lines = [
        line(["scenario", "", "leveret : RabbitMQ", "LavinMQ 2.9.1 : RabbitMQ, another run", "GarageMQ : RabbitMQ"]),
        line(["---", "---"] + ["---:"] * 3),
    ]
    for scenario, what in COMPARED.items():
        figure = first_figure(scenario)
        garagemq = times(run.ratio(figure, "garagemq")) or run.cell(figure, "garagemq")
        ratios = [times(run.ratio(figure, "leveret")), times(LAVINMQ.get((scenario, figure.path))), garagemq]
        lines.append(line([what, f"`{scenario}`", *ratios]))
    return "\n".join(lines)


def replaced(document: str, part: str, begin: str = BEGIN) -> str:
    """Return the document with this text between its marks. Raises ValueError unless each occurs once, in order."""
    if document.count(begin) != 1 or document.count(END) != 1 or document.index(begin) > document.index(END):
        raise ValueError(f"one {begin} and one {END} behind it are needed")
    before, _, rest = document.partition(begin)
    return f"{before}{begin}\n\n{part}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, default=LOG, help="of bench/suite.py")
    parser.add_argument("--print", action="store_true", help="print the tables, and leave document and picture alone")
    options = parser.parse_args()
    try:
        head, rows = last_run(options.log)
        if not rows:
            raise ValueError("the last run has no measurements")
        part = measured(head, rows)
        if options.print:
            print(part)
            return
        run = Run(rows)
        for path, table in ((DOCUMENT, part), (README, headlines(run)), (COMPARISON, compared(run))):
            path.write_text(replaced(path.read_text(), table))
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    draw(PICTURE, [figure for section in SECTIONS.values() for figure in section], run.ratio)
    changed = (path.relative_to(TOP).as_posix() for path in (DOCUMENT, README, COMPARISON, PICTURE))
    print(f"{', '.join(changed)} show the run of {head['run']}")
    if any(faults(found) for (_, name), found in run.cells.items() if name.startswith("leveret")):
        sys.exit("leveret lost, repeated or disordered messages: see the end of the measured part")


if __name__ == "__main__":
    main()
