"""When `make bench-quick` fails and when it must not, given a baseline and rounds, without measuring."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from .bench_modules import imported


@pytest.fixture(scope="module")
def gate() -> Iterator[ModuleType]:
    with imported("gate") as (module,):
        yield module


WAS = {"loop_s": 0.05, "per_s": 1000.0, "cpu_us": 1.0, "ratio": 20.0, "cpu_ratio": 0.05}


def now(**figures: float) -> dict[str, float]:
    return {**WAS, **figures}


def failing(gate: ModuleType, **figures: float) -> list[str]:
    """Return which of the two lines of a scenario fail."""
    return [line.name.partition(": ")[2] for line in gate.scenario_lines("t16", WAS, now(**figures)) if line.fails]


RATE, CPU = "messages/s, times RabbitMQ", "CPU µs per message"


@pytest.mark.parametrize(("figures", "expected"), [
    ({}, []),
    ({"per_s": 800, "ratio": 16}, [RATE]),  # leveret is slower by both yardsticks
    ({"per_s": 870, "ratio": 17.4}, []),  # within the tolerance
    ({"per_s": 800, "ratio": 20}, []),  # RabbitMQ is slower, too: the disk, or the network
    ({"per_s": 1000, "ratio": 14}, []),  # RabbitMQ had a better day
    ({"per_s": 700, "ratio": 14, "loop_s": 0.07}, []),  # RabbitMQ had a better day on a slower machine
    ({"cpu_us": 1.2, "cpu_ratio": 0.06}, [CPU]),
    ({"cpu_us": 1.4, "cpu_ratio": 0.05}, []),
    ({"cpu_us": 1.0, "cpu_ratio": 0.07}, []),
    ({"cpu_us": 1.4, "cpu_ratio": 0.07, "loop_s": 0.07}, []),
    ({"cpu_us": 1.4, "cpu_ratio": 0.06, "loop_s": 0.05}, [CPU]),
    ({"per_s": 2000, "ratio": 40, "cpu_us": 0.5, "cpu_ratio": 0.02}, []),
])  # fmt: skip
def test_worse_is_what_is_worse_by_both_yardsticks(
    gate: ModuleType, figures: dict[str, float], expected: list[str]
) -> None:
    assert failing(gate, **figures) == expected


def test_how_much_worse(gate: ModuleType) -> None:
    rate, cpu = gate.scenario_lines("t16", WAS, now(per_s=800, ratio=15, cpu_us=1.25, cpu_ratio=0.07))
    assert rate.worse == pytest.approx(0.2)
    assert cpu.worse == pytest.approx(0.25)


def rounds(gate: ModuleType, *others: float) -> list[object]:
    return [gate.Round(0.05, part, 1000 + at, 1.0, 50, 20) for at, part in enumerate(others)]


def test_only_quiet_rounds_count(gate: ModuleType) -> None:
    assert gate.medians(rounds(gate, 0.0, 0.9, 0.05))["per_s"] == 1001
    assert gate.medians(rounds(gate, 0.0, 0.9, 0.9)) is None
    assert gate.medians(rounds(gate, 0.9, 0.9), others_max=1.0)["ratio"] == pytest.approx(1000.5 / 50)


def test_the_ratio_is_the_median_of_those_within_a_round(gate: ModuleType) -> None:
    found = [gate.Round(0.05, 0, rate, 1, base, 20) for rate, base in ((100, 10), (200, 40), (400, 20))]
    assert gate.medians(found)["ratio"] == 10


def test_what_was_disturbed_is_not_judged_and_said(gate: ModuleType) -> None:
    lines = gate.scenario_lines("t16", WAS, None)
    assert not any(line.fails for line in lines)
    assert gate.table(lines).count("not judged") == 2


def test_what_is_measured_again(gate: ModuleType) -> None:
    was = {name: {**WAS, "per_s": 1000.0, "ratio": 20.0} for name in ("fine", "slow", "disturbed", "busy")}
    slow = [gate.Round(0.05, 0, 500, 1, 50, 20)] * 3
    done = {
        "fine": rounds(gate, 0, 0, 0),
        "slow": slow,
        "disturbed": rounds(gate, 0, 0.5, 0.5),
        "busy": rounds(gate, 0.5, 0.5, 0.5),
        "unknown": rounds(gate, 0, 0, 0),
    }
    assert gate.doubtful(was, done) == ["slow", "disturbed"]


def test_another_kind_of_machine_is_told(gate: ModuleType) -> None:
    found = gate.differences({"Python": "3.11", "core": "compiled"}, {"Python": "3.12", "core": "compiled"})
    assert found == ["Python: 3.12, of the baseline: 3.11"]
    assert gate.differences({}, {"Python": "3.12"}) == ["Python: 3.12, of the baseline: none"]


KIND = {"Python": "3.11", "core": "compiled", "processor": "this one"}
BASELINE = {"made": "once", "kind": KIND, "scenarios": {"t16": WAS}}


@pytest.fixture
def here(gate: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """The gate on the baseline's machine, with the baseline's speed."""
    (tmp_path / "baseline.json").write_text(json.dumps(BASELINE))
    monkeypatch.setattr(gate, "BASELINE", tmp_path / "baseline.json")
    monkeypatch.setattr(gate.machine, "kind", lambda: KIND)
    monkeypatch.setattr(gate, "build_tools", lambda: None)
    monkeypatch.setattr(gate.RabbitMQProcess, "program", lambda: "rabbitmq-server")
    monkeypatch.setattr(gate, "measure", lambda *_: {"t16": [gate.Round(0.05, 0, 1000.0, 1.0, 50.0, 20.0)] * 3})
    monkeypatch.setattr("sys.argv", ["gate.py"])
    return monkeypatch


def test_nothing_is_worse(gate: ModuleType, here: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    gate.main()
    assert "| t16: CPU µs per message | 1.00 | 1.00 | +0.0% |" in capsys.readouterr().out


def test_another_kind_is_told_and_does_not_fail(
    gate: ModuleType, here: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here.setattr(gate.machine, "kind", lambda: {**KIND, "processor": "another one"})
    here.setattr(gate, "measure", lambda *_: pytest.fail("times of another machine say nothing"))
    gate.main()
    said = capsys.readouterr().out
    assert "Nothing is compared: the baseline of once" in said
    assert "- processor: another one, of the baseline: this one" in said
    assert "GATE=--renew" in said


def test_without_rabbitmq_nothing_is_compared(
    gate: ModuleType, here: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here.setattr(gate.RabbitMQProcess, "program", lambda: None)
    gate.main()
    assert "RabbitMQ, the yardstick, is not installed" in capsys.readouterr().out
    here.setattr("sys.argv", ["gate.py", "--renew"])
    with pytest.raises(SystemExit, match="a baseline needs RabbitMQ"):
        gate.main()


def test_the_exit_status_says_which_line_by_how_much_and_what_to_do(
    gate: ModuleType, here: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here.setattr(gate, "measure", lambda *_: {"t16": [gate.Round(0.05, 0, 1000.0, 1.2, 50.0, 20.0)] * 3})
    with pytest.raises(SystemExit) as ended:
        gate.main()
    assert "GATE=--renew" in str(ended.value)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "t16: CPU µs per message: 1.20 instead of 1.00, 20% worse; allowed are 15%"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"made": "today"}'])
def test_a_baseline_that_is_none(gate: ModuleType, tmp_path: Path, text: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is no baseline"):
        gate.read_baseline(path)
    with pytest.raises(ValueError, match="is no baseline"):
        gate.read_baseline(tmp_path / "missing.json")


def test_the_committed_baseline_knows_all_scenarios(gate: ModuleType) -> None:
    assert set(json.loads(gate.BASELINE.read_text())["scenarios"]) == set(gate.QUICK)
