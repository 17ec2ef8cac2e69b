"""What is counted per message and when that is too much, given callgrind's output, without running it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from .bench_modules import imported

KEY = "this compiler | this Python | this machine"


@pytest.fixture(scope="module")
def counting() -> Iterator[ModuleType]:
    with imported("instructions") as (module,):
        yield module


@pytest.fixture
def here(counting: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """The gate with a baseline of KEY alone, and measurements that equal it."""
    monkeypatch.setattr(counting, "BASELINE", tmp_path / "instructions.json")
    monkeypatch.setattr(counting, "TOP", tmp_path)
    monkeypatch.setattr(counting, "key", lambda: KEY)
    monkeypatch.setattr(counting, "count", lambda: dict.fromkeys(counting.LOADS, 1000.0))
    monkeypatch.setattr("sys.argv", ["instructions.py", "renew"])
    counting.main()
    monkeypatch.setattr("sys.argv", ["instructions.py", "gate"])
    return monkeypatch


def test_what_drops_out_of_the_instructions(counting: ModuleType) -> None:
    load = counting.LOADS["mixed"]
    messages = load.turns * load.per_turn
    once = 123_456
    assert counting.per_message(load, once + 10 * messages, once + 20 * messages) == 10


def test_the_layout_with_the_least_counts(counting: ModuleType) -> None:
    load = counting.LOADS["t16"]
    messages = load.turns * load.per_turn
    another = [0, messages, 2 * messages] * counting.LAYOUTS
    costs = random.Random(1).sample(range(700, 800), counting.LAYOUTS)
    totals = [part for cost in costs for part in (10**9, cost * messages, 2 * cost * messages)]
    assert counting.least(load, another + totals + another, counting.LAYOUTS) == min(costs)


def test_the_total_of_a_dump(counting: ModuleType) -> None:
    assert counting.total("version: 1\nevents: Ir\ntotals: 42\n") == 42
    with pytest.raises(counting.CannotCount):
        counting.total("version: 1\n")


def test_every_load_is_delivered_to_its_end(counting: ModuleType) -> None:
    for load in counting.LOADS.values():
        bench, turn = load.prepare()
        for _ in range(2 * load.turns):
            turn()
        counting.check(bench)


def test_the_compiler_is_the_one_that_built_the_core(counting: ModuleType) -> None:
    assert counting.compiled_by(b"\x7fELF\0GCC: (Debian 12.2.0-14) 12.2.0\0.symtab") == "GCC: (Debian 12.2.0-14) 12.2.0"
    assert counting.compiled_by(b"Debian clang version 19.1.7 (3)\0") == "clang version 19.1.7"
    assert counting.compiled_by(b"") == "an unknown C compiler"


def test_what_costs_no_more_passes(
    counting: ModuleType, here: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here.setattr(counting, "count", lambda: {"t16": 1029.0, "mixed": 500.0, "new": 1.0})
    here.setitem(counting.LOADS, "new", counting.LOADS["t16"])
    counting.main()
    assert "+2.9%" in capsys.readouterr().out


def test_what_costs_more_fails_and_says_by_how_much(
    counting: ModuleType, here: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here.setattr(counting, "count", lambda: {"t16": 1031.0, "mixed": 1000.0})
    with pytest.raises(SystemExit, match=r"instructions\.py renew"):
        counting.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "t16: 1,031.0 instead of 1,000.0 instructions, 3.1% more; allowed are 3%"


def test_another_compiler_is_told_passes_and_gets_a_baseline_of_its_own(
    counting: ModuleType, here: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here.setattr(counting, "key", lambda: "another")
    here.setattr(counting, "count", lambda: {"t16": 5000.0})
    counting.main()
    said = capsys.readouterr().out
    assert "does not know another" in said
    assert "5,000.0" in said
    assert "bench/instructions.py renew" in said
    here.setattr("sys.argv", ["instructions.py", "renew"])
    counting.main()
    assert json.loads(counting.BASELINE.read_text())["another"] == {"t16": 5000.0}
    assert KEY in json.loads(counting.BASELINE.read_text())


def test_without_valgrind_the_gate_fails_and_says_what_to_install(
    counting: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting.shutil, "which", lambda _: None)
    monkeypatch.setattr("sys.argv", ["instructions.py", "gate"])
    with pytest.raises(SystemExit, match="apt-get install valgrind"):
        counting.main()


def test_the_committed_baselines_know_all_loads(counting: ModuleType) -> None:
    baselines = counting.read_baselines()
    assert baselines
    assert {key: set(found) for key, found in baselines.items()} == {key: set(counting.LOADS) for key in baselines}
