"""README, comparison and performance page show the figures of one run, as bench/report.py writes them."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
MEASURED = re.compile(r"<!-- measured: begin .*?<!-- measured: end -->", re.DOTALL)
Table = list[list[str]]


def tables(page: str) -> list[Table]:
    """Return the rows of each table in the measured part of a page."""
    [part] = MEASURED.findall((TOP / page).read_text())
    found: list[Table] = [[]]
    for line in part.split("\n"):
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")])
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def figures(scenario: str) -> dict[str, str]:
    """Return the first figures of a scenario on the performance page, by column."""
    for table in tables("docs/internals/performance.md"):
        for row in table:
            if row[0] == f"`{scenario}`" and table[0][0] == "scenario":
                return dict(zip(table[0], row, strict=True))
    raise AssertionError(f"{scenario} is not on the performance page")


def test_the_comparison_shows_the_run_of_the_performance_page() -> None:
    [table] = tables("docs/internals/comparison.md")
    assert len(table) > 10
    for row in table[2:]:
        there = figures(row[1].strip("`"))
        assert row[2] == there["leveret ÷ RabbitMQ"], row
        assert row[4] in (there.get("GarageMQ ÷ RabbitMQ"), there["GarageMQ"]), row


def test_the_readme_shows_the_run_of_the_performance_page() -> None:
    [table] = tables("README.md")
    scenarios = ("mixed", "mixed-c1000", "t16", "rpc-50", "confirm-1", "t64k")
    for scenario, row in zip(scenarios, table[2:], strict=True):
        there = figures(scenario)
        assert row[-3:] == [there["RabbitMQ"], there["leveret"], there["leveret ÷ RabbitMQ"]], scenario


def test_the_readme_is_short() -> None:
    assert len((TOP / "README.md").read_text().splitlines()) <= 100
