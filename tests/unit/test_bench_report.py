"""docs/internals/performance.md from a run's log: medians, ratios, goals, failures, and resuming an interrupted run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from .bench_modules import imported

HEAD = {"run": "today", "options": {"rounds": 2, "seconds": 1.0}, "about": {"kernel": "Linux", "load before": "0.30"}}


def row(turn: int, scenario: str, broker: str, **figures: object) -> dict[str, object]:
    return {"round": turn, "scenario": scenario, "broker": broker, **figures}


ROWS = [
    row(1, "t16", "rabbitmq", delivered_per_s=100),
    row(1, "t16", "leveret", delivered_per_s=4000, lost=3),
    row(2, "t16", "rabbitmq", delivered_per_s=300),
    row(2, "t16", "leveret", delivered_per_s=6000),
    row(1, "t16", "garagemq", error="no answer"),
    row(1, "confirm-1", "rabbitmq", confirm_latency_us={"p50": 400, "p99": 1000}),
    row(1, "confirm-1", "leveret", confirm_latency_us={"p50": 200, "p99": 300}),
    row(1, "confirm-1", "disk, overwrite", confirm_latency_us={"p50": 120, "p99": 150}),
    row(1, "rpc-1", "leveret", latency_us={"p50": 100}),
]


@pytest.fixture(scope="module")
def modules() -> Iterator[list[ModuleType]]:
    with imported("report", "suite", "goals", "scenarios", "picture") as found:
        yield found


@pytest.fixture
def report(modules: list[ModuleType]) -> ModuleType:
    return modules[0]


@pytest.fixture
def suite(modules: list[ModuleType]) -> ModuleType:
    return modules[1]


def cells(report: ModuleType, beginning: str) -> list[str]:
    text: str = report.measured(HEAD, ROWS)
    line = next(line for line in text.splitlines() if line.startswith(beginning))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_medians_ratios_and_goals(report: ModuleType) -> None:
    assert cells(report, "| `t16` | messages/s") == [
        "`t16`", "messages/s", "200", "failed", "5,000", "25", "", "7.90",
        "≥ 35 ×<br>interpreted ≥ 5 ×", "**missed by 29%**<br>not measured",
    ]  # fmt: skip


def test_a_goal_beside_the_bare_disk(report: ModuleType) -> None:
    found = cells(report, "| `confirm-1` | p50")
    assert found[-2:] == ["≤ 0.4 ×<br>≤ disk, overwrite + 60", "**missed by 25%**<br>**missed by 11%**"]
    assert found[5] == "0.50"


@pytest.mark.parametrize(("value", "bound", "is_less_better", "expected"), [
    (35, 35, False, "met by 0%"),
    (70, 35, False, "met: 2.00 × the bound"),
    (28, 35, False, "**missed by 20%**"),
    (4, 5, True, "met by 20%"),
    (6, 5, True, "**missed by 20%**"),
    (50, 5, True, "**missed: 10.0 × the bound**"),
    (0, 0, True, "met"),
    (7, 0, True, "**missed: 7.00**"),
])  # fmt: skip
def test_met_or_missed(report: ModuleType, value: float, bound: float, is_less_better: bool, expected: str) -> None:
    assert report.judged(value, bound, is_less_better) == expected


def test_a_busy_machine_is_told(report: ModuleType) -> None:
    busy = {**HEAD, "about": {"load before": "4.20"}}
    assert "figures are disturbed" in report.measured(busy, ROWS)
    assert "figures are disturbed" not in report.measured(HEAD, ROWS)


def test_failures_are_told(report: ModuleType) -> None:
    told = report.failures(report.Run(ROWS))
    assert "`t16`, GarageMQ: 1 of 1 rounds failed: no answer" in told
    assert "`t16`, leveret: lost: 3.00" in told
    assert "`rpc-1`, GarageMQ: left out; has no direct reply-to" in told


def test_only_what_stands_between_the_marks_is_replaced(report: ModuleType) -> None:
    document = f"# Title\n\n{report.BEGIN}\nold\n{report.END}\n\n## By hand\n"
    assert report.replaced(document, "new") == f"# Title\n\n{report.BEGIN}\n\nnew\n\n{report.END}\n\n## By hand\n"
    for wrong in ("no marks", f"{report.END}{report.BEGIN}", document * 2):
        with pytest.raises(ValueError, match="are needed"):
            report.replaced(wrong, "new")


def test_the_document_has_its_marks(report: ModuleType) -> None:
    assert report.replaced(report.DOCUMENT.read_text(), "new")


def test_every_scenario_is_shown_and_every_figure_has_one(modules: list[ModuleType]) -> None:
    _, suite, goals, _, _ = modules
    shown = {figure.scenario for section in goals.SECTIONS.values() for figure in section}
    assert shown == set(suite.TITLES)
    known = {(figure.scenario, figure.path) for section in goals.SECTIONS.values() for figure in section}
    assert set(goals.LAVINMQ) <= known


def test_the_picture_has_text_and_turns_latencies_around(modules: list[ModuleType], tmp_path: Path) -> None:
    report, _, goals, _, picture = modules
    run = report.Run(ROWS)
    section = goals.SECTIONS["Durable messages"]
    p50 = next(figure for figure in section if figure.unit == goals.MEDIAN)
    assert picture.gains(p50, run.ratio) == {"leveret": 2.0, "lavinmq": pytest.approx(1 / 0.48)}
    picture.draw(tmp_path / "drawn.svg", section, run.ratio)
    drawn = (tmp_path / "drawn.svg").read_text()
    assert "confirm-1: p50, µs</text>" in drawn
    assert "from another run</text>" in drawn
    assert "p16-c1000" not in drawn


# -- the log ----------------------------------------------------------------------------------------------------------

OPTIONS = {"brokers": ["rabbitmq", "rabbitmq-v2", "leveret", "relay"], "only": ["t16"], "rounds": 2, "seconds": 1.0}


def test_an_interrupted_run_goes_on_where_it_was(suite: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "suite.jsonl"
    first = suite.Log(path, OPTIONS, False)
    first.add(row(1, "t16", "rabbitmq", delivered_per_s=1))
    first.add(row(1, "t16", "leveret", error="no answer"))
    with path.open("a") as file:
        file.write('{"round": 1, "scena')
    again = suite.Log(path, OPTIONS, True)
    assert again.rows == first.rows
    assert suite.missing(again, ["t16"], argparse.Namespace(**OPTIONS)) == [
        (1, "t16", "relay"), (2, "t16", "rabbitmq"), (2, "t16", "leveret"), (2, "t16", "relay")
    ]  # fmt: skip
    again.add(row(1, "t16", "relay", delivered_per_s=5))
    assert suite.last_run(path)[1] == again.rows


def test_only_the_last_run_goes_on_and_only_as_it_began(suite: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "suite.jsonl"
    with pytest.raises(ValueError, match="no run"):
        suite.Log(path, OPTIONS, True)
    suite.Log(path, OPTIONS, False).add(row(1, "t16", "leveret", delivered_per_s=1))
    suite.Log(path, {**OPTIONS, "rounds": 5}, False)
    assert suite.last_run(path)[1] == []
    with pytest.raises(ValueError, match="other options"):
        suite.Log(path, OPTIONS, True)
    assert path.read_text().count('"run"') == 2


def test_who_is_measured(suite: ModuleType) -> None:
    everyone = ["rabbitmq", "rabbitmq-v2", "rabbitmq-quorum", "garagemq", "leveret", "leveret-interpreted", "relay"]
    plain = ["rabbitmq", "garagemq", "leveret", "leveret-interpreted"]
    assert suite.brokers_of("t16", everyone) == [*plain, "relay"]
    assert suite.brokers_of("t16-ack", everyone) == plain
    assert suite.brokers_of("p16-c1000", everyone) == everyone[:-1]
    assert suite.brokers_of("confirm-1", everyone) == [*everyone[:-1], "disk, append", "disk, overwrite"]
    assert suite.brokers_of("rpc-50", everyone) == ["rabbitmq", "leveret", "leveret-interpreted"]
    assert suite.brokers_of("start", everyone) == plain
    assert suite.brokers_of("federation", everyone) == ["rabbitmq", "leveret", "leveret-interpreted"]
